//! SBI calls and their errors.

use super::{Outcome, check, harts, interrupts, skip, wait_for};
use crate::{cpu, entry, layout, sbi, sbi::error, tree::Machine};

/// The extensions that a Mirrorball VM offers: BASE, TIME, IPI, RFENCE, HSM, SRST, DBCN, PMU, STA, SUSP, FWFT, SSE.
const OFFERED: [u64; 12] = [
    0x10,
    0x5449_4D45,
    0x73_5049,
    0x5246_4E43,
    0x48_534D,
    0x5352_5354,
    0x4442_434E,
    0x50_4D55,
    0x53_5441,
    0x5355_5350,
    0x4657_4654,
    0x53_5345,
];

/// Version, identity and the list of extensions.
pub fn base(machine: &Machine, _: u64) -> Outcome {
    let (error, version) = sbi::spec_version();
    check(error == 0 && version >> 24 >= 1, "spec version below 1.0")?;
    check(version >> 31 == 0, "the reserved bit of the version is set")?;
    check(sbi::probe_extension(0x48_534D) == (0, 1), "HSM is not offered")?;
    check(sbi::probe_extension(0x1234_5678) == (0, 0), "an extension that nobody has is offered")?;
    for function in 4..=6 {
        check(sbi::call(0x10, function, [0; 5]).0 == 0, "a machine id cannot be read")?;
    }
    if machine.is_mirrorball {
        for extension in OFFERED {
            check(sbi::probe_extension(extension) == (0, 1), "an extension is missing")?;
        }
    }
    Ok(())
}

/// What must be refused, and how.
pub fn errors(machine: &Machine, hart: u64) -> Outcome {
    check(sbi::call(0x1234_5678, 0, [0; 5]).0 == error::NOT_SUPPORTED, "unknown extension")?;
    for extension in [0x10, 0x48_534D, 0x73_5049, 0x5246_4E43, 0x5449_4D45, 0x4442_434E, 0x5352_5354] {
        check(sbi::call(extension, 99, [0; 5]).0 == error::NOT_SUPPORTED, "unknown function of a known extension")?;
    }
    check(sbi::hart_status(4_000).0 == error::INVALID_PARAM, "status of a hart that is not there")?;
    check(sbi::hart_start(4_000, 0x8020_0000, 0) == error::INVALID_PARAM, "start of a hart that is not there")?;
    check(sbi::hart_start(hart, 0x8020_0000, 0) == error::ALREADY_AVAILABLE, "start of the running hart")?;
    check(sbi::send_ipi(1, machine.harts + 1_000) == error::INVALID_PARAM, "IPI to a hart that is not there")?;
    check(sbi::send_ipi(0, 0) == 0, "IPI to nobody")?;
    if machine.is_mirrorball {
        check(sbi::send_ipi(1 << 63, u64::MAX - 1) == error::INVALID_PARAM, "IPI with a mask that wraps")?;
        check(sbi::remote_fence(1, 1 << 63, 0) == error::INVALID_PARAM, "fence of a hart beyond the last")?;
        check(sbi::remote_fence(3, 1, hart) == error::NOT_SUPPORTED, "hypervisor fences without a hypervisor")?;
    }
    Ok(())
}

/// The timer by SBI, which Linux uses where Sstc is missing.
pub fn time(_: &Machine, hart: u64) -> Outcome {
    let begin = cpu::time();
    let came = interrupts::one(hart, cpu::TIMER, || {
        sbi::call(0x5449_4D45, 0, [cpu::time() + 2_000, 0, 0, 0, 0]);
    });
    check(came, "the timer interrupt did not come")?;
    check(cpu::time() - begin >= 2_000, "the timer interrupt came early")?;
    check(sbi::call(0x5449_4D45, 0, [u64::MAX, 0, 0, 0, 0]).0 == 0, "the timer cannot be switched off")
}

static TEXT: [u8; 23] = *b"PROBE debug console: \n\0";

/// DBCN: output, and addresses that are none.
pub fn console(machine: &Machine, _: u64) -> Outcome {
    if sbi::probe_extension(0x4442_434E).1 == 0 {
        return skip("no debug console");
    }
    let (at, len) = (TEXT.as_ptr() as u64, TEXT.len() as u64 - 1);
    let mut sent = 0;
    while sent < len {
        let (error, taken) = sbi::call(0x4442_434E, 0, [len - sent, at + sent, 0, 0, 0]);
        check(error == 0 && taken > 0 && taken <= len - sent, "the debug console takes nothing")?;
        sent += taken;
    }
    check(sbi::call(0x4442_434E, 2, [u64::from(b'\n'), 0, 0, 0, 0]).0 == 0, "a byte is refused")?;
    let beyond = machine.ram_start + machine.ram_bytes;
    for (low, high, bytes) in [(beyond - 8, 0, 16), (0x1000, 0, 8), (at, 1, 8), (u64::MAX - 4, 0, 16)] {
        if machine.is_mirrorball {
            let refused = sbi::call(0x4442_434E, 0, [bytes, low, high, 0, 0]).0 == error::INVALID_PARAM;
            check(refused, "text outside of memory is printed")?;
        }
    }
    Ok(())
}

#[repr(align(64))]
struct Record([u8; 64]);
static RECORD: Record = Record([0; 64]);

/// STA: the record of steal time.
pub fn steal_time(machine: &Machine, _: u64) -> Outcome {
    if sbi::probe_extension(0x53_5441).1 == 0 {
        return skip("no steal-time accounting");
    }
    let set = |low: u64, high: u64, flags: u64| sbi::call(0x53_5441, 0, [low, high, flags, 0, 0]).0;
    let at = RECORD.0.as_ptr() as u64;
    check(set(at, 0, 0) == 0, "the record is refused")?;
    check(set(at + 8, 0, 0) == error::INVALID_PARAM, "an unaligned record is taken")?;
    check(set(at, 0, 1) == error::INVALID_PARAM, "unknown flags are taken")?;
    check(set(machine.ram_start + machine.ram_bytes, 0, 0) == error::INVALID_ADDRESS, "a record outside of memory")?;
    let sequence = cpu::load32(at);
    check(sequence & 1 == 0, "the record's sequence number is odd while nobody writes")?;
    check(set(u64::MAX, u64::MAX, 0) == 0, "the record cannot be given up")
}

/// Where the record of the other hart is, and later something else.
const KEPT: u64 = layout::BUFFERS + 0x4000;
const STEAL_TIME: usize = 0x53_5441;

extern "C" fn name_a_record() -> ! {
    sbi::call(STEAL_TIME, 0, [KEPT, 0, 0, 0, 0]);
    harts::stop()
}

extern "C" fn rest_often() -> ! {
    const TURNS: u64 = 20;
    cpu::set_sie(cpu::TIMER);
    for _ in 0..TURNS {
        let deadline = cpu::time() + 5_000;
        cpu::set_stimecmp(deadline);
        while cpu::time() < deadline {
            cpu::wfi();
        }
    }
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
    harts::stop()
}

/// STA: a hart that is started again has named no record; the memory of its former one is left alone.
pub fn steal_over_restart(machine: &Machine, hart: u64) -> Outcome {
    const PATTERN: u64 = 0xa5a5_5a5a_a5a5_5a5a;
    if sbi::probe_extension(STEAL_TIME as u64).1 == 0 {
        return skip("no steal-time accounting");
    }
    let other = harts::other_hart(machine, hart)?;
    let words = || (KEPT..KEPT + 64).step_by(8);
    let live = |entry| entry::start_hart(other, entry) == 0 && wait_for(|| sbi::hart_status(other) == harts::STOPPED);
    check(live(name_a_record), "the other hart does not start or stop")?;
    words().for_each(|at| cpu::store(at, PATTERN));
    check(live(rest_often), "the other hart does not start again")?;
    check(words().all(|at| cpu::load(at) == PATTERN), "the record of a former life is written")
}

/// SRST: only what must be refused; what it does at the end of every run.
pub fn reset_errors(_: &Machine, _: u64) -> Outcome {
    let reset = |kind: u64, reason: u64| sbi::call(0x5352_5354, 0, [kind, reason, 0, 0, 0]).0;
    check(reset(0x10, 0) != 0, "a reserved reset type is taken")?;
    check(reset(0, 0x10) != 0, "a reserved reset reason is taken")
}
