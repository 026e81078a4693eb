//! The trait between the transport and a device's protocol.

use device::{Env, GuestMemory};

use crate::error::DeviceError;
use crate::queue::{Chain, MAX_SEGMENTS, Queue};
use crate::spec::DeviceId;

/// A virtio device's protocol, without registers and rings.
pub trait VirtioModel: Send {
    /// Name for events, for example `"virtio-blk"`.
    fn name(&self) -> &'static str;

    /// The device type.
    fn device_id(&self) -> DeviceId;

    /// Device-specific feature bits to offer. The transport adds its own (version 1, indirect, event index).
    fn features(&self) -> u64;

    /// Number of virtqueues, 1..=64. Constant.
    fn queue_count(&self) -> u16;

    /// Largest size of queue `index`: a power of two up to [`crate::MAX_SEGMENTS`]. Constant.
    fn queue_max_size(&self, index: u16) -> u16;

    /// Fills `buf` from the configuration space at `offset`; bytes beyond its end read as zero.
    fn config_read(&self, offset: u64, buf: &mut [u8]);

    /// The driver writes `data` into the configuration space. Read-only fields ignore it.
    fn config_write(&mut self, _offset: u64, _data: &[u8]) {}

    /// The driver is live with these features (a subset of the offered ones).
    fn activate(&mut self, _features: u64) {}

    /// The driver has made buffers available in `queue`, which is ready.
    ///
    /// # Errors
    /// [`DeviceError`] says whether the guest stops or the device asks for a reset.
    fn notify(&mut self, queue: u16, io: &mut Io<'_>) -> Result<(), DeviceError>;

    /// The driver has taken `queue` away. Chains in flight on it must be forgotten.
    fn queue_stopped(&mut self, _queue: u16) {}

    /// Back to power-on. Chains in flight are forgotten and never completed.
    fn reset(&mut self);
}

/// What a model may reach while it serves a call: its queues, guest memory and the interrupt.
pub struct Io<'a> {
    pub(crate) env: &'a dyn Env,
    pub(crate) memory: &'a dyn GuestMemory,
    pub(crate) queues: &'a mut [Queue],
    pub(crate) features: u64,
    pub(crate) backlog: &'a mut u64,
    pub(crate) config_changed: bool,
}

impl<'a> Io<'a> {
    /// The guest's memory.
    #[must_use]
    pub fn memory(&self) -> &'a dyn GuestMemory {
        self.memory
    }

    /// The guest's `time` now, in ticks.
    #[must_use]
    pub fn now_ticks(&self) -> u64 {
        self.env.now_ticks()
    }

    /// Queue `index`, if the driver has set it up.
    pub fn queue(&mut self, index: u16) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(index)).filter(|queue| queue.is_ready())
    }

    /// Whether the driver has accepted all features of the mask `bit`.
    #[must_use]
    pub fn has_feature(&self, bit: u64) -> bool {
        self.features & bit == bit
    }

    /// This call's budget is spent and `queue` may hold more: serve it again at the next poll.
    pub fn defer(&mut self, queue: u16) {
        *self.backlog |= 1_u64.checked_shl(u32::from(queue)).unwrap_or(0);
    }

    /// The configuration space has changed: tell the driver when this call ends.
    pub fn config_changed(&mut self) {
        self.config_changed = true;
    }
}

/// Fills `buf` from `config` at `offset`, with zeroes beyond the end.
pub fn read_config(config: &[u8], offset: u64, buf: &mut [u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let source = config.get(start..).unwrap_or(&[]);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = source.get(index).copied().unwrap_or(0);
    }
}

/// Descriptors that one call walks: the last chain of a call may be as long again.
const DESCRIPTORS: u32 = MAX_SEGMENTS as u32;

/// How much one call may still do, in chains, in their descriptors, and in bytes (or what else its device counts).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    chains: u32,
    descriptors: u32,
    bytes: u64,
}

impl Budget {
    /// A budget of `chains` chains that move `bytes` bytes.
    #[must_use]
    pub const fn new(chains: u32, bytes: u64) -> Self {
        Self { chains, descriptors: DESCRIPTORS, bytes }
    }

    /// More than any call needs.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self { chains: u32::MAX, descriptors: u32::MAX, bytes: u64::MAX }
    }

    /// Charges bytes of a chain that is not done. True once the budget is spent.
    pub const fn spend(&mut self, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.bytes == 0
    }

    /// Charges one chain and `bytes` bytes of it. True once the budget is spent; the last chain may overdraw it.
    pub const fn charge(&mut self, chain: &Chain, bytes: u64) -> bool {
        self.chains = self.chains.saturating_sub(1);
        self.descriptors = self.descriptors.saturating_sub(chain.descriptors());
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_spent()
    }

    /// Whether so many bytes are more than is left.
    #[must_use]
    pub const fn would_overdraw(&self, bytes: u64) -> bool {
        bytes > self.bytes
    }

    /// Whether nothing is left of a part of it.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.chains == 0 || self.descriptors == 0 || self.bytes == 0
    }
}
