//! Frames on their way to one reader: bounded, and never blocking who must not block.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Frames that wait to be written.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// No further frames are taken; those here are still written.
    ending: bool,
    /// Nothing is written any more.
    closed: bool,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It will be written.
    Taken,
    /// There is no room: so many bytes wait already. It was not taken.
    Full {
        /// Bytes that wait.
        waiting: usize,
    },
    /// The outbox takes nothing any more.
    Closed,
}

impl Outbox {
    /// An outbox for `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), limit }
    }

    /// Adds a frame without ever waiting.
    pub fn push_now(&self, frame: Vec<u8>) -> Pushed {
        let mut state = self.lock();
        if state.ending || state.closed {
            return Pushed::Closed;
        }
        if state.bytes.saturating_add(frame.len()) > self.limit {
            return Pushed::Full { waiting: state.bytes };
        }
        self.add(&mut state, frame);
        Pushed::Taken
    }

    /// Adds a frame over the limit if need be: for the few that make room elsewhere.
    pub fn push_urgent(&self, frame: Vec<u8>) {
        let mut state = self.lock();
        if !state.ending && !state.closed {
            self.add(&mut state, frame);
        }
    }

    /// Adds a frame, waiting for room; `false` if the outbox was closed.
    pub fn push_waiting(&self, frame: Vec<u8>) -> bool {
        let mut state = self.lock();
        loop {
            if state.ending || state.closed {
                return false;
            }
            // A frame larger than the limit goes alone.
            if state.bytes == 0 || state.bytes.saturating_add(frame.len()) <= self.limit {
                self.add(&mut state, frame);
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next frame to write; waits for one. `None` when there will be no more.
    pub fn pop(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(frame) = state.frames.pop_front() {
                state.bytes = state.bytes.saturating_sub(frame.len());
                self.changed.notify_all();
                return Some(frame);
            }
            if state.ending {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets what waits, takes these last frames, and ends after them.
    pub fn end_with(&self, last: Vec<Vec<u8>>) {
        let mut state = self.lock();
        if state.ending || state.closed {
            return;
        }
        state.frames.clear();
        state.bytes = 0;
        for frame in last {
            self.add(&mut state, frame);
        }
        state.ending = true;
        self.changed.notify_all();
    }

    /// Takes these last frames behind those that wait, and ends after them.
    pub fn end_after(&self, last: Vec<Vec<u8>>) {
        let mut state = self.lock();
        if !state.ending && !state.closed {
            for frame in last {
                self.add(&mut state, frame);
            }
            state.ending = true;
            self.changed.notify_all();
        }
    }

    /// Ends at once.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.frames.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    fn add(&self, state: &mut State, frame: Vec<u8>) {
        state.bytes = state.bytes.saturating_add(frame.len());
        state.frames.push_back(frame);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every update above is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn it_is_bounded() {
        let outbox = Outbox::new(10);
        assert_eq!(outbox.push_now(vec![0; 8]), Pushed::Taken);
        assert_eq!(outbox.push_now(vec![0; 3]), Pushed::Full { waiting: 8 });
        assert_eq!(outbox.pop(), Some(vec![0; 8]));
        assert_eq!(outbox.push_now(vec![0; 3]), Pushed::Taken);
    }

    #[test]
    fn the_last_words_come_through() {
        let outbox = Outbox::new(10);
        outbox.push_now(vec![1]);
        outbox.end_with(vec![vec![2], vec![3]]);
        assert_eq!(outbox.push_now(vec![4]), Pushed::Closed);
        assert_eq!([outbox.pop(), outbox.pop(), outbox.pop()], [Some(vec![2]), Some(vec![3]), None]);
    }

    #[test]
    fn who_waits_for_room_gets_it_or_learns_the_end() {
        let outbox = Arc::new(Outbox::new(10));
        assert!(outbox.push_waiting(vec![0; 100]), "alone it may be larger");
        let other = Arc::clone(&outbox);
        let pusher = thread::spawn(move || (other.push_waiting(vec![1]), other.push_waiting(vec![0; 10])));
        assert_eq!(outbox.pop(), Some(vec![0; 100]));
        assert_eq!(outbox.pop(), Some(vec![1]));
        assert_eq!(outbox.pop(), Some(vec![0; 10]));
        assert_eq!(pusher.join().ok(), Some((true, true)));
        assert!(outbox.push_waiting(vec![0; 10]));
        let other = Arc::clone(&outbox);
        let pusher = thread::spawn(move || other.push_waiting(vec![1]));
        outbox.close();
        assert_eq!(pusher.join().ok(), Some(false));
        assert_eq!(outbox.pop(), None);
    }
}
