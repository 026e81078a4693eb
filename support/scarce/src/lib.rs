//! Memory that may be refused.
//!
//! Whoever needs memory whose size a guest, a client or a file chose asks for it here, and has an answer for no: [`Grow`] for lists,
//! [`room`] for new ones, [`boxed`] for single values. What is small, and bounded by the monitor's own numbers, is taken without asking;
//! the monitor's heap keeps a reserve for it.
//!
//! [`Refusals`] says no on request: to the first who asks, or to the second, and so on. A test goes through all of them and sees that nobody
//! panics and nothing is lost. [`HEAP`] is asked by everything here; `frames` has another one for pages.
//!
//! # Tests
//! With the feature `testing` each thread has refusals of its own, and [`testing::each_refusal`] tells where in the source somebody was
//! refused.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod refusals;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use refusals::{HEAP, Refusals};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// There is no memory for what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// A list that grows only if there is memory.
pub trait Grow {
    /// Makes room for `more` elements behind those that are there.
    ///
    /// # Errors
    /// [`NoMemory`]; the list is as before.
    #[track_caller]
    fn grow(&mut self, more: usize) -> Result<(), NoMemory>;

    /// The same, where the list is not to grow further: no memory is taken in advance.
    ///
    /// # Errors
    /// As for [`Grow::grow`].
    #[track_caller]
    fn grow_exact(&mut self, more: usize) -> Result<(), NoMemory>;
}

impl<T> Grow for Vec<T> {
    fn grow(&mut self, more: usize) -> Result<(), NoMemory> {
        ask(self.capacity() - self.len(), more, || self.try_reserve(more).is_ok())
    }

    fn grow_exact(&mut self, more: usize) -> Result<(), NoMemory> {
        ask(self.capacity() - self.len(), more, || self.try_reserve_exact(more).is_ok())
    }
}

impl<T> Grow for VecDeque<T> {
    fn grow(&mut self, more: usize) -> Result<(), NoMemory> {
        ask(self.capacity() - self.len(), more, || self.try_reserve(more).is_ok())
    }

    fn grow_exact(&mut self, more: usize) -> Result<(), NoMemory> {
        ask(self.capacity() - self.len(), more, || self.try_reserve_exact(more).is_ok())
    }
}

/// An empty list with room for `count` elements.
///
/// # Errors
/// [`NoMemory`].
#[track_caller]
pub fn room<T>(count: usize) -> Result<Vec<T>, NoMemory> {
    let mut list = Vec::new();
    list.grow_exact(count)?;
    Ok(list)
}

/// A value on the heap: a box of one, because only lists can be refused in stable Rust.
///
/// # Errors
/// [`NoMemory`]; the value is lost.
#[track_caller]
pub fn boxed<T>(value: T) -> Result<Box<[T; 1]>, NoMemory> {
    let mut list = room(1)?;
    list.push(value);
    list.try_into().map_err(|_| NoMemory)
}

/// What needs no memory is not refused.
#[track_caller]
fn ask(spare: usize, more: usize, reserve: impl FnOnce() -> bool) -> Result<(), NoMemory> {
    if spare >= more {
        return Ok(());
    }
    #[cfg(any(test, feature = "testing"))]
    let is_given = testing::asks(reserve);
    #[cfg(not(any(test, feature = "testing")))]
    let is_given = !HEAP.refuses() && reserve();
    if is_given { Ok(()) } else { Err(NoMemory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_and_what_is_there_is_not() {
        let mut list: Vec<u64> = Vec::new();
        assert_eq!(list.grow(usize::MAX), Err(NoMemory));
        assert_eq!((list.grow_exact(3), list.capacity()), (Ok(()), 3));
        let mut queue: VecDeque<u8> = VecDeque::new();
        assert_eq!((queue.grow(usize::MAX), queue.grow_exact(1)), (Err(NoMemory), Ok(())));
        assert_eq!(room::<u8>(9).map(|list| list.capacity()), Ok(9));
        assert_eq!(boxed(7).map(|boxed| boxed[0]), Ok(7));
    }

    /// Each of three requests is refused once; the one that needs no memory never.
    #[test]
    fn each_request_is_refused_in_turn() {
        let mut outcomes = Vec::new();
        let sites = testing::each_refusal(|| {
            let mut first: Vec<u8> = Vec::new();
            let mut second: Vec<u8> = Vec::new();
            let grown = [first.grow_exact(1), first.grow_exact(1), second.grow(1), boxed(1).map(|_| ())];
            outcomes.push(grown.map(|outcome| outcome.is_ok()));
        });
        // Where nothing has come of the first attempt, the second asks again.
        assert_eq!(
            outcomes,
            [[false, true, true, true], [true, true, false, true], [true, true, true, false], [true, true, true, true]]
        );
        assert_eq!(sites.len(), 3, "{sites:?}");
    }
}
