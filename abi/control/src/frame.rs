//! Frames on a byte stream.
//!
//! A frame is a 16-byte header and a payload, all numbers little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic, the bytes `MBc\xA7` |
//! | 4 | 4 | payload length, at most [`MAX_PAYLOAD`] |
//! | 8 | 4 | CRC-32 of the payload |
//! | 12 | 4 | CRC-32 of the 12 bytes before |
//! | 16 | n | payload: one message in postcard encoding |
//!
//! The header has its own checksum so that a damaged length is noticed at once, and not only after 64 KiB more have
//! been waited for. After garbage the decoder goes on at the next position where a header holds; a frame whose payload
//! is damaged is dropped as a whole.

use alloc::vec::Vec;
use core::ops::Range;

use crc::{CRC_32_ISO_HDLC, Crc};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The first bytes of every frame. The last is no ASCII and no valid start of UTF-8, so text never contains it.
pub const MAGIC: [u8; 4] = *b"MBc\xA7";

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;

/// Largest payload, in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Most data bytes that fit into one message ([`crate::Request::Input`], [`crate::Request::ModuleChunk`],
/// [`crate::StreamData`]), whatever its other fields hold.
pub const MAX_DATA: usize = MAX_PAYLOAD - 1024;

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// Why a message could not be put into a frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The message is larger than [`MAX_PAYLOAD`].
    #[error("the message has {len} bytes, a frame holds at most {MAX_PAYLOAD}")]
    TooLarge {
        /// Its encoded length in bytes.
        len: usize,
    },
    /// The value cannot be encoded at all. No type of this crate does this.
    #[error("the message cannot be encoded")]
    Unencodable,
}

/// What was wrong in the stream. The decoder has already gone on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Bytes that belong to no frame.
    #[error("skipped {bytes} bytes that belong to no frame")]
    Garbage {
        /// How many were skipped.
        bytes: usize,
    },
    /// A good frame whose payload is not a message of the expected type: the other side speaks another version.
    #[error("a frame of {len} bytes holds no message of this protocol version")]
    Undecodable {
        /// Its payload length in bytes.
        len: usize,
    },
}

/// Encodes `message` as one frame.
///
/// # Errors
/// [`EncodeError::TooLarge`] if it does not fit.
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Result<Vec<u8>, EncodeError> {
    let mut frame = postcard::to_extend(message, alloc::vec![0; HEADER_LEN]).map_err(|_| EncodeError::Unencodable)?;
    let payload = frame.get(HEADER_LEN..).unwrap_or_default();
    let len = payload.len();
    if len > MAX_PAYLOAD {
        return Err(EncodeError::TooLarge { len });
    }
    let header = header_of(payload);
    if let Some(place) = frame.get_mut(..HEADER_LEN) {
        place.copy_from_slice(&header);
    }
    Ok(frame)
}

/// Takes a byte stream apart into messages. Feed it with [`push`](Self::push), then call
/// [`next_message`](Self::next_message) until it gives `None`.
///
/// It holds at most one incomplete frame and what was pushed since, so its memory is bounded by the caller's chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes received; those before `start` are consumed.
    buffer: Vec<u8>,
    start: usize,
    /// Garbage bytes skipped and not yet reported.
    skipped: usize,
}

/// What stands at the head of the buffer.
enum Head {
    /// A good frame with this payload.
    Frame(Range<usize>),
    /// More bytes are needed to tell.
    Incomplete,
    /// So many bytes belong to no frame; behind them one may begin.
    Garbage(usize),
}

impl Decoder {
    /// An empty decoder.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), start: 0, skipped: 0 }
    }

    /// Appends bytes as they came, in chunks of any size.
    pub fn push(&mut self, bytes: &[u8]) {
        // Move the rest to the front only when it is small against what was consumed: linear over the stream.
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The payload of the next good frame, or what was found in its place; `None` when more bytes are needed.
    pub fn next_payload(&mut self) -> Option<Result<&[u8], FrameError>> {
        loop {
            match self.head() {
                Head::Garbage(bytes) => self.skip(bytes),
                // Report the garbage before what follows it, but in one piece.
                Head::Frame(_) if self.skipped > 0 => return Some(Err(self.take_garbage())),
                Head::Frame(payload) => {
                    self.start = payload.end;
                    return self.buffer.get(payload).map(Ok);
                }
                Head::Incomplete if self.skipped > 0 => return Some(Err(self.take_garbage())),
                Head::Incomplete => return None,
            }
        }
    }

    /// The next message; `None` when more bytes are needed. After an error the stream goes on: call again.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Option<Result<T, FrameError>> {
        let payload = match self.next_payload()? {
            Ok(payload) => payload,
            Err(error) => return Some(Err(error)),
        };
        let len = payload.len();
        Some(match postcard::take_from_bytes(payload) {
            Ok((message, [])) => Ok(message),
            _ => Err(FrameError::Undecodable { len }),
        })
    }

    /// Bytes that are waiting for the rest of their frame.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.start)
    }

    fn head(&self) -> Head {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        let seen = rest.len().min(MAGIC.len());
        if rest.get(..seen) != MAGIC.get(..seen) {
            return Head::Garbage(1);
        }
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
            return Head::Incomplete;
        };
        let Some((len, payload_crc)) = read_header(header) else {
            return Head::Garbage(1);
        };
        match rest.get(HEADER_LEN..HEADER_LEN.saturating_add(len)) {
            None => Head::Incomplete,
            // The whole frame goes, and is not searched for others: else nested headers would make a hostile
            // stream cost quadratic time.
            Some(payload) if CRC.checksum(payload) != payload_crc => Head::Garbage(HEADER_LEN.saturating_add(len)),
            Some(payload) => {
                let begin = self.start.saturating_add(HEADER_LEN);
                Head::Frame(begin..begin.saturating_add(payload.len()))
            }
        }
    }

    /// Skips `bytes` and all after them that cannot begin a frame.
    fn skip(&mut self, bytes: usize) {
        let rest = self.buffer.get(self.start.saturating_add(bytes)..).unwrap_or_default();
        let gap = rest.iter().position(|byte| *byte == MAGIC[0]).unwrap_or(rest.len());
        let skip = bytes.saturating_add(gap);
        self.start = self.start.saturating_add(skip).min(self.buffer.len());
        self.skipped = self.skipped.saturating_add(skip);
    }

    fn take_garbage(&mut self) -> FrameError {
        FrameError::Garbage { bytes: core::mem::take(&mut self.skipped) }
    }
}

fn header_of(payload: &[u8]) -> [u8; HEADER_LEN] {
    // The caller has checked the length against `MAX_PAYLOAD`.
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&len.to_le_bytes());
    header[8..12].copy_from_slice(&CRC.checksum(payload).to_le_bytes());
    let own = CRC.checksum(&header[..12]);
    header[12..].copy_from_slice(&own.to_le_bytes());
    header
}

/// Payload length and checksum, if the header holds.
fn read_header(header: &[u8; HEADER_LEN]) -> Option<(usize, u32)> {
    let [_, _, _, _, l0, l1, l2, l3, p0, p1, p2, p3, h0, h1, h2, h3] = *header;
    let len = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
    let holds = CRC.checksum(&header[..12]) == u32::from_le_bytes([h0, h1, h2, h3]);
    (holds && len <= MAX_PAYLOAD).then_some((len, u32::from_le_bytes([p0, p1, p2, p3])))
}
