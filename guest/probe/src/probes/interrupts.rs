//! Timer, software and message-signalled interrupts of one hart.

use super::{Outcome, check, harts, skip, wait_for};
use crate::{
    cpu,
    entry::{self, SEEN},
    imsic, sbi,
    tree::Machine,
    user,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Does something that raises the interrupt of this bit of `sie`; whether exactly one came.
pub fn one(hart: u64, enable: u64, act: impl Fn()) -> bool {
    let seen = &SEEN[hart as usize].interrupts[enable.trailing_zeros() as usize];
    let before = seen.load(Ordering::SeqCst);
    cpu::set_sie(enable);
    act();
    cpu::interrupts(true);
    let came = wait_for(|| seen.load(Ordering::SeqCst) > before);
    cpu::interrupts(false);
    cpu::set_sie(0);
    came && seen.load(Ordering::SeqCst) == before + 1
}

/// A timer interrupt by `stimecmp`.
pub fn timer(_: &Machine, hart: u64) -> Outcome {
    check(one(hart, cpu::TIMER, || cpu::set_stimecmp(cpu::time() + 1_000)), "the timer interrupt did not come once")
}

/// WFI with interrupts off: it has to return although the interrupt is not taken.
pub fn wfi_timer(_: &Machine, hart: u64) -> Outcome {
    let seen = &SEEN[hart as usize].interrupts[5];
    cpu::set_sie(cpu::TIMER);
    for _ in 0..20 {
        let before = seen.load(Ordering::SeqCst);
        let deadline = cpu::time() + 5_000;
        cpu::set_stimecmp(deadline);
        // The architecture lets WFI return for no reason; what counts is that it returns once the time has come.
        while cpu::time() < deadline {
            cpu::wfi();
        }
        // The interrupt becomes pending some time after the clock has passed it, not in the same instant.
        cpu::interrupts(true);
        let came = wait_for(|| seen.load(Ordering::SeqCst) > before);
        cpu::interrupts(false);
        check(came && seen.load(Ordering::SeqCst) == before + 1, "the timer interrupt did not come once")?;
    }
    cpu::set_sie(0);
    Ok(())
}

/// A software interrupt to oneself by SBI.
pub fn ipi(_: &Machine, hart: u64) -> Outcome {
    let sent = || {
        sbi::send_ipi(1, hart);
    };
    check(one(hart, cpu::SOFTWARE, sent), "the IPI to oneself did not come once")
}

/// A message to one's own interrupt file: pending, claimed, threshold and delivery respected.
pub fn imsic(machine: &Machine, hart: u64) -> Outcome {
    if !machine.has_imsic {
        return skip("no IMSIC");
    }
    imsic::enable();
    check(one(hart, cpu::EXTERNAL, || imsic::send(hart, imsic::IDENTITY)), "the message did not arrive once")?;
    imsic::set_threshold(imsic::IDENTITY);
    imsic::send(hart, imsic::IDENTITY);
    check(imsic::top() == 0, "a message at the threshold is delivered")?;
    imsic::set_threshold(0);
    check(imsic::top() >> 16 == u64::from(imsic::IDENTITY), "a message is lost under the threshold")?;
    check(imsic::claim() >> 16 == u64::from(imsic::IDENTITY), "the claim names another message")?;
    check(imsic::claim() == 0, "a claimed message is still there")?;
    // Identity 0 does not exist, nor one beyond the file: both are ignored.
    imsic::send(hart, 0);
    imsic::send(hart, 0xffff_ffff);
    check(imsic::top() == 0, "a message that cannot exist is delivered")
}

/// The interrupt file is the kernel's: user mode neither sees it nor changes it.
pub fn imsic_of_user_mode(machine: &Machine, hart: u64) -> Outcome {
    const ILLEGAL_INSTRUCTION: u64 = 2;
    if !machine.has_imsic {
        return skip("no IMSIC");
    }
    cpu::set_sie(0);
    check(user::nothing() == user::DONE, "user mode cannot be entered")?;
    check(user::read_time() == user::DONE, "user mode cannot read the clock")?;
    // Afterwards `siselect` names eidelivery.
    imsic::enable();
    imsic::send(hart, imsic::IDENTITY);
    check(wait_for(|| imsic::top() >> 16 == u64::from(imsic::IDENTITY)), "the message does not arrive")?;
    let accesses = [user::read_top_message, user::claim_top_message, user::read_file, user::clear_file, user::set_file];
    for access in accesses {
        check(access() == ILLEGAL_INSTRUCTION, "user mode reaches the interrupt file")?;
    }
    check(imsic::claim() >> 16 == u64::from(imsic::IDENTITY), "user mode has taken a message")?;
    check(one(hart, cpu::EXTERNAL, || imsic::send(hart, imsic::IDENTITY)), "user mode has switched delivery off")
}

static LIVES_TOLD: AtomicU64 = AtomicU64::new(0);

extern "C" fn wait_for_line() -> ! {
    if wait_for(|| cpu::sip() & cpu::EXTERNAL != 0) {
        LIVES_TOLD.fetch_add(1, Ordering::SeqCst);
    }
    harts::stop()
}

/// A line of the PLIC stays asserted while its hart stops and is started again: each life of the hart sees it.
pub fn line_over_restart(machine: &Machine, hart: u64) -> Outcome {
    const PLIC: u64 = 0x0c00_0000;
    const UART_SOURCE: u64 = 10;
    const UART_ENABLES: u64 = 0x1000_0001;
    const TRANSMITTER_EMPTY: u64 = 2;
    const LIVES: u64 = 3;
    if machine.has_imsic {
        return skip("no PLIC");
    }
    let other = harts::other_hart(machine, hart)?;
    let context = 2 * other + 1;
    let enables = PLIC + 0x2000 + 0x80 * context;
    cpu::store32(PLIC + 4 * UART_SOURCE, 1);
    cpu::store32(PLIC + 0x20_0000 + 0x1000 * context, 0);
    cpu::store32(enables, 1 << UART_SOURCE);
    cpu::store8(UART_ENABLES, TRANSMITTER_EMPTY);
    LIVES_TOLD.store(0, Ordering::SeqCst);
    let mut stopped = true;
    for _ in 0..LIVES {
        stopped &= entry::start_hart(other, wait_for_line) == 0;
        stopped &= wait_for(|| sbi::hart_status(other) == harts::STOPPED);
    }
    cpu::store8(UART_ENABLES, 0);
    cpu::store32(enables, 0);
    cpu::store32(PLIC + 4 * UART_SOURCE, 0);
    check(stopped, "the other hart does not start or stop")?;
    check(LIVES_TOLD.load(Ordering::SeqCst) == LIVES, "a hart that is started again misses an asserted line")
}
