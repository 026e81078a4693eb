//! Several harts: start, stop, suspend, messages between them.

use super::{Failure, Outcome, check, wait_for};
use crate::{cpu, entry, entry::SEEN, sbi, sbi::error, tree::Machine};
use core::sync::atomic::{AtomicU64, Ordering};

static PINGS: AtomicU64 = AtomicU64::new(0);
static STEP: AtomicU64 = AtomicU64::new(0);

const STARTED: (i64, u64) = (0, 0);
/// Answer to hart_status: stopped.
pub const STOPPED: (i64, u64) = (0, 1);
const IPIS: u64 = 3;

/// A hart that is not this one.
pub fn other_hart(machine: &Machine, hart: u64) -> Result<u64, Failure> {
    (0..machine.harts).find(|other| *other != hart).ok_or(Failure::Skipped("one hart only"))
}

/// A started hart: counts the IPIs that it gets, stops at the last.
extern "C" fn echo() -> ! {
    let seen = &SEEN[cpu::this_hart()].interrupts[1];
    let before = seen.load(Ordering::SeqCst);
    cpu::set_sie(cpu::SOFTWARE);
    PINGS.fetch_add(1, Ordering::SeqCst);
    for wanted in 1..=IPIS {
        // Interrupts are off while waiting: one that comes between the look and the WFI keeps that from waiting.
        while seen.load(Ordering::SeqCst) < before + wanted {
            cpu::wfi();
            cpu::interrupts(true);
            cpu::interrupts(false);
        }
        PINGS.fetch_add(1, Ordering::SeqCst);
    }
    stop()
}

/// Stops this hart.
pub fn stop() -> ! {
    sbi::hart_stop();
    crate::console::println!("PROBE hsm FAILED: hart_stop returned");
    sbi::shutdown(true)
}

/// Starts and stops another hart several times; it answers IPIs in between.
pub fn start_stop(machine: &Machine, hart: u64) -> Outcome {
    let other = other_hart(machine, hart)?;
    for _ in 0..IPIS {
        PINGS.store(0, Ordering::SeqCst);
        check(sbi::hart_status(other) == STOPPED, "the other hart is not stopped")?;
        check(entry::start_hart(other, echo) == 0, "hart_start failed")?;
        for count in 1..=IPIS {
            check(wait_for(|| PINGS.load(Ordering::SeqCst) == count), "the other hart does not answer")?;
            check(sbi::hart_status(other) == STARTED, "the other hart is not started")?;
            check(sbi::send_ipi(1 << other, 0) == 0, "send_ipi failed")?;
        }
        check(wait_for(|| sbi::hart_status(other) == STOPPED), "the other hart does not stop")?;
    }
    Ok(())
}

/// Starts that must be refused.
pub fn start_errors(machine: &Machine, hart: u64) -> Outcome {
    let other = other_hart(machine, hart)?;
    if machine.is_mirrorball {
        let beyond = machine.ram_start + machine.ram_bytes;
        for address in [0, 0x1000_0000, beyond, beyond - 2, u64::MAX - 1, machine.ram_start + 1] {
            let refused = sbi::hart_start(other, address, 0) == error::INVALID_ADDRESS;
            check(refused, "a start address that cannot be executed is taken")?;
        }
    }
    check(sbi::hart_status(other) == STOPPED, "a refused start has started")?;
    STEP.store(0, Ordering::SeqCst);
    check(entry::start_hart(other, wait_for_step) == 0, "hart_start failed")?;
    check(wait_for(|| sbi::hart_status(other) == STARTED), "the other hart does not start")?;
    check(entry::start_hart(other, wait_for_step) == error::ALREADY_AVAILABLE, "a started hart starts again")?;
    STEP.store(1, Ordering::SeqCst);
    check(wait_for(|| sbi::hart_status(other) == STOPPED), "the other hart does not stop")
}

extern "C" fn wait_for_step() -> ! {
    while STEP.load(Ordering::SeqCst) == 0 {
        core::hint::spin_loop();
    }
    stop()
}

const RETENTIVE: u64 = 0;
const NON_RETENTIVE: u64 = 0x8000_0000;

/// Both default kinds of suspend.
pub fn suspend(machine: &Machine, hart: u64) -> Outcome {
    cpu::set_sie(cpu::TIMER);
    let deadline = cpu::time() + 5_000;
    cpu::set_stimecmp(deadline);
    while cpu::time() < deadline {
        check(sbi::hart_suspend(RETENTIVE, 0, 0) == 0, "suspend failed")?;
    }
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
    check(sbi::hart_suspend(7, 0, 0) != 0, "a reserved kind of suspend is taken")?;
    let other = other_hart(machine, hart)?;
    STEP.store(0, Ordering::SeqCst);
    check(entry::start_hart(other, suspend_for_good) == 0, "hart_start failed")?;
    check(wait_for(|| STEP.load(Ordering::SeqCst) >= 1), "the other hart does not run")?;
    check(wait_for(|| STEP.load(Ordering::SeqCst) == 2), "the other hart does not resume at its entry")?;
    check(wait_for(|| sbi::hart_status(other) == STOPPED), "the other hart does not stop")
}

extern "C" fn suspend_for_good() -> ! {
    STEP.store(1, Ordering::SeqCst);
    cpu::set_sie(cpu::TIMER);
    cpu::set_stimecmp(cpu::time() + 5_000);
    sbi::hart_suspend(NON_RETENTIVE, entry::secondary_address(), resumed as *const () as u64);
    crate::console::println!("PROBE suspend FAILED: a non-retentive suspend returned");
    sbi::shutdown(true)
}

extern "C" fn resumed() -> ! {
    cpu::set_stimecmp(u64::MAX);
    STEP.store(2, Ordering::SeqCst);
    stop()
}

extern "C" fn spin_until_two() -> ! {
    STEP.store(1, Ordering::SeqCst);
    while STEP.load(Ordering::SeqCst) != 2 {
        core::hint::spin_loop();
    }
    stop()
}

/// Fences of oneself, of everybody, and of a hart that computes meanwhile.
pub fn remote_fence(machine: &Machine, hart: u64) -> Outcome {
    for function in 0..3 {
        check(sbi::remote_fence(function, 1, hart) == 0, "a fence of oneself failed")?;
        check(sbi::remote_fence(function, 0, u64::MAX) == 0, "a fence of everybody failed")?;
    }
    check(sbi::remote_fence(1, 1, 5_000) == error::INVALID_PARAM, "a fence of a hart that is not there")?;
    let other = other_hart(machine, hart)?;
    STEP.store(0, Ordering::SeqCst);
    check(entry::start_hart(other, spin_until_two) == 0, "hart_start failed")?;
    check(wait_for(|| STEP.load(Ordering::SeqCst) == 1), "the other hart does not run")?;
    for round in 0..50 {
        check(sbi::remote_fence(round % 3, 1 << other, 0) == 0, "a fence of a running hart failed")?;
    }
    STEP.store(2, Ordering::SeqCst);
    check(wait_for(|| sbi::hart_status(other) == STOPPED), "the other hart does not stop")
}

static PRESENT: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_me() -> ! {
    PRESENT.fetch_add(1, Ordering::SeqCst);
    while STEP.load(Ordering::SeqCst) == 0 {
        core::hint::spin_loop();
    }
    PRESENT.fetch_sub(1, Ordering::SeqCst);
    stop()
}

/// All harts at once, spinning: with fewer harts in the machine they have to share.
pub fn everybody(machine: &Machine, hart: u64) -> Outcome {
    let others = || (0..machine.harts).filter(|other| *other != hart);
    STEP.store(0, Ordering::SeqCst);
    PRESENT.store(0, Ordering::SeqCst);
    for other in others() {
        check(entry::start_hart(other, count_me) == 0, "hart_start failed")?;
    }
    check(wait_for(|| PRESENT.load(Ordering::SeqCst) == machine.harts - 1), "a hart does not run")?;
    STEP.store(1, Ordering::SeqCst);
    check(wait_for(|| PRESENT.load(Ordering::SeqCst) == 0), "a hart does not go on")?;
    check(wait_for(|| others().all(|other| sbi::hart_status(other) == STOPPED)), "a hart does not stop")
}
