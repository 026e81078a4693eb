//! Answers that wait for their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Answers by the time of their completion; equal times in the order of their requests.
#[derive(Debug, Default)]
pub struct Pending {
    heap: BinaryHeap<Reverse<Answer>>,
    count: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    at_ps: u64,
    number: u64,
    bytes: Vec<u8>,
}

impl Pending {
    /// An answer that is due at `at_ps`.
    pub fn push(&mut self, at_ps: u64, bytes: Vec<u8>) {
        self.heap.push(Reverse(Answer { at_ps, number: self.count, bytes }));
        self.count += 1;
    }

    /// When the next is due.
    pub fn next_ps(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(answer)| answer.at_ps)
    }

    /// The next, if it is due.
    pub fn pop_due(&mut self, now_ps: u64) -> Option<(u64, Vec<u8>)> {
        self.next_ps().filter(|at| *at <= now_ps)?;
        self.heap.pop().map(|Reverse(answer)| (answer.at_ps, answer.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_by_time_and_then_in_order() {
        let mut pending = Pending::default();
        for (at, byte) in [(20, 1), (10, 2), (20, 3), (30, 4)] {
            pending.push(at, vec![byte]);
        }
        assert_eq!((pending.next_ps(), pending.pop_due(9)), (Some(10), None));
        let due: Vec<_> = std::iter::from_fn(|| pending.pop_due(20)).map(|(_, bytes)| bytes[0]).collect();
        assert_eq!((due, pending.next_ps()), (vec![2, 1, 3], Some(30)));
    }
}
