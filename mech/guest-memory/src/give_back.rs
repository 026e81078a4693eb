//! Pages that come back: those that the guest does not need, and all of them at its end.

use crate::{GuestRam, Inner, Machine};
use addr::{BASE_PAGE, Gfn, GuestPhysAddr, NodeId, PAGES_PER_LARGE};
use control::EventKind;
use core::sync::atomic::Ordering;
use frames::{DyingList, PendingShootdown, Pool};
use gstage::NodeTable;

/// Pages and whole blocks that one step of [`GuestRam::give_back`] looks at: bounded work with the memory locked, a tenth of a
/// millisecond where each page goes by itself.
const STEP: u64 = 128;
/// Pages that a guest gives back before an event tells: 16 MiB.
const PAGES_PER_EVENT: u64 = 4096;
/// Entries of tables, and tables, that one teardown step looks at.
const TEARDOWN_ENTRIES: u64 = 256;
/// Guest pages that one teardown step gives back: bounded work.
const TEARDOWN_BLOCKS: u64 = PAGES_PER_LARGE;
/// Pages or blocks of these that go in one step.
const TEARDOWN_STEP: u32 = 64;

/// What a step of [`GuestRam::give_back`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// Bytes from the start on that are dealt with: their pages have gone back, or cannot. Less than asked for: go on behind them.
    /// 0: too many references to shared pages wait for harts, and the guest keeps its pages.
    pub bytes: u64,
    /// Pages and whole blocks that were looked at: what it took.
    pub looked_at: u64,
}

impl<M: Machine> GuestRam<M> {
    /// One bounded step. The guest does not need `[start, start + len)` any more: its machine pages are free as soon as no TLB knows
    /// them.
    pub fn give_back(&self, start: GuestPhysAddr, len: u64) -> GivenBack {
        if self.has_room_later().is_err() {
            return GivenBack::default();
        }
        let node = self.machine.here();
        let pool = self.pool(self.nearest(node));
        let (first, end) = (start.gfn(), start.gfn().raw() + len / BASE_PAGE);
        let (mut at, mut looked_at, mut returned) = (first.raw(), 0, 0);
        let (mut dying, mut has_changed) = (DyingList::new(), false);
        let token = {
            let mut inner = self.inner.lock();
            while at < end && looked_at < STEP {
                let block = Gfn::new(at);
                let pages = (end - at).min(PAGES_PER_LARGE - block.index_in_large() as u64);
                // Where there is no table to split a block the guest keeps it.
                let outcome = inner.pmap.release_some(&pool, block, pages, &mut dying, (STEP - looked_at) as u32);
                let next = outcome.ok().and_then(|released| released.next);
                let done = next.map_or(pages, |next| next.raw() - at);
                if done == 0 {
                    break;
                }
                // What had nothing has no leaves.
                if outcome.is_err() || outcome.is_ok_and(|released| released.pages != 0) {
                    inner.remove_leaves(block, done);
                    has_changed = true;
                }
                let released = outcome.unwrap_or_default();
                at += done;
                looked_at += u64::from(released.looked_at.max(1));
                returned += released.pages;
            }
            has_changed.then(|| self.tlb.retire())
        };
        if let Some(token) = token {
            self.defer(PendingShootdown::new(token, dying));
        }
        self.returned.fetch_add(returned, Ordering::Relaxed);
        self.tell_returned(returned, PAGES_PER_EVENT);
        GivenBack { bytes: (at - first.raw()) * BASE_PAGE, looked_at }
    }

    /// So many pages came back; an event says so when there are `enough`.
    fn tell_returned(&self, pages: u64, enough: u64) {
        if self.untold.fetch_add(pages, Ordering::Relaxed) + pages < enough {
            return;
        }
        let untold = self.untold.swap(0, Ordering::Relaxed);
        if untold != 0 {
            self.machine.tell(self.vm, EventKind::PagesReturned { pages: untold });
        }
    }

    /// One bounded step of giving everything back; no vCPU is left. `true` while there is more. From the first one on nothing gets behind
    /// a page any more: for devices there is no memory where there is none yet.
    pub fn tear_down_step(&self) -> bool {
        let pool = self.pool(self.nearest(NodeId(0)));
        let mut inner = self.inner.lock();
        inner.is_closed = true;
        // Nobody is inside any more: what waited can be freed, a part of it in each step, before more comes. A copy of a block may hold 512
        // pages.
        if self.free_deferred() || inner.forget_block_copy() {
            return true;
        }
        let mut dying = core::mem::take(&mut inner.replaced);
        inner.forget_zeroing(self.frames());
        inner.forget_block_move();
        let more = match inner.teardown_at {
            Some(at) => {
                let end = self.base.raw() + self.pages;
                let pages = TEARDOWN_BLOCKS.min(end - at.raw());
                let released = inner.pmap.release_some(&pool, at, pages, &mut dying, TEARDOWN_STEP).ok();
                self.untold.fetch_add(released.map_or(0, |released| released.pages), Ordering::Relaxed);
                let next = released.and_then(|released| released.next);
                let next = next.unwrap_or(Gfn::new(at.raw() + pages));
                inner.teardown_at = (next.raw() < end).then_some(next);
                true
            }
            None => inner.dismantle_some(&pool, &mut dying),
        };
        drop(inner);
        if !more {
            self.tell_returned(0, 0);
        }
        self.hold_back(PendingShootdown::new(self.tlb.retire(), dying));
        self.free_deferred() || more
    }
}

impl<M: Machine> Inner<M> {
    /// A part of all tables goes: the guest has no pages any more. `true` while there is more.
    fn dismantle_some(&mut self, pool: &Pool<'_, M::Memory>, dying: &mut DyingList) -> bool {
        self.dismantling.extend(core::mem::take(&mut self.tables).into_iter().map(NodeTable::dismantle));
        let Some(table) = self.dismantling.last_mut() else { return false };
        match table.step(pool, dying, TEARDOWN_ENTRIES) {
            Ok(true) => {}
            Ok(false) => _ = self.dismantling.pop(),
            Err(why) => log::error!("G-stage table of VM {:?}: {why:?}", pool.vm),
        }
        true
    }
}
