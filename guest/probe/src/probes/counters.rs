//! Performance counters of the SBI (PMU).

use super::{Outcome, check, skip};
use crate::{cpu, sbi, sbi::error, tree::Machine};

const EID: usize = 0x50_4D55;
const INSTRUCTIONS: u64 = 2;
/// A value that no counter reaches by itself.
const FAR: u64 = 1 << 62;
const IPI_SENT: u64 = 0xf << 16 | 6;

fn call(function: usize, arguments: [u64; 5]) -> (i64, u64) {
    sbi::call(EID, function, arguments)
}

/// Counters are described, count, keep their value when stopped, and refuse what does not exist.
pub fn all(machine: &Machine, hart: u64) -> Outcome {
    if sbi::probe_extension(EID as u64) != (0, 1) {
        return skip("no PMU extension");
    }
    let (error, count) = call(0, [0; 5]);
    check(error == 0 && count >= 2, "fewer than two counters")?;
    check(call(1, [count, 0, 0, 0, 0]).0 == error::INVALID_PARAM, "a counter beyond the last is described")?;
    if !machine.is_mirrorball {
        return Ok(());
    }
    let any = (1 << count) - 1;
    instructions(any)?;
    firmware(any, hart)
}

/// Instructions between two points, about as many as there are.
fn instructions(any: u64) -> Outcome {
    let (error, index) = call(2, [0, any, 0b110, INSTRUCTIONS, 0]);
    check(error == 0, "no counter for instructions")?;
    let begin = cpu::instret();
    for _ in 0..10_000 {
        core::hint::spin_loop();
    }
    let counted = cpu::instret() - begin;
    check(counted >= 10_000, "the counter did not count a loop")?;
    check(call(4, [index, 1, 0, 0, 0]).0 == 0, "the counter does not stop")?;
    let kept = cpu::instret();
    check(kept >= counted && cpu::instret() == kept, "a stopped counter runs on")?;
    check(call(3, [index, 1, 1, FAR, 0]).0 == 0, "the counter does not start again")?;
    // Emulators count host time in place of instructions, so no closer bound holds everywhere.
    check((FAR..FAR + (1 << 40)).contains(&cpu::instret()), "the counter does not begin at the value given")?;
    check(call(3, [index, 1, 0, 0, 0]).0 == error::ALREADY_STARTED, "a running counter is started")?;
    check(call(4, [index, 1, 1, 0, 0]).0 == 0, "the counter is not given back")?;
    check(call(3, [index, 1, 0, 0, 0]).0 == error::INVALID_PARAM, "a counter without an event is started")?;
    check(call(2, [0, 0, 0, INSTRUCTIONS, 0]).0 == error::INVALID_PARAM, "an empty set of counters")?;
    check(
        call(2, [u64::MAX, u64::MAX, 0, INSTRUCTIONS, 0]).0 == error::INVALID_PARAM,
        "a set beyond the last counter",
    )?;
    check(call(2, [0, any, 0, 0x2_0000, 0]).0 == error::NOT_SUPPORTED, "a raw event")
}

/// Calls that the monitor handles.
fn firmware(any: u64, hart: u64) -> Outcome {
    let (error, index) = call(2, [0, any, 0b110, IPI_SENT, 0]);
    check(error == 0, "no counter for IPIs")?;
    for _ in 0..3 {
        check(sbi::send_ipi(0, hart) == 0, "IPI to nobody")?;
    }
    check(call(5, [index, 0, 0, 0, 0]) == (0, 3), "calls are not counted")?;
    check(call(4, [index, 1, 1, 0, 0]).0 == 0, "the counter is not given back")
}
