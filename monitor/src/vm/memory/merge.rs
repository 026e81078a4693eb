//! Equal pages of two VMs become one, and blocks of nothing but zeroes go back.
//!
//! What looks equal at first is looked at again when nobody can write it: the original's page is shared and held, the
//! copy's watched, each behind a shootdown; only then is the copy's guest page mapped to the original's machine page. No
//! two memories are locked at a time. A guest that writes meanwhile keeps its page, and loses nothing but a fault.

use super::{GuestRam, Inner};
use crate::machine::memory::{DirectMemory, frames, nearest};
use addr::{BASE_PAGE, Gfn, MachineAddr, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use core::sync::atomic::Ordering;
use frames::{DyingList, MachineMemory, PageOwner, PendingShootdown, Pool};
use merging::PORTION;
use pmap::PageState;
use rv_pte::PteFlags;
use spin::MutexGuard;

/// Machine pages of a portion that may become one, by their number in it: the original's and the copy's.
type Pairs = [Option<(Mfn, Mfn)>; PORTION as usize];

/// A block that was watched, to find out whether it is all zeroes.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    page: Mfn,
    /// Writes to watched pages of the VM that had been seen then.
    writes: u64,
}

/// Maps pages of `copy` from `to` on to those of `original` from `from` on where they are equal; returns how many.
pub fn merge(original: &GuestRam, from: Gfn, copy: &GuestRam, to: Gfn, pages: u64) -> u64 {
    let mut pairs: Pairs = [None; PORTION as usize];
    for (index, pair) in (0..pages).zip(&mut pairs) {
        *pair = equal_now(original, Gfn::new(from.raw() + index), copy, Gfn::new(to.raw() + index));
    }
    if pairs.iter().all(Option::is_none) {
        return 0;
    }
    original.offer(from, &mut pairs);
    let merged = copy.take_over(to, &pairs);
    for (page, _) in pairs.iter().flatten() {
        if let Err(why) = frames().release_hold(*page) {
            log::error!("memory of VM {:?}: {why}", original.vm);
        }
    }
    merged
}

/// The machine pages behind the two, if they are different pages with the same contents, as far as can be told while guests
/// write them.
fn equal_now(original: &GuestRam, from: Gfn, copy: &GuestRam, to: Gfn) -> Option<(Mfn, Mfn)> {
    let (theirs, own) = (original.page_of(from)?, copy.page_of(to)?);
    (theirs != own && is_equal(theirs, own)).then_some((theirs, own))
}

fn words(page: Mfn) -> impl Iterator<Item = u64> {
    let start = page.addr().raw();
    (start..start + BASE_PAGE).step_by(8).map(|at| DirectMemory.read_u64(MachineAddr::new(at)))
}

fn is_equal(one: Mfn, other: Mfn) -> bool {
    words(one).eq(words(other))
}

/// Is the page all zeroes?
#[must_use]
pub fn is_zero(page: Mfn) -> bool {
    words(page).all(|word| word == 0)
}

impl GuestRam {
    /// The machine page behind `gfn`, if it is one that can be merged.
    fn page_of(&self, gfn: Gfn) -> Option<Mfn> {
        let mapping = self.inner.lock().pmap.lookup(&DirectMemory, gfn).ok()?;
        match mapping.state {
            PageState::Private { pins: 0, .. } | PageState::Shared { pins: 0, .. } => mapping.machine_page(gfn),
            _ => None,
        }
    }

    fn merging_pool(&self) -> Pool<'static, DirectMemory> {
        let node = crate::boot::this_hart().map_or(NodeId(0), |hart| hart.node);
        self.pool(nearest(node))
    }

    /// Makes the first pages of `pairs` fit to be mapped by others, and holds them. What cannot be is struck out.
    fn offer(&self, from: Gfn, pairs: &mut Pairs) {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let mut is_weakened = false;
        for (pair, gfn) in pairs.iter_mut().zip(from.raw()..) {
            let (Some((page, _)), gfn) = (*pair, Gfn::new(gfn)) else { continue };
            match inner.single_page(gfn) {
                Some((now, true)) if now == page => {}
                Some((now, false)) if now == page && inner.pmap.share(&pool, gfn).is_ok() => {
                    inner.exchange_leaves(&pool, gfn, page, PteFlags::RX, None);
                    is_weakened = true;
                }
                _ => *pair = None,
            }
        }
        let inner = if is_weakened { self.settle(inner, DyingList::new()) } else { inner };
        for (pair, gfn) in pairs.iter_mut().zip(from.raw()..) {
            let (Some((page, _)), gfn) = (*pair, Gfn::new(gfn)) else { continue };
            let is_shared = inner.single_page(gfn) == Some((page, true));
            if !is_shared || frames().hold(page, PageOwner { vm: self.vm, gfn }).is_err() {
                *pair = None;
            }
        }
    }

    /// Maps guest pages from `to` on to the first pages of `pairs`, which do not change any more, where they still equal the
    /// second ones; returns how many.
    fn take_over(&self, to: Gfn, pairs: &Pairs) -> u64 {
        let pool = self.merging_pool();
        let wanted = || pairs.iter().zip(to.raw()..).filter_map(|(pair, gfn)| Some(((*pair)?, Gfn::new(gfn))));
        let mut inner = self.inner.lock();
        for ((_, own), gfn) in wanted() {
            if inner.single_page(gfn) == Some((own, false)) && inner.pmap.watch(&pool, gfn).is_ok() {
                inner.exchange_leaves(&pool, gfn, own, PteFlags::RX, None);
            }
        }
        let token = self.tlb.retire();
        let watched = token.generation();
        inner.last_watched = watched;
        drop(inner);
        self.finish(PendingShootdown::new(token, DyingList::new()));
        let mut inner = self.inner.lock();
        let (mut dying, mut merged) = (DyingList::new(), 0);
        // Somebody who moves pages may have watched one of these anew, after a write. They are looked at again some time.
        let is_settled = inner.last_watched == watched || self.tlb.all_passed(inner.last_watched);
        for ((theirs, own), gfn) in wanted().filter(|_| is_settled) {
            let state = inner.pmap.lookup(&DirectMemory, gfn).map(|mapping| mapping.state);
            let is_still = match state {
                Ok(PageState::Private { mfn, watched: true, .. } | PageState::Shared { mfn, .. }) => mfn == own,
                _ => false,
            };
            if is_still && is_equal(theirs, own) && inner.pmap.map_shared(&pool, gfn, theirs, &mut dying).is_ok() {
                inner.exchange_leaves(&pool, gfn, theirs, PteFlags::RX, None);
                merged += 1;
            }
        }
        drop(self.settle(inner, dying));
        self.sharing.merged.fetch_add(merged, Ordering::Relaxed);
        merged
    }

    /// Waits, without the lock, until no hart relies on leaves as they were before; frees `dying` then.
    fn settle<'a>(&'a self, inner: MutexGuard<'a, Inner>, dying: DyingList) -> MutexGuard<'a, Inner> {
        let token = self.tlb.retire();
        drop(inner);
        self.finish(PendingShootdown::new(token, dying));
        self.inner.lock()
    }

    /// One large leaf for the block of `gfn`, where all its pages are shared and those of one machine block: the guest's
    /// kernel keeps its reach of the TLB.
    pub fn join_leaves(&self, gfn: Gfn) {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let Some(first) = inner.pmap.shared_block(&DirectMemory, gfn) else { return };
        let mut dying = DyingList::new();
        for table in &mut inner.tables {
            // Where it fails the single leaves stay, which say the same.
            let _ = table.collapse(&pool, gfn, first, PteFlags::RX, &mut dying);
        }
        drop(self.settle(inner, dying));
    }

    /// The first machine page of the large page that backs the block of `first`.
    #[must_use]
    pub fn large_page(&self, first: Gfn) -> Option<Mfn> {
        let mapping = self.inner.lock().pmap.lookup(&DirectMemory, first).ok()?;
        match mapping.state {
            PageState::Private { mfn, pins: 0, .. } if mapping.size == PageSize::Large => Some(mfn),
            _ => None,
        }
    }

    /// From now on the guest does not write the block of `first` unseen. Not while it is being moved: whoever moves it takes a
    /// block that is watched for one that was not written since they watched it.
    #[must_use]
    pub fn watch_block(&self, first: Gfn) -> Option<Watched> {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        if inner.is_held(first) {
            return None;
        }
        let page = inner.pmap.watch_large(&pool, first).ok()?;
        for table in &mut inner.tables {
            table.weaken(&DirectMemory, first, PAGES_PER_LARGE, PteFlags::RX);
        }
        let token = self.tlb.retire();
        inner.last_watched = token.generation();
        drop(inner);
        self.finish(PendingShootdown::new(token, DyingList::new()));
        let inner = self.inner.lock();
        Some(Watched { page, writes: inner.watched_writes })
    }

    /// The block of `first` was nothing but zeroes since [`GuestRam::watch_block`]: it goes back, unless the guest has written to
    /// memory that is watched. The next touch finds zeroes again. Returns whether it went.
    pub fn drop_zeroes(&self, first: Gfn, since: Watched) -> bool {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let state = inner.pmap.lookup(&DirectMemory, first).map(|mapping| (mapping.state, mapping.size));
        let is_still = matches!(state, Ok((PageState::Private { mfn, pins: 0, watched: true }, PageSize::Large)) if mfn == since.page);
        if !is_still || inner.watched_writes != since.writes {
            return false;
        }
        let mut dying = DyingList::new();
        let released = inner.pmap.release(&pool, first, PAGES_PER_LARGE, &mut dying).is_ok();
        inner.remove_leaves(first, PAGES_PER_LARGE);
        drop(self.settle(inner, dying));
        self.sharing.zeroes.fetch_add(PAGES_PER_LARGE, Ordering::Relaxed);
        released
    }

    /// Pages that were merged with another VM's, and pages of zeroes that went back.
    #[must_use]
    pub fn pages_merged(&self) -> (u64, u64) {
        (self.sharing.merged.load(Ordering::Relaxed), self.sharing.zeroes.load(Ordering::Relaxed))
    }
}

impl Inner {
    /// The machine page behind `gfn` that no device uses, and whether it is shared.
    fn single_page(&self, gfn: Gfn) -> Option<(Mfn, bool)> {
        let mapping = self.pmap.lookup(&DirectMemory, gfn).ok()?;
        match mapping.state {
            PageState::Private { pins: 0, .. } => Some((mapping.machine_page(gfn)?, false)),
            PageState::Shared { mfn, pins: 0 } => Some((mfn, true)),
            _ => None,
        }
    }
}
