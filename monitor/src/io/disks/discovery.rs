//! Which disks there are: found on the machine by the cell that drives them, described to the others.

use super::{
    CACHE_BOUND, CACHE_SHARE, UNITS, Unit,
    access::{Driver, MachinePages},
    stores, units,
};
use crate::machine::{self, HOME_NODE, boards, devices, direct, memory::frames};
use addr::BASE_PAGE;
use alloc::{string::ToString, vec::Vec};
use control::Name;
use core::sync::atomic::Ordering;
use machine_io::SECTOR_BYTES;
use rv::csr;
use storage::{DiskDescription, DiskIo, IoToken, PageStore, Piece, SharedDisk, gpt};

/// Takes the disks that have usable names into use, and looks for stores on them. Called once, after the devices.
pub fn init() {
    // Who becomes the leader knows them already.
    UNITS.call_once(find_all);
    stores::init();
}

/// The same in a cell that does not drive them: they are as the first cell has described them.
pub fn init_remote() {
    let mut room = scarce::room(boards::NOTICE_BYTES as usize).unwrap_or_default();
    // Bounded: reserved above.
    room.resize(room.capacity(), 0);
    let descriptions = boards::read_notice(&mut room).and_then(DiskDescription::read_all);
    let budget = set_bound();
    let unit = |(index, found): (usize, DiskDescription)| {
        let shared = SharedDisk::new(&found.name, found.sectors, found.is_read_only, found.partitions, budget);
        Name::new(found.name.as_str()).map_or_else(|_| placeholder(index), |name| Unit::new(name, shared))
    };
    let found = descriptions.unwrap_or_default().into_iter().enumerate().map(unit);
    UNITS.call_once(|| found.collect());
}

/// The first cell describes its disks for the others.
pub fn describe() {
    let describe = |unit: &Unit| {
        let shared = unit.shared.lock();
        DiskDescription {
            name: unit.name.to_string(),
            sectors: shared.capacity_sectors(),
            is_read_only: shared.is_disk_read_only(),
            // Bounded: as long as the list that is there, while the machine boots.
            partitions: shared.partitions().to_vec(),
        }
    };
    let all: Vec<_> = units().iter().map(describe).collect();
    let mut room = scarce::room(boards::NOTICE_BYTES as usize).unwrap_or_default();
    // Bounded: reserved above.
    room.resize(room.capacity(), 0);
    let is_left = DiskDescription::write_all(&all, &mut room).is_some_and(|len| boards::leave_notice(&room[..len]));
    if !is_left {
        log::error!("the disks and partitions are too many to tell other cells of: their VMs have none");
    }
}

/// Says how much the caches may hold together; the pages.
fn set_bound() -> u64 {
    let configured = u64::from(machine::options().disk_cache_mib) * (1 << 20) / BASE_PAGE;
    let budget = if configured == 0 { total_pages() / CACHE_SHARE } else { configured };
    CACHE_BOUND.store(budget, Ordering::Relaxed);
    budget
}

/// All disks of the machine, with their partition tables.
fn find_all() -> Vec<Unit> {
    let disks = &devices::all().disks;
    let budget = set_bound();
    let mut found = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        let (label, capacity, read_only) = {
            let disk = disk.lock();
            (disk.name().to_string(), disk.capacity_sectors(), disk.is_read_only())
        };
        let Ok(name) = Name::new(label.as_str()) else {
            log::warn!("disk {label:?}: not a name that VMs can use, left out");
            continue;
        };
        let partitions = gpt::read_partitions(capacity, &mut |sector, buf| read_now(index, sector, buf));
        let shared = SharedDisk::new(&label, capacity, read_only, partitions.unwrap_or_default(), budget);
        // The position is the driver's index, so a disk without a name keeps its place.
        while found.len() < index {
            found.push(placeholder(found.len()));
        }
        found.push(Unit::new(name, shared));
    }
    found
}

/// Pages of the whole machine.
pub(super) fn total_pages() -> u64 {
    machine::description().nodes.ids().map(|node| frames().counts(node).total()).sum()
}

fn placeholder(index: usize) -> Unit {
    let name = Name::new(alloc::format!("unnamed-{index}")).expect("letters, digits and a hyphen");
    let shared = SharedDisk::new(name.as_str(), 0, true, Vec::new(), 0);
    Unit::new(name, shared)
}

/// Reads during boot, waiting at most two seconds.
pub(super) fn read_now(index: usize, sector: u64, buf: &mut [u8]) -> bool {
    const PATIENCE_S: u64 = 2;
    let Some(page) = MachinePages.alloc(HOME_NODE) else { return false };
    let mut is_ok = true;
    for (step, chunk) in buf.chunks_mut(BASE_PAGE as usize).enumerate() {
        let piece = Piece { addr: page.addr(), bytes: chunk.len() as u32 };
        let at = sector + step as u64 * (BASE_PAGE / SECTOR_BYTES);
        let deadline = csr::time::read() + PATIENCE_S * machine::capabilities().timebase_hz;
        is_ok &= Driver { index }.submit_read(at, &[piece], IoToken(0)).is_ok();
        let mut ended = None;
        while is_ok && ended.is_none() && csr::time::read() < deadline {
            ended = devices::all().disks[index].lock().poll();
        }
        match ended {
            Some(completion) if completion.outcome.is_ok() => direct::read_bytes(page.addr(), chunk),
            // The device may still write the page: it stays out of use.
            _ => return false,
        }
    }
    MachinePages.free(page);
    is_ok
}
