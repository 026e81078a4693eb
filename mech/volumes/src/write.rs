//! Writing: into data blocks that the layer has already, or into new ones.

use storage::{GuestCopy, Kind, Request, SECTOR, SECTORS_PER_BLOCK, Segments, Status};

use crate::contract::{Backend, Target};
use crate::job::{CHANGES_PER_BLOCK, Job, Stop, WORK_PER_SKIP};
use crate::layers::{ALL, Entry, Mask, mask};
use crate::settle::Effect;
use crate::store::Store;

struct NoData;

impl Segments for NoData {
    fn segment(&self, _index: usize) -> Option<(addr::GuestPhysAddr, u32)> {
        None
    }
}

impl Store {
    /// Starts to write as much as lies in a row; returns the sectors.
    pub(crate) fn write_part(
        &mut self,
        id: u64,
        job: &mut Job,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Result<u64, Stop> {
        let layer = job.layer.ok_or(Stop::End(Status::IoError))?;
        let block = job.sector / SECTORS_PER_BLOCK;
        let (target, count) = match self.own_target(layer, block) {
            Some(target) => (target, self.in_place(layer, job, target)),
            None => self.allocate(id, layer, job, guest, backend)?,
        };
        job.spend_writing((job.sector % SECTORS_PER_BLOCK + count).div_ceil(SECTORS_PER_BLOCK));
        let data = job.window(count * SECTOR);
        let sector = target * SECTORS_PER_BLOCK + job.sector % SECTORS_PER_BLOCK;
        let request = Request { kind: Kind::Write, sector, sectors: count, segments: &data };
        self.start(id, job, Target::Store, request, guest, backend);
        Ok(count)
    }

    /// The data block that the layer itself has for a block.
    fn own_target(&self, layer: u32, block: u64) -> Option<u64> {
        self.entry(layer, block).map(Entry::target).filter(|target| *target != 0)
    }

    fn entry(&self, layer: u32, block: u64) -> Option<Entry> {
        self.layers.get(layer)?.index.get(block).copied()
    }

    /// Sectors of the job that can be written over in a row, from data block `target` on. A disk would do the same: until
    /// the guest's next flush it may find the old or the new content.
    fn in_place(&mut self, layer: u32, job: &mut Job, target: u64) -> u64 {
        let first = job.sector / SECTORS_PER_BLOCK;
        let is_next = |step: &u64| self.own_target(layer, first + step) == Some(target + step);
        let most = (job.sector % SECTORS_PER_BLOCK + job.left).div_ceil(SECTORS_PER_BLOCK).min(job.work());
        let blocks = 1 + (1..most).take_while(is_next).count() as u64;
        let count = sectors_of(job.sector, job.left, blocks);
        for (block, wanted, step) in parts(job.sector, count) {
            let own = self.entry(layer, block).map_or(0, Entry::mask);
            if own | wanted != own {
                job.note(Effect { block, count: 1, target: target + step, mask: wanted, is_new: false });
            }
        }
        count
    }

    /// Takes new data blocks for as many sectors of the job as lie in a row; returns the first, and the sectors.
    fn allocate(
        &mut self,
        id: u64,
        layer: u32,
        job: &mut Job,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Result<(u64, u64), Stop> {
        let first = job.sector / SECTORS_PER_BLOCK;
        let free = self.held.free_from(layer, first);
        if free == 0 {
            return Err(Stop::Blocked);
        }
        let most = (job.sector % SECTORS_PER_BLOCK + job.left).div_ceil(SECTORS_PER_BLOCK).min(job.work()).min(free);
        let is_free = |step: &u64| self.own_target(layer, first + step).is_none();
        let wanted = 1 + (1..most).take_while(is_free).count() as u64;
        let (target, blocks, growth) = self.take(layer, first, wanted)?;
        let count = sectors_of(job.sector, job.left, blocks);
        self.held.add(layer, first, blocks, growth);
        job.held.push(first);
        for (block, mask, step) in parts(job.sector, count) {
            job.note(Effect { block, count: 1, target: target + step, mask, is_new: true });
            let zeroes = self.entry(layer, block).map_or(0, Entry::mask) & !mask;
            self.fill(id, job, target + step, zeroes, guest, backend);
        }
        Ok((target, count))
    }

    /// New data blocks for blocks from `first` on, as long as the volume may have more, the log can name all that
    /// there is and the index has memory: the first, how many, and what the index will grow by.
    fn take(&mut self, layer: u32, first: u64, wanted: u64) -> Result<(u64, u64, u64), Stop> {
        let growth = self.check_index(layer, first, wanted)?;
        let taken = self.space.take(wanted.min(self.names_left(layer)).min(self.allowance(layer)));
        let Some((target, blocks)) = taken else {
            self.metrics.full += 1;
            return Err(Stop::End(Status::NoSpace));
        };
        Ok((target, blocks, growth))
    }

    /// By how many bytes the index of a layer grows if it says something of `count` blocks from `block` on. An error if
    /// there is no room for that.
    fn check_index(&mut self, layer: u32, block: u64, count: u64) -> Result<u64, Stop> {
        let growth = self.layers.growth(layer, block, count);
        let is_full = self.layers.index_bytes() + self.held.growth() + growth > self.index_limit;
        if growth > 0 && (is_full || self.is_index_frozen) {
            self.metrics.index_full += u64::from(is_full);
            return Err(Stop::End(Status::NoSpace));
        }
        self.layers.reach(layer, block + count.saturating_sub(1)).map_err(|_| Stop::End(Status::NoSpace))?;
        Ok(self.layers.growth(layer, block, count))
    }

    /// Writes zeroes to sectors `zeroes` of a data block.
    fn fill(
        &mut self,
        id: u64,
        job: &mut Job,
        target: u64,
        zeroes: Mask,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) {
        let mut at = 0;
        while at < SECTORS_PER_BLOCK {
            let run = u64::from((zeroes >> at).trailing_ones());
            if run > 0 {
                let sector = target * SECTORS_PER_BLOCK + at;
                let request = Request { kind: Kind::WriteZeroes, sector, sectors: run, segments: &NoData };
                self.start(id, job, Target::Store, request, guest, backend);
            }
            at += run.max(1);
        }
    }

    /// Makes blocks zero, or gives them up; returns the sectors.
    pub(crate) fn zero_part(
        &mut self,
        id: u64,
        job: &mut Job,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Result<u64, Stop> {
        let layer = job.layer.ok_or(Stop::End(Status::IoError))?;
        let (block, offset) = (job.sector / SECTORS_PER_BLOCK, job.sector % SECTORS_PER_BLOCK);
        if job.kind() == Kind::Discard
            && let Some(skipped) = self.skip_unwritten(layer, job)
        {
            job.spend(WORK_PER_SKIP);
            return Ok(skipped);
        }
        if self.held.free_from(layer, block) == 0 {
            return Err(Stop::Blocked);
        }
        if offset == 0 && job.left >= SECTORS_PER_BLOCK {
            return self.zero_blocks(layer, job);
        }
        job.spend_writing(1);
        let count = sectors_of(job.sector, job.left, 1);
        let wanted = mask(offset, count);
        match self.entry(layer, block) {
            _ if job.kind() == Kind::Discard => {}
            Some(entry) if entry.target() != 0 => {
                if entry.mask() | wanted != entry.mask() {
                    let target = entry.target();
                    job.note(Effect { block, count: 1, target, mask: wanted, is_new: false });
                }
                self.fill(id, job, entry.target(), wanted, guest, backend);
            }
            entry => self.set_zero(layer, block, wanted | entry.map_or(0, Entry::mask))?,
        }
        Ok(count)
    }

    /// Blocks at the beginning of what is discarded that the layer says nothing of.
    fn skip_unwritten(&self, layer: u32, job: &Job) -> Option<u64> {
        let (block, offset) = (job.sector / SECTORS_PER_BLOCK, job.sector % SECTORS_PER_BLOCK);
        let next = self.layers.get(layer).and_then(|layer| layer.index.next_range(block));
        match next {
            None => Some(job.left),
            Some(next) if next > block => Some(((next - block) * SECTORS_PER_BLOCK - offset).min(job.left)),
            Some(_) => None,
        }
    }

    fn zero_blocks(&mut self, layer: u32, job: &mut Job) -> Result<u64, Stop> {
        let first = job.sector / SECTORS_PER_BLOCK;
        let most =
            (job.left / SECTORS_PER_BLOCK).min(job.work() * CHANGES_PER_BLOCK).min(self.held.free_from(layer, first));
        let mut done = 0;
        // At least the first, of which the caller knows that nobody writes it and that the log is not behind.
        while done < most && (done == 0 || !self.is_behind()) {
            let block = first + done;
            if job.kind() == Kind::WriteZeroes || self.entry(layer, block).is_some() {
                self.set_zero(layer, block, ALL)?;
            }
            done += 1;
        }
        job.spend(done.div_ceil(CHANGES_PER_BLOCK));
        Ok(done * SECTORS_PER_BLOCK)
    }

    fn set_zero(&mut self, layer: u32, block: u64, mask: Mask) -> Result<(), Stop> {
        let now = self.entry(layer, block);
        if now.is_none() && self.names_left(layer) == 0 {
            self.metrics.full += 1;
            return Err(Stop::End(Status::NoSpace));
        }
        if now.is_none() {
            self.check_index(layer, block, 1)?;
        }
        if let Some(entry) = Entry::new(0, mask).filter(|entry| now != Some(*entry)) {
            self.set_entry(layer, block, entry);
        }
        Ok(())
    }
}

impl Job {
    /// Notes an effect on one block, together with what it continues.
    fn note(&mut self, effect: Effect) {
        match self.effects.last_mut() {
            Some(last) if last.is_continued_by(&effect) => last.count += 1,
            _ => self.effects.push(effect),
        }
    }
}

impl Effect {
    const fn is_continued_by(&self, next: &Self) -> bool {
        let is_alike = self.mask == next.mask && self.is_new == next.is_new;
        is_alike && self.block + self.count == next.block && self.target + self.count == next.target
    }
}

/// The blocks of some sectors: number, sectors of it, and which one it is.
fn parts(sector: u64, count: u64) -> impl Iterator<Item = (u64, Mask, u64)> {
    let first = sector / SECTORS_PER_BLOCK;
    let last = (sector + count - 1) / SECTORS_PER_BLOCK;
    (first..=last).map(move |block| {
        let start = (block * SECTORS_PER_BLOCK).max(sector);
        let end = ((block + 1) * SECTORS_PER_BLOCK).min(sector + count);
        (block, mask(start - block * SECTORS_PER_BLOCK, end - start), block - first)
    })
}

/// Sectors of a part, cut to whole blocks of `blocks`.
fn sectors_of(sector: u64, left: u64, blocks: u64) -> u64 {
    (blocks * SECTORS_PER_BLOCK - sector % SECTORS_PER_BLOCK).min(left)
}
