//! Bytes between two cells, by calls: each byte arrives once and in order, or the other cell is lost.
//!
//! Each end has one piece on its way at a time. A piece says how many bytes were sent before it, and the answer how many have
//! arrived by then. So a piece whose call ended with "once or never" is simply sent again.

use crate::board::{PAYLOAD_WORDS, Payload, Port};
use crate::{CallError, CallId, Calls, CellId, View};

/// Most bytes of a piece.
pub const PIECE_BYTES: usize = (PAYLOAD_WORDS - HEADER_WORDS) * WORD;
/// Word 0 of a piece: bytes sent before it. Word 1: its bytes. Word 0 of the answer: bytes that have arrived.
const HEADER_WORDS: usize = 2;
const WORD: usize = size_of::<u64>();

/// How long things take, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A call that has not ended after so long is made again.
    pub patience: u64,
    /// A piece for which the other end had no room is sent again after so long.
    pub pause: u64,
}

/// One end of a pipe.
#[derive(Clone, Debug)]
pub struct Pipe {
    to: CellId,
    /// What is on its way, `len` bytes of it.
    piece: [u8; PIECE_BYTES],
    len: usize,
    call: Option<CallId>,
    /// Bytes that have arrived at the other end.
    sent: u64,
    /// Bytes that have arrived here.
    received: u64,
    /// The piece is not sent again before this time.
    again_at: u64,
}

impl Pipe {
    /// The end at this cell of the pipe to `to`. The other end begins at the same time, or has not sent anything yet.
    pub fn new(to: CellId) -> Self {
        Self { to, piece: [0; PIECE_BYTES], len: 0, call: None, sent: 0, received: 0, again_at: 0 }
    }

    /// Sends on: what `fill` puts into the room for a piece, as soon as the one before has arrived; it says how many bytes that
    /// are. The time of the next look that is needed, if nobody rings before; `None`: nothing is on its way.
    pub fn send(
        &mut self,
        port: &mut impl Port,
        calls: &mut Calls,
        view: View,
        now: u64,
        times: Times,
        mut fill: impl FnMut(&mut [u8; PIECE_BYTES]) -> usize,
    ) -> Option<u64> {
        if let Some(call) = self.call {
            match calls.poll(port, view, now, call) {
                None => return Some(now.saturating_add(times.pause)),
                Some(end) => self.end_call(end, now, times),
            }
        }
        if self.len == 0 {
            self.len = fill(&mut self.piece).min(PIECE_BYTES);
            self.again_at = now;
        }
        if self.len == 0 {
            return None;
        }
        if now >= self.again_at {
            self.call = calls.call(port, view, self.to, &self.payload(), now.saturating_add(times.patience)).ok();
            self.again_at = now.saturating_add(times.pause);
        }
        Some(self.again_at)
    }

    /// A call has ended: the piece has arrived, or is to be sent again.
    fn end_call(&mut self, end: Result<Payload, CallError>, now: u64, times: Times) {
        self.call = None;
        let arrived = end.ok().map(|answer| answer[0]);
        self.again_at = match arrived {
            Some(arrived) if arrived == self.sent.saturating_add(self.len as u64) => {
                self.sent = arrived;
                self.len = 0;
                now
            }
            // It had no room.
            Some(_) => now.saturating_add(times.pause),
            None => now,
        };
    }

    fn payload(&self) -> Payload {
        let mut words = [0; PAYLOAD_WORDS];
        words[0] = self.sent;
        words[1] = self.len as u64;
        for (word, bytes) in words[HEADER_WORDS..].iter_mut().zip(self.piece.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }

    /// Takes what a call of the other end has brought; what to answer. `accept` has the bytes that are new, and says whether
    /// there was room for them.
    pub fn receive(&mut self, payload: &Payload, accept: impl FnOnce(&[u8]) -> bool) -> Payload {
        let (offset, len) = (payload[0], usize::try_from(payload[1]).unwrap_or(usize::MAX));
        let mut bytes = [0; PIECE_BYTES];
        for (chunk, word) in bytes.as_chunks_mut().0.iter_mut().zip(&payload[HEADER_WORDS..]) {
            *chunk = word.to_le_bytes();
        }
        if let Some(piece) = bytes.get(..len).filter(|_| offset == self.received)
            && accept(piece)
        {
            self.received = self.received.saturating_add(len as u64);
        }
        let mut answer = [0; PAYLOAD_WORDS];
        answer[0] = self.received;
        answer
    }
}
