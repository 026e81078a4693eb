//! Serving requests, and reading what is missing.

use core::ops::Range;

use addr::Mfn;
use arrayvec::ArrayVec;

use crate::cache::Lookup;
use crate::contract::{
    BLOCK, Context, GuestCopy, IoRefused, MAX_OP_BLOCKS, PageStore, Piece, SECTOR, SECTORS_PER_BLOCK, Segments,
};
use crate::disk::{SharedDisk, Stop};
use crate::mount::Backing;
use crate::ops::{OpId, Work, token};
use crate::overlay::{SectorMask, View, sector_addr};
use crate::request::{Job, Kind, Portion, Status};

/// What a step without copying counts as: it may give a range of pages back.
const BLOCKS_PER_STEP: u64 = 8;
/// Operations that one look ahead in a request starts at most.
const READS_AHEAD: usize = 8;
/// Times that the cache makes room for one page of a guest: others may take what it gives up, and a block that is read again for the
/// next attempt may need a page, too.
const MOST_ROOMS: u8 = 4;

/// The blocks that some sectors touch.
pub(crate) const fn blocks_of(sector: u64, sectors: u64) -> Range<u64> {
    sector / SECTORS_PER_BLOCK..(sector + sectors).div_ceil(SECTORS_PER_BLOCK)
}

impl SharedDisk {
    /// Takes a job as far as it goes.
    pub(crate) fn advance(
        &mut self,
        job: &mut Job,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Stop {
        let stop = self.advance_until(job, segments, guest, ctx);
        match (stop, job.outstanding) {
            // What it has started must end before it may: the pages are the operation's, but the answer is the job's.
            (Stop::End(status), 1..) => {
                if status != Status::Ok {
                    job.failure.get_or_insert(status);
                }
                Stop::Outstanding
            }
            (Stop::End(Status::Ok), 0) => Stop::End(job.failure.unwrap_or(Status::Ok)),
            (stop, _) => stop,
        }
    }

    fn advance_until(
        &mut self,
        job: &mut Job,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Stop {
        if let Some(status) = job.failure {
            return Stop::End(status);
        }
        if job.kind == Kind::Flush {
            return self.flush(job, ctx);
        }
        // Ends: each step takes some of the budget, or makes room for the next one a few times.
        while ctx.budget > 0 {
            if job.left == 0 {
                return Stop::End(Status::Ok);
            }
            let step = match job.kind {
                Kind::Read => self.read_block(job, segments, guest, ctx),
                Kind::Write => self.write_some(job, segments, guest, ctx),
                Kind::WriteZeroes => self.zero_some(job, ctx),
                Kind::Discard => self.discard_some(job, ctx),
                Kind::Flush => Err(Stop::End(Status::Ok)),
            };
            match step {
                Ok(sectors) => {
                    job.advance(sectors);
                    let done = if job.kind.has_data() { sectors.div_ceil(SECTORS_PER_BLOCK) } else { BLOCKS_PER_STEP };
                    ctx.budget = ctx.budget.saturating_sub(done);
                }
                Err(Stop::NoGuestPage) if job.rooms_made < MOST_ROOMS && self.make_guest_room(ctx) => {
                    job.rooms_made += 1
                }
                Err(Stop::NoGuestPage) => return Stop::End(Status::IoError),
                Err(stop) => return stop,
            }
        }
        if job.left == 0 { Stop::End(Status::Ok) } else { Stop::Again }
    }

    /// A guest has no page where it should: what the cache has and no guest maps goes, since whoever looked for a page could not ask
    /// this cache, which is locked. Not if there are pages: then it is not for want of one, and others need what is cached.
    #[cold]
    fn make_guest_room(&mut self, ctx: &Context<'_>) -> bool {
        match ctx.pages.alloc(ctx.node) {
            Some(page) => {
                ctx.pages.free(page);
                false
            }
            None => self.reclaim(MAX_OP_BLOCKS as u64, ctx.pages) > 0,
        }
    }

    /// Maps or copies one block's portion into the guest; returns its sectors.
    #[inline]
    fn read_block(
        &mut self,
        job: &mut Job,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Result<u64, Stop> {
        let portion = Portion::first(job.sector, job.left);
        let private = self.private_view(job, portion.block);
        let wanted = portion.mask();
        if private.valid & wanted == wanted {
            self.metrics.private_reads += 1;
            if let Some(page) = private.page
                && self.map_block(job, portion, page, segments, guest)
            {
                return Ok(portion.count);
            }
            let copied = match private.page {
                Some(page) => {
                    job.cursor.fill(segments, guest, sector_addr(page, portion.offset), portion.count * SECTOR)
                }
                None => job.cursor.zero(segments, guest, portion.count * SECTOR),
            };
            return copied.map(|()| portion.count).map_err(|_| Stop::NoGuestPage);
        }
        let base = self.base_page(job, portion.block, ctx)?;
        if private.valid & wanted != 0 {
            return copy_mixed(job, portion, private, base, segments, guest);
        }
        if self.map_block(job, portion, base, segments, guest) {
            return Ok(portion.count);
        }
        let copied = job.cursor.fill(segments, guest, sector_addr(base, portion.offset), portion.count * SECTOR);
        copied.map(|()| portion.count).map_err(|_| Stop::NoGuestPage)
    }

    /// Lets the guest have the page itself, if the request wants all of it in one page of its own.
    #[inline]
    fn map_block(
        &mut self,
        job: &mut Job,
        portion: Portion,
        page: Mfn,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
    ) -> bool {
        let whole = if portion.mask() == SectorMask::MAX { job.cursor.whole_page(segments) } else { None };
        let Some(dst) = whole else {
            self.metrics.unaligned_bytes += portion.count * SECTOR;
            return false;
        };
        if !guest.map(dst, page) {
            self.metrics.refused_bytes += BLOCK;
            return false;
        }
        job.cursor.skip_page();
        self.metrics.mapped_bytes += BLOCK;
        true
    }

    fn private_view(&self, job: &Job, block: u64) -> View {
        match self.mounts.get(job.mount.0).map(|mount| &mount.backing) {
            Some(Backing::Private(overlay)) => overlay.view(block),
            _ => View::default(),
        }
    }

    /// The cached page of `block`, or the reason to wait.
    #[inline]
    fn base_page(&mut self, job: &mut Job, block: u64, ctx: &mut Context<'_>) -> Result<Mfn, Stop> {
        match self.cache.touch(block) {
            Lookup::Present(page) => {
                self.metrics.hits += 1;
                Ok(page)
            }
            Lookup::Loading => {
                self.metrics.joins += 1;
                let op = self.ops.reading(block).ok_or(Stop::Again)?;
                Err(self.wait_for(job, block, op))
            }
            Lookup::Absent => {
                self.metrics.misses += 1;
                Err(self.read_missing(job, block, ctx))
            }
        }
    }

    /// Starts to read `block` and what the request needs after it.
    #[cold]
    fn read_missing(&mut self, job: &mut Job, block: u64, ctx: &mut Context<'_>) -> Stop {
        if let Some(op) = self.ops.writing_blocks(block, 1) {
            return Stop::Wait(op);
        }
        let Some((window, mount_end)) =
            self.mounts.get(job.mount.0).map(|mount| (mount.streams.window(), mount.end_block()))
        else {
            return Stop::End(Status::IoError);
        };
        let wanted = if job.is_narrow { block..block + 1 } else { block..blocks_of(job.sector, job.left).end };
        let count = if job.is_narrow { 1 } else { (wanted.end - block).max(window.max(1)).min(mount_end - block) };
        let op = match self.start_read(block, count, ctx) {
            Ok((op, _)) => op,
            Err(stop) => return stop,
        };
        self.read_rest(wanted, ctx);
        self.wait_for(job, block, op)
    }

    /// Starts to read what else of `wanted` is missing, as far as there is room: the request will not have to come
    /// back for each part.
    fn read_rest(&mut self, wanted: Range<u64>, ctx: &mut Context<'_>) {
        let mut block = wanted.start;
        for _ in 0..READS_AHEAD {
            while block < wanted.end && self.cache.peek(block) != Lookup::Absent {
                block += 1;
            }
            if block >= wanted.end {
                return;
            }
            match self.start_read(block, wanted.end - block, ctx) {
                Ok((_, count)) => block += count,
                Err(_) => return,
            }
        }
    }

    fn wait_for(&mut self, job: &mut Job, block: u64, op: OpId) -> Stop {
        self.cache.pin(block);
        job.pinned = Some(block);
        Stop::Wait(op)
    }

    /// Starts one operation that reads up to `count` blocks from `first` on; stops before one that is here already.
    /// Returns it and the number of blocks.
    fn start_read(&mut self, first: u64, count: u64, ctx: &mut Context<'_>) -> Result<(OpId, u64), Stop> {
        if self.ops.is_full() {
            return Err(Stop::Stall);
        }
        let most = count.min(MAX_OP_BLOCKS as u64);
        let is_free = |at: &u64| self.cache.peek(*at) == Lookup::Absent && self.ops.writing_blocks(*at, 1).is_none();
        let run = (first..first + most).take_while(is_free).count() as u64;
        if self.cache.reach(first + run.saturating_sub(1)).is_err() {
            return Err(self.no_page());
        }
        let pages = self.take_pages(run, ctx);
        if pages.is_empty() {
            return Err(self.no_page());
        }
        let count = pages.len() as u64;
        let pieces = self.pieces(first, &pages, ctx.pages);
        let op = self.ops.begin(Work::Read { first, count });
        if let Err(refused) = ctx.io.submit_read(first * SECTORS_PER_BLOCK, &pieces, token(op)) {
            self.ops.end(op);
            pages.iter().for_each(|page| ctx.pages.free(*page));
            return Err(self.refused(refused));
        }
        for (block, page) in (first..).zip(&pages) {
            if let Some(before) = self.cache.insert_loading(block, *page, ctx.pages.node_of(*page)) {
                ctx.pages.free(before);
            }
        }
        self.metrics.io_reads += 1;
        self.metrics.io_blocks_read += count;
        Ok((op, count))
    }

    /// Up to `count` pages for the cache, within its bound if possible; one in any case, as long as there is any.
    fn take_pages(&mut self, count: u64, ctx: &mut Context<'_>) -> ArrayVec<Mfn, MAX_OP_BLOCKS> {
        let missing = count.saturating_sub(self.cache.room());
        if missing > 0 {
            self.make_room(missing, ctx.pages);
        }
        // A cache full of blocks in use may exceed its bound by a block for each operation.
        let allowed = count.min(self.cache.room().max(1));
        let mut pages = ArrayVec::new();
        for _ in 0..allowed.min(MAX_OP_BLOCKS as u64) {
            match ctx.pages.alloc(ctx.node) {
                Some(page) => pages.push(page),
                None => break,
            }
        }
        if pages.is_empty() && count > 0 && self.reclaim(1, ctx.pages) > 0 {
            pages.extend(ctx.pages.alloc(ctx.node));
        }
        pages
    }

    /// The pieces of a read of whole blocks. A disk may end inside the last one: its rest is zero.
    fn pieces(&self, first: u64, pages: &[Mfn], store: &dyn PageStore) -> ArrayVec<Piece, MAX_OP_BLOCKS> {
        let piece = |(block, page): (u64, &Mfn)| {
            let sectors = (self.capacity - block * SECTORS_PER_BLOCK).min(SECTORS_PER_BLOCK);
            if sectors < SECTORS_PER_BLOCK {
                store.zero(sector_addr(*page, sectors), (SECTORS_PER_BLOCK - sectors) * SECTOR);
            }
            // At most a block.
            Piece { addr: page.addr(), bytes: (sectors * SECTOR).min(BLOCK) as u32 }
        };
        (first..).zip(pages).map(piece).collect()
    }

    /// There is no page: wait for one if an operation is going to end, else give up.
    pub(crate) fn no_page(&self) -> Stop {
        if self.ops.is_empty() { Stop::End(Status::NoSpace) } else { Stop::Stall }
    }

    /// The driver has refused an operation.
    pub(crate) fn refused(&self, refused: IoRefused) -> Stop {
        match refused {
            IoRefused::Busy if !self.ops.is_empty() => Stop::Stall,
            IoRefused::Busy | IoRefused::Failed => Stop::End(Status::IoError),
        }
    }
}

/// Copies a portion of which some sectors are private and the others are in `base`.
fn copy_mixed(
    job: &mut Job,
    portion: Portion,
    private: View,
    base: Mfn,
    segments: &dyn Segments,
    guest: &dyn GuestCopy,
) -> Result<u64, Stop> {
    let is_private = |sector: u64| private.valid >> sector & 1 != 0;
    let (start, mut at) = (job.cursor, portion.offset);
    while at < portion.end() {
        let kind = is_private(at);
        let run = (at..portion.end()).take_while(|sector| is_private(*sector) == kind).count() as u64;
        let source = if kind { private.page } else { Some(base) };
        let copied = match source {
            Some(page) => job.cursor.fill(segments, guest, sector_addr(page, at), run * SECTOR),
            None => job.cursor.zero(segments, guest, run * SECTOR),
        };
        if copied.is_err() {
            job.cursor = start;
            return Err(Stop::NoGuestPage);
        }
        at += run;
    }
    Ok(portion.count)
}
