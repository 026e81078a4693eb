//! Suspended harts: what others see meanwhile, what ends it, and how the hart goes on.

use super::{Outcome, check, harts, skip, wait_for};
use crate::{
    cpu, entry,
    entry::SEEN,
    layout,
    resume::{self, RESUMED},
    sbi,
    sbi::error,
    tree::Machine,
};
use core::sync::atomic::{AtomicU64, Ordering};

static STEP: AtomicU64 = AtomicU64::new(0);

const STARTED: u64 = 0;
const SUSPENDED: u64 = 4;
const SUSPEND_PENDING: u64 = 5;
const RESUME_PENDING: u64 = 6;
const RETENTIVE: u64 = 0;
const NON_RETENTIVE: u64 = 0x8000_0000;
/// Ticks during which a hart is seen to stay suspended: 2 ms.
const LOOK: u64 = 20_000;

fn state(hart: u64) -> u64 {
    sbi::hart_status(hart).1
}

/// Waits for `wanted`; on the way only states of `between` may be seen.
fn reaches(hart: u64, wanted: u64, between: [u64; 2]) -> Outcome {
    let is_wrong = AtomicU64::new(0);
    let came = wait_for(|| {
        let now = state(hart);
        if now != wanted && !between.contains(&now) {
            is_wrong.store(1, Ordering::SeqCst);
        }
        now == wanted || is_wrong.load(Ordering::SeqCst) != 0
    });
    check(came, "a hart does not come into the state that is waited for")?;
    check(is_wrong.load(Ordering::SeqCst) == 0, "a hart shows a state that it is not in")
}

/// It stays suspended although it is sent fences, and an interrupt that it has not enabled.
fn stays_suspended(hart: u64) -> Outcome {
    let begin = cpu::time();
    while cpu::time() - begin < LOOK {
        check(state(hart) == SUSPENDED, "a suspended hart resumes for no reason")?;
        check(sbi::remote_fence(1, 1 << hart, 0) == 0, "a fence of a suspended hart failed")?;
    }
    check(STEP.load(Ordering::SeqCst) == 1, "a suspended hart executes")
}

/// Both default kinds, on another hart: states, what wakes it, registers.
pub fn states(machine: &Machine, hart: u64) -> Outcome {
    let other = harts::other_hart(machine, hart)?;
    if !machine.is_mirrorball {
        return skip("what wakes a hart is the firmware's business");
    }
    for sleeper in [keep as extern "C" fn() -> !, forget] {
        STEP.store(0, Ordering::SeqCst);
        check(entry::start_hart(other, sleeper) == 0, "hart_start failed")?;
        check(wait_for(|| STEP.load(Ordering::SeqCst) == 1), "the other hart does not run")?;
        reaches(other, SUSPENDED, [STARTED, SUSPEND_PENDING])?;
        stays_suspended(other)?;
        check(sbi::send_ipi(1 << other, 0) == 0, "send_ipi failed")?;
        reaches(other, STARTED, [SUSPENDED, RESUME_PENDING])?;
        check(wait_for(|| STEP.load(Ordering::SeqCst) == 2), "the other hart does not go on, or not right")?;
        STEP.store(3, Ordering::SeqCst);
        check(wait_for(|| sbi::hart_status(other) == harts::STOPPED), "the other hart does not stop")?;
    }
    Ok(())
}

/// Only software interrupts are enabled; a timer interrupt is pending all the time.
fn enable_ipis() {
    cpu::set_sie(cpu::SOFTWARE);
    cpu::set_stimecmp(0);
    STEP.store(1, Ordering::SeqCst);
}

extern "C" fn keep() -> ! {
    enable_ipis();
    if sbi::hart_suspend(RETENTIVE | 1 << 63, 1, 1) == 0 {
        STEP.store(2, Ordering::SeqCst);
    }
    wait_and_stop()
}

/// So that the other hart sees this one at work.
fn wait_and_stop() -> ! {
    while STEP.load(Ordering::SeqCst) != 3 {
        core::hint::spin_loop();
    }
    harts::stop()
}

extern "C" fn forget() -> ! {
    let own = cpu::this_hart();
    enable_ipis();
    translate();
    cpu::interrupts(true);
    let seen = SEEN[own].interrupts[1].load(Ordering::SeqCst);
    let back = resume::forgetful(0x48_534D, 3, NON_RETENTIVE);
    let is_off = cpu::satp() == 0 && cpu::sstatus() & 1 << 1 == 0;
    let is_quiet = SEEN[own].interrupts[1].load(Ordering::SeqCst) == seen;
    if (back.0, back.1) == (RESUMED, own as u64) && is_off && is_quiet {
        STEP.store(2, Ordering::SeqCst);
    }
    wait_and_stop()
}

/// Translates each address to itself (Sv39, leaves of 1 GiB).
fn translate() {
    const LEAF: u64 = 0xcf;
    const SV39: u64 = 8 << 60;
    let table = layout::SCRATCH;
    for slot in 0..512 {
        let leaf = if slot < 4 { slot << 28 | LEAF } else { 0 };
        cpu::store(table + 8 * slot, leaf);
    }
    cpu::set_satp(SV39 | table >> 12);
    cpu::fence_translations();
}

/// An interrupt that is there already: the call comes back at once.
pub fn awake(_: &Machine, _: u64) -> Outcome {
    cpu::set_sie(cpu::TIMER);
    cpu::set_stimecmp(0);
    check(sbi::hart_suspend(RETENTIVE, 0, 0) == 0, "a suspend with an interrupt pending failed")?;
    let back = resume::forgetful(0x48_534D, 3, NON_RETENTIVE);
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
    check(back.0 == RESUMED, "a non-retentive suspend with an interrupt pending does not resume at its entry")
}

/// SUSP: the whole machine.
pub fn system(machine: &Machine, hart: u64) -> Outcome {
    const SUSP: usize = 0x5355_5350;
    if sbi::probe_extension(SUSP as u64).1 == 0 {
        return skip("no system suspend");
    }
    cpu::set_sie(cpu::TIMER);
    let deadline = cpu::time() + 20_000;
    cpu::set_stimecmp(deadline);
    let back = resume::forgetful(SUSP as u64, 0, 0);
    check(back.0 == RESUMED, "system suspend does not resume at its entry")?;
    check(back.1 == hart && cpu::satp() == 0, "system suspend resumes with wrong registers")?;
    check(cpu::time() >= deadline, "system suspend resumes before the interrupt")?;
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
    let Ok(other) = harts::other_hart(machine, hart) else { return Ok(()) };
    STEP.store(0, Ordering::SeqCst);
    check(entry::start_hart(other, spin) == 0, "hart_start failed")?;
    check(wait_for(|| STEP.load(Ordering::SeqCst) == 1), "the other hart does not run")?;
    let refused = sbi::call(SUSP, 0, [0, entry::secondary_address(), 0, 0, 0]).0 == error::DENIED;
    check(refused, "the machine is suspended while another hart runs")?;
    STEP.store(2, Ordering::SeqCst);
    check(wait_for(|| sbi::hart_status(other) == harts::STOPPED), "the other hart does not stop")
}

extern "C" fn spin() -> ! {
    STEP.store(1, Ordering::SeqCst);
    while STEP.load(Ordering::SeqCst) != 2 {
        core::hint::spin_loop();
    }
    harts::stop()
}
