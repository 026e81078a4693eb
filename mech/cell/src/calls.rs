//! The caller's end of a remote procedure call.

use crate::board::{self, CELLS, Payload, Port, Record, SLOTS, Stamp, Unreadable, taken_at};
use crate::{CellId, View};

/// Which of a cell's calls. It is good until [`Calls::poll`] has told how the call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    to: CellId,
    slot: usize,
    stamp: Stamp,
}

impl CallId {
    /// Who is asked.
    #[must_use]
    pub const fn to(self) -> CellId {
        self.to
    }
}

/// Why a call did not begin. Nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The callee is not among the members of the view, or is the caller itself.
    NotMember,
    /// All slots to this cell hold calls that have not ended.
    Busy,
    /// The numbers of this epoch are used up.
    Exhausted,
}

/// Why a call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallError {
    /// The callee is no longer a member. Whatever it did is lost with it.
    NotMember,
    /// The callee's memory cannot be read. It may have carried the call out; the next view will tell whether it goes on.
    Unreadable(Unreadable),
    /// The epoch ended first. The call has not been carried out, and will not be: it is safe to call again.
    NewEpoch,
    /// The caller's time is over. The callee carries the call out once, or never.
    TimedOut,
}

/// A cell's open calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calls {
    me: CellId,
    slots: [[Slot; SLOTS]; CELLS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    /// The last call in it.
    stamp: Stamp,
    /// When the call ends at the latest. `None`: no call is open.
    deadline: Option<u64>,
}

impl Calls {
    /// No calls of the cell `me`.
    pub fn new(me: CellId) -> Self {
        Self { me, slots: [[Slot::default(); SLOTS]; CELLS] }
    }

    /// Begin a call to `to` that ends when the time is `deadline`, if nothing ends it before.
    ///
    /// # Errors
    /// The call did not begin.
    pub fn call(
        &mut self,
        port: &mut impl Port,
        view: View,
        to: CellId,
        payload: &Payload,
        deadline: u64,
    ) -> Result<CallId, Refused> {
        if to == self.me || !view.members.contains(to) {
            return Err(Refused::NotMember);
        }
        let slots = &mut self.slots[to.index()];
        let (number, slot) =
            slots.iter_mut().enumerate().find(|(_, slot)| slot.deadline.is_none()).ok_or(Refused::Busy)?;
        let stamp = slot.stamp.next(view.epoch).ok_or(Refused::Exhausted)?;
        *slot = Slot { stamp, deadline: Some(deadline) };
        Record::request(to, number).write(port, stamp, payload);
        port.ring(to);
        Ok(CallId { to, slot: number, stamp })
    }

    /// How the call ended, once. `None`: it is still open, or has been told to have ended before.
    pub fn poll(
        &mut self,
        port: &mut impl Port,
        view: View,
        now: u64,
        call: CallId,
    ) -> Option<Result<Payload, CallError>> {
        let slot = self.slots[call.to.index()][call.slot];
        let deadline = slot.deadline.filter(|_| slot.stamp == call.stamp)?;
        let end = match self.look(port, view, call) {
            Ok(Some(payload)) => Ok(payload),
            Ok(None) if now < deadline => return None,
            Ok(None) => Err(CallError::TimedOut),
            Err(error) => Err(error),
        };
        self.slots[call.to.index()][call.slot].deadline = None;
        if end.is_err() {
            Record::request(call.to, call.slot).clear(port);
        }
        Some(end)
    }

    /// The answer, if there is one, or why there will be none.
    fn look(&self, port: &mut impl Port, view: View, call: CallId) -> Result<Option<Payload>, CallError> {
        let CallId { to, slot, stamp } = call;
        if !view.members.contains(to) {
            return Err(CallError::NotMember);
        }
        // A callee that has left the call's epoch takes it no more. So what it has not taken by then, it never will. The view is
        // read first: the callee writes its words in the other order.
        let left = board::view_of(port, to).map_err(CallError::Unreadable)?.epoch > stamp.epoch();
        let taken = port.read(to, taken_at(self.me, slot)).map_err(CallError::Unreadable)?;
        if taken != stamp.0 {
            return if left { Err(CallError::NewEpoch) } else { Ok(None) };
        }
        Record::answer(self.me, slot).read(port, to, stamp).map_err(CallError::Unreadable)
    }
}
