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
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use arrayvec::ArrayVec;
use control::EventKind;
use frames::{MOST_REFERENCES, RetiredCopies};
use placement::NODES;
use scarce::Grow;
use spin::Mutex;
use tlb::TlbGeneration;

/// Pages of the disk cache that go at once.
const CACHED: u64 = 128;
/// Pages with copies that go together: all VMs that may see them are interrupted for it.
const COPIED: usize = 512;
/// Pages with copies whose owners are told at once: each may have [`MOST_REFERENCES`].
const TOLD: usize = 4;

/// Copies of shared pages that nobody is led to any more.
struct Retired {
    copies: RetiredCopies,
    /// Pages whose owners have been told to forget them, from the first on.
    told: usize,
    /// The VMs that have seen them: the copies are free when these have passed, and all owners have been told.
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
    let registry = registry::lock();
    TURN.try_lock().is_none_or(|mut retired| {
        free_retired(&registry, &mut retired);
        retired.is_some()
    })
}

/// Gives up something, for the VM with this memory if it is for one. No VM's memory may be locked.
fn relieve(asking: Option<&dyn Asking>, locked: Locked) -> Relief {
    if disks::shrink(CACHED, locked) {
        return Relief::Freed;
    }
    // Whoever holds it may be at something long: the caller tries again then, if it can.
    let registry = registry::try_lock();
    if registry.is_none() && locked == Locked::Nothing {
        return Relief::Coming;
    }
    let mut retired = TURN.lock();
    let own = asking.map_or(0, |ram| tell(ram.give_up_copies(COPIED)));
    let pages = match &registry {
        Some(registry) if own == 0 => of_somebody(registry, &mut retired),
        _ => own,
    };
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
    let of_one = vms.find_map(|vm| Some(vm.memory().give_up_copies(COPIED)).filter(|pages| *pages > 0));
    of_one.map(tell).unwrap_or_else(|| of_shared_pages(registry, retired))
}

/// Copies of shared pages. Nobody is led to them first; then those who were forget them; when all have, they are free. VMs do not
/// begin meanwhile, so all who have seen them are known.
fn of_shared_pages(registry: &Registry, retired: &mut Option<Retired>) -> u64 {
    let freed = free_retired(registry, retired);
    if freed > 0 || retired.is_some() {
        return freed;
    }
    *retired = Some(Retired { copies: frames().retire_spread(COPIED), told: 0, seen: Vec::new() });
    crate::machine::agenda::defer();
    free_retired(registry, retired)
}

/// Frees copies of shared pages that no hart can see any more; returns how many pages are free by it.
fn free_retired(registry: &Registry, retired: &mut Option<Retired>) -> u64 {
    let done = retired.take_if(|retired| retired.tell_owners(registry) && retired.is_forgotten());
    done.map_or(0, |done| tell(done.copies.free(frames())))
}

/// An event for this many copies that were given up, whoever carried it out.
fn tell(pages: u64) -> u64 {
    if pages > 0 {
        crate::trace::record(None, EventKind::CopiesGivenUp { pages });
    }
    pages
}

impl Retired {
    /// Whoever was led to a copy of the next few pages forgets it. `false` if that is not done for all: a later call goes on.
    fn tell_owners(&mut self, registry: &Registry) -> bool {
        let Ok(mut owners) = scarce::room(MOST_REFERENCES as usize) else { return false };
        let Ok(mut seen) = scarce::room::<&Arc<Vm>>(registry.records().count()) else { return false };
        if self.seen.grow(registry.records().count()).is_err() {
            return false;
        }
        let mut told = 0;
        for (page, nodes) in self.copies.pages().skip(self.told).take(TOLD) {
            owners.clear();
            // There are no more: with the node's lock held nothing may grow.
            frames().for_some_owners(&DirectMemory, page, MOST_REFERENCES as usize, |owner| owners.push(owner));
            let nodes: ArrayVec<_, NODES> = nodes.collect();
            for owner in &owners {
                let mut vms = registry.records().filter_map(|record| record.life.as_ref());
                if let Some(vm) = vms.find(|vm| vm.id == owner.vm) {
                    vm.memory().forget_spread(owner.gfn, page, &nodes);
                    if !seen.iter().any(|other| other.id == vm.id) {
                        seen.push(vm);
                    }
                }
            }
            told += 1;
        }
        self.told += told;
        for vm in seen {
            let generation = vm.memory().forgotten();
            let life = Arc::downgrade(vm);
            match self.seen.iter_mut().find(|(other, _)| other.ptr_eq(&life)) {
                Some((_, since)) => *since = generation,
                None => self.seen.push((life, generation)),
            }
        }
        self.copies.pages().len() == self.told
    }

    /// Whether no hart can see them any more.
    fn is_forgotten(&self) -> bool {
        let is_passed = |(vm, generation): &(Weak<Vm>, _)| {
            let vm: Option<Arc<Vm>> = vm.upgrade();
            vm.is_none_or(|vm| vm.tlb().all_passed(*generation))
        };
        self.seen.iter().all(is_passed)
    }
}
