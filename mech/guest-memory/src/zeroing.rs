//! Blocks of 2 MiB that are zeroed for guests that touched them, piece by piece: all of one takes milliseconds where memory is far.
//!
//! The block belongs to nobody meanwhile. Whoever touches it zeroes the next piece, without the memory's lock, so several vCPUs
//! that want the same block do it together. A device does not come again, and has no time for all of it: it takes a block only if that has been
//! zeroed ahead, and a single page else. What has been zeroed of the block goes back then.

use crate::{GuestRam, Inner, Machine, Touch};
use addr::{BASE_PAGE, Gfn};
use frames::{Dirty, Frame, Frames, Pool};
use spin::MutexGuard;

/// Pages zeroed at a time: 10 us where 128 bytes take 300 ns (FLASH), and 30 us on another node.
const PIECE: u64 = 1;

/// A block that is being zeroed.
#[derive(Debug)]
pub(super) struct Zeroing {
    block: Gfn,
    /// `None` while a hart zeroes a piece.
    rest: Option<Rest>,
}

/// A block whose first pages are zero.
#[derive(Debug)]
struct Rest {
    frame: Frame<Dirty>,
    done: u64,
}

impl<M: Machine> GuestRam<M> {
    /// Gives the block of `gfn` 2 MiB if it has nothing yet and there are 2 MiB. If nobody has zeroed them ahead, one piece is
    /// zeroed, and the toucher comes again.
    #[inline]
    pub(super) fn with_block<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
    ) -> Result<MutexGuard<'a, Inner<M>>, Touch> {
        if self.large_allowed && inner.is_vacant_block(gfn) { self.fill_block(inner, pool, gfn) } else { Ok(inner) }
    }

    /// The same for a device, which does not come again: a block that has been zeroed ahead, or nothing. To zero one would hold up the hart
    /// for milliseconds.
    #[cold]
    pub(super) fn fill_for_device(&self, inner: &mut Inner<M>, pool: &Pool<'_, M::Memory>, gfn: Gfn) {
        let is_begun = inner.zeroing.iter().any(|zeroing| zeroing.block == gfn.large_base());
        if !is_begun && let Some(frame) = pool.ready_block(gfn) {
            inner.populate_block(pool, gfn, frame);
        }
    }

    #[inline(never)]
    fn fill_block<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
    ) -> Result<MutexGuard<'a, Inner<M>>, Touch> {
        let block = gfn.large_base();
        let found = inner.zeroing.iter_mut().find(|zeroing| zeroing.block == block);
        let mut rest = match found {
            Some(zeroing) => zeroing.rest.take().ok_or(Touch::Busy)?,
            None => match pool.guest_block(gfn) {
                Some(Ok(frame)) => {
                    inner.populate_block(pool, gfn, frame);
                    return Ok(inner);
                }
                Some(Err(frame)) => {
                    inner.zeroing.push(Zeroing { block, rest: None });
                    Rest { frame, done: 0 }
                }
                None => return Ok(inner),
            },
        };
        drop(inner);
        rest.frame.zero_some(self.memory(), rest.done, PIECE);
        rest.done += PIECE;
        inner = self.inner.lock();
        if inner.is_closed || !inner.is_vacant_block(gfn) {
            // The VM ends, or a device needed a page of it meanwhile.
            inner.zeroing.retain(|zeroing| zeroing.block != block);
            self.frames().free(rest.frame);
            return Ok(inner);
        }
        match rest.frame.overwritten(rest.done * BASE_PAGE) {
            Ok(frame) => {
                inner.zeroing.retain(|zeroing| zeroing.block != block);
                inner.populate_block(pool, gfn, frame);
                Ok(inner)
            }
            Err(frame) => {
                let rest = Rest { frame, done: rest.done };
                if let Some(zeroing) = inner.zeroing.iter_mut().find(|zeroing| zeroing.block == block) {
                    zeroing.rest = Some(rest);
                }
                Err(Touch::GoesOn)
            }
        }
    }
}

impl<M: Machine> Inner<M> {
    fn populate_block(&mut self, pool: &Pool<'_, M::Memory>, gfn: Gfn, frame: Frame<frames::Clean>) {
        if let Err(refused) = self.pmap.populate_large(pool.frames, gfn, frame) {
            pool.frames.free(refused.frame);
        }
    }

    /// The block of `gfn` has got a page in another way: what was zeroed for it goes back. A hart that is at it sees for itself.
    #[cold]
    pub(super) fn stop_zeroing(&mut self, frames: &Frames, gfn: Gfn) {
        let block = gfn.large_base();
        self.zeroing.extract_if(.., |zeroing| zeroing.block == block && zeroing.rest.is_some()).for_each(|zeroing| {
            if let Some(rest) = zeroing.rest {
                frames.free(rest.frame);
            }
        });
    }

    /// The VM ends, and no vCPU is left to go on with these.
    pub(super) fn forget_zeroing(&mut self, frames: &Frames) {
        for zeroing in core::mem::take(&mut self.zeroing) {
            if let Some(rest) = zeroing.rest {
                frames.free(rest.frame);
            }
        }
    }
}
