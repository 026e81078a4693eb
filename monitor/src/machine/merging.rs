//! Carries out what the policy of crate `merging` proposes, in bounded steps of the control hart: whoever ends a VM does so on
//! the same hart, so nobody holds on to a VM that is to go.

use crate::vm::{
    Vm,
    memory::{self, Watched},
    registry,
};
use addr::{Gfn, Mfn, PAGES_PER_LARGE, VmId};
use alloc::sync::Arc;
use control::EventKind;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use merging::{Guest, Image, Merging, Proposal};
use rv::csr;
use spin::Mutex;

/// Steps per second while there is something to do.
const STEPS_HZ: u64 = 500;
/// How long a step waits for a moment in which the control hart runs no guest. A guest that never rests is interrupted no
/// more often.
const PATIENCE_S: u64 = 1;
/// Blocks whose first words are looked at in one step.
const LOOKS: usize = 32;
/// Pages of a block that are searched for anything but zeroes in one step.
const SEARCH: u64 = 32;

/// A block that has been nothing but zeroes so far.
#[derive(Clone, Copy, Debug)]
struct Search {
    vm: VmId,
    first: Gfn,
    page: Mfn,
    /// Pages searched.
    done: u64,
    /// Whether this is the search that counts: the guest cannot write the block unseen.
    watched: Option<Watched>,
}

#[derive(Debug)]
struct Work {
    policy: Merging,
    search: Option<Search>,
    /// What the pass under way has found.
    merged: u64,
    zeroes: u64,
}

static WORK: Mutex<Work> = Mutex::new(Work { policy: Merging::new(), search: None, merged: 0, zeroes: 0 });
/// Whether a pass is not finished.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// When the next step is due.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
/// When it is even if the control hart does not rest before.
static LATEST: AtomicU64 = AtomicU64::new(u64::MAX);

fn plan(next: u64, is_busy: bool) {
    let latest = next.saturating_add(PATIENCE_S * super::capabilities().timebase_hz);
    NEXT.store(next, Ordering::Relaxed);
    LATEST.store(latest, Ordering::Relaxed);
    UNDER_WAY.store(is_busy, Ordering::Relaxed);
    super::duties::note(next, latest);
}

/// A VM begins to run, loaded from `image`.
pub fn began(vm: &Vm, image: Option<Image>) {
    let ram = vm.memory();
    let guest = Guest { vm: vm.id, base: ram.base(), pages: ram.bytes() / addr::BASE_PAGE, image };
    let mut work = WORK.lock();
    work.policy.began(guest, csr::time::read(), super::capabilities().timebase_hz);
    plan(work.policy.next_due(), false);
}

/// A VM's memory is about to go.
pub fn ended(vm: VmId) {
    let mut work = WORK.lock();
    work.policy.ended(vm);
    work.search.take_if(|search| search.vm == vm);
    if work.policy.next_due() == u64::MAX {
        // Nobody to share with is left.
        work.search = None;
        plan(u64::MAX, false);
    }
}

/// When there will be something to do.
#[inline]
#[must_use]
pub fn next_step() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// When there will be, if the control hart does not rest before.
#[inline]
#[must_use]
pub fn latest_step() -> u64 {
    LATEST.load(Ordering::Relaxed)
}

/// Is there work that goes on when the control hart rests?
#[inline]
#[must_use]
pub fn is_under_way() -> bool {
    UNDER_WAY.load(Ordering::Relaxed)
}

/// Is there something to do?
#[inline]
#[must_use]
pub fn is_due() -> bool {
    let next = next_step();
    next != u64::MAX && csr::time::read() >= next
}

/// A bounded piece of work, if it is due.
pub fn step() {
    if !is_due() {
        return;
    }
    let now = csr::time::read();
    let mut work = WORK.lock();
    work.step(now);
    let is_busy = work.search.is_some() || work.policy.next_due() <= now;
    let next = if is_busy { now + super::capabilities().timebase_hz / STEPS_HZ } else { work.policy.next_due() };
    plan(next, is_busy);
}

impl Work {
    fn step(&mut self, now: u64) {
        if let Some(search) = self.search.take() {
            self.search = self.go_on(search);
            return;
        }
        for _ in 0..LOOKS {
            match self.policy.next(now) {
                Some(Proposal::Compare { original, copy, pages }) => {
                    self.merged += compare(original, copy, pages).unwrap_or(0);
                    return;
                }
                Some(Proposal::Zeroes { vm, first }) => {
                    let page = alive(vm).and_then(|life| life.memory().large_page(first));
                    // Nearly all blocks are told by their first page.
                    if let Some(page) = page.filter(|page| memory::is_zero(*page)) {
                        self.search = Some(Search { vm, first, page, done: 1, watched: None });
                        return;
                    }
                }
                Some(Proposal::Passed { vm }) => {
                    let (merged, zeroes) = (core::mem::take(&mut self.merged), core::mem::take(&mut self.zeroes));
                    if merged + zeroes != 0 {
                        crate::trace::record(Some(vm), EventKind::PagesMerged { merged, zeroes });
                    }
                }
                None => return,
            }
        }
    }

    /// Searches on; `None` when it has ended.
    fn go_on(&mut self, search: Search) -> Option<Search> {
        let end = (search.done + SEARCH).min(PAGES_PER_LARGE);
        let mut pages = (search.done..end).map(|index| Mfn::new(search.page.raw() + index));
        if !pages.all(memory::is_zero) {
            return None;
        }
        if end < PAGES_PER_LARGE {
            return Some(Search { done: end, ..search });
        }
        let life = alive(search.vm)?;
        match search.watched {
            None => {
                let watched = Some(life.memory().watch_block(search.first)?);
                Some(Search { done: 0, watched, ..search })
            }
            Some(since) => {
                if life.memory().drop_zeroes(search.first, since) {
                    self.zeroes += PAGES_PER_LARGE;
                }
                None
            }
        }
    }
}

fn compare(original: (VmId, Gfn), copy: (VmId, Gfn), pages: u64) -> Option<u64> {
    let (theirs, own) = (alive(original.0)?, alive(copy.0)?);
    let merged = memory::merge(theirs.memory(), original.1, own.memory(), copy.1, pages);
    for (life, first) in [(&theirs, original.1), (&own, copy.1)] {
        if (first.raw() + pages).is_multiple_of(PAGES_PER_LARGE) {
            life.memory().join_leaves(first);
        }
    }
    Some(merged)
}

/// The present life of a VM, unless it is ending.
fn alive(vm: VmId) -> Option<Arc<Vm>> {
    let registry = registry::lock();
    let record = registry.records().find(|record| record.id == vm)?;
    record.life.clone().filter(|life| !life.is_ending())
}
