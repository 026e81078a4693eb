//! Memory promised to VMs: a VM begins only if what is to be kept for it fits beside what is kept for others, and when pages run out,
//! who ends is who has most beyond its promise. The sums are `frames::Promises`.
//!
//! A VM that finds no page waits, and says so ([`relief::tell_short`]). The control hart decides here: what can be given up goes first,
//! then memory of VMs that are ending comes back, then a VM ends. Who is promised all that it may take never ends for others.
//!
//! VMs that are promised less than they may take are watched: before they leave too little of what others are promised, one of them ends.
//! Else a device of those others would find no page, and devices cannot wait for a VM's end.
//!
//! What clients have announced and not sent yet is promised, too ([`Announced`]): it is about to be the monitor's.
//!
//! # Locking
//! The registry, then memories of VMs, one at a time. Neither devices nor disks: one may be locked while it waits for memory.

use super::registry::{self, Record, Registry};
use crate::{
    io::disks::stores,
    machine::{
        self, capabilities,
        memory::frames,
        relief::{self, Locked, Relief},
    },
};
use addr::{BASE_PAGE, NodeId, PAGES_PER_LARGE, VmId};
use control::{ControlError, StopReason, VmSpec, VmState};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use frames::{Account, PageState, Promises, most_over};
use rv::csr;

/// Pages of a MiB.
const MIB: u64 = (1 << 20) / BASE_PAGE;
/// Part of the machine's memory that is promised to nobody, since the monitor's heap and pages on their way take it: one of so many.
/// Indices of stores may take as much together, if there are any.
const OWN_SHARE: u64 = 32;
/// Part that is to stay free of VMs beyond their promise while others may claim it.
const MARGIN_SHARE: u64 = 64;
/// So many pages are none: whoever found none may take them and try again.
const FEW: u64 = 64;
/// Shortest and longest time between two looks at VMs that may take more than they are promised.
const LOOK_MS: core::ops::RangeInclusive<u64> = 10..=1_000;
/// Pages that guests touch in a millisecond at most: 1 GiB a second.
const PAGES_PER_MS: u64 = (1 << 30) / 1_000 / BASE_PAGE;

static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);
/// Bytes of all [`Announced`].
static ANNOUNCED: AtomicU64 = AtomicU64::new(0);

/// Bytes that a client is about to send, kept for it: nobody else is promised them. Dropped, they are free for others.
#[derive(Debug, Default)]
pub struct Announced {
    bytes: u64,
}

impl Announced {
    /// Keeps `bytes`.
    ///
    /// # Errors
    /// [`ControlError::Promised`]: so much is not left beside what is promised to VMs and to other clients.
    pub fn new(bytes: u64) -> Result<Self, ControlError> {
        let registry = registry::lock();
        let (left, wanted) = (sums(&registry, None).left(), bytes.div_ceil(BASE_PAGE));
        if wanted > left {
            return Err(refusal(wanted, left, capacity(&registry)));
        }
        ANNOUNCED.fetch_add(bytes, Relaxed);
        Ok(Self { bytes })
    }

    /// As many of them have memory now, which counts as the monitor's.
    pub fn have_come(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        ANNOUNCED.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.have_come(self.bytes);
    }
}

/// Refuses a VM whose promise does not fit beside those of VMs that live.
///
/// # Errors
/// [`ControlError::Promised`]; [`ControlError::Busy`] if it fits, and a VM that has what it needs has just been told to end.
pub fn admit(registry: &Registry, spec: &VmSpec) -> Result<(), ControlError> {
    let (capacity, wanted) = (capacity(registry), wanted_pages(spec));
    let left = sums(registry, None).left();
    if wanted > left {
        return Err(refusal(wanted, left, capacity));
    }
    let with = sums(registry, Some(Account { promised: wanted, ..Account::default() }));
    match largest(registry) {
        Some(vm) if with.are_overdrawn() && free() < margin() => {
            end(vm);
            let what = alloc::format!("VM {} has what is promised to this one, and ends", vm.spec.name).into();
            Err(ControlError::Busy { what })
        }
        _ => Ok(()),
    }
}

/// Refuses a VM whose promise would not fit if it were alone.
///
/// # Errors
/// [`ControlError::Promised`].
pub fn check(registry: &Registry, spec: &VmSpec) -> Result<(), ControlError> {
    let (capacity, wanted) = (capacity(registry), wanted_pages(spec));
    if wanted <= capacity { Ok(()) } else { Err(refusal(wanted, capacity, capacity)) }
}

const fn refusal(wanted: u64, left: u64, capacity: u64) -> ControlError {
    ControlError::Promised { wanted_mib: wanted.div_ceil(MIB), left_mib: left / MIB, capacity_mib: capacity / MIB }
}

/// When to look next.
#[must_use]
pub fn next_look() -> u64 {
    NEXT_LOOK.load(Relaxed)
}

/// One look: whether somebody has found no page, or VMs beyond their promise leave too little.
pub fn step() {
    let (now, short) = (csr::time::read(), relief::short());
    if short.is_none() && now < next_look() {
        return;
    }
    decide(short);
    let pause_ms = match relief::short() {
        Some(_) => *LOOK_MS.start(),
        None => (free().saturating_sub(margin()) / PAGES_PER_MS).clamp(*LOOK_MS.start(), *LOOK_MS.end()),
    };
    NEXT_LOOK.store(now + capabilities().timebase_hz * pause_ms / 1_000, Relaxed);
}

/// Ends a VM if that has to be, because of the one that is short of pages if there is one.
fn decide(short: Option<VmId>) {
    if short.is_none() && (free() >= margin() || !is_any_beyond()) {
        return;
    }
    match relief::ask(None, Locked::Nothing) {
        Relief::Freed => return relief::clear_short(),
        Relief::Coming => return,
        Relief::Nothing => {}
    }
    let registry = registry::lock();
    if short.is_some() && free() >= FEW {
        return relief::clear_short();
    }
    if registry.records().any(|record| is_ending(record) && !record.is_stuck()) {
        // Its memory comes back.
        return;
    }
    let over = largest(&registry);
    let victim = match short {
        None => over.filter(|_| sums(&registry, None).are_overdrawn()),
        // If nobody has more than it was promised, the monitor itself has taken too much.
        Some(id) => over.or_else(|| registry.records().find(|record| record.id == id)),
    };
    victim.into_iter().for_each(end);
    relief::clear_short();
}

fn end(record: &Record) {
    log::warn!("VM {} ends for want of memory: {} MiB are kept for it", record.spec.name, record.spec.kept_mib());
    if let Some(life) = &record.life {
        life.request_stop(StopReason::OutOfMemory { needed: BASE_PAGE });
    }
}

fn is_ending(record: &Record) -> bool {
    record.state == VmState::Stopping || record.life.as_ref().is_some_and(|life| life.is_ending())
}

/// Whether a VM lives that may take more than it is promised.
fn is_any_beyond() -> bool {
    let is_beyond = |record: &Record| record.life.is_some() && record.spec.kept_mib() < record.spec.most_mib();
    registry::lock().records().any(is_beyond)
}

/// Who has most beyond its promise, and can end.
fn largest(registry: &Registry) -> Option<&Record> {
    most_over(accounts(registry).filter(|(record, _)| !record.is_stuck()))
}

/// All that is promised, and to somebody new.
fn sums(registry: &Registry, new: Option<Account>) -> Promises {
    let announced = Account { promised: ANNOUNCED.load(Relaxed).div_ceil(BASE_PAGE), ..Account::default() };
    let accounts = accounts(registry).map(|(_, account)| account);
    Promises::new(capacity(registry), accounts.chain([announced]).chain(new))
}

/// What VMs that live are promised and have.
fn accounts(registry: &Registry) -> impl Iterator<Item = (&Record, Account)> {
    registry.records().filter_map(|record| {
        let life = record.life.as_ref()?;
        let held = life.memory().held();
        let own = held.private + held.tables + life.platform().disk_pages() + vcpu_pages(&record.spec);
        Some((record, Account { promised: promised_pages(&record.spec), own, shared: held.shared }))
    })
}

/// Pages that are kept for such a VM: with everything that it may take goes what finds it.
fn promised_pages(spec: &VmSpec) -> u64 {
    let kept = spec.kept_mib().saturating_mul(MIB);
    if spec.kept_mib() < spec.most_mib() { kept } else { kept.saturating_add(overhead(spec)) }
}

/// Pages that have to be left for such a VM to begin: with the first store comes what its index may take.
fn wanted_pages(spec: &VmSpec) -> u64 {
    promised_pages(spec).saturating_add(stores::index_pages_left(Some(spec)))
}

/// Most pages of tables and vCPUs: the pmap and each node's G-stage table have a page for each 2 MiB, and few above these.
fn overhead(spec: &VmSpec) -> u64 {
    let nodes = frames().node_count() as u64;
    let blocks = u64::from(spec.memory_mib) * MIB / PAGES_PER_LARGE;
    (blocks + blocks / PAGES_PER_LARGE + 8) * (nodes + 1) + vcpu_pages(spec)
}

fn vcpu_pages(spec: &VmSpec) -> u64 {
    u64::from(spec.vcpus) * crate::vm::shared::OWNERS_PAGES
}

/// Pages that VMs can have at all: the machine's, less what the monitor has for itself, and some that it may come to need.
fn capacity(registry: &Registry) -> u64 {
    let lives = registry.records().filter_map(|record| Some((record, record.life.as_ref()?)));
    let tables: u64 = lives.map(|(record, life)| life.memory().held().tables + vcpu_pages(&record.spec)).sum();
    let (total, monitor) = nodes().fold((0, 0), |(total, monitor), node| {
        let counts = frames().counts(node);
        (total + counts.total(), monitor + counts.get(PageState::Monitor))
    });
    let own = total / OWN_SHARE + stores::index_pages_left(None);
    total.saturating_sub(monitor.saturating_sub(tables)).saturating_sub(own)
}

fn free() -> u64 {
    nodes().map(|node| frames().pages_in(node, PageState::Free)).sum()
}

fn margin() -> u64 {
    nodes().map(|node| frames().counts(node).total()).sum::<u64>() / MARGIN_SHARE
}

fn nodes() -> impl Iterator<Item = NodeId> {
    machine::description().nodes.ids()
}
