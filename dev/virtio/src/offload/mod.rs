//! Doing in software what a sender has left to its network card: checksums and segmentation.
//!
//! Frames cross between guests with their [`NetHeader`], so that a large segment passes whole and no checksum is ever
//! computed. Only where a frame leaves for a receiver that cannot do the work (the machine's NIC, a guest without the
//! feature) do [`PlainFrames`] do it. Pure functions over byte slices; no allocation.
//!
//! Refused: frames that are not what their header says. They come from a guest, so they are dropped, never trusted.

mod checksum;
mod header;
mod headers;
#[cfg(test)]
mod tests;

pub use checksum::{Sum, complete_checksum};
pub use header::{Gso, HeaderError, NET_HEADER_BYTES, NetHeader, PartialChecksum};

use self::headers::{Headers, Segment};

/// Why a frame cannot be made plain. It is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadError {
    /// The frame ends before its headers do.
    Truncated,
    /// The frame is not of the protocol that its header names.
    WrongProtocol,
    /// A segment does not fit the scratch space or a length field.
    TooLarge,
    /// Each segment would be nearly all headers: more would come out than [`MOST_HEADERS`] allows.
    MostlyHeaders,
}

/// A segment's headers are at most this many times its payload. So what comes out of a frame is at most five times what went in: a sender
/// cannot make others copy more. Linux' segments of 48 bytes, its smallest, may have 192 bytes of headers.
const MOST_HEADERS: usize = 4;

/// The plain frames that one frame becomes, one at a time, in order. Whoever has room for no more keeps this and goes on later.
#[derive(Clone, Copy, Debug)]
pub struct PlainFrames {
    /// None for a frame that stays whole.
    cut: Option<Cut>,
    is_done: bool,
}

/// A large TCP segment or a train of UDP datagrams, and how far it has been cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    headers: Headers,
    /// Payload bytes in each segment but the last.
    size: usize,
    /// Payload bytes that are behind.
    offset: usize,
    number: u16,
}

impl PlainFrames {
    /// Begins with `frame`, for which its sender has left undone what `header` says. A checksum is completed in place.
    ///
    /// # Errors
    /// [`OffloadError`].
    pub fn of(header: &NetHeader, frame: &mut [u8]) -> Result<Self, OffloadError> {
        let cut = if header.gso == Gso::None {
            if let Some(partial) = header.checksum {
                complete_checksum(frame, partial)?;
            }
            None
        } else {
            Some(Cut::of(header, frame)?)
        };
        Ok(Self { cut, is_done: false })
    }

    /// The next plain frame; none after the last. `frame` is what [`PlainFrames::of`] was given. A segment is made in `scratch`, which must
    /// hold it with its headers.
    ///
    /// # Errors
    /// [`OffloadError`]: the frames before are fine.
    pub fn current<'a>(&self, frame: &'a [u8], scratch: &'a mut [u8]) -> Result<Option<&'a [u8]>, OffloadError> {
        match &self.cut {
            _ if self.is_done => Ok(None),
            None => Ok(Some(frame)),
            Some(cut) => cut.segment(frame, scratch).map(Some),
        }
    }

    /// Passes on to the frame after the current one.
    pub fn advance(&mut self, frame: &[u8]) {
        self.is_done = self.cut.as_mut().is_none_or(|cut| cut.advance(frame));
    }
}

impl Cut {
    fn of(header: &NetHeader, frame: &[u8]) -> Result<Self, OffloadError> {
        let headers = Headers::find(header, frame)?;
        let size = usize::from(header.gso_size.max(1));
        if headers.payload > MOST_HEADERS * size {
            return Err(OffloadError::MostlyHeaders);
        }
        Ok(Self { headers, size, offset: 0, number: 0 })
    }

    fn segment<'a>(&self, frame: &[u8], scratch: &'a mut [u8]) -> Result<&'a [u8], OffloadError> {
        let (head, payload) = frame.split_at_checked(self.headers.payload).ok_or(OffloadError::Truncated)?;
        let end = payload.len().min(self.offset + self.size);
        let part = payload.get(self.offset..end).ok_or(OffloadError::Truncated)?;
        let packet = scratch.get_mut(..head.len() + part.len()).ok_or(OffloadError::TooLarge)?;
        let (to_head, to_part) = packet.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        to_part.copy_from_slice(part);
        let offset = u32::try_from(self.offset).map_err(|_| OffloadError::TooLarge)?;
        let place = Segment { number: self.number, offset, is_last: end == payload.len() };
        self.headers.adjust(packet, place)?;
        Ok(packet)
    }

    /// `true` after the last segment. A frame without payload is one segment, too.
    fn advance(&mut self, frame: &[u8]) -> bool {
        self.offset += self.size;
        self.number = self.number.wrapping_add(1);
        self.headers.payload + self.offset >= frame.len()
    }
}
