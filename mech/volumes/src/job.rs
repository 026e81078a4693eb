//! Requests of guests, cut into parts that each concern one disk.

use alloc::boxed::Box;
use alloc::vec::Vec;

use addr::GuestPhysAddr;
use storage::{BLOCK, GuestCopy, Kind, Outcome, Request, SECTOR, SECTORS_PER_BLOCK, Status};

use crate::commit::Waiter;
use crate::contract::{Backend, Target};
use crate::layers::{Entry, Mask, Source};
use crate::store::{Op, OpOwner, Store, VolumeId, op_key, op_number};

/// What one call does at most, counted in blocks that are copied: these take well below a millisecond on any machine that we
/// know. A longer request comes back for more.
const WORK_PER_CALL: u64 = 64;
/// Looks into layers that count as one block.
const LOOKS_PER_BLOCK: u64 = 32;
/// Changes of the index that count as one block.
pub const CHANGES_PER_BLOCK: u64 = 8;
/// What a look for the next block that a layer has counts as: it may go through the topmost table of the index.
pub const WORK_PER_SKIP: u64 = 8;
/// A write takes effect in steps of so many blocks: what is remembered of it stays small, however long it is.
const MAX_UNSETTLED: u64 = 256;

/// A request under way.
#[derive(Debug)]
pub struct Job {
    pub volume: VolumeId,
    tag: u64,
    kind: Kind,
    pub sector: u64,
    pub left: u64,
    /// Bytes of its data that are dealt with.
    skip: u64,
    /// Its own copy of the guest's list.
    segments: Vec<(GuestPhysAddr, u32)>,
    /// Parts under way.
    outstanding: u32,
    pub failure: Option<Status>,
    /// What is true when the parts so far have ended well.
    pub effects: Vec<Effect>,
    /// Where the runs of blocks begin that it holds, see [`HeldBlocks`](crate::held::HeldBlocks).
    pub held: Vec<u64>,
    /// Blocks of a write since its effects were applied.
    unsettled: u64,
    /// What the present call may still do, counted in blocks that are copied.
    work: u64,
    /// The layer that it writes to.
    pub layer: Option<u32>,
    /// Nobody waits for its end any more, and guest memory is not touched for it.
    is_cancelled: bool,
    is_ready: bool,
    /// A flush waits for a commit.
    is_flushing: bool,
}

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

/// Why a job stops advancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Until its parts have ended.
    Outstanding,
    /// Until another write has ended.
    Blocked,
    /// It has worked enough for one call.
    Again,
    /// For good.
    End(Status),
}

/// A request that can go on: call [`Store::resume`] with its guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whose it is.
    pub volume: VolumeId,
    /// Its tag.
    pub tag: u64,
    /// Nobody waits for it any more: the guest's memory must not be touched.
    pub is_cancelled: bool,
    job: u64,
}

/// Whose memory an operation of a [`Backend`] concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The guest's that uses this volume.
    Guest(VolumeId),
    /// Nobody's any more.
    Gone,
    /// The store's: [`Store::own_bytes`].
    Store,
}

impl Store {
    /// Starts a request of a volume and finishes it if that is possible without waiting.
    pub fn submit(
        &mut self,
        volume: VolumeId,
        tag: u64,
        request: &Request<'_>,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Outcome {
        let end = request.sector.checked_add(request.sectors);
        if end.is_none_or(|end| end > self.sectors(volume)) || !self.mounts.contains_key(volume.0) {
            return Outcome::Done(Status::IoError);
        }
        let has_data = matches!(request.kind, Kind::Read | Kind::Write);
        let segments = (0..).map_while(|index| request.segments.segment(index).filter(|_| has_data)).collect();
        let mut job = Box::new(Job {
            volume,
            tag,
            kind: request.kind,
            sector: request.sector,
            left: if request.kind == Kind::Flush { 0 } else { request.sectors },
            skip: 0,
            segments,
            outstanding: 0,
            failure: None,
            effects: Vec::new(),
            held: Vec::new(),
            unsettled: 0,
            work: 0,
            layer: None,
            is_cancelled: false,
            is_ready: false,
            is_flushing: false,
        });
        let id = self.next_job;
        self.next_job += 1;
        let stop = self.advance(id, &mut job, guest, backend);
        self.put_away(id, job, stop)
    }

    /// The next request that can go on.
    pub fn next_ready(&mut self) -> Option<Ready> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(job) = self.jobs.get_mut(id) {
                job.is_ready = false;
                return Some(Ready { volume: job.volume, tag: job.tag, is_cancelled: job.is_cancelled, job: id });
            }
        }
        None
    }

    /// Whether [`Store::next_ready`] may have requests. It has none if this is `false`.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Goes on with a request. A cancelled one stays [`Outcome::Pending`] for ever.
    pub fn resume(&mut self, ready: Ready, guest: &dyn GuestCopy, backend: &mut dyn Backend) -> Outcome {
        let Some(mut job) = self.jobs.remove(ready.job) else { return Outcome::Pending };
        let stop = self.advance(ready.job, &mut job, guest, backend);
        let is_cancelled = job.is_cancelled;
        match self.put_away(ready.job, job, stop) {
            Outcome::Done(_) if is_cancelled => Outcome::Pending,
            outcome => outcome,
        }
    }

    /// Whose memory an operation concerns, before it goes on.
    #[must_use]
    pub fn owner(&self, op: u64) -> Owner {
        match self.ops.get(op_key(op)).map(|op| op.owner) {
            Some(OpOwner::Commit) => Owner::Store,
            Some(OpOwner::Job(id)) => {
                let job = self.jobs.get(id).filter(|job| !job.is_cancelled);
                job.map_or(Owner::Gone, |job| Owner::Guest(job.volume))
            }
            None => Owner::Gone,
        }
    }

    /// An operation of the [`Backend`] has ended.
    pub fn on_done(&mut self, op: u64, status: Status) {
        match self.ops.remove(op_key(op)).map(|op| op.owner) {
            Some(OpOwner::Commit) => self.on_commit_done(status),
            Some(OpOwner::Job(id)) => self.part_ended(id, status),
            None => {}
        }
    }

    /// Forgets the requests of a volume: its driver was reset. They are not completed, and guest memory is not touched for
    /// them. The caller has cancelled what they had under way on the disk below the volume.
    pub fn cancel(&mut self, volume: VolumeId) {
        let of_volume = self.jobs.iter_mut().filter(|(_, job)| job.volume == volume);
        for (id, job) in of_volume {
            job.is_cancelled = true;
            job.failure.get_or_insert(Status::IoError);
            if !core::mem::replace(&mut job.is_ready, true) {
                self.ready.push_back(id);
            }
        }
        let lost: Vec<_> = self.ops.iter().filter(|(_, op)| op.on_base == Some(volume)).map(|(key, _)| key).collect();
        lost.into_iter().for_each(|key| self.on_done(op_number(key), Status::IoError));
    }

    fn part_ended(&mut self, id: u64, status: Status) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outstanding = job.outstanding.saturating_sub(1);
        if status != Status::Ok {
            job.failure.get_or_insert(status);
        }
        if job.outstanding == 0 {
            self.make_ready(id);
        }
    }

    /// The commit that a flush waits for has ended.
    pub(crate) fn flush_ended(&mut self, id: u64, status: Status) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.is_flushing = false;
        job.failure.get_or_insert(status);
        self.make_ready(id);
    }

    fn make_ready(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(id)
            && !core::mem::replace(&mut job.is_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    pub(crate) fn unblock(&mut self) {
        core::mem::take(&mut self.blocked).into_iter().for_each(|id| self.make_ready(id));
    }

    fn put_away(&mut self, id: u64, job: Box<Job>, stop: Stop) -> Outcome {
        if let Stop::End(status) = stop {
            self.finish(&job, status);
            return Outcome::Done(status);
        }
        let is_ended = job.outstanding == 0 && stop == Stop::Outstanding && !job.is_flushing;
        self.jobs.insert(id, job);
        match stop {
            Stop::Blocked if !self.blocked.contains(&id) => self.blocked.push(id),
            Stop::Again => self.make_ready(id),
            _ if is_ended => self.make_ready(id),
            _ => {}
        }
        Outcome::Pending
    }

    fn finish(&mut self, job: &Job, status: Status) {
        if let Some(layer) = job.layer {
            job.held.iter().for_each(|first| self.held.remove(layer, *first));
            self.promised -= job.effects.len();
            for effect in &job.effects {
                match status {
                    Status::Ok => self.apply(layer, *effect),
                    _ if effect.is_new => self.free_run(effect.target, effect.count),
                    _ => {}
                }
            }
            if let Some(found) = self.layers.get_mut(layer) {
                found.writers = found.writers.saturating_sub(1);
            }
            self.open_gates(layer);
            self.unblock();
        }
        self.reap();
    }

    /// What a long write has written so far takes effect, as soon as no part of it is under way.
    fn settle(&mut self, job: &mut Job) -> Result<(), Stop> {
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
    fn await_log(&mut self, job: &mut Job) -> Result<(), Stop> {
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

    fn apply(&mut self, layer: u32, effect: Effect) {
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

    /// Takes a job as far as it goes.
    fn advance(&mut self, id: u64, job: &mut Job, guest: &dyn GuestCopy, backend: &mut dyn Backend) -> Stop {
        let stop = self.advance_until(id, job, guest, backend);
        match stop {
            // Its answer is that of all its parts; and what they write must not be given to others before.
            Stop::End(status) if job.outstanding > 0 => {
                if status != Status::Ok {
                    job.failure.get_or_insert(status);
                }
                Stop::Outstanding
            }
            Stop::End(Status::Ok) => Stop::End(job.failure.unwrap_or(Status::Ok)),
            Stop::Blocked | Stop::Again if job.failure.is_some() => Stop::Outstanding,
            stop => stop,
        }
    }

    fn advance_until(&mut self, id: u64, job: &mut Job, guest: &dyn GuestCopy, backend: &mut dyn Backend) -> Stop {
        if let Some(status) = job.failure {
            return Stop::End(status);
        }
        match job.kind {
            Kind::Flush => return self.flush(id, job),
            Kind::Read => {}
            Kind::Write | Kind::Discard | Kind::WriteZeroes => {
                if let Err(stop) = self.begin_write(job) {
                    return stop;
                }
            }
        }
        job.work = WORK_PER_CALL;
        if job.unsettled >= MAX_UNSETTLED
            && let Err(stop) = self.settle(job)
        {
            return stop;
        }
        // Ends: each part spends something.
        while job.work > 0 {
            if job.left == 0 || job.failure.is_some() {
                return Stop::End(job.failure.unwrap_or(Status::Ok));
            }
            let part = match job.kind {
                Kind::Read => self.read_part(id, job, guest, backend),
                Kind::Write | Kind::Discard | Kind::WriteZeroes => self.change_part(id, job, guest, backend),
                Kind::Flush => Err(Stop::End(Status::Ok)),
            };
            match part {
                Ok(sectors) => {
                    job.sector += sectors;
                    job.left -= sectors;
                    job.skip += sectors * SECTOR;
                }
                Err(stop) => return stop,
            }
        }
        if job.left == 0 { Stop::End(Status::Ok) } else { Stop::Again }
    }

    fn flush(&mut self, id: u64, job: &mut Job) -> Stop {
        if self.is_broken {
            return Stop::End(Status::IoError);
        }
        if !core::mem::replace(&mut job.is_flushing, true) {
            self.waiting.push(Waiter::Job(id));
        }
        Stop::Outstanding
    }

    /// A write begins when no snapshot of its volume waits.
    fn begin_write(&mut self, job: &mut Job) -> Result<(), Stop> {
        if job.layer.is_some() {
            return Ok(());
        }
        let mounted = self.mounts.get(job.volume.0).ok_or(Stop::End(Status::IoError))?;
        if self.is_broken {
            return Err(Stop::End(Status::IoError));
        }
        if !mounted.gates.is_empty() {
            return Err(Stop::Blocked);
        }
        job.layer = Some(mounted.top);
        if let Some(layer) = self.layers.get_mut(mounted.top) {
            layer.writers += 1;
        }
        Ok(())
    }

    fn change_part(
        &mut self,
        id: u64,
        job: &mut Job,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Result<u64, Stop> {
        self.await_log(job)?;
        let effects = job.effects.len();
        let part = match job.kind {
            Kind::Write => self.write_part(id, job, guest, backend),
            _ => self.zero_part(id, job, guest, backend),
        };
        self.promised += job.effects.len() - effects;
        part
    }

    fn read_part(
        &mut self,
        id: u64,
        job: &mut Job,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Result<u64, Stop> {
        let mounted = self.mounts.get(job.volume.0).ok_or(Stop::End(Status::IoError))?;
        let all_looks = job.work * LOOKS_PER_BLOCK;
        let mut looks = all_looks;
        let most = job.left.min(job.work * SECTORS_PER_BLOCK);
        let (source, count) = self.layers.find_run(mounted.top, job.sector, most, &mut looks);
        job.spend(count.div_ceil(SECTORS_PER_BLOCK).max((all_looks - looks).div_ceil(LOOKS_PER_BLOCK)));
        let data = job.window(count * SECTOR);
        let (to, sector) = match source {
            Source::Base => (Target::Base(job.volume), job.sector),
            Source::Store(sector) => (Target::Store, sector),
            Source::Zero => {
                let is_written = data.iter().all(|(at, len)| write_zeroes(guest, *at, *len));
                return if is_written { Ok(count) } else { Err(Stop::End(Status::IoError)) };
            }
        };
        let request = Request { kind: Kind::Read, sector, sectors: count, segments: &data };
        self.start(id, job, to, request, guest, backend);
        Ok(count)
    }

    /// Starts a part of a job.
    pub(crate) fn start(
        &mut self,
        id: u64,
        job: &mut Job,
        to: Target,
        request: Request<'_>,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) {
        let on_base = (to != Target::Store).then_some(job.volume);
        let op = self.ops.insert(Op { owner: OpOwner::Job(id), on_base });
        match backend.submit(to, op_number(op), request, guest) {
            Outcome::Pending => job.outstanding += 1,
            Outcome::Done(status) => {
                self.ops.remove(op);
                if status != Status::Ok {
                    job.failure.get_or_insert(status);
                }
            }
        }
    }
}

impl Job {
    /// Whether data blocks that are freed meanwhile may be touched for it. Otherwise it looks for its blocks anew.
    pub const fn refers_to_blocks(&self) -> bool {
        self.outstanding > 0 || !self.effects.is_empty()
    }

    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Blocks that the present call may still copy.
    pub const fn work(&self) -> u64 {
        self.work
    }

    /// The present call has done what takes as long as copying `blocks`; anything takes as long as one.
    pub fn spend(&mut self, blocks: u64) {
        self.work = self.work.saturating_sub(blocks.max(1));
    }

    /// A part of a write concerns `blocks`.
    pub fn spend_writing(&mut self, blocks: u64) {
        self.unsettled += blocks;
        self.spend(blocks);
    }

    /// The next `len` bytes of its data.
    pub fn window(&self, len: u64) -> Vec<(GuestPhysAddr, u32)> {
        let (mut skip, mut left) = (self.skip, len);
        let mut found = Vec::new();
        for (at, size) in &self.segments {
            let size = u64::from(*size);
            if skip >= size {
                skip -= size;
                continue;
            }
            let part = (size - skip).min(left);
            if part == 0 {
                break;
            }
            // A segment that wraps is none: the disk refuses the short list.
            let Some(start) = at.checked_add(skip) else { break };
            // At most the segment's own length.
            found.push((start, part as u32));
            left -= part;
            skip = 0;
        }
        found
    }
}

fn write_zeroes(guest: &dyn GuestCopy, at: GuestPhysAddr, len: u32) -> bool {
    static ZEROES: [u8; BLOCK as usize] = [0; BLOCK as usize];
    let mut done = 0;
    while done < len {
        let Some(to) = at.checked_add(done.into()) else { return false };
        // Page by page, each of which is looked for once. At most a page.
        let part = (len - done).min((BLOCK - to.page_offset()) as u32);
        if guest.write(to, &ZEROES[..part as usize]).is_err() {
            return false;
        }
        done += part;
    }
    true
}

/// Sectors of a part, cut to whole blocks of `blocks`.
pub fn sectors_of(sector: u64, left: u64, blocks: u64) -> u64 {
    (blocks * SECTORS_PER_BLOCK - sector % SECTORS_PER_BLOCK).min(left)
}
