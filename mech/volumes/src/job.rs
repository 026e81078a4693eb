//! Requests of guests, cut into parts that each concern one disk.

use alloc::boxed::Box;
use alloc::vec::Vec;

use addr::GuestPhysAddr;
use storage::{GuestCopy, Kind, Outcome, Request, SECTOR, Status};

use crate::commit::Waiter;
use crate::contract::{Backend, Target};
use crate::settle::Effect;
use crate::store::{Op, OpOwner, Store, VolumeId, op_key, op_number};

/// What one call does at most, counted in blocks that are copied: these take well below a millisecond on any machine that we
/// know. A longer request comes back for more.
const WORK_PER_CALL: u64 = 64;
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
    pub outstanding: u32,
    pub failure: Option<Status>,
    /// What is true when the parts so far have ended well.
    pub effects: Vec<Effect>,
    /// Where the runs of blocks begin that it holds, see [`HeldBlocks`](crate::held::HeldBlocks).
    pub held: Vec<u64>,
    /// Blocks of a write since its effects were applied.
    pub unsettled: u64,
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
        let segments = if has_data { request.segments.to_list() } else { Ok(Vec::new()) };
        let Ok(segments) = segments else { return Outcome::Done(Status::IoError) };
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
            work: WORK_PER_CALL,
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

    /// The next request of `volume` that can go on, if it is among the next ones of all.
    pub fn next_ready_of(&mut self, volume: VolumeId) -> Option<Ready> {
        /// How many are looked at.
        const AMONG: usize = 64;
        let mut next = self.ready.iter().take(AMONG);
        let at = next.position(|id| self.jobs.get(*id).is_some_and(|job| job.volume == volume))?;
        let id = self.ready.remove(at)?;
        let job = self.jobs.get_mut(id)?;
        job.is_ready = false;
        Some(Ready { volume, tag: job.tag, is_cancelled: job.is_cancelled, job: id })
    }

    /// Goes on with a request; takes what it has done from `budget`, in blocks that are copied, and does little with none left. A
    /// cancelled one stays [`Outcome::Pending`] for ever.
    pub fn resume(
        &mut self,
        ready: Ready,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
        budget: &mut u64,
    ) -> Outcome {
        let Some(mut job) = self.jobs.remove(ready.job) else { return Outcome::Pending };
        let most = (*budget).clamp(1, WORK_PER_CALL);
        job.work = most;
        let stop = self.advance(ready.job, &mut job, guest, backend);
        *budget = budget.saturating_sub((most - job.work).max(1));
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
