//! virtio-rng: entropy for the guest.

#[cfg(test)]
mod tests;

use crate::error::{DeviceError, ProtocolError};
use crate::model::{Budget, Io, VirtioModel};
use crate::queue::Chain;
use crate::spec::DeviceId;

const QUEUE_SIZE: u16 = 64;
/// Most bytes given for one request; the driver asks again for more. Making them takes some hundred microseconds.
const MAX_REQUEST: u32 = 512;
const BUDGET: Budget = Budget::new(16, MAX_REQUEST as u64);
/// Bytes asked of the source at a time.
const STEP: usize = 256;

/// Where the bytes come from.
pub trait EntropySource: Send {
    /// Fills `buf` with bytes that no guest can predict.
    fn fill(&mut self, buf: &mut [u8]);
}

/// The entropy device model.
pub struct Rng<S> {
    source: S,
    chain: Chain,
    bytes_given: u64,
}

impl<S: EntropySource> Rng<S> {
    /// A device that gives bytes of `source`.
    #[must_use]
    pub fn new(source: S) -> Self {
        Self { source, chain: Chain::new(), bytes_given: 0 }
    }

    /// Bytes given since the device was made.
    #[must_use]
    pub const fn bytes_given(&self) -> u64 {
        self.bytes_given
    }
}

impl<S: EntropySource> VirtioModel for Rng<S> {
    fn name(&self) -> &'static str {
        "virtio-rng"
    }

    fn device_id(&self) -> DeviceId {
        DeviceId::Entropy
    }

    fn features(&self) -> u64 {
        0
    }

    fn queue_count(&self) -> u16 {
        1
    }

    fn queue_max_size(&self, _index: u16) -> u16 {
        QUEUE_SIZE
    }

    fn config_read(&self, _offset: u64, buf: &mut [u8]) {
        buf.fill(0);
    }

    fn notify(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        let Some(queue) = io.queue(index) else { return Ok(()) };
        let mut budget = BUDGET;
        while queue.next_or_arm(memory, &mut self.chain)? {
            if self.chain.writable_len() == 0 {
                return Err(ProtocolError::NoRoomForAnswer.into());
            }
            let mut left = self.chain.writable_len().min(MAX_REQUEST) as usize;
            let mut step = [0; STEP];
            while left > 0 {
                let part = step.split_at_mut(left.min(STEP)).0;
                self.source.fill(part);
                left -= self.chain.write_some(memory, part)?;
            }
            let written = self.chain.written();
            self.bytes_given += u64::from(written);
            queue.push(memory, self.chain.head(), written)?;
            if budget.charge(&self.chain, u64::from(written)) {
                io.defer(index);
                break;
            }
        }
        Ok(())
    }

    fn reset(&mut self) {}
}
