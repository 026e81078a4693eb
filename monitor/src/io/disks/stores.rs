//! Stores of modified blocks: `volumes` over the machine's shared disks.
//!
//! # Locking
//! A VM's block device is locked before a store, a store before its list of users, these before a shared disk. A request goes
//! on only where [`StoreUnit::pump`] takes it from its store, on one hart at a time: what that hart has mapped into the guest
//! is settled, with no lock held, before anybody can tell the guest that the request has ended.

mod backend;
mod index;
mod requests;
mod view;

use backend::Disks;
pub use index::index_pages_left;
pub use requests::{list, next_answer, remove, settle, snapshot};
pub use view::{DueVolume, VolumeView};

use super::{
    BLOCKS_AT_ONCE,
    access::{Driver, Gone, Guest, MachinePages, OwnBytes},
    find, pages_of, read_now, refusal, units,
};
use crate::{
    io::{DeviceOwner, at_cost_of},
    machine::HOME_NODE,
};
use addr::NodeId;
use alloc::{
    borrow::ToOwned,
    boxed::Box,
    string::{String, ToString},
    sync::{Arc, Weak},
    vec::Vec,
};
use control::{ControlError, DiskSpec, EventKind, Name, OverlaySpec};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spin::Mutex;
use storage::{Context, GuestCopy, Mode, MountId, MountSpec, Outcome, Ready, SECTORS_PER_BLOCK};
use virtio::{block::BlockTag, rng::EntropySource};
use volumes::{Base, Owner, Store, VolumeId};

/// Most stores of a machine.
const MAX_STORES: usize = 16;
/// Who has the partitions of stores, for those who want them otherwise.
const HOLDER: &str = "disk-store";

/// Stores stay until the machine ends.
static STORES: Mutex<heapless::Vec<&StoreUnit, MAX_STORES>> = Mutex::new(heapless::Vec::new());
/// What else could be a store.
static CANDIDATES: Mutex<Vec<Candidate>> = Mutex::new(Vec::new());

/// A partition, or a disk without partitions, as it was found at boot.
struct Candidate {
    unit: usize,
    partition: Option<String>,
    /// Why it is no store; `None`: it is empty.
    refusal: Option<String>,
}

/// A store, and who uses it.
pub struct StoreUnit {
    name: String,
    unit: usize,
    partition: Option<String>,
    mount: MountId,
    store: Mutex<Store>,
    users: Mutex<Vec<User>>,
    asked: Mutex<Vec<Asked>>,
    is_pumping: AtomicBool,
    is_failure_told: AtomicBool,
    is_index_told: AtomicBool,
    /// What its index took when it was looked at last.
    index_bytes: AtomicU64,
}

/// A VM with a volume.
struct User {
    volume: VolumeId,
    vm: Weak<dyn DeviceOwner>,
    slot: usize,
    /// The disk below.
    base_unit: usize,
    base: MountId,
}

/// A snapshot or removal that is not durable yet.
struct Asked {
    token: u64,
    name: String,
    is_removal: bool,
}

/// Looks for stores on all disks. Called once, during boot.
pub fn init() {
    index::init();
    for (index, unit) in units().iter().enumerate() {
        let (is_read_only, parts) = {
            let shared = unit.shared.lock();
            let whole = (None, 0, shared.capacity_sectors());
            let of = |part: &storage::gpt::Partition| (Some(part.label.clone()), part.first_sector, part.sectors);
            let parts: Vec<_> = shared.partitions().iter().map(of).collect();
            (shared.is_disk_read_only(), if parts.is_empty() { alloc::vec![whole] } else { parts })
        };
        for (partition, first_sector, sectors) in parts.into_iter().filter(|_| !is_read_only) {
            let mut read = |block: u64, buf: &mut [u8]| read_now(index, first_sector + block * SECTORS_PER_BLOCK, buf);
            let refusal = match Store::open(sectors / SECTORS_PER_BLOCK, nonce(), index::budget(), &mut read) {
                Ok(store) if store.layers().next().is_none() && !Store::is_in(&mut read) => None,
                Ok(store) => match add(index, partition.clone(), store) {
                    Ok(_) => continue,
                    Err(why) => Some(why.to_string()),
                },
                Err(why) => Some(why.to_string()),
            };
            CANDIDATES.lock().push(Candidate { unit: index, partition, refusal });
        }
    }
}

fn nonce() -> u64 {
    let mut bytes = [0; 8];
    crate::machine::entropy::stream().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Takes a store into use: nobody else gets its partition.
fn add(unit: usize, partition: Option<String>, store: Store) -> Result<&'static StoreUnit, ControlError> {
    let disk = &units()[unit];
    if STORES.lock().is_full() {
        return Err(refused(disk.name.as_str(), &"the machine has too many stores"));
    }
    let wanted = MountSpec { holder: HOLDER, partition: partition.as_deref(), mode: Mode::Persistent };
    let name = store_name(&disk.name, partition.as_deref());
    let mounted = disk.shared.lock().mount(&wanted);
    let mount = mounted.map_err(|why| refused(&name, &why))?;
    let store: &'static StoreUnit = Box::leak(Box::new(StoreUnit {
        name,
        unit,
        partition,
        mount,
        store: Mutex::new(store),
        users: Mutex::new(Vec::new()),
        asked: Mutex::new(Vec::new()),
        is_pumping: AtomicBool::new(false),
        is_failure_told: AtomicBool::new(false),
        is_index_told: AtomicBool::new(false),
        index_bytes: AtomicU64::new(0),
    }));
    let _ = store.note_index(&store.store.lock());
    // There is room: only the control hart adds stores, and has looked.
    let _ = STORES.lock().push(store);
    Ok(store)
}

fn store_name(disk: &Name, partition: Option<&str>) -> String {
    match partition {
        Some(partition) => alloc::format!("{disk}/{partition}"),
        None => disk.to_string(),
    }
}

fn refused(store: &str, why: &dyn core::fmt::Display) -> ControlError {
    ControlError::VolumeRefused { store: store.to_owned(), reason: why.to_string() }
}

fn all() -> heapless::Vec<&'static StoreUnit, MAX_STORES> {
    STORES.lock().clone()
}

fn find_store(unit: usize, partition: Option<&str>) -> Option<&'static StoreUnit> {
    all().into_iter().find(|store| store.unit == unit && store.partition.as_deref() == partition)
}

/// The store that an overlay names; a new one where there is nothing yet.
fn find_or_make(overlay: &OverlaySpec) -> Result<&'static StoreUnit, ControlError> {
    let (index, unit) = find(&overlay.disk)?;
    let partition = overlay.partition.as_deref();
    if let Some(store) = find_store(index, partition) {
        return Ok(store);
    }
    let name = store_name(&unit.name, partition);
    let refuse = |why: &str| Err(refused(&name, &why));
    let mut candidates = CANDIDATES.lock();
    let same = |candidate: &Candidate| candidate.unit == index && candidate.partition.as_deref() == partition;
    let Some(at) = candidates.iter().position(same) else {
        let shared = unit.shared.lock();
        return match (shared.is_disk_read_only(), partition) {
            (true, _) => refuse("the machine's disk is read-only"),
            (_, None) if !shared.partitions().is_empty() => {
                refuse("the disk has partitions; say which with `overlay_partition`")
            }
            _ => refuse("it has been written by a VM since the machine started; start the machine again"),
        };
    };
    if let Some(why) = &candidates[at].refusal {
        return refuse(why);
    }
    let sectors = {
        let shared = unit.shared.lock();
        let of_partition = |label| shared.partitions().iter().find(|part| part.label == label).map(|part| part.sectors);
        partition.map_or(Some(shared.capacity_sectors()), of_partition).unwrap_or(0)
    };
    let mut empty = |_: u64, buf: &mut [u8]| {
        buf.fill(0);
        true
    };
    let store = Store::open(sectors / SECTORS_PER_BLOCK, nonce(), index::left(), &mut empty);
    let store = store.map_err(|why| refused(&name, &why))?;
    let store = add(index, overlay.partition.clone(), store)?;
    candidates.remove(at);
    Ok(store)
}

/// Refuses an overlay on a disk or a partition that does not exist.
///
/// # Errors
/// [`ControlError::NoSuchDisk`], [`ControlError::NoSuchPartition`].
pub fn check(overlay: &OverlaySpec) -> Result<(), ControlError> {
    let (_, unit) = find(&overlay.disk)?;
    let shared = unit.shared.lock();
    match &overlay.partition {
        Some(label) if !shared.partitions().iter().any(|partition| partition.label == *label) => {
            Err(ControlError::NoSuchPartition { disk: overlay.disk.clone(), label: label.clone() })
        }
        _ => Ok(()),
    }
}

/// What volumes lie over must not change.
///
/// # Errors
/// [`ControlError::VolumeRefused`], with the volume's name.
pub fn refuse_base(spec: &DiskSpec) -> Result<(), ControlError> {
    for unit in all() {
        let store = unit.store.lock();
        if let Some(volume) = store.depends_on(spec.source.as_str(), spec.partition.as_deref()) {
            let shown = store_name(&spec.source, spec.partition.as_deref());
            let why =
                alloc::format!("{volume:?} lies over {shown}, which must not change; `volumes --remove` gives it up");
            return Err(refused(&unit.name, &why));
        }
    }
    Ok(())
}

/// A VM may write to a disk or partition: it is not empty any more.
pub fn note_written(unit: usize, partition: Option<&str>) {
    let is_other = |candidate: &Candidate| {
        candidate.unit != unit
            || matches!((candidate.partition.as_deref(), partition), (Some(one), Some(other)) if one != other)
    };
    CANDIDATES.lock().retain(is_other);
}

/// Gives the VM in `slot` its volume.
pub(super) fn mount(
    spec: &DiskSpec,
    overlay: &OverlaySpec,
    holder: &Name,
    vm: &Weak<dyn DeviceOwner>,
    slot: usize,
) -> Result<VolumeView, ControlError> {
    let (base_unit, disk) = find(&spec.source)?;
    let store = find_or_make(overlay)?;
    let partition = spec.partition.as_deref();
    let wanted = MountSpec { holder: holder.as_str(), partition, mode: Mode::ReadOnly };
    let (base, sectors) = {
        let mut shared = disk.shared.lock();
        let base = shared.mount(&wanted).map_err(|why| refusal(spec, why))?;
        (base, shared.sectors(base))
    };
    let below = Base { disk: spec.source.to_string(), partition: spec.partition.clone(), sectors };
    let snapshot = overlay.snapshot.as_ref().map(Name::as_str);
    let mounted = store.store.lock().mount(&spec.volume_name(holder), &below, snapshot, holder.as_str());
    let kept = mounted.and_then(|volume| {
        let Some(limit) = spec.limit_mib else { return Ok(volume) };
        let mut inner = store.store.lock();
        inner.keep(volume, pages_of(limit)).map(|()| volume).inspect_err(|_| inner.unmount(volume))
    });
    match kept {
        Ok(volume) => {
            store.users.lock().push(User { volume, vm: vm.clone(), slot, base_unit, base });
            Ok(VolumeView::new(store, volume, base_unit, base))
        }
        Err(why) => {
            disk.shared.lock().unmount(base);
            Err(refused(&store.name, &why))
        }
    }
}

/// A request of a store on a shared disk can go on.
pub(super) fn go_on(unit: usize, ready: Ready, budget: &mut u64) {
    if let Some(store) = all().into_iter().find(|store| store.has_mount(unit, ready.mount)) {
        let volume = store.go_on(unit, ready, budget);
        store.pump(volume, budget);
    }
}

impl StoreUnit {
    const fn disks(&self, node: NodeId) -> Disks<'_> {
        Disks { store: self, node }
    }

    fn has_mount(&self, unit: usize, mount: MountId) -> bool {
        let is_base = || self.users.lock().iter().any(|user| user.base_unit == unit && user.base == mount);
        (self.unit == unit && self.mount == mount) || is_base()
    }

    fn vm_of(&self, volume: VolumeId) -> Option<(Arc<dyn DeviceOwner>, usize)> {
        let users = self.users.lock();
        let user = users.iter().find(|user| user.volume == volume)?;
        user.vm.upgrade().map(|vm| (vm, user.slot))
    }

    /// Goes on with what a request, or the log, has under way on a disk. Returns the request's volume.
    fn go_on(&self, unit: usize, ready: Ready, budget: &mut u64) -> Option<VolumeId> {
        let mut resume = |guest: &dyn GuestCopy| {
            let mut driver = Driver { index: unit };
            let mut context =
                Context { pages: &MachinePages, io: &mut driver, node: HOME_NODE, budget: (*budget).max(1) };
            let outcome = units()[unit].shared.lock().resume(ready, guest, &mut context);
            *budget = context.budget.min(*budget);
            outcome
        };
        let mut of = None;
        // Let go of after the lock: it may be the last one, and the VM's end asks for the lock.
        let vm;
        let outcome = {
            // Held meanwhile, so that a driver's reset waits until the guest's memory is not touched any more.
            let store = self.store.lock();
            match store.owner(ready.tag) {
                Owner::Guest(volume) => {
                    of = Some(volume);
                    vm = self.vm_of(volume);
                    match &vm {
                        Some((vm, _)) if !vm.is_ending() => {
                            let guest = Guest::new(vm.memory());
                            at_cost_of(Some(&**vm), || {
                                let outcome = resume(&guest);
                                drop(store);
                                guest.settle();
                                outcome
                            })
                        }
                        _ => resume(&Gone),
                    }
                }
                Owner::Gone => resume(&Gone),
                Owner::Store => resume(&OwnBytes(store.own_bytes())),
            }
        };
        if let Outcome::Done(status) = outcome {
            let mut store = self.store.lock();
            store.on_done(ready.tag, status);
            store.pump(&mut self.disks(HOME_NODE));
        }
        of
    }

    /// Goes on with the requests that can, of one volume or of all, as far as `budget` goes: blocks that are copied. No device may be
    /// locked.
    fn pump(&self, of: Option<VolumeId>, budget: &mut u64) {
        if self.is_pumping.swap(true, Ordering::SeqCst) {
            // Whoever does it looks again afterwards.
            return;
        }
        // Ends: each request takes some of the budget.
        while *budget > 0 && self.pump_one(of, budget) {}
        self.is_pumping.store(false, Ordering::SeqCst);
        self.tell_trouble();
        let is_due = {
            let store = self.store.lock();
            store.has_ready() || store.has_answer() || store.has_garbage()
        };
        // What others have left meanwhile, or is too much for one call, is the control hart's.
        if is_due || units().iter().any(|unit| unit.shared.lock().has_ready()) {
            crate::machine::agenda::wake_control();
        }
    }

    fn pump_one(&self, of: Option<VolumeId>, budget: &mut u64) -> bool {
        let vm;
        let mut store = self.store.lock();
        let next = match of {
            Some(volume) => store.next_ready_of(volume),
            None => store.next_ready(),
        };
        let Some(ready) = next else { return false };
        self.bound_index(&mut store);
        vm = if ready.is_cancelled { None } else { self.vm_of(ready.volume) };
        let mut disks = self.disks(HOME_NODE);
        let Some((vm, slot)) = vm.as_ref().filter(|(vm, _)| !vm.is_ending()) else {
            let _ = store.resume(ready, &Gone, &mut disks, budget);
            store.pump(&mut disks);
            return true;
        };
        // Its own vCPU pays with its turn.
        at_cost_of(of.is_none().then_some(&**vm), || {
            let guest = Guest::new(vm.memory());
            let outcome = store.resume(ready, &guest, &mut disks, budget);
            store.pump(&mut disks);
            drop(store);
            guest.settle();
            if let Outcome::Done(status) = outcome {
                vm.complete_block(*slot, BlockTag::from_raw(ready.tag), status);
            }
        });
        true
    }

    fn tell_trouble(&self) {
        let (is_broken, is_index_full, bytes) = {
            let store = self.store.lock();
            (store.is_broken(), store.metrics().index_full > 0, store.index_limit())
        };
        if is_broken && !self.is_failure_told.swap(true, Ordering::Relaxed) {
            log::error!("store {}: its log could not be written", self.name);
            crate::trace::record(None, EventKind::StoreFailed { store: self.name.clone().into() });
        }
        if is_index_full && !self.is_index_told.swap(true, Ordering::Relaxed) {
            crate::trace::record(None, EventKind::StoreIndexFull { store: self.name.clone().into(), bytes });
        }
    }
}

/// See [`super::let_go`].
pub(super) fn let_go() {
    all().into_iter().for_each(|unit| drop(unit.store.lock()));
}

/// One bounded step of what nobody waits for. `true` while there is more to do at once.
pub(super) fn step(turn: usize) -> bool {
    let (mut is_busy, mut budget) = (false, BLOCKS_AT_ONCE);
    for (_, unit) in super::in_turn(&all(), turn) {
        let mut store = unit.store.lock();
        is_busy |= store.clean_up();
        unit.bound_index(&mut store);
        store.pump(&mut unit.disks(HOME_NODE));
        is_busy |= store.has_answer();
        drop(store);
        unit.pump(None, &mut budget);
    }
    is_busy
}
