//! A store: its volumes, and who uses them.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use slotmap::{Key, KeyData, SlotMap, new_key_type};
use storage::{BlockIndex, Status};

use crate::commit::{Commit, LogEnd, Waiter};
use crate::error::VolumeError;
use crate::held::HeldBlocks;
use crate::job::Job;
use crate::layers::{Counted, Entry, Layer, Layers};
use crate::layout::Geometry;
use crate::record::{Base, MAX_NAME, Record};
use crate::space::Space;
use crate::table::Table;

/// Most volumes and snapshots of one store.
pub const MAX_LAYERS: usize = 256;
/// Changes, or runs of freed blocks, that are written without anybody's asking: bounds the memory that they take.
const MAX_PENDING: usize = 4_096;
/// Changes that the log does not have yet, with those that are promised to it, and also runs of blocks that are not free again
/// yet: with more of either, writes wait. Low enough that the list of changes, which doubles, stays below 1 MiB.
pub(crate) const MAX_BACKLOG: usize = 6_144;

new_key_type! {
    pub(crate) struct VolumeKey;
    pub(crate) struct OpKey;
}

/// Names a volume that is in use. Not used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub(crate) VolumeKey);

/// One partition with volumes and snapshots. See the crate's documentation.
#[derive(Debug)]
pub struct Store {
    pub(crate) geometry: Geometry,
    /// Bytes of memory that the layers' indices may take.
    pub(crate) index_limit: u64,
    pub(crate) is_index_frozen: bool,
    pub(crate) space: Space,
    pub(crate) layers: Layers,
    pub(crate) mounts: SlotMap<VolumeKey, Mounted>,
    /// Requests under way, by their number: the first is the oldest.
    pub(crate) jobs: Table<u64, Job>,
    pub(crate) next_job: u64,
    pub(crate) ops: SlotMap<OpKey, Op>,
    pub(crate) ready: VecDeque<u64>,
    /// Writes that wait for another one, or for a snapshot.
    pub(crate) blocked: Vec<u64>,
    /// Blocks whose first write is under way.
    pub(crate) held: HeldBlocks,
    /// Changes that the log does not have yet.
    pub(crate) pending: Vec<Record>,
    /// Effects of writes under way: each may become a change.
    pub(crate) promised: usize,
    /// What they free. It is used again only when the log has them, and nobody reads it any more.
    pub(crate) freed: Vec<Freed>,
    /// Freed for good; waits for the requests before this number.
    pub(crate) limbo: VecDeque<(u64, Vec<Freed>)>,
    /// Becomes free bit by bit.
    pub(crate) dying: Vec<Vec<Freed>>,
    /// How many [`Freed::Run`] there are in `freed`, the commit, `limbo` and `dying`.
    pub(crate) freed_runs: usize,
    pub(crate) log: LogEnd,
    /// Nothing was appended to this log since the store was opened: the next commit begins the other one.
    pub(crate) must_checkpoint: bool,
    pub(crate) commit: Option<Commit>,
    /// Who wants the next commit.
    pub(crate) waiting: Vec<Waiter>,
    pub(crate) answers: VecDeque<Answer>,
    /// The log could not be written: nothing becomes durable any more.
    pub(crate) is_broken: bool,
    pub(crate) metrics: StoreMetrics,
}

/// A volume that a VM uses.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub holder: String,
    pub top: u32,
    /// Data blocks that are kept for it, and most that it gets; `None`: whatever is not kept for others.
    pub share: Option<u64>,
    /// Snapshots that wait until no write is under way.
    pub gates: Vec<(String, u64)>,
}

/// A part of a request, or the log's, under way on a disk.
#[derive(Debug)]
pub(crate) struct Op {
    pub owner: OpOwner,
    pub on_base: Option<VolumeId>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum OpOwner {
    Job(u64),
    Commit,
}

/// Data blocks that nothing refers to.
#[derive(Debug)]
pub(crate) enum Freed {
    Run(u64, u64),
    /// All those of a layer, and what it counts for meanwhile. In a box, since there are thousands of runs.
    Layer(Box<(BlockIndex<Entry>, Counted)>),
}

/// What a finished request for a snapshot or a removal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The token given with the request.
    pub token: u64,
    /// Whether it is durable.
    pub status: Status,
}

/// A volume or snapshot, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    /// Its name.
    pub name: String,
    /// Whether it is a snapshot.
    pub is_snapshot: bool,
    /// The snapshot that it continues.
    pub parent: Option<String>,
    /// The disk below.
    pub base: Base,
    /// Data blocks (4 KiB) of its own.
    pub blocks: u64,
    /// The VM that uses it.
    pub holder: Option<String>,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreMetrics {
    /// Commits that wrote to the log.
    pub commits: u64,
    /// Of these, checkpoints.
    pub checkpoints: u64,
    /// Writes that were refused because the store is full.
    pub full: u64,
    /// Writes that were refused because the index may take no more memory.
    pub index_full: u64,
}

impl Store {
    pub(crate) fn new(geometry: Geometry, log: LogEnd, index_limit: u64) -> Self {
        Self {
            geometry,
            index_limit,
            is_index_frozen: false,
            space: Space::new(geometry.first_data(), geometry.data_blocks()),
            layers: Layers::default(),
            mounts: SlotMap::with_key(),
            jobs: Table::default(),
            next_job: 1,
            ops: SlotMap::with_key(),
            ready: VecDeque::new(),
            blocked: Vec::new(),
            held: HeldBlocks::default(),
            pending: Vec::new(),
            promised: 0,
            freed: Vec::new(),
            limbo: VecDeque::new(),
            dying: Vec::new(),
            freed_runs: 0,
            log,
            must_checkpoint: true,
            commit: None,
            waiting: Vec::new(),
            answers: VecDeque::new(),
            is_broken: false,
            metrics: StoreMetrics::default(),
        }
    }

    /// Gives `holder` the volume `name` over `base`: the one that is there, or a new one. A new one begins as the snapshot
    /// `from`, if that is given.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn mount(
        &mut self,
        name: &str,
        base: &Base,
        from: Option<&str>,
        holder: &str,
    ) -> Result<VolumeId, VolumeError> {
        let top = match self.layers.find(name, false) {
            Some(top) => top,
            None => self.create(name, base, from)?,
        };
        if let Some(other) = self.mounts.values().find(|other| other.top == top) {
            return Err(VolumeError::InUse { holder: other.holder.clone() });
        }
        self.check_existing(top, base, from)?;
        let holder = holder.to_owned();
        Ok(VolumeId(self.mounts.insert(Mounted { holder, top, share: None, gates: Vec::new() })))
    }

    fn create(&mut self, name: &str, base: &Base, from: Option<&str>) -> Result<u32, VolumeError> {
        check_name(name)?;
        check_name(&base.disk)?;
        base.partition.as_deref().map_or(Ok(()), check_name)?;
        self.check_room()?;
        let parent = match from {
            Some(from) => {
                let parent = self.layers.find(from, true);
                Some(parent.ok_or_else(|| VolumeError::NoSuchSnapshot { name: from.to_owned() })?)
            }
            None => None,
        };
        if let Some(parent) = parent.and_then(|parent| self.layers.get(parent)) {
            check_base(&parent.base, base)?;
        }
        let id = self.layers.next_id();
        let layer = Layer::new(parent, false, name.to_owned(), base.clone());
        self.layers.add(id, layer).map_err(|_| VolumeError::NoNumber)?;
        let (name, base) = (name.to_owned(), base.clone());
        self.pending.push(Record::Layer { id, parent, is_snapshot: false, name, base });
        Ok(id)
    }

    fn check_existing(&self, top: u32, base: &Base, from: Option<&str>) -> Result<(), VolumeError> {
        let Some(layer) = self.layers.get(top) else { return Ok(()) };
        check_base(&layer.base, base)?;
        let Some(from) = from else { return Ok(()) };
        let mut parent = layer.parent;
        while let Some(layer) = parent.and_then(|parent| self.layers.get(parent)) {
            if layer.name == from {
                return Ok(());
            }
            parent = layer.parent;
        }
        Err(VolumeError::NotACloneOf { name: layer.name.clone(), snapshot: from.to_owned() })
    }

    /// Takes a volume from its VM. Its requests under way are forgotten as by [`Store::cancel`]. What was written stays.
    pub fn unmount(&mut self, volume: VolumeId) {
        self.cancel(volume);
        let Some(mounted) = self.mounts.remove(volume.0) else { return };
        // Writes of a VM that is gone may still be under way: there is no moment between them any more.
        let refused = mounted.gates.into_iter().map(|(_, token)| Answer { token, status: Status::IoError });
        self.answers.extend(refused);
        self.unblock();
    }

    /// Size of a volume in sectors; 0 for one that is gone.
    #[must_use]
    pub fn sectors(&self, volume: VolumeId) -> u64 {
        let top = self.mounts.get(volume.0).map(|mounted| mounted.top);
        top.and_then(|top| self.layers.get(top)).map_or(0, |layer| layer.base.sectors)
    }

    /// The next answer to [`Store::snapshot`] or [`Store::remove`].
    pub fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Whether [`Store::next_answer`] has an answer.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// All volumes and snapshots.
    pub fn layers(&self) -> impl Iterator<Item = LayerInfo> {
        self.layers.iter().map(|(id, layer)| LayerInfo {
            name: layer.name.clone(),
            is_snapshot: layer.is_snapshot,
            parent: layer.parent.and_then(|parent| self.layers.get(parent)).map(|parent| parent.name.clone()),
            base: layer.base.clone(),
            blocks: layer.blocks,
            holder: self.mounts.values().find(|mounted| mounted.top == id).map(|mounted| mounted.holder.clone()),
        })
    }

    /// The volume or snapshot that shows `disk`, or a partition of it that it shares sectors with: it must not change.
    #[must_use]
    pub fn depends_on(&self, disk: &str, partition: Option<&str>) -> Option<&str> {
        let is_below = |base: &Base| {
            let parts = (base.partition.as_deref(), partition);
            base.disk == disk && !matches!(parts, (Some(one), Some(other)) if one != other)
        };
        self.layers.iter().find(|(_, layer)| is_below(&layer.base)).map(|(_, layer)| layer.name.as_str())
    }

    /// Data blocks in all, and those free now.
    #[must_use]
    pub const fn space(&self) -> (u64, u64) {
        (self.space.total(), self.space.free())
    }

    /// The log could not be written: writes and flushes fail, reads do not.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// While the machine has hardly any memory left, the index does not grow.
    pub const fn freeze_index(&mut self, is_frozen: bool) {
        self.is_index_frozen = is_frozen;
    }

    /// Bounds the memory that finding its blocks may take, as [`Store::open`] does. What it has beyond that it keeps.
    pub const fn set_index_limit(&mut self, bytes: u64) {
        self.index_limit = bytes.saturating_sub(self.bitmap_bytes());
    }

    /// Bytes of memory that finding its blocks takes, and will when what is being written is.
    #[must_use]
    pub const fn index_bytes(&self) -> u64 {
        self.bitmap_bytes() + self.layers.index_bytes() + self.held.growth()
    }

    const fn bitmap_bytes(&self) -> u64 {
        Space::heap_bytes(self.geometry.data_blocks())
    }

    /// Bytes of memory that finding its blocks may take.
    #[must_use]
    pub const fn index_limit(&self) -> u64 {
        self.index_limit
    }

    /// What it has done.
    #[must_use]
    pub const fn metrics(&self) -> StoreMetrics {
        self.metrics
    }

    /// Whether everything that has happened is in the log, and nothing is under way. A broken store counts as quiet.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.is_broken || (self.pending.is_empty() && self.commit.is_none() && self.jobs.is_empty())
    }

    /// Makes everything durable that has happened so far, see [`Store::is_quiet`].
    pub fn sync(&mut self) {
        if !self.is_quiet() && self.waiting.is_empty() {
            self.waiting.push(Waiter::Nobody);
        }
    }

    pub(crate) const fn wants_commit(&self) -> bool {
        let is_much = self.pending.len() >= MAX_PENDING || self.freed.len() >= MAX_PENDING;
        !self.is_broken && (!self.waiting.is_empty() || is_much)
    }

    /// Whether so much waits for the log, or to become free again, that writes have to wait, too.
    pub(crate) const fn is_behind(&self) -> bool {
        self.pending.len() + self.promised >= MAX_BACKLOG || self.freed_runs >= MAX_BACKLOG
    }

    /// Whether [`Store::clean_up`] has something to do.
    #[must_use]
    pub const fn has_garbage(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Gives some blocks of what is gone back. `true`: call again. Writes may go on then that have waited for it.
    pub fn clean_up(&mut self) -> bool {
        const STEPS_PER_CALL: usize = 16;
        let was_behind = self.is_behind();
        for _ in 0..STEPS_PER_CALL {
            self.clean_up_some();
        }
        if was_behind && !self.is_behind() {
            self.unblock();
        }
        self.has_garbage()
    }

    fn clean_up_some(&mut self) {
        /// Blocks: some 64 words of the bitmap.
        const RELEASED_AT_ONCE: u64 = 4_096;
        let Some(freed) = self.dying.last_mut() else { return };
        match freed.last_mut() {
            None => drop(self.dying.pop()),
            Some(Freed::Run(first, count)) => {
                let some = (*count).min(RELEASED_AT_ONCE);
                self.space.release(*first, some);
                (*first, *count) = (*first + some, *count - some);
                if *count == 0 {
                    freed.pop();
                    self.freed_runs -= 1;
                }
            }
            Some(Freed::Layer(layer)) => match layer.0.next_range(0) {
                Some(block) => {
                    let space = &mut self.space;
                    layer.0.remove_range(block, &mut |entry: Entry| {
                        if entry.target() != 0 {
                            space.release(entry.target(), 1);
                        }
                    });
                }
                None => {
                    self.layers.dismantled(layer.1);
                    freed.pop();
                }
            },
        }
    }

    /// What was freed for good becomes free when the requests that may touch it have ended.
    pub(crate) fn reap(&mut self) {
        if self.limbo.is_empty() {
            return;
        }
        let oldest = self.jobs.iter().find(|(_, job)| job.refers_to_blocks()).map_or(u64::MAX, |(id, _)| id);
        // Ends: each step takes one out, and commits put one in at a time.
        while self.limbo.front().is_some_and(|(before, _)| *before <= oldest) {
            self.dying.extend(self.limbo.pop_front().map(|(_, freed)| freed));
        }
    }

    pub(crate) fn check_room(&self) -> Result<(), VolumeError> {
        let gates: usize = self.mounts.values().map(|mounted| mounted.gates.len()).sum();
        match self.is_broken {
            true => Err(VolumeError::Broken),
            false if self.layers.len() + gates >= MAX_LAYERS => Err(VolumeError::TooMany { most: MAX_LAYERS }),
            false if self.layers.numbers_left() as usize <= gates => Err(VolumeError::NoNumber),
            false => Ok(()),
        }
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), VolumeError> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(VolumeError::BadName { name: name.to_owned(), most: MAX_NAME });
    }
    Ok(())
}

fn check_base(recorded: &Base, given: &Base) -> Result<(), VolumeError> {
    if recorded == given {
        return Ok(());
    }
    Err(VolumeError::OtherBase { recorded: recorded.clone(), given: given.clone() })
}

pub(crate) fn op_number(op: OpKey) -> u64 {
    op.data().as_ffi()
}

pub(crate) fn op_key(number: u64) -> OpKey {
    KeyData::from_ffi(number).into()
}
