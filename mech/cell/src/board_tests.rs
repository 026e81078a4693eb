use super::*;

/// A board whose writer does `after` more of its writes between two reads of the reader, at one place.
struct Torn {
    words: [u64; WORDS],
    /// Writes still to come, in order.
    writes: std::vec::Vec<(usize, u64)>,
    /// Before which read they are done, and how many.
    before: usize,
    count: usize,
    reads: usize,
}

extern crate std;

impl Port for Torn {
    fn read(&mut self, _: CellId, word: usize) -> Result<u64, Unreadable> {
        if self.reads == self.before {
            for (word, value) in self.writes.drain(..self.count) {
                self.words[word] = value;
            }
        }
        self.reads += 1;
        Ok(self.words[word])
    }

    fn write(&mut self, word: usize, value: u64) {
        self.writes.push((word, value));
    }

    fn ring(&mut self, _: CellId) {}
}

/// The writer replaces a record while the reader reads it: it does some writes before the first read and some more before any
/// other one. The reader gets one of the two whole, or nothing.
#[test]
fn a_record_that_changes_is_never_believed() {
    let cell = CellId::new(1).expect("a cell");
    let record = Record::request(cell, 2);
    let writes = PAYLOAD_WORDS + 2;
    let (mut whole, mut torn) = (0, 0);
    for first in 0..=writes {
        for before in 0..=writes {
            for count in 0..=writes - first {
                for stamp in [7, 8] {
                    let mut port = Torn { words: [0; WORDS], writes: Default::default(), before, count, reads: 0 };
                    record.write(&mut port, Stamp(7), &[7; PAYLOAD_WORDS]);
                    for (word, value) in core::mem::take(&mut port.writes) {
                        port.words[word] = value;
                    }
                    record.write(&mut port, Stamp(8), &[8; PAYLOAD_WORDS]);
                    for (word, value) in port.writes.drain(..first) {
                        port.words[word] = value;
                    }
                    match record.read(&mut port, cell, Stamp(stamp)).expect("it can be read") {
                        Some(payload) => {
                            assert_eq!(
                                payload, [stamp; PAYLOAD_WORDS],
                                "first {first}, before {before}, count {count}"
                            );
                            whole += 1;
                        }
                        None => torn += 1,
                    }
                }
            }
        }
    }
    assert!(whole > 50 && torn > 50, "{whole} whole, {torn} torn");
}

#[test]
fn stamps_grow_within_an_epoch_and_across() {
    let first = Stamp::default().next(3).expect("a stamp");
    let second = first.next(3).expect("a stamp");
    let later = second.next(4).expect("a stamp");
    assert!(first < second && second < later);
    assert_eq!((first.epoch(), later.epoch()), (3, 4));
    assert_eq!(Stamp(3 << 48 | ((1 << 48) - 1)).next(3), None);
}
