//! What a network is to the network device.

use device::{GuestMemory, MemoryFault};

use crate::offload::NetHeader;
use crate::queue::GuestSegment;

/// The port of a switch. Called with the device's lock held; must not call back into a device.
pub trait NetBackend: Send {
    /// The guest sends a frame. `header` is checked against the frame and the negotiated features.
    fn transmit(&mut self, header: &NetHeader, frame: &TransmitFrame<'_>) -> Transmit;

    /// The guest has made receive buffers available after a [`super::Received::Full`].
    fn receive_ready(&mut self) {}
}

/// What became of a frame that the guest sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Taken, or dropped by the network: the guest's buffers are free again.
    Taken,
    /// No room. The frame stays in the guest's ring until `kick(TRANSMIT_QUEUE, ..)`.
    Busy,
}

/// An Ethernet frame in the sender's memory. Its guest may still change the bytes: copy first, then look.
#[derive(Clone, Copy)]
pub struct TransmitFrame<'a> {
    pub(super) segments: &'a [GuestSegment],
    pub(super) memory: &'a dyn GuestMemory,
    pub(super) len: u32,
}

impl TransmitFrame<'_> {
    /// Bytes of the frame: 14 up to [`super::MAX_FRAME`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Where the frame lies, for a network that maps or copies by itself.
    #[must_use]
    pub const fn segments(&self) -> &[GuestSegment] {
        self.segments
    }

    /// Copies the frame's first bytes into `buf` and says how many there were.
    ///
    /// # Errors
    /// [`MemoryFault`] when guest RAM refuses.
    pub fn copy_to(&self, buf: &mut [u8]) -> Result<usize, MemoryFault> {
        let mut done = 0;
        for segment in self.segments {
            let take = (segment.len as usize).min(buf.len() - done);
            let Some(part) = buf.get_mut(done..done + take) else { break };
            if part.is_empty() {
                break;
            }
            self.memory.read(segment.addr, part)?;
            done += take;
        }
        Ok(done)
    }
}
