//! The callee's end of a remote procedure call.

use crate::board::{CELLS, Payload, Port, Record, SLOTS, Stamp, taken_at};
use crate::{CellId, View};

/// A call that this cell has taken: it must be carried out and answered, once. The types see to "at most": a ticket is used up
/// by [`Service::answer`].
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the caller waits for the answer"]
pub struct Ticket {
    /// Who asks.
    from: CellId,
    slot: usize,
    stamp: Stamp,
    /// What the request carries.
    payload: Payload,
}

impl Ticket {
    /// Who asks.
    pub fn from(&self) -> CellId {
        self.from
    }

    /// What the request carries.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }
}

/// What a cell has taken of the others' calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    me: CellId,
    /// The last call taken of each caller in each slot.
    taken: [[Stamp; SLOTS]; CELLS],
    /// Where the next look begins, so that no caller keeps others from being served.
    next: usize,
}

impl Service {
    /// Nothing taken yet, by the cell `me`.
    pub fn new(me: CellId) -> Self {
        Self { me, taken: [[Stamp::default(); SLOTS]; CELLS], next: 0 }
    }

    /// The next call to carry out, of a member of `view` and of its epoch. Other cells' requests are not looked at.
    ///
    /// It reads one word of each slot at most, and one request.
    pub fn poll(&mut self, port: &mut impl Port, view: View) -> Option<Ticket> {
        for step in 0..CELLS * SLOTS {
            let at = (self.next + step) % (CELLS * SLOTS);
            let Some(from) = CellId::new(at / SLOTS) else { continue };
            if from == self.me || !view.members.contains(from) {
                continue;
            }
            if let Some(ticket) = self.take(port, view, from, at % SLOTS) {
                self.next = (at + 1) % (CELLS * SLOTS);
                return Some(ticket);
            }
        }
        None
    }

    /// The call of `from` in `slot`, if it is new and can be read whole. What changes at this moment is left for the next look.
    fn take(&mut self, port: &mut impl Port, view: View, from: CellId, slot: usize) -> Option<Ticket> {
        let record = Record::request(self.me, slot);
        let stamp = record.stamp(port, from).ok()?;
        if stamp <= self.taken[from.index()][slot] || stamp.epoch() != view.epoch {
            return None;
        }
        let payload = record.read(port, from, stamp).ok()??;
        self.taken[from.index()][slot] = stamp;
        port.write(taken_at(from, slot), stamp.0);
        Some(Ticket { from, slot, stamp, payload })
    }

    /// Answer a call that has been carried out.
    pub fn answer(&mut self, port: &mut impl Port, ticket: Ticket, payload: &Payload) {
        Record::answer(ticket.from, ticket.slot).write(port, ticket.stamp, payload);
        port.ring(ticket.from);
    }
}
