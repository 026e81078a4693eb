//! The machine has no page left for who needs one. What makes guests faster and is not theirs goes, the cheapest first: disk cache that
//! no guest maps; copies of pages on other nodes, first those of the VM that asks, then those of the others, then those of shared
//! pages. What goes is bounded; who asks tries again, and asks for more. Copies are made again where there is
//! [reserve](guest_memory::has_reserve).
//!
//! # Locking
//! Comes after disks and the registry, before the memories of VMs.

use super::registry::{self, Registry};
use crate::{
    io::disks,
    machine::{
        memory::{DirectMemory, frames},
        relief::{self, Asking, Locked, Relief},
    },
    vm::Vm,
};
use addr::Mfn;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use control::EventKind;
use frames::{PageOwner, RetiredCopies};
use spin::Mutex;
use tlb::TlbGeneration;

/// Pages of the disk cache that go at once.
const CACHED: u64 = 128;
/// Pages with copies that go together: all VMs that may see them are interrupted for it.
const COPIED: usize = 512;
/// Copies of shared pages that nobody is led to any more, and the VMs that have seen them: free when these have passed.
struct Retired {
    copies: RetiredCopies,
    seen: Vec<(Weak<Vm>, TlbGeneration)>,
}

/// Who gives copies up, and what is on its way. Others wait: that none are left says nothing while somebody is at it.
static TURN: Mutex<Option<Retired>> = Mutex::new(None);

/// Boot: whoever finds no page asks here.
pub fn init() {
    relief::install(relieve);
}

/// Frees copies of shared pages that were given up, if no hart can see them any more. `true` while some wait.
pub fn step() -> bool {
    TURN.try_lock().is_none_or(|mut retired| {
        free_retired(&mut retired);
        retired.is_some()
    })
}

/// Gives up something, for the VM with this memory if it is for one. No VM's memory may be locked.
fn relieve(asking: Option<&dyn Asking>, locked: Locked) -> Relief {
    if disks::shrink(CACHED, locked) {
        return Relief::Freed;
    }
    let registry = match locked {
        Locked::Nothing => Some(registry::lock()),
        Locked::Something => registry::try_lock(),
    };
    let mut retired = TURN.lock();
    let own = asking.map_or(0, |ram| ram.give_up_copies(COPIED));
    let pages = match &registry {
        Some(registry) if own == 0 => of_somebody(registry, &mut retired),
        _ => own,
    };
    if pages > 0 {
        crate::trace::record(None, EventKind::CopiesGivenUp { pages });
    }
    let waits = retired.is_some() | is_any_deferred(asking, registry.as_deref());
    match (waits, pages) {
        (true, _) => Relief::Coming,
        (false, 1..) => Relief::Freed,
        (false, 0) => Relief::Nothing,
    }
}

/// Frees what waited for shootdowns, as far as it need not wait any more. `true` if something still waits.
fn is_any_deferred(asking: Option<&dyn Asking>, registry: Option<&Registry>) -> bool {
    let own = asking.is_some_and(Asking::free_deferred);
    let lives = registry.into_iter().flat_map(Registry::records).filter_map(|record| record.life.as_ref());
    own | (lives.filter(|vm| vm.memory().free_deferred()).count() > 0)
}

fn of_somebody(registry: &Registry, retired: &mut Option<Retired>) -> u64 {
    let mut vms = registry.records().filter_map(|record| record.life.as_ref());
    let own = vms.find_map(|vm| Some(vm.memory().give_up_copies(COPIED)).filter(|pages| *pages > 0));
    own.unwrap_or_else(|| of_shared_pages(registry, retired))
}

/// Copies of shared pages. Nobody is led to them first; then those who were forget them; when all have, they are free. VMs do not
/// begin meanwhile, so all who have seen them are known.
fn of_shared_pages(registry: &Registry, retired: &mut Option<Retired>) -> u64 {
    let freed = free_retired(retired);
    if freed > 0 || retired.is_some() {
        return freed;
    }
    let copies = frames().retire_spread(COPIED);
    let mut seen: Vec<&Arc<Vm>> = Vec::new();
    for (page, nodes) in copies.pages() {
        let nodes: Vec<_> = nodes.collect();
        for owner in owners_of(page) {
            let mut vms = registry.records().filter_map(|record| record.life.as_ref());
            if let Some(vm) = vms.find(|vm| vm.id == owner.vm) {
                vm.memory().forget_spread(owner.gfn, page, &nodes);
                if !seen.iter().any(|other| other.id == vm.id) {
                    seen.push(vm);
                }
            }
        }
    }
    let generation = |vm: &Arc<Vm>| (Arc::downgrade(vm), vm.memory().forgotten());
    *retired = Some(Retired { copies, seen: seen.into_iter().map(generation).collect() });
    crate::machine::agenda::defer();
    free_retired(retired)
}

/// Frees copies of shared pages that no hart can see any more; returns how many pages are free by it.
fn free_retired(retired: &mut Option<Retired>) -> u64 {
    let is_forgotten =
        |(vm, generation): &(Weak<Vm>, _)| vm.upgrade().is_none_or(|vm| vm.tlb().all_passed(*generation));
    let done = retired.take_if(|retired| retired.seen.iter().all(is_forgotten));
    done.map_or(0, |done| done.copies.free(frames()))
}

fn owners_of(page: Mfn) -> Vec<PageOwner> {
    let mut owners = Vec::new();
    loop {
        let (mut found, room) = (0, owners.capacity());
        // With the node's lock held: nothing may grow.
        frames().for_some_owners(&DirectMemory, page, usize::MAX, |owner| {
            found += 1;
            if found <= room {
                owners.push(owner);
            }
        });
        if found <= room {
            return owners;
        }
        owners = Vec::with_capacity(found + found / 4);
    }
}
