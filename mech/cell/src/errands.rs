//! Calls to whoever leads that must be carried out, however many leaders are lost meanwhile.
//!
//! What an errand asks for must do no harm when it is carried out again by another leader. The first one may still be at it then: its
//! devices write to memory of the cell that asks until the next leader has reset them. So an errand that a leader may have begun goes
//! to no other one before that leader is out of the view, and ends by an answer only.

use crate::board::{Payload, Port, Unreadable};
use crate::{CallError, CallId, Calls, CellId, View};

/// Up to `N` errands at a time.
#[derive(Clone, Debug)]
pub struct Errands<T, const N: usize> {
    places: [Option<Errand<T>>; N],
}

#[derive(Clone, Debug)]
struct Errand<T> {
    what: T,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has it.
    Waiting,
    /// A leader is asked.
    Open(CallId),
    /// This leader may have begun, and cannot be read any more.
    Doubtful(CellId),
}

impl<T, const N: usize> Errands<T, N> {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { places: [const { None }; N] }
    }

    /// Whether another one can be taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.places.iter().any(Option::is_none)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Takes an errand.
    ///
    /// # Errors
    /// It comes back where there is no room.
    pub fn push(&mut self, what: T) -> Result<(), T> {
        match self.places.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(Errand { what, state: State::Waiting });
                Ok(())
            }
            None => Err(what),
        }
    }

    /// A bounded step: asks `leader`, which is another cell, and looks for answers. One errand that has been carried out, with the answer.
    pub fn step(
        &mut self,
        port: &mut impl Port,
        calls: &mut Calls,
        view: View,
        leader: CellId,
        payload: impl Fn(&T) -> Payload,
    ) -> Option<(T, Payload)> {
        for place in &mut self.places {
            let Some(errand) = place else { continue };
            if let Some(answer) = errand.step(port, calls, view, leader, &payload) {
                return place.take().map(|errand| (errand.what, answer));
            }
        }
        None
    }

    /// This cell has become the leader, and the devices of the one before are reset: it does the rest itself.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.places.iter_mut().filter_map(|place| place.take().map(|errand| errand.what))
    }
}

impl<T, const N: usize> Default for Errands<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Errand<T> {
    fn step(
        &mut self,
        port: &mut impl Port,
        calls: &mut Calls,
        view: View,
        leader: CellId,
        payload: &impl Fn(&T) -> Payload,
    ) -> Option<Payload> {
        /// The other cell's end bounds the call: an answer that came later than any deadline would find the memory in other use.
        const NO_DEADLINE: u64 = u64::MAX;
        if let State::Open(call) = self.state {
            match calls.poll(port, view, 0, call)? {
                Ok(answer) => return Some(answer),
                // Whoever it was is out of the view, or did not take it in time and never will.
                Err(CallError::NotMember | CallError::NewEpoch) => self.state = State::Waiting,
                Err(CallError::Unreadable(Unreadable::Dead | Unreadable::Cut) | CallError::TimedOut) => {
                    self.state = State::Doubtful(call.to());
                }
            }
        }
        if let State::Doubtful(cell) = self.state
            && !view.members.contains(cell)
        {
            self.state = State::Waiting;
        }
        if self.state == State::Waiting
            && let Ok(call) = calls.call(port, view, leader, &payload(&self.what), NO_DEADLINE)
        {
            self.state = State::Open(call);
        }
        None
    }
}
