//! A neighbour of guests that do their worst: it computes, and when it is asked (by any byte on its console) it watches itself for
//! `n=COUNT` milliseconds, and tells how far it came and for how long it was kept from its work.
//!
//! `PULSE ticks rounds gap total sum`: in so many ticks it did so many rounds, and the longest time between the ends of two of them was
//! `gap`; the `total` rounds of its life have the checksum `sum`. What it takes to ask and to tell is not in it.

use crate::{console::println, cpu, layout, tree::Machine};

/// Words that it computes with.
const WORDS: u64 = 4096;
/// Words that a round changes.
const ROUND: u64 = 64;
/// Rounds between two looks at the console.
const LOOK: u64 = 16;
/// Ticks of a millisecond.
const TICKS_PER_MS: u64 = 10_000;

/// Registers of the UART.
const DATA: u64 = 0x1000_0000;
const LINE_STATUS: u64 = 0x1000_0005;

/// What it computes with, and has computed.
struct Work {
    state: u64,
    sum: u64,
    total: u64,
}

impl Work {
    /// One round. Numbers that look random are kept, and what was kept before goes into the sum.
    fn round(&mut self) {
        for word in self.total * ROUND..(self.total + 1) * ROUND {
            let at = layout::FREE + word % WORDS * 8;
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.sum = self.sum.rotate_left(5) ^ cpu::load(at);
            cpu::store(at, self.state);
        }
        self.total += 1;
    }
}

/// Computes for ever, and tells when it is asked.
pub fn pulse(_: &Machine, _: u64, count: u64) {
    (0..WORDS).for_each(|word| cpu::store(layout::FREE + word * 8, 0));
    let mut work = Work { state: 0x9e37_79b9_7f4a_7c15, sum: 0, total: 0 };
    println!("PULSE ready");
    loop {
        while cpu::load8(LINE_STATUS) & 1 == 0 {
            (0..LOOK).for_each(|_| work.round());
        }
        cpu::load8(DATA);
        let (begin, first) = (cpu::time(), work.total);
        let (mut last, mut gap) = (begin, 0);
        while last - begin < count * TICKS_PER_MS {
            work.round();
            let now = cpu::time();
            gap = gap.max(now - last);
            last = now;
        }
        println!("PULSE {} {} {gap} {} {:#x}", last - begin, work.total - first, work.total, work.sum);
    }
}
