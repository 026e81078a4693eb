//! The machine has no page left for who needs one. What makes guests faster and is not theirs goes, the cheapest first: disk cache that
//! no guest maps; copies of pages on other nodes, first those of the VM that asks, then those of the others, then those of shared
//! pages. What goes is bounded; who asks tries again, and asks for more. Copies are made again where there is [reserve](has_reserve).
//!
//! # Locking
//! Comes after disks and the registry, before the memories of VMs.

use super::{
    disks,
    memory::{DirectMemory, frames},
};
use crate::vm::{
    memory::GuestRam,
    registry::{self, Registry},
};
use addr::{Mfn, NodeId};
use alloc::vec::Vec;
use control::EventKind;
use frames::{PageOwner, PageState};
use spin::Mutex;

/// Pages of the disk cache that go at once.
const CACHED: u64 = 128;
/// Pages with copies that go together: all VMs that may see them are interrupted for it.
const COPIED: usize = 512;
/// No copies are made on a node with less than this part of its memory free: one of so many.
const RESERVE: u64 = 16;

/// Who gives copies up. Others wait: that none are left says nothing while some are on their way.
static TURN: Mutex<()> = Mutex::new(());

/// What whoever asks has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// No disk, not the registry.
    Nothing,
    /// Perhaps one of these: what they guard stays, if somebody is at it.
    Something,
}

/// Has the node so much free memory that it can have copies of pages?
#[must_use]
pub fn has_reserve(node: NodeId) -> bool {
    let counts = frames().counts(node);
    counts.get(PageState::Free) >= counts.total() / RESERVE
}

/// Gives up something, for the VM with this memory if it is for one. If it is `false` nothing is left, and what others have given up
/// meanwhile is free: the caller's last attempt comes after this. No VM's memory may be locked.
#[must_use]
pub fn relieve(asking: Option<&GuestRam>, locked: Locked) -> bool {
    if disks::shrink(CACHED, locked) {
        return true;
    }
    let registry = match locked {
        Locked::Nothing => Some(registry::lock()),
        Locked::Something => registry::try_lock(),
    };
    let _turn = TURN.lock();
    let own = asking.map_or(0, |ram| ram.give_up_copies(COPIED));
    let pages = match registry {
        Some(registry) if own == 0 => of_somebody(&registry),
        _ => own,
    };
    if pages > 0 {
        crate::trace::record(None, EventKind::CopiesGivenUp { pages });
    }
    pages > 0
}

fn of_somebody(registry: &Registry) -> u64 {
    let mut vms = registry.records().filter_map(|record| record.life.as_ref());
    let own = vms.find_map(|vm| Some(vm.memory().give_up_copies(COPIED)).filter(|pages| *pages > 0));
    own.unwrap_or_else(|| of_shared_pages(registry))
}

/// Copies of shared pages. Nobody is led to them first; then those who were forget them. VMs do not begin meanwhile, so all who have seen
/// them are known.
fn of_shared_pages(registry: &Registry) -> u64 {
    let retired = frames().retire_spread(COPIED);
    let mut seen = Vec::new();
    for (page, nodes) in retired.pages() {
        let nodes: Vec<_> = nodes.collect();
        for owner in owners_of(page) {
            let mut vms = registry.records().filter_map(|record| record.life.as_ref());
            if let Some(vm) = vms.find(|vm| vm.id == owner.vm) {
                vm.memory().forget_spread(owner.gfn, page, &nodes);
                if !seen.iter().any(|id| *id == vm.id) {
                    seen.push(vm.id);
                }
            }
        }
    }
    let vms = registry.records().filter_map(|record| record.life.as_ref());
    vms.filter(|vm| seen.contains(&vm.id)).for_each(|vm| vm.memory().wait_until_seen());
    retired.free(frames())
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
