//! Timer, software and message-signalled interrupts of one hart.

use super::{Outcome, check, harts, skip, wait_for};
use crate::{
    cpu,
    entry::{self, SEEN},
    imsic, sbi,
    tree::Machine,
    user,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
static HAS_FILES: AtomicBool = AtomicBool::new(false);
/// How often the other hart is started.
const LIVES: u64 = 3;

extern "C" fn wait_for_interrupt() -> ! {
    let has_files = HAS_FILES.load(Ordering::SeqCst);
    if has_files {
        imsic::enable();
    }
    if wait_for(|| cpu::sip() & cpu::EXTERNAL != 0)
        && LIVES_TOLD.fetch_add(1, Ordering::SeqCst) + 1 == LIVES
        && has_files
    {
        imsic::claim();
    }
    harts::stop()
}

/// An external interrupt, which nobody takes, is pending while its hart stops and is started again: each life of the hart sees it. It
/// is a message where there are interrupt files, and else a line of the PLIC.
pub fn pending_over_restart(machine: &Machine, hart: u64) -> Outcome {
    let other = harts::other_hart(machine, hart)?;
    HAS_FILES.store(machine.has_imsic, Ordering::SeqCst);
    LIVES_TOLD.store(0, Ordering::SeqCst);
    if machine.has_imsic {
        imsic::send(other, imsic::IDENTITY);
    } else {
        drive_line(other, true);
    }
    let mut is_restarted = true;
    for _ in 0..LIVES {
        is_restarted &= entry::start_hart(other, wait_for_interrupt) == 0;
        is_restarted &= wait_for(|| sbi::hart_status(other) == harts::STOPPED);
    }
    if !machine.has_imsic {
        drive_line(other, false);
    }
    check(is_restarted, "the other hart does not start or stop")?;
    check(LIVES_TOLD.load(Ordering::SeqCst) == LIVES, "a hart that is started again misses what is pending")
}

/// The UART wants to interrupt hart `hart` by the PLIC, or does not.
fn drive_line(hart: u64, is_asserted: bool) {
    const PLIC: u64 = 0x0c00_0000;
    const SOURCE: u64 = 10;
    const UART_ENABLES: u64 = 0x1000_0001;
    const TRANSMITTER_EMPTY: u64 = 2;
    let (context, on) = (2 * hart + 1, u64::from(is_asserted));
    cpu::store32(PLIC + 4 * SOURCE, on);
    cpu::store32(PLIC + 0x20_0000 + 0x1000 * context, 0);
    cpu::store32(PLIC + 0x2000 + 0x80 * context, on << SOURCE);
    cpu::store8(UART_ENABLES, on * TRANSMITTER_EMPTY);
}
