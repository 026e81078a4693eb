//! The machine's disks as VMs share them: `storage` over `machine-io`'s drivers.
//!
//! # Locking
//! A VM's block device is locked before the shared disk, the shared disk before the driver. Completions go the other
//! way round without overlap: the shared disk is let go before the device that waits is locked. A store of modified blocks
//! comes between the device and the shared disks, see [`stores`].
//!
//! # Cells
//! A cell that does not drive the machine's disks has shared disks of its own over descriptions of them, with caches and modified blocks
//! in its memory. What it reads, the leader's driver reads into its pages: [`remote`] is the asking cell's end, [`lending`] the leader's.

mod access;
mod answers;
mod discovery;
pub mod lending;
pub mod remote;
pub mod stores;
mod usage;

use self::access::{Driver, Guest, MachinePages};
pub use self::answers::{cache_bytes, check, devices, list, stats};
pub use self::discovery::{describe, init, init_remote};
use self::discovery::{read_now, total_pages};
use self::remote::RemoteReads;
use self::usage::Usage;
use super::{DeviceOwner, at_cost_of};
use crate::machine::{self, HOME_NODE, devices, relief::Locked};
use addr::{BASE_PAGE, VmId};
use alloc::{sync::Weak, vec::Vec};
use control::{ControlError, DiskMode, DiskSpec, EventKind, Name, VmSpec};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use device::GuestMemory;
use spin::{Mutex, Once};
use storage::{
    BLOCKS_PER_CALL, Context, FailedIo, IoToken, Mode, MountError, MountId, MountSpec, Outcome, Ready, Request,
    SharedDisk, Status,
};
use virtio::block::{BlockStatus, BlockTag};

/// A machine disk and who has a view of it.
struct Unit {
    name: Name,
    shared: Mutex<SharedDisk>,
    mounted: Mutex<Vec<Mounted>>,
    /// What the leader is to read for it, or has read, if this cell is none.
    remote: RemoteReads,
}

struct Mounted {
    mount: MountId,
    vm: Weak<dyn DeviceOwner>,
    slot: usize,
    usage: Usage,
}

static UNITS: Once<Vec<Unit>> = Once::new();
/// Pages that the caches of all disks may hold together. Reads that have been started may exceed it until the next step.
static CACHE_BOUND: AtomicU64 = AtomicU64::new(u64::MAX);

/// Part of the machine's memory that the caches of all disks may take together, if the configuration does not say.
const CACHE_SHARE: u64 = 8;

fn units() -> &'static [Unit] {
    UNITS.get().map_or(&[], |units| units)
}

impl Unit {
    fn new(name: Name, shared: SharedDisk) -> Self {
        Self { name, shared: Mutex::new(shared), mounted: Mutex::default(), remote: RemoteReads::default() }
    }
}

/// A VM's view of a disk; given back when it is dropped.
pub struct View {
    backing: Backing,
    usage: Usage,
    /// The disk's name in the VM.
    name: Name,
    vm: VmId,
    /// Most MiB of modified blocks, as far as the description says so.
    limit_mib: Option<u32>,
    /// It was told that there was no room for a block.
    is_full: AtomicBool,
}

enum Backing {
    Plain { unit: usize, mount: MountId },
    Volume(stores::VolumeView),
}

/// Requests of a VM that can go on once the device's lock is free.
pub struct Due {
    unit: usize,
    mount: MountId,
    volume: Option<stores::DueVolume>,
}

impl Due {
    /// Goes on with them for a while. Those of other VMs are the control hart's: a guest does not pay for them.
    pub fn run(self) {
        let mut budget = BLOCKS_AT_ONCE;
        pump(self.unit, Some(self.mount), &mut budget);
        self.volume.into_iter().for_each(|volume| volume.run(&mut budget));
    }
}

/// Gives the VM `id` with this description its view of the disk that `spec` names, for `slot`.
///
/// # Errors
/// The disk or partition does not exist, somebody else is in the way, or a store has not the room that it is to have.
pub fn mount(
    spec: &DiskSpec,
    (of, id): (&VmSpec, VmId),
    vm: &Weak<dyn DeviceOwner>,
    slot: usize,
) -> Result<View, ControlError> {
    let limit_mib = of.limit_mib(spec).or(spec.limit_mib);
    let (backing, usage) = match &spec.overlay {
        Some(overlay) => (Backing::Volume(stores::mount(spec, overlay, &of.name, vm, slot)?), Usage::default()),
        None => mount_plain(spec, limit_mib, &of.name, vm, slot)?,
    };
    Ok(View { backing, usage, name: spec.name.clone(), vm: id, limit_mib, is_full: AtomicBool::new(false) })
}

fn mount_plain(
    spec: &DiskSpec,
    limit_mib: Option<u32>,
    holder: &Name,
    vm: &Weak<dyn DeviceOwner>,
    slot: usize,
) -> Result<(Backing, Usage), ControlError> {
    let (index, unit) = find(&spec.source)?;
    let mode = match spec.mode {
        DiskMode::CopyOnWrite => Mode::CopyOnWrite { limit_pages: limit_mib.map_or(u64::MAX, pages_of) },
        DiskMode::Persistent => Mode::Persistent,
        DiskMode::ReadOnly => Mode::ReadOnly,
    };
    if mode == Mode::Persistent {
        stores::refuse_base(spec)?;
    }
    let wanted = MountSpec { holder: holder.as_str(), partition: spec.partition.as_deref(), mode };
    let mount = unit.shared.lock().mount(&wanted).map_err(|why| refusal(spec, why))?;
    if mode == Mode::Persistent {
        stores::note_written(index, spec.partition.as_deref());
    }
    let usage = Usage::default();
    unit.mounted.lock().push(Mounted { mount, vm: vm.clone(), slot, usage: usage.clone() });
    Ok((Backing::Plain { unit: index, mount }, usage))
}

/// Pages, or blocks, of so many MiB.
fn pages_of(mib: u32) -> u64 {
    u64::from(mib) * ((1 << 20) / BASE_PAGE)
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
    /// Sectors of 512 bytes.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        match &self.backing {
            Backing::Plain { unit, mount } => units()[*unit].shared.lock().sectors(*mount),
            Backing::Volume(volume) => volume.sectors(),
        }
    }

    /// Whether the disk refuses writes. Volumes never do.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match &self.backing {
            Backing::Plain { unit, mount } => units()[*unit].shared.lock().is_read_only(*mount),
            Backing::Volume(_) => false,
        }
    }

    /// Pages of modified blocks. Waits for no lock.
    #[must_use]
    pub fn private_pages(&self) -> u64 {
        self.usage.pages()
    }

    /// Bytes that count towards the limit of modified blocks. Waits for no lock: of a store that is locked they are what was found last.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        if let Backing::Volume(volume) = &self.backing
            && let Some(share) = volume.try_share()
        {
            self.usage.note_volume(share.used);
        }
        self.usage.charged_bytes()
    }

    fn is_at_limit(&self) -> bool {
        match &self.backing {
            Backing::Plain { unit, mount } => units()[*unit].shared.lock().is_at_limit(*mount),
            Backing::Volume(volume) => {
                let share = volume.share();
                share.kept.is_some_and(|kept| share.used >= kept)
            }
        }
    }

    /// Starts a request. Also says whether there is work for [`View::due`].
    pub fn submit(&self, tag: BlockTag, request: Request<'_>, memory: &dyn GuestMemory) -> (Outcome, bool) {
        let (outcome, is_due) = match &self.backing {
            Backing::Plain { unit, mount } => submit_plain(*unit, (*mount, &self.usage), tag, request, memory),
            Backing::Volume(volume) => volume.submit(tag, request, memory),
        };
        if let Outcome::Done(status) = outcome {
            self.note(status);
        }
        (outcome, is_due)
    }

    /// Tells of a request that found no room, once.
    pub fn note(&self, status: Status) {
        if status == Status::NoSpace && !self.is_full.swap(true, Ordering::Relaxed) {
            let store = match &self.backing {
                Backing::Plain { .. } => None,
                Backing::Volume(volume) => Some(volume.store_name().into()),
            };
            let limit_mib = self.limit_mib.filter(|_| self.is_at_limit());
            crate::trace::record(Some(self.vm), EventKind::DiskFull { disk: self.name.clone(), store, limit_mib });
        }
    }

    /// Forgets the requests under way. Says whether there is work for [`View::due`].
    pub fn cancel(&self) -> bool {
        match &self.backing {
            Backing::Plain { unit, mount } => {
                let mut shared = units()[*unit].shared.lock();
                shared.cancel(*mount);
                shared.has_ready()
            }
            Backing::Volume(volume) => volume.cancel(),
        }
    }

    /// What goes on once the device's lock is free.
    #[must_use]
    pub fn due(&self) -> Due {
        match &self.backing {
            Backing::Plain { unit, mount } => Due { unit: *unit, mount: *mount, volume: None },
            Backing::Volume(volume) => volume.due(),
        }
    }
}

fn submit_plain(
    unit: usize,
    (mount, usage): (MountId, &Usage),
    tag: BlockTag,
    request: Request<'_>,
    memory: &dyn GuestMemory,
) -> (Outcome, bool) {
    let node = crate::hart::this_hart().map_or(HOME_NODE, |hart| hart.node);
    let mut driver = Driver { index: unit };
    let mut context = Context { pages: &MachinePages, io: &mut driver, node, budget: BLOCKS_PER_CALL };
    let guest = Guest::new(memory);
    let answer = {
        let mut shared = units()[unit].shared.lock();
        let outcome = shared.submit(mount, tag.raw(), request, &guest, &mut context);
        usage.note(&shared, mount);
        (outcome, shared.has_ready_of(mount))
    };
    guest.settle();
    answer
}

impl Drop for View {
    fn drop(&mut self) {
        // A volume's view lets go of it by itself.
        if let Backing::Plain { unit, mount } = &self.backing {
            units()[*unit].shared.lock().unmount(*mount);
            units()[*unit].mounted.lock().retain(|mounted| mounted.mount != *mount);
        }
        crate::machine::agenda::wake_control();
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
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let (mut is_busy, mut budget) = (false, BLOCKS_AT_ONCE);
    for (index, unit) in in_turn(units(), turn) {
        remote::begin_own(index, unit);
        let mut ends = 0;
        loop {
            if ends == ENDS_AT_ONCE {
                is_busy = true;
                break;
            }
            ends += 1;
            let Some((token, is_ok)) = next_ended(index, unit) else { break };
            if lending::on_complete(token, is_ok) {
                continue;
            }
            let failed = unit.shared.lock().on_io_complete(token, is_ok, &MachinePages);
            if let Some(FailedIo { sector, is_write: write }) = failed {
                crate::trace::record(None, EventKind::DiskError { disk: unit.name.clone(), sector, write });
            }
        }
        pump(index, None, &mut budget);
        is_busy |= unit.shared.lock().clean_up(&MachinePages);
    }
    lending::step();
    is_busy | keep_bound() | stores::step(turn)
}

/// An operation of a disk that has ended, done by this cell's driver or by the leader's; whether it went well.
fn next_ended(index: usize, unit: &Unit) -> Option<(IoToken, bool)> {
    // The driver is let go before the shared disk is taken: requests lock them in the other order.
    let ended = devices::all().disks.get(index).and_then(|disk| disk.lock().poll());
    let own = ended.map(|completion| {
        if let Err(why) = &completion.outcome {
            log::warn!("disk {}: {why:?}", unit.name);
        }
        (IoToken(completion.token), completion.outcome.is_ok())
    });
    own.or_else(|| unit.remote.next_ended())
}

/// Keeps the caches of all disks together within their bound: the largest one lets go of what was not used lately. `true`
/// while there is more to let go of.
fn keep_bound() -> bool {
    /// Pages of one step.
    const AT_ONCE: u64 = 256;
    let held = |unit: &Unit| unit.shared.lock().cached_pages();
    let excess = units().iter().map(held).sum::<u64>().saturating_sub(CACHE_BOUND.load(Ordering::Relaxed));
    let largest = units().iter().max_by_key(|unit| held(unit));
    let Some(unit) = largest.filter(|_| excess > 0) else { return false };
    unit.shared.lock().trim(excess.min(AT_ONCE), &MachinePages) > 0 && excess > AT_ONCE
}

/// Completions of one disk that one call takes.
const ENDS_AT_ONCE: usize = 16;
/// Blocks that one call goes on with, of all disks, and again of all stores. Others make more ready meanwhile: the rest is the control
/// hart's, which looks between its steps whether anybody calls it.
const BLOCKS_AT_ONCE: u64 = BLOCKS_PER_CALL / 2;

/// All of them, from another one on in each turn: a step's budget goes to another one first.
fn in_turn<T>(all: &[T], turn: usize) -> impl Iterator<Item = (usize, &T)> {
    let first = turn % all.len().max(1);
    let (before, rest) = all.split_at(first);
    (first..).zip(rest).chain(before.iter().enumerate())
}

/// Waits until nobody touches the memory of a VM that is ending, for any disk or store. Nobody begins again. No disk may be locked.
pub fn let_go() {
    stores::let_go();
    units().iter().for_each(|unit| drop(unit.shared.lock()));
}

/// Goes on with the requests of a disk that can, of one mount or of all in turn, as far as `budget` goes: blocks. No device may be
/// locked.
fn pump(index: usize, of: Option<MountId>, budget: &mut u64) {
    let unit = &units()[index];
    // Ends: each request takes some of the budget.
    while *budget > 0 {
        let next = {
            let mut shared = unit.shared.lock();
            match of {
                Some(mount) => shared.next_ready_of(mount),
                None => shared.next_ready(),
            }
        };
        let Some(ready) = next else { break };
        // What it takes to end a request.
        *budget -= 1;
        let place = {
            let mounted = unit.mounted.lock();
            let of = mounted.iter().find(|mounted| mounted.mount == ready.mount);
            of.map(|of| (of.vm.upgrade(), (of.slot, of.usage.clone())))
        };
        match place {
            Some((Some(vm), (slot, usage))) => {
                // Its own vCPU pays with its turn.
                let payer = of.is_none().then_some(&*vm);
                at_cost_of(payer, || resume(index, ready, (&*vm, slot, &usage), budget));
            }
            Some((None, _)) => {}
            None => stores::go_on(index, ready, budget),
        }
    }
    if unit.shared.lock().has_ready() {
        machine::agenda::wake_control();
    }
}

fn resume(index: usize, ready: Ready, (vm, slot, usage): (&dyn DeviceOwner, usize, &Usage), budget: &mut u64) {
    let mut driver = Driver { index };
    let mut context = Context { pages: &MachinePages, io: &mut driver, node: HOME_NODE, budget: (*budget).max(1) };
    let guest = Guest::new(vm.memory());
    let mut shared = units()[index].shared.lock();
    if vm.is_ending() {
        // The request goes with the VM's mount.
        return;
    }
    let outcome = shared.resume(ready, &guest, &mut context);
    *budget = context.budget.min(*budget);
    usage.note(&shared, ready.mount);
    drop(shared);
    guest.settle();
    if let Outcome::Done(status) = outcome {
        vm.complete_block(slot, BlockTag::from_raw(ready.tag), status);
    }
}

/// The machine has no memory left: takes up to `most` pages from each cache, of what no guest maps, and some of disks that are gone.
/// `false` if there is nothing to take. If the caller may have locked a disk, those that are locked are left out.
#[must_use]
pub fn shrink(most: u64, locked: Locked) -> bool {
    let lock = |unit: &'static Unit| match locked {
        Locked::Nothing => Some(unit.shared.lock()),
        Locked::Something => unit.shared.try_lock(),
    };
    let (mut cached, mut gone) = (0, false);
    for mut disk in units().iter().filter_map(lock) {
        gone |= disk.dying_pages() > 0;
        let _ = disk.clean_up(&MachinePages);
        cached += disk.reclaim(most, &MachinePages);
    }
    if cached > 0 {
        crate::trace::record(None, EventKind::DiskCacheShrunk { pages: cached });
    }
    cached > 0 || gone
}
