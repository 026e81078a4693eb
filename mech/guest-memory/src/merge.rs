//! Equal pages of two VMs become one, and blocks of nothing but zeroes go back.
//!
//! What looks equal at first is looked at again when nobody can write it: the original's page is shared and held, the
//! copy's watched, each behind a shootdown; only then is the copy's guest page mapped to the original's machine page. No
//! two memories are locked at a time. A guest that writes meanwhile keeps its page, and loses nothing but a fault.

use crate::{GuestRam, Inner, Machine};
use addr::{BASE_PAGE, Gfn, MachineAddr, Mfn, PAGES_PER_LARGE, PageSize};
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering;
use frames::{DyingList, MachineMemory, PageOwner, PendingShootdown, Pool};
use pmap::PageState;
use rv_pte::PteFlags;
use tlb::TlbGeneration;

/// Pages that are merged, or watched one by one, at a time.
pub const PORTION: usize = 16;

/// Pages that are read to their ends with the lock held: a fault of the VM may wait for so long.
const AT_ONCE: usize = 1;

/// A page that may take the place of another.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// The original's guest page, and the machine page behind it.
    from: Gfn,
    page: Mfn,
    /// The copy's.
    to: Gfn,
    own: Mfn,
}

type Pairs = ArrayVec<Pair, PORTION>;

/// A block that was watched, to find out whether it is all zeroes.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    page: Mfn,
    /// Writes to watched pages of the VM that had been seen then.
    writes: u64,
    /// Writes are seen since all harts inside the VM have passed this.
    since: TlbGeneration,
}

/// Single pages that seemed to be zeroes, and are watched.
#[derive(Clone, Debug)]
pub struct ZeroPages {
    watched: ArrayVec<(Gfn, Mfn), PORTION>,
    since: TlbGeneration,
}

/// Guest pages of two VMs that may be equal, the original's and the copy's.
pub type Candidates = ArrayVec<(Gfn, Gfn), PORTION>;

/// Pages of two VMs that are on their way to become one, step by step: no step waits for a hart.
#[derive(Debug)]
pub struct Merge<M: Machine> {
    machine: M,
    pairs: Pairs,
    stage: Stage,
    /// Pairs that are one, or will not be, and how many are one.
    done: usize,
    merged: u64,
    /// How often it still comes back because others watch pages of the copy.
    patience: u32,
}

/// See [`Merge::patience`].
const PATIENCE: u32 = 64;

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The original's pages can be shared when all harts inside it have passed this generation.
    Offered(TlbGeneration),
    /// They are held, and the copy's cannot be written unseen when all inside that one have passed this.
    Watched(TlbGeneration),
}

impl<M: Machine> Merge<M> {
    /// Begins to map the second of each pair, a page of `copy`, to the first one, of `original`, where they are equal. `None` if none
    /// are. Between any two it calls `pause`.
    pub fn begin(
        original: &GuestRam<M>,
        copy: &GuestRam<M>,
        candidates: &Candidates,
        mut pause: impl FnMut(),
    ) -> Option<Self> {
        let pair = |(from, to): &(Gfn, Gfn)| {
            pause();
            Pair::equal(original, *from, copy, *to)
        };
        let mut pairs: Pairs = candidates.iter().filter_map(pair).collect();
        let offered = original.offer(&mut pairs);
        let machine = original.machine.clone();
        let stage = Stage::Offered(offered);
        (!pairs.is_empty()).then_some(Self { machine, pairs, stage, done: 0, merged: 0, patience: PATIENCE })
    }

    /// Goes on with the two VMs that it was begun with, by a few pages, and by more as long as `may_go_on` says so: how many pages are one
    /// now, or `None` while there is more to do, or harts have to leave guests first.
    pub fn step(
        &mut self,
        original: &GuestRam<M>,
        copy: &GuestRam<M>,
        mut may_go_on: impl FnMut() -> bool,
    ) -> Option<u64> {
        if let Stage::Offered(generation) = self.stage {
            if !original.tlb.all_passed(generation) {
                return None;
            }
            original.hold(&mut self.pairs);
            self.stage = Stage::Watched(copy.watch_copies(&self.pairs));
        }
        if let Stage::Watched(generation) = self.stage
            && !copy.tlb.all_passed(generation)
        {
            return None;
        }
        while let Some(rest @ [_, ..]) = self.pairs.get(self.done..) {
            let some = rest.get(..AT_ONCE).unwrap_or(rest);
            match copy.take_over(some) {
                Some(merged) => self.merged += merged,
                None if self.patience > 0 => {
                    self.patience -= 1;
                    return None;
                }
                // They will be looked at again some time.
                None => {}
            }
            self.done += some.len();
            if self.done < self.pairs.len() && !may_go_on() {
                return None;
            }
        }
        Some(self.merged)
    }

    /// How many pages are one by now.
    #[must_use]
    pub const fn merged(&self) -> u64 {
        self.merged
    }
}

/// Nobody holds the original's pages for it any more.
impl<M: Machine> Drop for Merge<M> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Offered(_)) {
            return;
        }
        for pair in &self.pairs {
            if let Err(why) = self.machine.frames().release_hold(pair.page) {
                log::error!("a page that was merged: {why}");
            }
        }
    }
}

/// Which of `pages` pages (at most 64) from `first` on are `copy`'s own and equal to those of `original` at the same places, by bit, as
/// far as can be told while guests write them.
#[must_use]
pub fn equal_places<M: Machine>(original: &GuestRam<M>, copy: &GuestRam<M>, first: Gfn, pages: u64) -> u64 {
    let mut own: ArrayVec<(Gfn, Mfn), 64> = ArrayVec::new();
    // As many as there is room for.
    copy.own_pages(first, pages.min(64), |gfn, page| own.push((gfn, page)));
    let pairs: ArrayVec<(Gfn, Mfn, Mfn), 64> = {
        let inner = original.inner.lock();
        own.into_iter().filter_map(|(gfn, page)| Some((gfn, page, inner.single_page(gfn)?.0))).collect()
    };
    let equal = pairs.into_iter().filter(|(_, own, theirs)| own != theirs && is_equal(copy.memory(), *own, *theirs));
    equal.fold(0, |bits, (gfn, ..)| bits | 1 << (gfn.raw() - first.raw()))
}

impl Pair {
    /// The machine pages behind the two, if they are different pages with the same contents, as far as can be told while
    /// guests write them.
    fn equal<M: Machine>(original: &GuestRam<M>, from: Gfn, copy: &GuestRam<M>, to: Gfn) -> Option<Self> {
        let (page, own) = (original.page_of(from)?, copy.page_of(to)?);
        (page != own && is_equal(copy.memory(), page, own)).then_some(Self { from, page, to, own })
    }
}

fn words(memory: &impl MachineMemory, page: Mfn) -> impl Iterator<Item = u64> {
    let start = page.addr().raw();
    (start..start + BASE_PAGE).step_by(8).map(|at| memory.read_u64(MachineAddr::new(at)))
}

fn is_equal(memory: &impl MachineMemory, one: Mfn, other: Mfn) -> bool {
    words(memory, one).eq(words(memory, other))
}

/// A few words of a page in one: equal pages have the same, and few others do. 0 if those words are zeroes.
#[must_use]
pub fn fingerprint(memory: &impl MachineMemory, page: Mfn) -> u64 {
    const WORDS: u64 = 16;
    // An odd number of words apart: neither at the same place in each cache line, nor the same field of records of any usual
    // length. (33 words, tried first, are eleven records of a table of relocations, whose type is everywhere the same.)
    const APART: u64 = 31 * 8;
    let sum = |begin: u64| {
        let word = |index: u64| memory.read_u64(MachineAddr::new(page.addr().raw() + begin + index * APART));
        (0..WORDS).map(word).fold(0, |sum: u64, word| (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    match sum(0) {
        // A page that is nearly empty may have something in other places.
        0 => sum(15 * 8),
        sum => sum,
    }
}

/// Whether the page is all zeroes.
fn is_zero(memory: &impl MachineMemory, page: Mfn) -> bool {
    words(memory, page).all(|word| word == 0)
}

impl<M: Machine> GuestRam<M> {
    /// The machine page behind `gfn`, if it is one that can be merged.
    fn page_of(&self, gfn: Gfn) -> Option<Mfn> {
        let mapping = self.inner.lock().pmap.lookup(self.memory(), gfn).ok()?;
        match mapping.state {
            PageState::Private { pins: 0, .. } | PageState::Shared { pins: 0, .. } => mapping.machine_page(gfn),
            _ => None,
        }
    }

    fn merging_pool(&self) -> Pool<'_, M::Memory> {
        let node = self.machine.here();
        self.pool(self.nearest(node))
    }

    /// Makes the original's pages fit to be mapped by others. What cannot be is struck out. They are when all harts inside the VM have
    /// passed the generation.
    fn offer(&self, pairs: &mut Pairs) -> TlbGeneration {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let mut is_weakened = false;
        pairs.retain(|pair| match inner.single_page(pair.from) {
            Some((now, true)) => now == pair.page,
            Some((now, false)) if now == pair.page && inner.pmap.share(&pool, pair.from).is_ok() => {
                inner.exchange_leaves(&pool, pair.from, pair.page, PteFlags::RX, None);
                is_weakened = true;
                true
            }
            _ => false,
        });
        if !is_weakened {
            // Somebody else may have shared them a moment ago, and harts may write them still.
            return inner.last_shared;
        }
        let token = self.tlb.retire();
        inner.last_shared = token.generation();
        drop(inner);
        self.call_out_of(token)
    }

    /// Holds the original's pages, which are shared. What is not any more is struck out.
    fn hold(&self, pairs: &mut Pairs) {
        let inner = self.inner.lock();
        pairs.retain(|pair| {
            let owner = PageOwner { vm: self.vm, gfn: pair.from };
            inner.single_page(pair.from) == Some((pair.page, true)) && self.frames().hold(pair.page, owner).is_ok()
        });
    }

    /// The copy's own pages among these cannot be written unseen when all harts inside the VM have passed the generation.
    fn watch_copies(&self, pairs: &Pairs) -> TlbGeneration {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        for pair in pairs {
            let is_own = inner.single_page(pair.to) == Some((pair.own, false)) && !inner.is_held(pair.to);
            if is_own && inner.pmap.watch(&pool, pair.to).is_ok() {
                inner.exchange_leaves(&pool, pair.to, pair.own, PteFlags::RX, None);
            }
        }
        let token = self.tlb.retire();
        inner.last_watched = token.generation();
        drop(inner);
        self.call_out_of(token)
    }

    /// Maps the copy's guest pages to the original's machine pages, which do not change any more, where they still are equal;
    /// returns how many. `None` if some hart can write unseen what is watched, because somebody who moves pages has watched one of these
    /// anew meanwhile, after a write.
    fn take_over(&self, pairs: &[Pair]) -> Option<u64> {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        if !self.is_watch_settled(&inner) {
            return None;
        }
        let (mut dying, mut merged) = (DyingList::new(), 0);
        let may_merge = self.has_room_later().is_ok();
        for pair in pairs.iter().filter(|_| may_merge) {
            let state = inner.pmap.lookup(self.memory(), pair.to).map(|mapping| mapping.state);
            let is_still = match state {
                Ok(PageState::Private { mfn, watched: true, .. } | PageState::Shared { mfn, .. }) => mfn == pair.own,
                _ => false,
            };
            if is_still
                && is_equal(self.memory(), pair.page, pair.own)
                && inner.pmap.map_shared(&pool, pair.to, pair.page, &mut dying).is_ok()
            {
                inner.exchange_leaves(&pool, pair.to, pair.page, PteFlags::RX, None);
                merged += 1;
            }
        }
        drop(inner);
        self.defer(PendingShootdown::new(self.tlb.retire(), dying));
        self.sharing.merged.fetch_add(merged, Ordering::Relaxed);
        Some(merged)
    }

    /// Whether no hart can write unseen what is watched. If somebody who moves pages has watched one of these anew
    /// meanwhile, after a write, some may: they are looked at again some time.
    fn is_watch_settled(&self, inner: &Inner<M>) -> bool {
        self.tlb.all_passed(inner.last_watched)
    }

    /// Calls `see` with those of `pages` pages from `first` on that are this VM's own, and their machine pages.
    fn own_pages(&self, first: Gfn, pages: u64, mut see: impl FnMut(Gfn, Mfn)) {
        let inner = self.inner.lock();
        for gfn in (first.raw()..first.raw().saturating_add(pages)).map(Gfn::new) {
            if let Some((page, false)) = inner.single_page(gfn) {
                see(gfn, page);
            }
        }
    }

    /// The same with their fingerprints.
    pub fn fingerprints(&self, first: Gfn, pages: u64, mut see: impl FnMut(Gfn, Mfn, u64)) {
        self.own_pages(first, pages, |gfn, page| see(gfn, page, fingerprint(self.memory(), page)));
    }

    /// Calls `see` with the machine pages behind `pages` pages from `first` on, as far as they can be merged.
    pub fn machine_pages(&self, first: Gfn, pages: u64, mut see: impl FnMut(Mfn)) {
        let inner = self.inner.lock();
        for gfn in (first.raw()..first.raw().saturating_add(pages)).map(Gfn::new) {
            if let Some((page, _)) = inner.single_page(gfn) {
                see(page);
            }
        }
    }

    /// Whether it may have pages in common with others.
    #[must_use]
    pub const fn may_share(&self) -> bool {
        self.may_share
    }

    /// One large leaf for the block of `gfn`, where all its pages are shared and those of one machine block: the guest's
    /// kernel keeps its reach of the TLB.
    pub fn join_leaves(&self, gfn: Gfn) {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let Some(first) = inner.pmap.shared_block(self.memory(), gfn) else { return };
        let mut dying = DyingList::new();
        for table in &mut inner.tables {
            // Where it fails the single leaves stay, which say the same.
            let _ = table.collapse(&pool, gfn, first, PteFlags::RX, &mut dying);
        }
        drop(inner);
        self.defer(PendingShootdown::new(self.tlb.retire(), dying));
    }

    /// Whether one large page backs the block of `first`.
    #[must_use]
    pub fn is_large(&self, first: Gfn) -> bool {
        self.inner.lock().pmap.lookup(self.memory(), first).is_ok_and(|mapping| mapping.size == PageSize::Large)
    }

    /// Which of `pages` pages (at most 64) from `first` on are this VM's own and nothing but zeroes now, by bit.
    #[must_use]
    pub fn zeroes(&self, first: Gfn, pages: u64) -> u64 {
        let inner = self.inner.lock();
        let is_zero = |index: &u64| {
            let page = inner.single_page(Gfn::new(first.raw() + index));
            page.is_some_and(|(page, is_shared)| !is_shared && self::is_zero(self.memory(), page))
        };
        (0..pages.min(64)).filter(is_zero).fold(0, |bits, index| bits | 1 << index)
    }

    /// Watches those of `pages` that are single and its own, to give them back if they still are nothing but zeroes when the guest
    /// cannot write them. One that is being moved is not watched, as in [`GuestRam::watch_block`].
    pub fn watch_zero_pages(&self, pages: &ArrayVec<Gfn, PORTION>) -> ZeroPages {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let mut watched = ArrayVec::new();
        for gfn in pages {
            let own = inner.single_page(*gfn).filter(|(_, is_shared)| !is_shared && !inner.is_held(*gfn));
            if let Some((page, _)) = own
                && inner.pmap.watch(&pool, *gfn).is_ok()
            {
                inner.exchange_leaves(&pool, *gfn, page, PteFlags::RX, None);
                watched.push((*gfn, page));
            }
        }
        let token = self.tlb.retire();
        inner.last_watched = token.generation();
        drop(inner);
        ZeroPages { watched, since: self.call_out_of(token) }
    }

    /// Those that were watched and still are nothing but zeroes go back, one by one; returns how many. `None` while some hart may
    /// write them unseen. Between a few of them and the next it calls `pause`.
    pub fn drop_zero_pages(&self, zeroes: &ZeroPages, mut pause: impl FnMut()) -> Option<u64> {
        if !self.tlb.all_passed(zeroes.since) {
            return None;
        }
        let drop_some = |pages: &[(Gfn, Mfn)]| {
            pause();
            self.drop_some_zero_pages(pages)
        };
        Some(zeroes.watched.chunks(AT_ONCE).map(drop_some).sum())
    }

    fn drop_some_zero_pages(&self, watched: &[(Gfn, Mfn)]) -> u64 {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let is_settled = self.is_watch_settled(&inner);
        let (mut dying, mut dropped) = (DyingList::new(), 0);
        for (gfn, page) in watched.iter().copied().filter(|_| is_settled) {
            let state = inner.pmap.lookup(self.memory(), gfn).map(|mapping| mapping.state);
            let is_still = matches!(state, Ok(PageState::Private { mfn, pins: 0, watched: true }) if mfn == page);
            if is_still && is_zero(self.memory(), page) && inner.pmap.release(&pool, gfn, 1, &mut dying).is_ok() {
                inner.remove_leaves(gfn, 1);
                dropped += 1;
            }
        }
        drop(inner);
        self.defer(PendingShootdown::new(self.tlb.retire(), dying));
        self.sharing.zeroes.fetch_add(dropped, Ordering::Relaxed);
        dropped
    }

    /// From soon on the guest does not write the block of `first` unseen: see [`GuestRam::is_in_force`]. Not while it is being moved:
    /// whoever moves it takes a block that is watched for one that was not written since they watched it.
    #[must_use]
    pub fn watch_block(&self, first: Gfn) -> Option<Watched> {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        if inner.is_held(first) || inner.is_copying(first) {
            return None;
        }
        let page = inner.pmap.watch_large(&pool, first).ok()?;
        inner.weaken_block(first);
        let token = self.tlb.retire();
        inner.last_watched = token.generation();
        let writes = inner.watched_writes;
        drop(inner);
        Some(Watched { page, writes, since: self.call_out_of(token) })
    }

    /// Whether a write to the block would be seen by now: every hart has passed the watch's shootdown.
    #[must_use]
    pub fn is_in_force(&self, watch: Watched) -> bool {
        self.tlb.all_passed(watch.since)
    }

    /// The block of `first` was nothing but zeroes since [`GuestRam::is_in_force`]: it goes back, unless the guest has written to
    /// memory that is watched. The next touch finds zeroes again. Returns whether it went.
    pub fn drop_zeroes(&self, first: Gfn, since: Watched) -> bool {
        let pool = self.merging_pool();
        let mut inner = self.inner.lock();
        let state = inner.pmap.lookup(self.memory(), first).map(|mapping| (mapping.state, mapping.size));
        let is_still = matches!(state, Ok((PageState::Private { mfn, pins: 0, watched: true }, PageSize::Large)) if mfn == since.page);
        if !is_still || inner.watched_writes != since.writes {
            return false;
        }
        let mut dying = DyingList::new();
        let released = inner.pmap.release(&pool, first, PAGES_PER_LARGE, &mut dying).is_ok();
        inner.remove_leaves(first, PAGES_PER_LARGE);
        drop(inner);
        self.defer(PendingShootdown::new(self.tlb.retire(), dying));
        self.sharing.zeroes.fetch_add(PAGES_PER_LARGE, Ordering::Relaxed);
        released
    }

    /// Pages that were merged with another VM's, and pages of zeroes that went back.
    #[must_use]
    pub fn pages_merged(&self) -> (u64, u64) {
        (self.sharing.merged.load(Ordering::Relaxed), self.sharing.zeroes.load(Ordering::Relaxed))
    }
}

impl<M: Machine> Inner<M> {
    /// The machine page behind `gfn` that no device uses, and whether it is shared.
    fn single_page(&self, gfn: Gfn) -> Option<(Mfn, bool)> {
        let mapping = self.pmap.lookup(self.machine.memory(), gfn).ok()?;
        match mapping.state {
            PageState::Private { pins: 0, .. } => Some((mapping.machine_page(gfn)?, false)),
            PageState::Shared { mfn, pins: 0 } => Some((mfn, true)),
            _ => None,
        }
    }
}
