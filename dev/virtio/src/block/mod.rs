//! virtio-blk.
//!
//! Commands: read, write, flush, get-id, discard and write-zeroes (one range per request). The disk is a
//! [`BlockBackend`]; it sees only requests that lie within its capacity, whose buffers are guest RAM.
//!
//! # Cost
//! A 4 KiB read that the backend answers at once makes 11 guest-memory accesses besides its data: available index
//! (twice), available entry, descriptor, indirect table (one access for up to 8 entries), request header, status, used
//! entry, used index, event indices (one write, one read). All but the table are single words or pairs of words, so it
//! pays to have fast paths for those in `GuestMemory`. No allocation, no lock.

mod backend;
mod metrics;
mod request;
mod spec;
#[cfg(test)]
mod tests;

pub use backend::{BlockBackend, BlockKind, BlockRequest, BlockStatus, BlockTag, Outcome};
pub use metrics::BlockMetrics;

use addr::GuestPhysAddr;
use alloc::boxed::Box;
use alloc::vec;
use device::{Env, GuestFault, GuestMemory};

use self::request::{Limits, Refusal};
use crate::error::{DeviceError, ProtocolError, RingError};
use crate::model::{Budget, Io, VirtioModel, read_config};
use crate::queue::{Chain, MAX_SEGMENTS, Queue};
use crate::spec::DeviceId;
use crate::transport::VirtioMmio;

/// The only queue.
pub const REQUEST_QUEUE: u16 = 0;

/// Requests of the queue, at most.
pub const QUEUE_SIZE: u16 = MAX_SEGMENTS as u16;
/// Data segments per request: a chain less header and status.
const SEG_MAX: u32 = MAX_SEGMENTS as u32 - 2;
/// Work per call: keeps one notification's copying bounded.
const BUDGET: Budget = Budget::new(8, 32 << 10);

/// A request that the backend has not finished.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    status_addr: GuestPhysAddr,
    /// Bytes that the backend writes into guest memory, should it succeed.
    data_len: u32,
}

/// The block device model.
pub struct Block<B> {
    backend: B,
    config: [u8; spec::CFG_BYTES],
    limits: Limits,
    chain: Chain,
    /// By descriptor head.
    in_flight: Box<[Option<InFlight>]>,
    /// Counts driver resets, see [`BlockTag`].
    epoch: u32,
    metrics: BlockMetrics,
}

impl<B: BlockBackend> Block<B> {
    /// A device for the disk behind `backend`.
    #[must_use]
    pub fn new(backend: B) -> Self {
        let limits = Limits {
            capacity: backend.capacity_sectors(),
            is_read_only: backend.is_read_only(),
            can_discard: backend.can_discard(),
        };
        Self {
            backend,
            config: config_space(&limits),
            limits,
            chain: Chain::new(),
            in_flight: vec![None; usize::from(QUEUE_SIZE)].into_boxed_slice(),
            epoch: 0,
            metrics: BlockMetrics::default(),
        }
    }

    /// The disk.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// The disk.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// What the device has done.
    #[must_use]
    pub const fn metrics(&self) -> &BlockMetrics {
        &self.metrics
    }

    /// Requests that the backend has not finished.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.in_flight.iter().flatten().count()
    }

    /// Serves the chain in `self.chain`; returns the bytes moved.
    fn serve(&mut self, queue: &mut Queue, memory: &dyn GuestMemory) -> Result<u64, DeviceError> {
        let head = self.chain.head();
        let slot = self.in_flight.get_mut(usize::from(head)).ok_or(RingError::HeadOutOfRange(head))?;
        if slot.is_some() {
            return Err(RingError::HeadInFlight(head).into());
        }
        let status_addr = self.chain.take_last_byte().ok_or(ProtocolError::NoRoomForAnswer)?;
        // Type and priority, sector.
        let [first, sector] = self.chain.read_u64_pair(memory)?;
        let command = first as u32;
        let moved = u64::from(self.chain.readable_len()) + u64::from(self.chain.writable_len());
        let (outcome, data_len) = match self.perform(command, sector, memory) {
            Ok(performed) => performed,
            Err(Refused::Answer(Refusal::IoError)) => (Outcome::Done(BlockStatus::IoError), 0),
            Err(Refused::Answer(Refusal::Unsupported)) => (Outcome::Done(BlockStatus::Unsupported), 0),
            Err(Refused::Ring(error)) => return Err(error.into()),
        };
        match outcome {
            Outcome::Done(status) => self.finish(queue, memory, head, InFlight { status_addr, data_len }, status)?,
            Outcome::Pending => {
                self.metrics.pending += 1;
                if let Some(slot) = self.in_flight.get_mut(usize::from(head)) {
                    *slot = Some(InFlight { status_addr, data_len });
                }
            }
        }
        Ok(moved)
    }

    /// Checks one command and gives it to the backend; returns the outcome and the bytes it writes to the guest.
    fn perform(&mut self, command: u32, sector: u64, memory: &dyn GuestMemory) -> Result<(Outcome, u32), Refused> {
        let tag = BlockTag::new(self.epoch, self.chain.head());
        match command {
            spec::T_IN => {
                let bytes = self.chain.writable_len();
                let sectors = self.limits.check_transfer(sector, bytes, false)?;
                self.metrics.reads += 1;
                self.metrics.bytes_read += u64::from(bytes);
                let request = BlockRequest { kind: BlockKind::Read, sector, sectors, segments: self.chain.writable() };
                Ok((self.backend.submit(tag, request, memory), bytes))
            }
            spec::T_OUT => {
                let bytes = self.chain.readable_len();
                let sectors = self.limits.check_transfer(sector, bytes, true)?;
                self.metrics.writes += 1;
                self.metrics.bytes_written += u64::from(bytes);
                let request = BlockRequest { kind: BlockKind::Write, sector, sectors, segments: self.chain.readable() };
                Ok((self.backend.submit(tag, request, memory), 0))
            }
            spec::T_FLUSH => {
                self.metrics.flushes += 1;
                let request = BlockRequest { kind: BlockKind::Flush, sector: 0, sectors: 0, segments: &[] };
                Ok((self.backend.submit(tag, request, memory), 0))
            }
            spec::T_GET_ID => self.get_id(memory),
            spec::T_DISCARD | spec::T_WRITE_ZEROES => self.zero(tag, command, memory),
            _ => Err(Refusal::Unsupported.into()),
        }
    }

    fn get_id(&mut self, memory: &dyn GuestMemory) -> Result<(Outcome, u32), Refused> {
        if (self.chain.writable_len() as usize) < spec::ID_BYTES {
            return Err(Refusal::IoError.into());
        }
        let id = self.backend.id();
        self.chain.write_some(memory, &id)?;
        Ok((Outcome::Done(BlockStatus::Ok), spec::ID_BYTES as u32))
    }

    fn zero(&mut self, tag: BlockTag, command: u32, memory: &dyn GuestMemory) -> Result<(Outcome, u32), Refused> {
        // One range per request, as `max_discard_seg` and `max_write_zeroes_seg` say.
        if self.chain.readable_len() as usize != spec::RANGE_BYTES {
            return Err(Refusal::IoError.into());
        }
        let mut raw = [0; spec::RANGE_BYTES];
        self.chain.read_some(memory, &mut raw)?;
        let (kind, sector, sectors) = self.limits.check_zeroing(command, &raw)?;
        self.metrics.discards += 1;
        Ok((self.backend.submit(tag, BlockRequest { kind, sector, sectors, segments: &[] }, memory), 0))
    }

    /// Writes the status and gives the chain back.
    fn finish(
        &mut self,
        queue: &mut Queue,
        memory: &dyn GuestMemory,
        head: u16,
        request: InFlight,
        status: BlockStatus,
    ) -> Result<(), RingError> {
        memory.write_u8(request.status_addr, status as u8)?;
        if status != BlockStatus::Ok {
            self.metrics.errors += 1;
        }
        let data_len = if status == BlockStatus::Ok { request.data_len } else { 0 };
        queue.push(memory, head, data_len + 1)
    }

    /// Forgets what is in flight: completions with older tags are ignored from now on.
    fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.in_flight.fill(None);
        self.backend.cancel_all();
    }
}

impl<B: BlockBackend> VirtioModel for Block<B> {
    fn name(&self) -> &'static str {
        "virtio-blk"
    }

    fn device_id(&self) -> DeviceId {
        DeviceId::Block
    }

    fn features(&self) -> u64 {
        let mut features = spec::F_SEG_MAX | spec::F_BLK_SIZE | spec::F_FLUSH | spec::F_TOPOLOGY;
        if self.limits.is_read_only {
            features |= spec::F_RO;
        }
        if self.limits.can_discard {
            features |= spec::F_DISCARD | spec::F_WRITE_ZEROES;
        }
        features
    }

    fn queue_count(&self) -> u16 {
        1
    }

    fn queue_max_size(&self, _index: u16) -> u16 {
        QUEUE_SIZE
    }

    fn config_read(&self, offset: u64, buf: &mut [u8]) {
        read_config(&self.config, offset, buf);
    }

    fn notify(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        let Some(queue) = io.queue(index) else { return Ok(()) };
        let mut budget = BUDGET;
        while queue.next_or_arm(memory, &mut self.chain)? {
            let moved = self.serve(queue, memory)?;
            if budget.charge(&self.chain, moved) {
                io.defer(index);
                break;
            }
        }
        Ok(())
    }

    fn queue_stopped(&mut self, _queue: u16) {
        self.forget();
    }

    fn reset(&mut self) {
        self.forget();
    }
}

impl<B: BlockBackend> VirtioMmio<Block<B>> {
    /// Finishes a request that [`BlockBackend::submit`] left pending. A tag from before a reset is ignored.
    ///
    /// # Errors
    /// [`GuestFault`] when the guest's ring cannot be written.
    pub fn complete(&mut self, tag: BlockTag, status: BlockStatus, env: &dyn Env) -> Result<(), GuestFault> {
        self.with_model(env, |block, io| {
            if tag.epoch() != block.epoch {
                return Ok(());
            }
            let slot = block.in_flight.get_mut(usize::from(tag.head()));
            let Some(request) = slot.and_then(Option::take) else { return Ok(()) };
            let memory = io.memory();
            let Some(queue) = io.queue(REQUEST_QUEUE) else { return Ok(()) };
            Ok(block.finish(queue, memory, tag.head(), request, status)?)
        })?;
        Ok(())
    }
}

/// A request that the backend does not get to see.
enum Refused {
    Answer(Refusal),
    Ring(RingError),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::Answer(refusal)
    }
}

impl From<RingError> for Refused {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

/// The configuration space: 512-byte logical blocks on 4 KiB physical ones.
fn config_space(limits: &Limits) -> [u8; spec::CFG_BYTES] {
    let mut config = [0; spec::CFG_BYTES];
    let mut put = |offset: usize, bytes: &[u8]| {
        if let Some(field) = config.get_mut(offset..offset + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(spec::CFG_CAPACITY, &limits.capacity.to_le_bytes());
    put(spec::CFG_SEG_MAX, &SEG_MAX.to_le_bytes());
    put(spec::CFG_BLK_SIZE, &(spec::SECTOR as u32).to_le_bytes());
    put(spec::CFG_PHYSICAL_BLOCK_EXP, &[3]);
    put(spec::CFG_MIN_IO_SIZE, &8_u16.to_le_bytes());
    put(spec::CFG_OPT_IO_SIZE, &256_u32.to_le_bytes());
    put(spec::CFG_WRITEBACK, &[1]);
    if limits.can_discard {
        put(spec::CFG_MAX_DISCARD_SECTORS, &u32::MAX.to_le_bytes());
        put(spec::CFG_MAX_DISCARD_SEG, &1_u32.to_le_bytes());
        put(spec::CFG_DISCARD_ALIGNMENT, &8_u32.to_le_bytes());
        put(spec::CFG_MAX_WRITE_ZEROES_SECTORS, &u32::MAX.to_le_bytes());
        put(spec::CFG_MAX_WRITE_ZEROES_SEG, &1_u32.to_le_bytes());
        put(spec::CFG_WRITE_ZEROES_MAY_UNMAP, &[1]);
    }
    config
}
