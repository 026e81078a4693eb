//! Blocks that were split and are single pages of one machine block again, or still: large pages in the background.
//!
//! Pages were watched one by one and nothing came of it, or had copies for readers until somebody wrote them. Nothing is copied
//! for it: pages that lie elsewhere by now stay single.

use crate::{GuestRam, Inner, Machine};
use addr::{Gfn, NodeId, PAGES_PER_LARGE};
use core::sync::atomic::Ordering::Relaxed;

/// So long nothing is put together after a block of the VM was split for its pages' sake.
const APART_SECONDS: u64 = 10;

impl<M: Machine> GuestRam<M> {
    /// Nothing is put together for a while: pages of a block have just been told apart, and shall find their places.
    pub(super) fn keep_apart(&self) {
        let until = self.machine.now() + APART_SECONDS * self.machine.ticks_per_second();
        self.join_from.fetch_max(until, Relaxed);
    }

    /// Looks at the next `blocks` blocks, and puts the first one together that can be; whether there was one.
    pub fn join_next(&self, blocks: u64, now: u64) -> bool {
        if !self.large_allowed || now < self.join_from.load(Relaxed) {
            return false;
        }
        let pool = self.pool(self.nearest(NodeId(0)));
        let mut inner = self.inner.lock();
        let all = self.pages / PAGES_PER_LARGE;
        // A copy that was just made may be written when its shootdown has ended: not before.
        if all == 0 || !self.tlb.all_passed(inner.last_replaced) {
            return false;
        }
        for _ in 0..blocks.min(all) {
            inner.join_at = (inner.join_at + 1) % all;
            let gfn = Gfn::new(self.base.raw() + inner.join_at * PAGES_PER_LARGE).large_base();
            if inner.is_joinable(gfn) {
                for page in (gfn.raw()..gfn.raw() + PAGES_PER_LARGE).map(Gfn::new) {
                    let was_watched = inner.pmap.note_write_quickly(self.memory(), page).is_some();
                    inner.watched_writes += u64::from(was_watched);
                }
                if inner.pmap.collapse(&pool, gfn).is_ok() {
                    let _ = self.install_large(inner, &pool, gfn);
                    self.placing.joined.fetch_add(1, Relaxed);
                    return true;
                }
            }
        }
        false
    }
}

impl<M: Machine> Inner<M> {
    fn is_joinable(&self, gfn: Gfn) -> bool {
        let is_held = self.is_moving_block(gfn) || self.held.iter().any(|held| held.large_base() == gfn);
        !is_held && self.pmap.is_one_block(self.machine.memory(), gfn)
    }
}
