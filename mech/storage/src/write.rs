//! Writing: into private pages, or through to the machine's disk.

use addr::Mfn;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

use crate::cache::Lookup;
use crate::contract::{Context, GuestCopy, MAX_OP_BLOCKS, PageStore, Piece, SECTOR, SECTORS_PER_BLOCK, Segments};
use crate::disk::{SharedDisk, Stop};
use crate::index::RANGE_BLOCKS;
use crate::mount::Backing;
use crate::ops::{Op, Work, token};
use crate::overlay::{NoRoom, Overlay, SectorMask, sector_addr};
use crate::read::blocks_of;
use crate::request::{Job, JobId, Portion, Status};

/// Sectors of one range of an overlay.
const RANGE_SECTORS: u64 = RANGE_BLOCKS * SECTORS_PER_BLOCK;

impl SharedDisk {
    /// Writes as much as one step can; returns the sectors.
    pub(crate) fn write_some(
        &mut self,
        job: &mut Job,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Result<u64, Stop> {
        if self.is_through(job) {
            self.write_through(job, segments, guest, ctx)
        } else {
            self.write_private(job, segments, guest, ctx)
        }
    }

    /// Makes as much zero as one step can; returns the sectors.
    pub(crate) fn zero_some(&mut self, job: &mut Job, ctx: &mut Context<'_>) -> Result<u64, Stop> {
        if self.is_through(job) {
            return self.zero_through(job, ctx);
        }
        let (sector, left) = (job.sector, job.left);
        self.with_room(job, ctx, |overlay, ctx| {
            if sector.is_multiple_of(RANGE_SECTORS) && left >= RANGE_SECTORS {
                overlay.zero_range(sector / SECTORS_PER_BLOCK, ctx.pages)?;
                return Ok(RANGE_SECTORS);
            }
            let portion = Portion::first(sector, left);
            overlay.zero(portion.block, portion.mask(), ctx.pages)?;
            Ok(portion.count)
        })
    }

    /// Gives up private pages; on the machine's disk discarding does nothing.
    pub(crate) fn discard_some(&mut self, job: &mut Job, ctx: &mut Context<'_>) -> Result<u64, Stop> {
        let portion = Portion::first(job.sector, job.left);
        let Some(Backing::Private(overlay)) = self.mounts.get_mut(job.mount.0).map(|mount| &mut mount.backing) else {
            return Ok(job.left);
        };
        // Straight to the next range with private pages.
        match overlay.next_range(portion.block) {
            Some(next) if next > portion.block => {
                return Ok((next * SECTORS_PER_BLOCK - job.sector).min(job.left));
            }
            Some(_) => {}
            None => return Ok(job.left),
        }
        if job.sector.is_multiple_of(RANGE_SECTORS) && job.left >= RANGE_SECTORS {
            overlay.forget_range(portion.block, ctx.pages);
            return Ok(RANGE_SECTORS);
        }
        if portion.mask() == SectorMask::MAX {
            overlay.forget(portion.block, ctx.pages);
        }
        Ok(portion.count)
    }

    /// Submits a flush once, then waits for it.
    pub(crate) fn flush(&mut self, job: &mut Job, ctx: &mut Context<'_>) -> Stop {
        if job.is_flushing || !self.is_through(job) {
            return Stop::End(Status::Ok);
        }
        if self.ops.is_full() {
            return Stop::Stall;
        }
        let id = self.id_of(job);
        let op = self.ops.begin(Work::Flush { job: id });
        if let Err(refused) = ctx.io.submit_flush(token(op)) {
            self.ops.end(op);
            return self.refused(refused);
        }
        job.is_flushing = true;
        job.outstanding += 1;
        self.metrics.io_flushes += 1;
        Stop::Outstanding
    }

    fn is_through(&self, job: &Job) -> bool {
        self.mounts.get(job.mount.0).is_some_and(|mount| mount.is_persistent())
    }

    fn write_private(
        &mut self,
        job: &mut Job,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Result<u64, Stop> {
        let portion = Portion::first(job.sector, job.left);
        let page = self
            .with_room(job, ctx, |overlay, ctx| overlay.page_for(portion.block, portion.mask(), ctx.pages, ctx.node))?;
        let dst = sector_addr(page, portion.offset);
        job.cursor.drain(segments, guest, dst, portion.count * SECTOR).map_err(|_| Stop::NoGuestPage)?;
        if let Some(Backing::Private(overlay)) = self.mounts.get_mut(job.mount.0).map(|mount| &mut mount.backing) {
            overlay.written(portion.block, portion.mask());
        }
        Ok(portion.count)
    }

    /// Runs `change` on the job's overlay; when there is no page, again after taking some from the cache, and then from others.
    fn with_room<R>(
        &mut self,
        job: &Job,
        ctx: &mut Context<'_>,
        mut change: impl FnMut(&mut Overlay, &mut Context<'_>) -> Result<R, NoRoom>,
    ) -> Result<R, Stop> {
        /// Others may take what was given back.
        const ATTEMPTS: usize = 4;
        for _ in 0..ATTEMPTS {
            let Some(Backing::Private(overlay)) = self.mounts.get_mut(job.mount.0).map(|mount| &mut mount.backing)
            else {
                return Err(Stop::End(Status::IoError));
            };
            match change(overlay, ctx) {
                Ok(result) => return Ok(result),
                Err(NoRoom::Refused) => break,
                Err(NoRoom::NoPage) => {}
            }
            if self.reclaim(MAX_OP_BLOCKS as u64, ctx.pages) == 0 && !ctx.pages.relieve() {
                break;
            }
        }
        Err(Stop::End(Status::NoSpace))
    }

    /// Copies the guest's data into staging pages and starts to write them.
    fn write_through(
        &mut self,
        job: &mut Job,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Result<u64, Stop> {
        let sectors = self.through_extent(job)?;
        let blocks = blocks_of(job.sector, sectors);
        let staging = self.stage(blocks.end - blocks.start, ctx)?;
        let start = job.cursor;
        let mut pieces = ArrayVec::<Piece, MAX_OP_BLOCKS>::new();
        let mut at = Portion::first(job.sector, sectors);
        let mut left = sectors;
        for page in &staging {
            let dst = sector_addr(*page, at.offset);
            if job.cursor.drain(segments, guest, dst, at.count * SECTOR).is_err() {
                job.cursor = start;
                staging.iter().for_each(|page| ctx.pages.free(*page));
                return Err(Stop::NoGuestPage);
            }
            // At most a block.
            pieces.push(Piece { addr: dst, bytes: (at.count * SECTOR) as u32 });
            left -= at.count;
            at = Portion { block: at.block + 1, offset: 0, count: left.min(SECTORS_PER_BLOCK) };
        }
        let id = self.id_of(job);
        let work = Work::Write { job: id, sector: job.sector, sectors, staging: staging.clone() };
        self.submit_write(job, work, sectors, &pieces, ctx).inspect_err(|_| {
            job.cursor = start;
            staging.iter().for_each(|page| ctx.pages.free(*page));
        })
    }

    fn zero_through(&mut self, job: &mut Job, ctx: &mut Context<'_>) -> Result<u64, Stop> {
        let sectors = self.through_extent(job)?;
        let staging = *self.stage(1, ctx)?.first().ok_or(Stop::Stall)?;
        ctx.pages.zero(staging.addr(), SECTORS_PER_BLOCK * SECTOR);
        let mut pieces = ArrayVec::<Piece, MAX_OP_BLOCKS>::new();
        let mut left = sectors;
        let mut count = Portion::first(job.sector, left).count;
        while left > 0 {
            pieces.push(Piece { addr: staging.addr(), bytes: (count * SECTOR) as u32 });
            left -= count;
            count = left.min(SECTORS_PER_BLOCK);
        }
        let id = self.id_of(job);
        let work = Work::Zero { job: id, sector: job.sector, sectors, staging };
        self.submit_write(job, work, sectors, &pieces, ctx).inspect_err(|_| ctx.pages.free(staging))
    }

    /// How many sectors one operation can write now. It must wait for one that reads or writes the same blocks:
    /// else the cache could keep what the disk does not have.
    fn through_extent(&self, job: &Job) -> Result<u64, Stop> {
        if self.ops.is_full() {
            return Err(Stop::Stall);
        }
        let most = MAX_OP_BLOCKS as u64 * SECTORS_PER_BLOCK - job.sector % SECTORS_PER_BLOCK;
        let sectors = job.left.min(most);
        if let Some(op) = self.ops.writing(job.sector, sectors) {
            return Err(Stop::Wait(op));
        }
        let mut reading = blocks_of(job.sector, sectors).filter(|block| self.cache.peek(*block) == Lookup::Loading);
        match reading.find_map(|block| self.ops.reading(block)) {
            Some(op) => Err(Stop::Wait(op)),
            None => Ok(sectors),
        }
    }

    /// `count` pages that belong to an operation.
    fn stage(&mut self, count: u64, ctx: &mut Context<'_>) -> Result<Vec<Mfn>, Stop> {
        let mut staging = Vec::with_capacity(MAX_OP_BLOCKS);
        for _ in 0..count.min(MAX_OP_BLOCKS as u64) {
            let page = ctx.pages.alloc(ctx.node).or_else(|| {
                self.reclaim(MAX_OP_BLOCKS as u64, ctx.pages);
                ctx.pages.alloc(ctx.node)
            });
            match page {
                Some(page) => staging.push(page),
                None => {
                    staging.iter().for_each(|page| ctx.pages.free(*page));
                    return Err(self.no_page());
                }
            }
        }
        Ok(staging)
    }

    fn submit_write(
        &mut self,
        job: &mut Job,
        work: Work,
        sectors: u64,
        pieces: &[Piece],
        ctx: &mut Context<'_>,
    ) -> Result<u64, Stop> {
        let op = self.ops.begin(work);
        if let Err(refused) = ctx.io.submit_write(job.sector, pieces, token(op)) {
            self.ops.end(op);
            return Err(self.refused(refused));
        }
        job.outstanding += 1;
        self.metrics.io_writes += 1;
        self.metrics.io_sectors_written += sectors;
        Ok(sectors)
    }

    /// An operation has ended: its pages find their place, and whoever waited is woken.
    pub(crate) fn settle(&mut self, op: Op, is_ok: bool, pages: &dyn PageStore) {
        self.metrics.io_errors += u64::from(!is_ok);
        match op.work {
            Work::Read { first, count } => self.settle_read(first, count, is_ok, &op.waiters, pages),
            Work::Write { job, sector, sectors, staging } => {
                self.settle_write(sector, sectors, &staging, is_ok, pages);
                self.settle_job(job, is_ok);
            }
            Work::Zero { job, sector, sectors, staging } => {
                self.settle_zero(sector, sectors, is_ok, pages);
                pages.free(staging);
                self.settle_job(job, is_ok);
            }
            Work::Flush { job } => self.settle_job(job, is_ok),
        }
        for waiter in op.waiters {
            self.make_ready(waiter);
        }
    }

    fn settle_read(&mut self, first: u64, count: u64, is_ok: bool, waiters: &[JobId], pages: &dyn PageStore) {
        if is_ok {
            (first..first + count).for_each(|block| self.cache.loaded(block));
            return;
        }
        for block in first..first + count {
            self.drop_block(block, pages);
        }
        for waiter in waiters {
            let is_concerned = |job: &&mut Job| job.pinned.is_some_and(|block| (first..first + count).contains(&block));
            if let Some(job) = self.job_mut(*waiter).filter(is_concerned) {
                // Who asked for this very block has the error; who asked for one of several asks again, alone.
                if count == 1 {
                    job.failure = Some(Status::IoError);
                } else {
                    job.is_narrow = true;
                }
            }
        }
    }

    fn settle_write(&mut self, sector: u64, sectors: u64, staging: &[Mfn], is_ok: bool, pages: &dyn PageStore) {
        let mut left = sectors;
        let mut at = Portion::first(sector, left);
        for page in staging {
            let surplus = match (is_ok, self.cache.peek(at.block)) {
                (true, lookup) if at.mask() == SectorMask::MAX => self.keep_written(at.block, *page, lookup, pages),
                (true, Lookup::Present(cached)) => {
                    if let Some(own) = self.own_page(at.block, cached, pages) {
                        pages.copy(sector_addr(own, at.offset), sector_addr(*page, at.offset), at.count * SECTOR);
                    }
                    Some(*page)
                }
                (true, _) => Some(*page),
                (false, _) => {
                    // What the disk holds now is unknown.
                    self.drop_block(at.block, pages);
                    Some(*page)
                }
            };
            if let Some(page) = surplus {
                pages.free(page);
            }
            left -= at.count;
            at = Portion { block: at.block + 1, offset: 0, count: left.min(SECTORS_PER_BLOCK) };
        }
    }

    /// A staging page that holds a whole block becomes the cached one. Returns the page that is not needed.
    fn keep_written(&mut self, block: u64, page: Mfn, lookup: Lookup, pages: &dyn PageStore) -> Option<Mfn> {
        if lookup == Lookup::Absent {
            let has_room = self.cache.room() > 0 || self.make_room(1, pages) > 0;
            if !has_room || self.cache.reach(block).is_err() {
                return Some(page);
            }
        }
        self.cache.replace(block, page, pages.node_of(page))
    }

    fn settle_zero(&mut self, sector: u64, sectors: u64, is_ok: bool, pages: &dyn PageStore) {
        let mut left = sectors;
        let mut at = Portion::first(sector, left);
        while left > 0 {
            if !is_ok {
                self.drop_block(at.block, pages);
            } else if let Lookup::Present(cached) = self.cache.peek(at.block)
                && let Some(own) = self.own_page(at.block, cached, pages)
            {
                pages.zero(sector_addr(own, at.offset), at.count * SECTOR);
            }
            left -= at.count;
            at = Portion { block: at.block + 1, offset: 0, count: left.min(SECTORS_PER_BLOCK) };
        }
    }

    /// The cached page of `block` to write to: another one in its place if guests map it, who keep what they have read.
    /// `None` if there is no page for that; the block is forgotten then.
    fn own_page(&mut self, block: u64, cached: Mfn, pages: &dyn PageStore) -> Option<Mfn> {
        if !pages.is_mapped(cached) {
            return Some(cached);
        }
        let own = pages.alloc(pages.node_of(cached));
        match own {
            Some(own) => {
                pages.copy(own.addr(), cached.addr(), SECTORS_PER_BLOCK * SECTOR);
                self.cache.replace(block, own, pages.node_of(own)).into_iter().for_each(|page| pages.free(page));
            }
            None => self.drop_block(block, pages),
        }
        own
    }

    fn drop_block(&mut self, block: u64, pages: &dyn PageStore) {
        if let Some(page) = self.cache.remove(block) {
            pages.free(page);
        }
    }

    /// One of a job's own operations has ended; with the last one, or to start the next, the job is ready.
    fn settle_job(&mut self, id: JobId, is_ok: bool) {
        let Some(job) = self.job_mut(id) else { return };
        job.outstanding = job.outstanding.saturating_sub(1);
        if !is_ok {
            job.failure.get_or_insert(Status::IoError);
        }
        if job.outstanding == 0 {
            self.make_ready(id);
        }
    }
}
