//! One connection.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::records::{Broken, Cutter, Joiner};
use crate::replay::Seen;
use crate::{TRIES, WINDOW};

/// Whether a peer can be talked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// It has not said anything in this life.
    #[default]
    Unknown,
    /// It answers, as far as is known.
    Here,
    /// It has not answered for long, has begun again, or has said what nobody says.
    Gone,
}

/// A frame that has been sent and not been confirmed.
#[derive(Clone, Debug)]
pub struct Sent {
    pub sequence: u64,
    pub records: Vec<u8>,
    pub due: u64,
    pub tries: u32,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    pub state: State,
    /// The peer's life; 0: not known.
    pub life: u64,
    /// A life that asked for a greeting.
    pub greets: Option<u64>,
    pub hello_due: u64,
    pub packet: u64,
    pub seen: Seen,
    pub cutter: Cutter,
    next_sequence: u64,
    pub sent: VecDeque<Sent>,
    pub received: u64,
    early: BTreeMap<u64, Vec<u8>>,
    joiner: Joiner,
    pub owes_answer: bool,
}

/// What became of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Fine,
    /// They have come before.
    Again,
    /// They are further ahead than anybody sends.
    Beyond,
}

impl Peer {
    /// The peer has received everything up to `sequence`.
    pub fn confirm(&mut self, sequence: u64) {
        while self.sent.front().is_some_and(|sent| sent.sequence <= sequence) {
            self.sent.pop_front();
        }
    }

    /// Takes records; messages that are whole then go to `to`.
    pub fn take(
        &mut self,
        sequence: u64,
        records: &[u8],
        longest: usize,
        to: &mut VecDeque<Vec<u8>>,
    ) -> Result<Taken, Broken> {
        self.owes_answer = true;
        if sequence <= self.received || self.early.contains_key(&sequence) {
            return Ok(Taken::Again);
        }
        if sequence - self.received > WINDOW as u64 {
            return Ok(Taken::Beyond);
        }
        if sequence == self.received + 1 {
            self.received += 1;
            self.joiner.join(records, longest, to)?;
            while let Some(records) = self.early.remove(&(self.received + 1)) {
                self.received += 1;
                self.joiner.join(&records, longest, to)?;
            }
            return Ok(Taken::Fine);
        }
        let mut copy = scarce::room(records.len())?;
        copy.extend_from_slice(records);
        self.early.insert(sequence, copy);
        Ok(Taken::Fine)
    }

    /// The next records to send: such as are due again, or new ones of at most `room` bytes. Nothing if there are none, no memory, or too
    /// many are under way.
    pub fn next(&mut self, now: u64, patience: u64, room: usize) -> Option<(u64, &[u8])> {
        if let Some(at) = self.sent.iter().position(|sent| sent.due <= now) {
            let sent = &mut self.sent[at];
            if sent.tries >= TRIES {
                self.state = State::Gone;
                return None;
            }
            // Doubled up to 32-fold: a full queue on the way must have the time to empty.
            sent.due = now.saturating_add(patience.saturating_mul(1 << sent.tries.min(5)));
            sent.tries += 1;
            return Some((sent.sequence, &sent.records));
        }
        if self.sent.len() >= WINDOW || self.cutter.len() == 0 {
            return None;
        }
        scarce::Grow::grow(&mut self.sent, 1).ok()?;
        let records = self.cutter.cut(room).ok()?;
        self.next_sequence += 1;
        let due = now.saturating_add(patience);
        self.sent.push_back(Sent { sequence: self.next_sequence, records, due, tries: 1 });
        self.sent.back().map(|sent| (sent.sequence, sent.records.as_slice()))
    }
}
