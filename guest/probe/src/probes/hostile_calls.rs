//! Wrong arguments for HSM, FWFT, SSE and SUSP, each in turn and in combination: all end in an error, and nothing else happens.

use super::{Outcome, check, features, skip};
use crate::{layout, sbi, tree::Machine};

const HSM: usize = 0x48_534D;
const FWFT: usize = 0x4657_4654;
const SSE: usize = 0x53_5345;
const SUSP: usize = 0x5355_5350;

/// Words that mean something somewhere.
const WORDS: [u64; 14] = [
    0,
    1,
    2,
    8,
    63,
    0xff,
    0x1000_0000,
    0x7fff_ffff,
    0x8000_0001,
    0xffff_0000,
    1 << 32,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Checks that the call is refused by an error of the specification, and answers nothing else.
fn refused(extension: usize, function: usize, arguments: [u64; 5]) -> Outcome {
    let (error, value) = sbi::call(extension, function, arguments);
    check((-14..0).contains(&error), "a call with a wrong argument is not refused by an error of the specification")?;
    check(value == 0, "a call that is refused gives a value")
}

/// All of them.
pub fn all(machine: &Machine, hart: u64) -> Outcome {
    if !machine.is_mirrorball {
        return skip("another firmware may take more");
    }
    let addresses = addresses(machine);
    harts(machine, hart, &addresses)?;
    all_features()?;
    events(&addresses)?;
    check(sbi::hart_status(hart) == (0, 0), "the hart is not what it was")
}

/// Where nothing can be executed, and no attributes can be.
fn addresses(machine: &Machine) -> [u64; 8] {
    let beyond = machine.ram_start + machine.ram_bytes;
    [0, 0x1000_0000, machine.ram_start - 8, layout::SCRATCH + 1, beyond, beyond - 2, u64::MAX - 7, u64::MAX]
}

fn harts(machine: &Machine, hart: u64, addresses: &[u64]) -> Outcome {
    for word in WORDS {
        for address in addresses.iter().copied() {
            for target in (0..machine.harts).filter(|target| *target != hart) {
                refused(HSM, 0, [target, address, word, 0, 0])?;
            }
            for kind in [0x8000_0000, 0x8000_0000 | 1 << 40] {
                refused(HSM, 3, [kind, address, word, 0, 0])?;
            }
            refused(SUSP, 0, [0, address, word, 0, 0])?;
        }
        let kind = word as u32;
        if kind != 0 && kind != 0x8000_0000 {
            refused(HSM, 3, [word, layout::SCRATCH, 0, 0, 0])?;
            refused(SUSP, 0, [word, layout::SCRATCH, 0, 0, 0])?;
        }
        if word >= machine.harts {
            refused(HSM, 0, [word, layout::SCRATCH, 0, 0, 0])?;
            refused(HSM, 2, [word, 0, 0, 0, 0])?;
        }
        refused(HSM, 4 + (word % 1_000) as usize, [0; 5])?;
        refused(SUSP, 1 + (word % 1_000) as usize, [0, layout::SCRATCH, 0, 0, 0])?;
    }
    Ok(())
}

fn all_features() -> Outcome {
    for number in WORDS {
        for value in WORDS {
            for flags in WORDS {
                // No feature has a value that large, and a reserved one has none.
                let is_reserved = number as u32 > 5;
                if value > 16 || flags > 1 || is_reserved {
                    refused(FWFT, 0, [number, value, flags, 0, 0])?;
                }
            }
        }
        if number as u32 > 5 {
            refused(FWFT, 1, [number, 0, 0, 0, 0])?;
        }
    }
    Ok(())
}

/// Events in states where they are unused: no function but reading and writing of attributes, and injection, is right.
fn events(addresses: &[u64]) -> Outcome {
    const EVENTS: [u64; 2] = [0xffff_0000, 0xffff_8000];
    const DOUBLE_TRAP: u32 = 1;
    let has_double_traps = features::get(3).0 == 0;
    let is_event =
        |number: u64| EVENTS.contains(&u64::from(number as u32)) || number as u32 == DOUBLE_TRAP && has_double_traps;
    for number in WORDS.into_iter().chain(EVENTS) {
        for first in WORDS {
            for count in WORDS {
                let (from, n) = (u64::from(first as u32), u64::from(count as u32));
                let is_range = is_event(number) && n != 0 && from + n <= 10;
                for address in addresses.iter().copied() {
                    refused(SSE, 0, [number, first, count, address, 0])?;
                    refused(SSE, 1, [number, first, count, address, 0])?;
                }
                if !is_range {
                    refused(SSE, 0, [number, first, count, layout::SCRATCH, 0])?;
                }
                refused(SSE, 0, [number, first, count, layout::SCRATCH, 1 + count % 7])?;
            }
            // No attribute can be written over with these: status and entry are read-only, the interrupted state is nobody's.
            refused(SSE, 1, [number, 0, 1 + first % 10, layout::SCRATCH, 0])?;
            refused(SSE, 1, [number, 4 + first % 6, 1, layout::SCRATCH, 0])?;
            refused(SSE, 2, [number, first | 1, 0, 0, 0])?;
            refused(SSE, 10 + (first % 1_000) as usize, [number, 0, 0, 0, 0])?;
            if u64::from(number as u32) != EVENTS[1] && first >= 32 {
                refused(SSE, 7, [number, first, 0, 0, 0])?;
            }
        }
        for function in [3, 4, 5] {
            refused(SSE, function, [number, 0, 0, 0, 0])?;
        }
    }
    Ok(())
}
