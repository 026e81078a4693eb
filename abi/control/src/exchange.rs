//! A server's end of the byte stream, with bounds on both directions.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use scarce::Grow;

use crate::error::ControlError;
use crate::frame::{Decoder, FrameError, HEADER_LEN, MAX_PAYLOAD};
use crate::message::{Body, ClientMessage, ServerMessage};

/// Bytes taken from the stream at a time.
const CHUNK: usize = 4 << 10;
/// Bytes of the largest frame.
const MAX_FRAME: usize = HEADER_LEN + MAX_PAYLOAD;

/// Requests that came, and answers that wait until the stream takes them.
///
/// A request of 20 bytes may have an answer of 64 KiB, so requests are taken only while there is [room](Exchange::has_room)
/// for what they bring about: those that came already wait in the decoder, the others in the stream. So a client that does not
/// read holds up itself, and at most [`Exchange::LIMIT`] bytes and one frame are kept for it.
#[derive(Debug, Default)]
pub struct Exchange {
    decoder: Decoder,
    /// Room for what comes, not cleared at each look.
    chunk: Vec<u8>,
    out: VecDeque<u8>,
    /// Something was left where it is for want of room, since [`Exchange::can_go_on`] was last true.
    is_held_up: bool,
}

impl Exchange {
    /// Bytes waiting for the stream from which on nothing more is said.
    pub const LIMIT: usize = 256 << 10;

    /// Whether something may be said: the next frame, whatever it is, finds memory. Who hears no and leaves something undone is
    /// told by [`Exchange::can_go_on`].
    pub fn has_room(&mut self) -> bool {
        let has_room = self.find_room();
        self.is_held_up |= !has_room;
        has_room
    }

    fn find_room(&mut self) -> bool {
        let most = Self::LIMIT + MAX_FRAME;
        // Once, at the first use: the queue never outgrows it.
        let is_there = self.out.capacity() >= most || self.out.grow_exact(most - self.out.len()).is_ok();
        is_there && self.out.len() < Self::LIMIT
    }

    /// Takes what has arrived, with `read` as of a stream, if there is room for answers; [`Exchange::next_request`] has to have
    /// given all that came before. `true` if the stream had something: only when it has nothing does it call.
    pub fn receive(&mut self, read: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if !self.has_room() {
            return false;
        }
        self.chunk.resize(CHUNK, 0);
        let len = read(&mut self.chunk).min(CHUNK);
        self.decoder.push(self.chunk.get(..len).unwrap_or_default());
        len > 0
    }

    /// The next request, or what was found in its place; `None` when none is there as a whole, or there is no room for its answer.
    pub fn next_request(&mut self) -> Option<Result<ClientMessage, FrameError>> {
        if self.has_room() { ClientMessage::take(&mut self.decoder) } else { None }
    }

    /// Says something. There has to be [room](Exchange::has_room).
    ///
    /// # Errors
    /// Nothing has been said: there is no room.
    pub fn send(&mut self, message: &ServerMessage) -> Result<(), NoRoom> {
        if !self.has_room() {
            return Err(NoRoom);
        }
        let frame = message.encode().or_else(|_| too_large(message.id).encode());
        // The refusal has a few bytes.
        self.out.extend(frame.unwrap_or_default());
        Ok(())
    }

    /// Says something to a client that may be in the middle of a frame which somebody else has begun: that frame is filled up first, so
    /// that the client sees its damage, and hears this. Nothing may have been said before.
    pub fn interrupt(&mut self, message: &ServerMessage) {
        if self.has_room() {
            // There is memory for `LIMIT` and a frame.
            self.out.extend(core::iter::repeat_n(0, MAX_FRAME));
            self.out.extend(message.encode().unwrap_or_default());
        }
    }

    /// Gives away what was said, with `write` as to a stream, until that takes nothing.
    pub fn transmit(&mut self, mut write: impl FnMut(&[u8]) -> usize) {
        // Ends with what was said before: each round takes some of it away.
        loop {
            let (front, _) = self.out.as_slices();
            let taken = if front.is_empty() { 0 } else { write(front).min(front.len()) };
            if taken == 0 {
                return;
            }
            self.out.drain(..taken);
        }
    }

    /// Whether there is room now for what had none before. `true` once: whoever asks goes on then.
    pub fn can_go_on(&mut self) -> bool {
        let can = self.is_held_up && self.find_room();
        self.is_held_up &= !can;
        can
    }

    /// Bytes that wait for the stream.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.out.len()
    }
}

/// There is no room for a message before the stream has taken others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// What is said in the place of an answer that is larger than a frame: who asked would wait for ever.
fn too_large(id: u32) -> ServerMessage {
    let max = MAX_PAYLOAD as u64;
    ServerMessage {
        id,
        body: Body::Error(ControlError::TooLarge { what: "bytes of the answer".into(), value: max + 1, max }),
    }
}
