//! Messages cut into records, and put together again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use scarce::{Grow, NoMemory};

const FIRST: u16 = 1 << 15;
const LAST: u16 = 1 << 14;
const LENGTH: u16 = LAST - 1;
const HEAD: usize = 2;

/// Messages that wait to be sent.
#[derive(Clone, Debug, Default)]
pub struct Cutter {
    queue: VecDeque<Vec<u8>>,
    /// Bytes of the first that have gone.
    gone: usize,
}

impl Cutter {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn push(&mut self, message: Vec<u8>) -> Result<(), NoMemory> {
        self.queue.grow(1)?;
        self.queue.push_back(message);
        Ok(())
    }

    /// As many records as fit into `room` bytes.
    pub fn cut(&mut self, room: usize) -> Result<Vec<u8>, NoMemory> {
        let mut records = scarce::room(room)?;
        while let Some(message) = self.queue.front() {
            let free = (room - records.len()).saturating_sub(HEAD).min(usize::from(LENGTH));
            let left = message.len() - self.gone;
            // A tail that fits nowhere else goes along; a new message is not begun for a few bytes.
            if free == 0 || free < left && free < 64 && !records.is_empty() {
                break;
            }
            let part = left.min(free);
            let first = if self.gone == 0 { FIRST } else { 0 };
            let last = if part == left { LAST } else { 0 };
            records.extend_from_slice(&(part as u16 | first | last).to_le_bytes());
            records.extend_from_slice(&message[self.gone..self.gone + part]);
            self.gone += part;
            if part == left {
                self.queue.pop_front();
                self.gone = 0;
            }
        }
        Ok(records)
    }
}

/// A message that has come in part.
#[derive(Clone, Debug, Default)]
pub struct Joiner {
    part: Option<Vec<u8>>,
}

/// Records that make no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl From<NoMemory> for Broken {
    fn from(_: NoMemory) -> Self {
        Self
    }
}

impl Joiner {
    /// Takes the records of a frame; each message that is whole goes to `to`. None has more than `longest` bytes.
    pub fn join(&mut self, mut records: &[u8], longest: usize, to: &mut VecDeque<Vec<u8>>) -> Result<(), Broken> {
        while let Some((head, rest)) = records.split_first_chunk::<HEAD>() {
            let head = u16::from_le_bytes(*head);
            let (part, rest) = rest.split_at_checked(usize::from(head & LENGTH)).ok_or(Broken)?;
            records = rest;
            if (head & FIRST != 0) == self.part.is_some() {
                return Err(Broken);
            }
            let mut message = self.part.take().unwrap_or_default();
            if message.len() + part.len() > longest {
                return Err(Broken);
            }
            message.grow(part.len())?;
            message.extend_from_slice(part);
            if head & LAST == 0 {
                self.part = Some(message);
            } else {
                to.grow(1)?;
                to.push_back(message);
            }
        }
        if records.is_empty() { Ok(()) } else { Err(Broken) }
    }
}
