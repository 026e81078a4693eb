//! Making changes durable: data, then the log, then (after a checkpoint) the superblock.
//!
//! A change enters `pending` when its data has been written, so the flush at a commit's beginning makes that durable before
//! the log names it. A checkpoint is taken while guests go on: what changes during its walk is logged again after it.

use alloc::vec::Vec;

use storage::{BLOCK, MAX_OP_BLOCKS, Outcome, RANGE_BLOCKS, SECTORS_PER_BLOCK, Status};

use crate::contract::Backend;
use crate::layers::{Entry, Layer};
use crate::layout::Superblock;
use crate::record::{Packer, Record, Stamp};
use crate::store::{Answer, Freed, Op, OpOwner, Store, op_number};

/// Where the log ends.
#[derive(Clone, Copy, Debug)]
pub struct LogEnd {
    pub stamp: Stamp,
    /// For the next log.
    pub nonce: u64,
    /// 0 or 1.
    pub half: u8,
    /// Position of the next block.
    pub next: u64,
    /// Blocks that it names, each time counted: what it takes to read it again.
    pub named: u64,
}

/// Who hears of a commit's end.
#[derive(Clone, Copy, Debug)]
pub enum Waiter {
    /// A request.
    Job(u64),
    /// Who asked with this token.
    Token(u64),
    Nobody,
}

/// A commit under way.
#[derive(Debug)]
pub struct Commit {
    phase: Phase,
    /// Where it writes; the store's when it has ended.
    log: LogEnd,
    is_checkpoint: bool,
    /// Log blocks to write.
    packed: Vec<u8>,
    walk: Option<Walk>,
    /// Being written.
    buffer: Vec<u8>,
    waiters: Vec<Waiter>,
    freed: Vec<Freed>,
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Data,
    Log,
    LogFlush,
    Super,
    SuperFlush,
}

/// A walk over what layers say.
#[derive(Debug)]
struct Walk {
    /// Layers to go, the present one last.
    layers: Vec<u32>,
    /// The next block of the present one.
    block: u64,
}

impl Store {
    /// Goes on with what makes changes durable, as far as that is possible without waiting. To be called after
    /// [`Store::submit`], [`Store::resume`] and [`Store::on_done`], and what else may have changed something.
    pub fn pump(&mut self, backend: &mut dyn Backend) {
        // Ends: a commit has a few phases and writes a log of bounded length, and the next one needs new changes or a new asker,
        // which come from outside.
        loop {
            if self.commit.is_none() {
                if !self.wants_commit() {
                    break;
                }
                self.begin();
            }
            match self.start_phase(backend) {
                Some(status) => self.end_phase(status),
                None => break,
            }
        }
        if self.is_broken {
            let waiting = core::mem::take(&mut self.waiting);
            self.tell(waiting, Status::IoError);
        }
    }

    /// What the log is writing now, for a [`Backend::write`] that goes on.
    #[must_use]
    pub fn own_bytes(&self) -> &[u8] {
        self.commit.as_ref().map_or(&[], |commit| &commit.buffer)
    }

    fn begin(&mut self) {
        let records = core::mem::take(&mut self.pending);
        let mut packer = Packer::new(self.log.stamp, self.log.next);
        records.iter().for_each(|record| packer.push(record));
        let named: u64 = records.iter().map(Record::named).sum();
        let is_too_long = self.log.next + packer.blocks() > self.geometry.log_blocks
            || self.log.named + named > self.geometry.max_named();
        let is_checkpoint = !records.is_empty() && (self.must_checkpoint || is_too_long);
        let mut commit = Commit {
            phase: Phase::Data,
            log: LogEnd { named: self.log.named + named, ..self.log },
            is_checkpoint,
            packed: Vec::new(),
            walk: None,
            buffer: Vec::new(),
            waiters: core::mem::take(&mut self.waiting),
            freed: core::mem::take(&mut self.freed),
            is_waiting: false,
        };
        if is_checkpoint {
            let stamp = Stamp { epoch: self.log.stamp.epoch + 1, nonce: self.log.nonce };
            commit.log = LogEnd { stamp, half: 1 - self.log.half, next: 0, named: 0, ..self.log };
            packer = Packer::new(stamp, 0);
            // All changes so far are in these and in what the walk will find.
            self.layers.iter().for_each(|(id, layer)| packer.push(&description(id, layer)));
            commit.walk = Some(Walk { layers: self.layers.iter().map(|(id, _)| id).collect(), block: 0 });
            self.metrics.checkpoints += 1;
        }
        self.metrics.commits += u64::from(!records.is_empty());
        commit.packed = packer.finish();
        self.commit = Some(commit);
    }

    /// Starts the next operation; `None` if one is under way.
    fn start_phase(&mut self, backend: &mut dyn Backend) -> Option<Status> {
        if self.commit.as_ref().is_none_or(|commit| commit.is_waiting) {
            return None;
        }
        self.fill_buffer();
        let commit = self.commit.as_mut()?;
        if commit.phase == Phase::Log && commit.buffer.is_empty() {
            // The walk has found nothing more.
            return Some(Status::Ok);
        }
        let geometry = self.geometry;
        let op = self.ops.insert(Op { owner: OpOwner::Commit, on_base: None });
        let outcome = match commit.phase {
            Phase::Data | Phase::LogFlush | Phase::SuperFlush => backend.flush(op_number(op)),
            Phase::Log if commit.log.next + commit.buffer.len() as u64 / BLOCK > geometry.log_blocks => {
                // Cannot be: a log holds all that a store of its size can say.
                Outcome::Done(Status::NoSpace)
            }
            Phase::Log => {
                let block = geometry.log(commit.log.half) + commit.log.next;
                backend.write(op_number(op), block * SECTORS_PER_BLOCK, &commit.buffer)
            }
            Phase::Super => {
                let LogEnd { stamp: Stamp { epoch, nonce }, half, .. } = commit.log;
                let superblock = Superblock { geometry, epoch, nonce, half };
                commit.buffer = superblock.encode();
                backend.write(op_number(op), superblock.block() * SECTORS_PER_BLOCK, &commit.buffer)
            }
        };
        match outcome {
            Outcome::Done(status) => {
                self.ops.remove(op);
                Some(status)
            }
            Outcome::Pending => {
                commit.is_waiting = true;
                None
            }
        }
    }

    /// The commit's operation has ended.
    pub(crate) fn on_commit_done(&mut self, status: Status) {
        if let Some(commit) = &mut self.commit {
            commit.is_waiting = false;
            self.end_phase(status);
        }
    }

    fn end_phase(&mut self, status: Status) {
        let Some(commit) = &mut self.commit else { return };
        if status != Status::Ok {
            return self.fail();
        }
        let has_more = !commit.packed.is_empty() || commit.walk.is_some();
        let next = match commit.phase {
            Phase::Data if !has_more => return self.complete(),
            Phase::Data => Phase::Log,
            Phase::Log => {
                commit.log.next += commit.buffer.len() as u64 / BLOCK;
                if has_more { Phase::Log } else { Phase::LogFlush }
            }
            Phase::LogFlush if commit.is_checkpoint => Phase::Super,
            Phase::Super => Phase::SuperFlush,
            Phase::LogFlush | Phase::SuperFlush => return self.complete(),
        };
        commit.phase = next;
    }

    fn complete(&mut self) {
        let Some(commit) = self.commit.take() else { return };
        self.must_checkpoint &= !commit.is_checkpoint;
        self.log = commit.log;
        if !commit.freed.is_empty() {
            self.limbo.push_back((self.next_job, commit.freed));
            self.reap();
        }
        self.tell(commit.waiters, Status::Ok);
        self.unblock();
    }

    /// The log could not be written. What lies behind its end now is unknown, so nothing more is appended; what was durable
    /// stays so, and is found when the store is opened again.
    fn fail(&mut self) {
        let Some(commit) = self.commit.take() else { return };
        self.is_broken = true;
        self.tell(commit.waiters, Status::IoError);
        self.unblock();
    }

    fn tell(&mut self, waiters: Vec<Waiter>, status: Status) {
        for waiter in waiters {
            match waiter {
                Waiter::Job(id) => self.flush_ended(id, status),
                Waiter::Token(token) => self.answers.push_back(Answer { token, status }),
                Waiter::Nobody => {}
            }
        }
    }

    /// Takes the next log blocks to write: what is packed, then what the walk finds.
    fn fill_buffer(&mut self) {
        const AT_ONCE: usize = MAX_OP_BLOCKS * BLOCK as usize;
        let Some(commit) = self.commit.as_mut().filter(|commit| commit.phase == Phase::Log) else { return };
        if commit.packed.is_empty()
            && let Some(walk) = &mut commit.walk
        {
            let mut packer = Packer::new(commit.log.stamp, commit.log.next);
            while packer.blocks() < MAX_OP_BLOCKS as u64 {
                let Some(id) = walk.layers.last().copied() else { break };
                let range = self.layers.get(id).and_then(|layer| layer.index.range_from(walk.block));
                let Some(range) = range else {
                    walk.layers.pop();
                    walk.block = 0;
                    continue;
                };
                let mut maps = MapRuns { layer: id, run: None };
                let mut last = walk.block;
                for (block, entry) in range {
                    last = block;
                    commit.log.named += 1;
                    maps.add(block, *entry).into_iter().for_each(|record| packer.push(&record));
                }
                maps.run.iter().for_each(|record| packer.push(record));
                walk.block = (last / RANGE_BLOCKS + 1) * RANGE_BLOCKS;
            }
            if walk.layers.is_empty() {
                commit.walk = None;
            }
            commit.packed = packer.finish();
        }
        let rest = commit.packed.split_off(commit.packed.len().min(AT_ONCE));
        commit.buffer = core::mem::replace(&mut commit.packed, rest);
    }

    /// A block of a layer is to be found elsewhere: in memory at once, in the log with the next commit.
    pub(crate) fn set_entry(&mut self, layer: u32, block: u64, entry: Entry) {
        if self.layers.get(layer).is_none() {
            return;
        }
        let before = self.layers.set(layer, block, entry);
        if let Some(old) = before.map(Entry::target).filter(|old| *old != 0 && *old != entry.target()) {
            self.free_run(old, 1);
        }
        let mut runs = MapRuns { layer, run: self.pending.pop_if(|record| matches!(record, Record::Map { .. })) };
        let ended = runs.add(block, entry);
        self.pending.extend(ended);
        self.pending.extend(runs.run);
    }

    /// Data blocks that nothing refers to any more. [`Store::is_behind`] bounds how many runs of them wait.
    pub(crate) fn free_run(&mut self, first: u64, count: u64) {
        match self.freed.last_mut() {
            Some(Freed::Run(at, len)) if *at + *len == first => *len += count,
            Some(Freed::Run(at, len)) if first + count == *at => (*at, *len) = (first, *len + count),
            _ => {
                self.freed.push(Freed::Run(first, count));
                self.freed_runs += 1;
            }
        }
    }
}

fn description(id: u32, layer: &Layer) -> Record {
    let (name, base) = (layer.name.clone(), layer.base.clone());
    Record::Layer { id, parent: layer.parent, is_snapshot: layer.is_snapshot, name, base }
}

/// Puts blocks that follow each other into one record.
struct MapRuns {
    layer: u32,
    run: Option<Record>,
}

impl MapRuns {
    /// Adds a block; gives the record that it does not continue.
    fn add(&mut self, at: u64, entry: Entry) -> Option<Record> {
        if let Some(Record::Map { layer, block, count, target, mask }) = &mut self.run
            && *layer == self.layer
            && *block + u64::from(*count) == at
            && *mask == entry.mask()
            && *count < u32::MAX
        {
            let next = if *target == 0 { 0 } else { *target + u64::from(*count) };
            if next == entry.target() {
                *count += 1;
                return None;
            }
        }
        let (target, mask) = (entry.target(), entry.mask());
        self.run.replace(Record::Map { layer: self.layer, block: at, count: 1, target, mask })
    }
}
