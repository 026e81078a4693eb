//! A machine disk as its VMs share it.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use addr::{GuestPhysAddr, NodeId};
use slotmap::SlotMap;

use crate::cache::Cache;
use crate::contract::{Context, FailedIo, GuestCopy, IoToken, PageStore};
use crate::gpt::Partition;
use crate::metrics::DiskMetrics;
use crate::mount::{Backing, Mode, Mount, MountError, MountSpec, Streams};
use crate::ops::{OpId, Ops, op_id};
use crate::overlay::Overlay;
use crate::request::{Cursor, Job, JobId, Kind, MountId, MountKey, Outcome, Ready, Request, Status};

/// Most sectors of a disk: 8 TiB. Bounds the top of the indices, which is in one piece, to 1 MiB.
pub const MAX_SECTORS: u64 = 1 << 34;

/// One disk of the machine: its cache, its virtual disks and their pending requests.
///
/// Nothing here is shared between disks, so each has a lock of its own. Every call does a bounded amount of work.
#[derive(Debug)]
pub struct SharedDisk {
    pub(crate) name: String,
    pub(crate) capacity: u64,
    is_read_only: bool,
    partitions: Vec<Partition>,
    pub(crate) cache: Cache,
    pub(crate) ops: Ops,
    pub(crate) mounts: SlotMap<MountKey, Mount>,
    pub(crate) pending: SlotMap<JobId, Pending>,
    /// Mounts with woken requests, each once: they take turns, so that nobody waits behind all requests of another. Some may have
    /// none left by now.
    pub(crate) turns: VecDeque<MountKey>,
    /// Requests that wait for room among the operations, or for a page.
    pub(crate) stalled: VecDeque<JobId>,
    /// Private blocks of VMs that are gone.
    dying: Vec<Overlay>,
    pub(crate) metrics: DiskMetrics,
}

/// A request that could not be finished at once.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Taken out while it advances.
    pub job: Option<Job>,
    /// Its own copy of the guest's list.
    segments: Vec<(GuestPhysAddr, u32)>,
    /// It is in the ready queue.
    pub is_ready: bool,
}

/// Why a request stops advancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Until this operation ends.
    Wait(OpId),
    /// Until any operation ends.
    Stall,
    /// Until its own operations have ended.
    Outstanding,
    /// It has worked enough for one call.
    Again,
    /// Until there is memory for what it copies to or from: the guest has no page there yet, and the machine none to give it.
    NoGuestPage,
    /// For good.
    End(Status),
}

impl SharedDisk {
    /// A disk of `capacity_sectors`, of which at most [`MAX_SECTORS`] are used, with at most `cache_pages` pages of cache. Partitions that do not lie on it are
    /// left out.
    #[must_use]
    pub fn new(
        name: &str,
        capacity_sectors: u64,
        is_read_only: bool,
        mut partitions: Vec<Partition>,
        cache_pages: u64,
    ) -> Self {
        let capacity = capacity_sectors.min(MAX_SECTORS);
        let fits = |part: &Partition| part.first_sector.checked_add(part.sectors).is_some_and(|end| end <= capacity);
        partitions.retain(fits);
        Self {
            name: name.to_owned(),
            capacity,
            is_read_only,
            partitions,
            cache: Cache::new(cache_pages),
            ops: Ops::default(),
            mounts: SlotMap::with_key(),
            pending: SlotMap::with_key(),
            turns: VecDeque::new(),
            stalled: VecDeque::new(),
            dying: Vec::new(),
            metrics: DiskMetrics::default(),
        }
    }

    /// Its name: the serial number.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in sectors, as far as it is used.
    #[must_use]
    pub const fn capacity_sectors(&self) -> u64 {
        self.capacity
    }

    /// Whether the machine's disk refuses writes. VMs may still write to overlays of it.
    #[must_use]
    pub const fn is_disk_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Its partitions.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Gives a VM its view of the disk.
    ///
    /// # Errors
    /// [`MountError`], with the holder's name where somebody else is in the way.
    pub fn mount(&mut self, spec: &MountSpec<'_>) -> Result<MountId, MountError> {
        let (first_sector, sectors) = self.find_range(spec.partition)?;
        let is_persistent = matches!(spec.mode, Mode::Persistent);
        if is_persistent && self.is_read_only {
            return Err(MountError::ReadOnlyDisk);
        }
        let mut others = self.mounts.values().filter(|other| other.overlaps(first_sector, sectors));
        if let Some(other) = others.find(|other| is_persistent || other.is_persistent()) {
            let holder = other.holder.clone();
            return Err(MountError::InUse { holder, is_persistent: other.is_persistent() });
        }
        let backing = match spec.mode {
            Mode::CopyOnWrite { limit_pages } => Backing::Private(Overlay::new(limit_pages)),
            Mode::Persistent => Backing::Through,
            Mode::ReadOnly => Backing::Nowhere,
        };
        let holder = spec.holder.to_owned();
        let (streams, ready) = (Streams::default(), VecDeque::new());
        let mount = Mount { holder, first_sector, sectors, backing, streams, ready, has_turn: false };
        Ok(MountId(self.mounts.insert(mount)))
    }

    /// Size of a virtual disk in sectors; 0 for one that is gone.
    #[must_use]
    pub fn sectors(&self, mount: MountId) -> u64 {
        self.mounts.get(mount.0).map_or(0, |mount| mount.sectors)
    }

    /// Whether a virtual disk refuses writes; one that is gone does.
    #[must_use]
    pub fn is_read_only(&self, mount: MountId) -> bool {
        self.mounts.get(mount.0).is_none_or(|mount| matches!(mount.backing, Backing::Nowhere))
    }

    /// Pages of blocks that its VM has modified.
    #[must_use]
    pub fn private_pages(&self, mount: MountId) -> u64 {
        self.overlay(mount).map_or(0, Overlay::pages)
    }

    /// Pages that count towards the limit of a copy-on-write disk: those of modified blocks, and the memory that finds them.
    #[must_use]
    pub fn charged_pages(&self, mount: MountId) -> u64 {
        self.overlay(mount).map_or(0, Overlay::charge)
    }

    /// Whether a copy-on-write disk has reached its limit.
    #[must_use]
    pub fn is_at_limit(&self, mount: MountId) -> bool {
        self.overlay(mount).is_some_and(Overlay::is_full)
    }

    fn overlay(&self, mount: MountId) -> Option<&Overlay> {
        match &self.mounts.get(mount.0)?.backing {
            Backing::Private(overlay) => Some(overlay),
            Backing::Through | Backing::Nowhere => None,
        }
    }

    /// Takes a VM's view away. Its pending requests are forgotten; what it has submitted to the machine's disk ends
    /// there. Its private pages come back bit by bit, with [`SharedDisk::clean_up`].
    pub fn unmount(&mut self, mount: MountId) {
        self.cancel(mount);
        if let Some(Mount { backing: Backing::Private(overlay), .. }) = self.mounts.remove(mount.0) {
            self.dying.push(overlay);
        }
    }

    /// Gives some pages of unmounted disks back. `true`: call again.
    pub fn clean_up(&mut self, pages: &dyn PageStore) -> bool {
        const RANGES_PER_CALL: usize = 8;
        for _ in 0..RANGES_PER_CALL {
            let Some(overlay) = self.dying.last_mut() else { return false };
            if !overlay.dismantle(pages) {
                self.dying.pop();
            }
        }
        !self.dying.is_empty()
    }

    /// Private pages of unmounted disks that have not come back yet.
    #[must_use]
    pub fn dying_pages(&self) -> u64 {
        self.dying.iter().map(Overlay::pages).sum()
    }

    /// Forgets the pending requests of a virtual disk: its driver was reset. They are not completed, and guest memory
    /// is not touched for them.
    pub fn cancel(&mut self, mount: MountId) {
        let cache = &mut self.cache;
        self.pending.retain(|_, pending| {
            let Some(job) = pending.job.as_ref().filter(|job| job.mount == mount) else { return true };
            if let Some(block) = job.pinned {
                cache.unpin(block);
            }
            false
        });
        self.stalled.retain(|id| self.pending.contains_key(*id));
        self.wake_stalled();
    }

    /// Starts a request of `mount` and finishes it if that is possible without waiting.
    pub fn submit(
        &mut self,
        mount: MountId,
        tag: u64,
        request: Request<'_>,
        guest: &dyn GuestCopy,
        ctx: &mut Context<'_>,
    ) -> Outcome {
        let Some(mut job) = self.check(mount, tag, &request) else {
            self.metrics.failed_requests += 1;
            return Outcome::Done(Status::IoError);
        };
        match self.advance(&mut job, request.segments, guest, ctx) {
            Stop::End(status) => self.finish(job, status),
            stop => {
                let segments = if job.kind.has_data() { request.segments.to_list() } else { Ok(Vec::new()) };
                let Ok(segments) = segments else { return self.give_up(job) };
                let id = self.id_of(&mut job);
                if let Some(pending) = self.pending.get_mut(id) {
                    pending.segments = segments;
                }
                self.park(job, id, stop);
                Outcome::Pending
            }
        }
    }

    /// Goes on with a pending request. One that was cancelled meanwhile stays [`Outcome::Pending`] for ever.
    pub fn resume(&mut self, ready: Ready, guest: &dyn GuestCopy, ctx: &mut Context<'_>) -> Outcome {
        let Some(pending) = self.pending.get_mut(ready.job) else { return Outcome::Pending };
        let Some(mut job) = pending.job.take() else { return Outcome::Pending };
        let segments = core::mem::take(&mut pending.segments);
        if let Some(block) = job.pinned.take() {
            self.cache.unpin(block);
        }
        let stop = self.advance(&mut job, &segments, guest, ctx);
        let outcome = match stop {
            Stop::End(status) => self.finish(job, status),
            stop => {
                if let Some(pending) = self.pending.get_mut(ready.job) {
                    pending.segments = segments;
                }
                self.park(job, ready.job, stop);
                Outcome::Pending
            }
        };
        if self.ops.is_empty() {
            self.wake_stalled();
        }
        outcome
    }

    /// An operation of the machine's disk has ended. Whoever waited for it is ready then, see
    /// [`SharedDisk::next_ready`]. Says what has failed, if it has.
    pub fn on_io_complete(&mut self, token: IoToken, is_ok: bool, pages: &dyn PageStore) -> Option<FailedIo> {
        let mut failed = None;
        match self.ops.end(op_id(token)) {
            Some(op) => {
                failed = (!is_ok).then(|| op.work.failure());
                self.settle(op, is_ok, pages);
            }
            None => self.metrics.io_strays += 1,
        }
        self.wake_stalled();
        failed
    }

    /// Gives up to `wanted` cached pages back that no guest maps, because the machine needs memory. Returns how many.
    pub fn reclaim(&mut self, wanted: u64, pages: &dyn PageStore) -> u64 {
        let freed = self.cache.reclaim(wanted, pages);
        self.metrics.reclaimed += freed;
        freed
    }

    /// Lets go of up to `wanted` cached pages, because the caches of all disks together hold too many: those that guests map may
    /// go, too, and stay theirs. Returns how many.
    pub fn trim(&mut self, wanted: u64, pages: &dyn PageStore) -> u64 {
        let mut freed = 0;
        while freed < wanted {
            match self.make_room(wanted - freed, pages) {
                0 => break,
                some => freed += some,
            }
        }
        freed
    }

    /// The same to stay within the bound of the cache: pages that guests map may go, too.
    pub(crate) fn make_room(&mut self, wanted: u64, pages: &dyn PageStore) -> u64 {
        let freed = self.cache.make_room(wanted, pages);
        self.metrics.reclaimed += freed;
        freed
    }

    /// Changes the bound of the cache. A smaller one is reached as blocks are replaced, or by
    /// [`SharedDisk::reclaim`].
    pub const fn set_cache_limit(&mut self, pages: u64) {
        self.cache.set_limit(pages);
    }

    /// Pages of its cache, those being read included.
    #[must_use]
    pub const fn cached_pages(&self) -> u64 {
        self.cache.pages()
    }

    /// Pages of its cache in memory of `node`, those being read included.
    #[must_use]
    pub fn cached_pages_on(&self, node: NodeId) -> u64 {
        self.cache.pages_on(node)
    }

    /// Who mounts it, or a part of it, persistently: the first of them.
    #[must_use]
    pub fn persistent_holder(&self) -> Option<&str> {
        self.mounts.values().find(|mount| mount.is_persistent()).map(|mount| mount.holder.as_str())
    }

    /// What it has done and what it holds.
    #[must_use]
    pub fn metrics(&self) -> DiskMetrics {
        let private = |mount: &Mount| match &mount.backing {
            Backing::Private(overlay) => overlay.pages(),
            Backing::Through | Backing::Nowhere => 0,
        };
        DiskMetrics {
            cached_pages: self.cache.pages(),
            private_pages: self.mounts.values().map(private).sum::<u64>() + self.dying_pages(),
            staging_pages: self.ops.staging_pages(),
            ..self.metrics
        }
    }

    fn find_range(&self, partition: Option<&str>) -> Result<(u64, u64), MountError> {
        let Some(label) = partition else { return Ok((0, self.capacity)) };
        let mut named = self.partitions.iter().filter(|partition| partition.label == label);
        let found = named.next().ok_or_else(|| MountError::NoPartition { label: label.to_owned() })?;
        match named.count() {
            0 => Ok((found.first_sector, found.sectors)),
            more => Err(MountError::AmbiguousPartition { label: label.to_owned(), count: more + 1 }),
        }
    }

    /// Makes a job of a request, if it is one that the disk can serve.
    fn check(&mut self, id: MountId, tag: u64, request: &Request<'_>) -> Option<Job> {
        let mount = self.mounts.get_mut(id.0)?;
        let end = request.sector.checked_add(request.sectors)?;
        let writes = matches!(request.kind, Kind::Write | Kind::Discard | Kind::WriteZeroes);
        if end > mount.sectors || (writes && matches!(mount.backing, Backing::Nowhere)) {
            return None;
        }
        // The mount lies on the disk, whose last sector is far from wrapping.
        let sector = mount.first_sector + request.sector;
        let mut job = Job {
            mount: id,
            tag,
            kind: request.kind,
            sector,
            left: request.sectors,
            cursor: Cursor::default(),
            outstanding: 0,
            failure: None,
            is_narrow: false,
            pinned: None,
            id: None,
            is_flushing: false,
            rooms_made: 0,
        };
        match request.kind {
            Kind::Read => {
                let blocks = crate::read::blocks_of(sector, request.sectors);
                mount.streams.observe(blocks.start, blocks.end);
            }
            Kind::Flush => job.left = 0,
            Kind::Write | Kind::Discard | Kind::WriteZeroes => {}
        }
        Some(job)
    }

    /// The job's place among the pending requests.
    pub(crate) fn id_of(&mut self, job: &mut Job) -> JobId {
        *job.id.get_or_insert_with(|| self.pending.insert(Pending::default()))
    }

    fn finish(&mut self, job: Job, status: Status) -> Outcome {
        if let Some(id) = job.id {
            self.pending.remove(id);
        }
        self.metrics.failed_requests += u64::from(status != Status::Ok);
        self.metrics.no_space += u64::from(status == Status::NoSpace);
        Outcome::Done(status)
    }

    /// Ends a job that finds no memory to wait in. What it has begun ends by itself, as that of one that is cancelled.
    fn give_up(&mut self, mut job: Job) -> Outcome {
        if let Some(block) = job.pinned.take() {
            self.cache.unpin(block);
        }
        self.finish(job, Status::IoError)
    }

    /// Puts a job away until what it waits for happens.
    fn park(&mut self, job: Job, id: JobId, stop: Stop) {
        if let Some(pending) = self.pending.get_mut(id) {
            pending.job = Some(job);
        }
        match stop {
            Stop::Wait(op) => {
                if !self.ops.wait(op, id) {
                    self.make_ready(id);
                }
            }
            Stop::Stall => self.stalled.push_back(id),
            Stop::Again => self.make_ready(id),
            Stop::Outstanding | Stop::NoGuestPage | Stop::End(_) => {}
        }
    }

    /// The job of a pending request that is not advancing at this moment: all of them while an operation ends.
    pub(crate) fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.pending.get_mut(id)?.job.as_mut()
    }
}
