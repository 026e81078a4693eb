//! What writes have come to: it takes effect in memory, and goes to the log.

use storage::Status;

use crate::job::{CHANGES_PER_BLOCK, Job, Stop};
use crate::layers::{Entry, Mask};
use crate::store::Store;

/// `count` blocks from `block` on have sectors `mask` in data blocks from `target` on.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub block: u64,
    pub count: u64,
    pub target: u64,
    pub mask: Mask,
    /// The data blocks were taken for it.
    pub is_new: bool,
}

impl Store {
    /// What a long write has written so far takes effect, as soon as no part of it is under way.
    pub(crate) fn settle(&mut self, job: &mut Job) -> Result<(), Stop> {
        let Some(layer) = job.layer.filter(|_| job.unsettled > 0) else { return Ok(()) };
        if job.outstanding > 0 {
            return Err(Stop::Outstanding);
        }
        let settled = core::mem::take(&mut job.unsettled);
        job.spend(settled.div_ceil(CHANGES_PER_BLOCK));
        job.held.drain(..).for_each(|first| self.held.remove(layer, first));
        self.promised -= job.effects.len();
        job.effects.drain(..).for_each(|effect| self.apply(layer, effect));
        self.unblock();
        Ok(())
    }

    /// A part of a write waits while the log has too much to write. It keeps nothing meanwhile that others wait for.
    pub(crate) fn await_log(&mut self, job: &mut Job) -> Result<(), Stop> {
        if self.is_broken {
            return Err(Stop::End(Status::IoError));
        }
        if !self.is_behind() {
            return Ok(());
        }
        self.settle(job)?;
        // It refers to nothing now, so what it has freed itself need not wait for it.
        self.reap();
        if self.is_behind() { Err(Stop::Blocked) } else { Ok(()) }
    }

    pub(crate) fn apply(&mut self, layer: u32, effect: Effect) {
        for step in 0..effect.count {
            let (block, target) = (effect.block + step, effect.target + step);
            let now = self.layers.get(layer).and_then(|layer| layer.index.get(block)).copied();
            let old = now.map_or(0, Entry::mask);
            let is_there = now.is_some_and(|now| now.target() == target);
            if (effect.is_new || is_there) && (!is_there || old | effect.mask != old) {
                // Sectors that were zero have been written as such.
                let entry = Entry::new(target, effect.mask | old);
                entry.into_iter().for_each(|entry| self.set_entry(layer, block, entry));
            }
        }
    }
}
