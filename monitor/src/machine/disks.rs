//! The machine's disks as VMs share them: `storage` over `machine-io`'s drivers.
//!
//! # Locking
//! A VM's block device is locked before the shared disk, the shared disk before the driver. Completions go the other
//! way round without overlap: the shared disk is let go before the device that waits is locked.

use super::{
    devices, direct,
    memory::{frames, nearest},
};
use crate::{boot::HOME_NODE, vm::Vm};
use addr::{BASE_PAGE, GuestPhysAddr, MachineAddr, Mfn, NodeId};
use alloc::{
    string::{String, ToString},
    sync::Weak,
    vec::Vec,
};
use control::{ControlError, DeviceInfo, DiskInfo, DiskMode, DiskSpec, DiskStats, EventKind, Name, VmSpec};
use core::cell::Cell;
use device::{GuestMemory, PageMap};
use frames::PageUse;
use machine_io::{IoError, SECTOR_BYTES, Segment};
use rv::csr;
use spin::{Mutex, Once};
use storage::{
    BadGuestMemory, Context, DiskIo, GuestCopy, IoRefused, IoToken, Mode, MountError, MountId, MountSpec, Outcome,
    PageStore, Piece, Ready, Request, SharedDisk, Status, gpt,
};
use virtio::block::{BlockStatus, BlockTag};

/// A machine disk and who has a view of it.
struct Unit {
    name: Name,
    shared: Mutex<SharedDisk>,
    mounted: Mutex<Vec<Mounted>>,
}

struct Mounted {
    mount: MountId,
    vm: Weak<Vm>,
    slot: usize,
}

static UNITS: Once<Vec<Unit>> = Once::new();

/// Part of the machine's memory that the caches of all disks may take together, if the configuration does not say.
const CACHE_SHARE: u64 = 8;

fn units() -> &'static [Unit] {
    UNITS.get().map_or(&[], |units| units)
}

/// Takes the disks that have usable names into use: reads their partition tables. Called once, after the devices.
pub fn init() {
    let disks = &devices::all().disks;
    let total: u64 = super::description().nodes.ids().map(|node| frames().counts(node).total()).sum();
    let configured = u64::from(super::options().disk_cache_mib) * (1 << 20) / BASE_PAGE;
    let budget = if configured == 0 { total / CACHE_SHARE } else { configured };
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
        let shared =
            SharedDisk::new(&label, capacity, read_only, partitions.unwrap_or_default(), budget / disks.len() as u64);
        // The position is the driver's index, so a disk without a name keeps its place.
        while found.len() < index {
            found.push(placeholder(found.len()));
        }
        found.push(Unit { name, shared: Mutex::new(shared), mounted: Mutex::new(Vec::new()) });
    }
    UNITS.call_once(|| found);
}

fn placeholder(index: usize) -> Unit {
    let name = Name::new(alloc::format!("unnamed-{index}")).expect("letters, digits and a hyphen");
    let shared = SharedDisk::new(name.as_str(), 0, true, Vec::new(), 0);
    Unit { name, shared: Mutex::new(shared), mounted: Mutex::new(Vec::new()) }
}

/// Reads during boot, waiting at most two seconds.
fn read_now(index: usize, sector: u64, buf: &mut [u8]) -> bool {
    const PATIENCE_S: u64 = 2;
    let Some(page) = MachinePages.alloc(HOME_NODE) else { return false };
    let mut is_ok = true;
    for (step, chunk) in buf.chunks_mut(BASE_PAGE as usize).enumerate() {
        let piece = Piece { addr: page.addr(), bytes: chunk.len() as u32 };
        let at = sector + step as u64 * (BASE_PAGE / SECTOR_BYTES);
        let deadline = csr::time::read() + PATIENCE_S * super::capabilities().timebase_hz;
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

/// Pages of caches and overlays: shared ones, of which the disk holds the first reference and guests may have more.
struct MachinePages;

impl PageStore for MachinePages {
    fn alloc(&self, node: NodeId) -> Option<Mfn> {
        let mut nodes = nearest(node).iter();
        nodes.find_map(|node| frames().alloc(*node, 0, PageUse::Shared)).map(frames::Frame::settle)
    }

    fn free(&self, page: Mfn) {
        if let Err(why) = frames().release_hold(page) {
            log::error!("a page of the disk cache is not one: {why}");
        }
    }

    fn is_mapped(&self, page: Mfn) -> bool {
        !frames().is_held_alone(page)
    }

    fn node_of(&self, page: Mfn) -> NodeId {
        frames().map().node_of(page).unwrap_or(HOME_NODE)
    }

    fn zero(&self, at: MachineAddr, len: u64) {
        const ZEROES: [u8; 512] = [0; 512];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZEROES.len() as u64);
            direct::write_bytes(MachineAddr::new(at.raw() + done), &ZEROES[..part as usize]);
            done += part;
        }
    }

    fn copy(&self, dst: MachineAddr, src: MachineAddr, len: u64) {
        direct::copy(dst, src, len);
    }
}

/// The driver of disk `index`.
struct Driver {
    index: usize,
}

impl Driver {
    fn with(
        &self,
        pieces: &[Piece],
        start: impl FnOnce(&mut devices::Disk, &[Segment]) -> Result<(), IoError>,
    ) -> Result<(), IoRefused> {
        let segments: heapless::Vec<Segment, { machine_io::MAX_SEGMENTS }> =
            pieces.iter().map(|piece| Segment { address: piece.addr, bytes: piece.bytes }).collect();
        let disk = devices::all().disks.get(self.index).ok_or(IoRefused::Failed)?;
        start(&mut disk.lock(), &segments).map_err(|why| match why {
            IoError::QueueFull => IoRefused::Busy,
            _ => IoRefused::Failed,
        })
    }
}

impl DiskIo for Driver {
    #[expect(unsafe_code)]
    fn submit_read(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        // UNSAFETY and SAFETY: `storage` reads into pages of its cache that nobody looks at until `on_io_complete`;
        // they belong to it since `PageStore::alloc` and are mapped into no guest before that.
        self.with(pieces, |disk, segments| unsafe { disk.submit_read(token.0, sector, segments) })
    }

    fn submit_write(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        self.with(pieces, |disk, segments| disk.submit_write(token.0, sector, segments))
    }

    fn submit_flush(&mut self, token: IoToken) -> Result<(), IoRefused> {
        self.with(&[], |disk, _| disk.submit_flush(token.0))
    }
}

/// A guest's memory as `storage` wants it.
struct Guest<'a> {
    memory: &'a dyn GuestMemory,
    /// Pages were mapped that other vCPUs may not see yet.
    is_unsettled: Cell<bool>,
}

impl<'a> Guest<'a> {
    const fn new(memory: &'a dyn GuestMemory) -> Self {
        Self { memory, is_unsettled: Cell::new(false) }
    }

    /// Makes what was mapped visible to all vCPUs: before the guest hears of it, and without the disk's lock.
    fn settle(self) {
        if self.is_unsettled.get() {
            self.memory.settle_maps();
        }
    }
}

impl GuestCopy for Guest<'_> {
    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), BadGuestMemory> {
        self.memory.copy_from_machine(dst, src, len).map_err(|_| BadGuestMemory)
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), BadGuestMemory> {
        self.memory.copy_to_machine(dst, src, len).map_err(|_| BadGuestMemory)
    }

    fn write(&self, dst: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory> {
        self.memory.write(dst, data).map_err(|_| BadGuestMemory)
    }

    fn map(&self, dst: GuestPhysAddr, page: Mfn) -> bool {
        let outcome = self.memory.map_page(dst, page);
        if outcome == PageMap::Unsettled {
            self.is_unsettled.set(true);
        }
        outcome != PageMap::Refused
    }
}

/// A VM's view of a disk; given back when it is dropped.
pub struct View {
    unit: usize,
    mount: MountId,
}

/// Gives the VM in `slot` its view of the disk that `spec` names.
///
/// # Errors
/// The disk or partition does not exist, or somebody else is in the way.
pub fn mount(spec: &DiskSpec, holder: &Name, vm: &Weak<Vm>, slot: usize) -> Result<View, ControlError> {
    let (index, unit) = find(&spec.source)?;
    let mode = match spec.mode {
        DiskMode::CopyOnWrite => Mode::CopyOnWrite { limit_pages: u64::MAX },
        DiskMode::Persistent => Mode::Persistent,
        DiskMode::ReadOnly => Mode::ReadOnly,
    };
    let wanted = MountSpec { holder: holder.as_str(), partition: spec.partition.as_deref(), mode };
    let mount = unit.shared.lock().mount(&wanted).map_err(|why| refusal(spec, why))?;
    unit.mounted.lock().push(Mounted { mount, vm: vm.clone(), slot });
    Ok(View { unit: index, mount })
}

fn find(name: &Name) -> Result<(usize, &'static Unit), ControlError> {
    let found = units().iter().enumerate().find(|(_, unit)| unit.name == *name);
    found.ok_or_else(|| ControlError::NoSuchDisk { name: name.clone() })
}

fn refusal(spec: &DiskSpec, why: MountError) -> ControlError {
    let disk = spec.source.clone();
    match why {
        MountError::NoPartition { label } => ControlError::NoSuchPartition { disk, label },
        MountError::InUse { holder, .. } => match Name::new(holder) {
            Ok(holder) => ControlError::DiskBusy { disk, holder },
            Err(_) => ControlError::Busy { what: "disk".into() },
        },
        other => ControlError::Unsupported { what: alloc::format!("disk {disk:?}: {other}").into() },
    }
}

impl View {
    fn unit(&self) -> &'static Unit {
        &units()[self.unit]
    }

    /// Sectors of 512 bytes.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.unit().shared.lock().sectors(self.mount)
    }

    /// Are writes refused?
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.unit().shared.lock().is_read_only(self.mount)
    }

    /// Pages of modified blocks.
    #[must_use]
    pub fn private_pages(&self) -> u64 {
        self.unit().shared.lock().private_pages(self.mount)
    }

    /// Starts a request. Also says whether there is work for [`pump`].
    pub fn submit(&self, tag: BlockTag, request: Request<'_>, memory: &dyn GuestMemory) -> (Outcome, bool) {
        let node = crate::boot::this_hart().map_or(HOME_NODE, |hart| hart.node);
        let mut driver = Driver { index: self.unit };
        let mut context = Context { pages: &MachinePages, io: &mut driver, node };
        let guest = Guest::new(memory);
        let answer = {
            let mut shared = self.unit().shared.lock();
            let outcome = shared.submit(self.mount, tag.raw(), request, &guest, &mut context);
            (outcome, shared.has_ready())
        };
        guest.settle();
        answer
    }

    /// Forgets the requests under way. Says whether there is work for [`pump`].
    pub fn cancel(&self) -> bool {
        let mut shared = self.unit().shared.lock();
        shared.cancel(self.mount);
        shared.has_ready()
    }

    /// Which disk it is, for [`pump`].
    #[must_use]
    pub const fn unit_index(&self) -> usize {
        self.unit
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let unit = self.unit();
        unit.shared.lock().unmount(self.mount);
        unit.mounted.lock().retain(|mounted| mounted.mount != self.mount);
        super::wake_control();
    }
}

/// Status for the guest.
#[must_use]
pub const fn block_status(status: Status) -> BlockStatus {
    match status {
        Status::Ok => BlockStatus::Ok,
        Status::IoError | Status::NoSpace => BlockStatus::IoError,
    }
}

/// One bounded step: completions of all disks, requests that can go on, pages of disks that are gone. `true` while there
/// is more to do at once.
pub fn step() -> bool {
    let mut is_busy = false;
    for (index, unit) in units().iter().enumerate() {
        loop {
            // The driver is let go before the shared disk is taken: requests lock them in the other order.
            let ended = devices::all().disks[index].lock().poll();
            let Some(completion) = ended else { break };
            if let Err(why) = completion.outcome {
                log::warn!("disk {}: {why:?}", unit.name);
                let kind = EventKind::DiskError { disk: unit.name.clone(), sector: 0, write: false };
                crate::trace::record(None, kind);
            }
            let is_ok = completion.outcome.is_ok();
            unit.shared.lock().on_io_complete(IoToken(completion.token), is_ok, &MachinePages);
        }
        pump(index);
        is_busy |= unit.shared.lock().clean_up(&MachinePages);
    }
    is_busy
}

/// Goes on with the requests of a disk that can. No device may be locked.
pub fn pump(index: usize) {
    let unit = &units()[index];
    loop {
        let Some(ready) = unit.shared.lock().next_ready() else { return };
        let place = {
            let mounted = unit.mounted.lock();
            mounted.iter().find(|mounted| mounted.mount == ready.mount).map(|m| (m.vm.upgrade(), m.slot))
        };
        if let Some((Some(vm), slot)) = place {
            resume(index, ready, &vm, slot);
        }
    }
}

fn resume(index: usize, ready: Ready, vm: &Vm, slot: usize) {
    let mut driver = Driver { index };
    let mut context = Context { pages: &MachinePages, io: &mut driver, node: HOME_NODE };
    let guest = Guest::new(vm.memory());
    let outcome = units()[index].shared.lock().resume(ready, &guest, &mut context);
    guest.settle();
    if let Outcome::Done(status) = outcome
        && let Some(device) = vm.platform().slot(slot)
    {
        device.complete_block(vm, BlockTag::from_raw(ready.tag), block_status(status));
    }
}

/// The machine has no memory left: takes some from the caches, of what no guest maps. `false` if there is nothing to take.
/// No disk may be locked.
#[must_use]
pub fn shrink() -> bool {
    const PAGES_AT_ONCE: u64 = 128;
    let freed: u64 = units().iter().map(|unit| unit.shared.lock().reclaim(PAGES_AT_ONCE, &MachinePages)).sum();
    if freed > 0 {
        crate::trace::record(None, EventKind::DiskCacheShrunk { pages: freed });
    }
    freed > 0
}

/// Do the disks of a description exist?
///
/// # Errors
/// [`ControlError::NoSuchDisk`], [`ControlError::NoSuchPartition`].
pub fn check(spec: &VmSpec) -> Result<(), ControlError> {
    for disk in &spec.disks {
        let (_, unit) = find(&disk.source)?;
        let shared = unit.shared.lock();
        if let Some(label) = &disk.partition
            && !shared.partitions().iter().any(|partition| partition.label == *label)
        {
            return Err(ControlError::NoSuchPartition { disk: disk.source.clone(), label: label.clone() });
        }
    }
    Ok(())
}

/// All disks.
#[must_use]
pub fn list() -> Vec<DiskInfo> {
    let info = |(index, unit): (usize, &Unit)| {
        let shared = unit.shared.lock();
        let driver = devices::all().disks[index].lock();
        DiskInfo {
            name: unit.name.clone(),
            bytes: driver.capacity_sectors() * SECTOR_BYTES,
            read_only: driver.is_read_only(),
            partitions: shared.partitions().iter().map(|partition| String::from(&*partition.label)).collect(),
            persistent_for: shared.persistent_holder().and_then(|holder| Name::new(holder).ok()),
        }
    };
    units().iter().enumerate().map(info).collect()
}

/// Counters of all disks.
#[must_use]
pub fn stats() -> Vec<DiskStats> {
    let of = |unit: &Unit| {
        let metrics = unit.shared.lock().metrics();
        DiskStats {
            name: unit.name.clone(),
            cached_bytes: metrics.cached_pages * BASE_PAGE,
            hits: metrics.hits,
            misses: metrics.misses,
            joins: metrics.joins,
            mapped_bytes: metrics.mapped_bytes,
            unaligned_bytes: metrics.unaligned_bytes,
            refused_bytes: metrics.refused_bytes,
            reads: metrics.io_reads,
            read_bytes: metrics.io_blocks_read * BASE_PAGE,
            writes: metrics.io_writes,
            written_bytes: metrics.io_sectors_written * SECTOR_BYTES,
            reclaimed_pages: metrics.reclaimed,
        }
    };
    units().iter().map(of).collect()
}

/// Devices for `ls`.
#[must_use]
pub fn devices() -> Vec<DeviceInfo> {
    devices::all().list()
}

/// Bytes of the disk caches in memory of `node`.
#[must_use]
pub fn cache_bytes(node: NodeId) -> u64 {
    units().iter().map(|unit| unit.shared.lock().cached_pages_on(node) * BASE_PAGE).sum()
}
