//! Firmware features (FWFT).

use super::{Outcome, check, exception_of, harts, skip, wait_for};
use crate::{cpu, entry, layout, sbi, sbi::error, tree::Machine};
use core::sync::atomic::{AtomicU64, Ordering};

const FWFT: usize = 0x4657_4654;
const MISALIGNED: u64 = 0;
const LANDING_PAD: u64 = 1;
const SHADOW_STACK: u64 = 2;
const PAGE_TABLE_UPDATES: u64 = 4;
const POINTER_MASKING: u64 = 5;
const LOCK: u64 = 1;
/// The seven top bits of an address.
const TAG: u64 = 0x55 << 57;

/// `fwft_set`.
pub fn set(feature: u64, value: u64, flags: u64) -> i64 {
    sbi::call(FWFT, 0, [feature, value, flags, 0, 0]).0
}

/// `fwft_get`.
pub fn get(feature: u64) -> (i64, u64) {
    sbi::call(FWFT, 1, [feature, 0, 0, 0, 0])
}

/// Values, errors and locks.
pub fn values(machine: &Machine, hart: u64) -> Outcome {
    if sbi::probe_extension(FWFT as u64).1 == 0 {
        return skip("no firmware features");
    }
    check(get(MISALIGNED).1 <= 1, "a switch is neither on nor off")?;
    for (value, flags) in [(2, 0), (1 << 32, 0), (u64::MAX, 0), (1, 2), (1, 1 << 32)] {
        check(set(MISALIGNED, value, flags) == error::INVALID_PARAM, "a value or flag that means nothing is taken")?;
    }
    if machine.is_mirrorball {
        check(get(MISALIGNED) == (0, 1), "misaligned accesses are not delegated after reset")?;
        for feature in [LANDING_PAD, SHADOW_STACK, PAGE_TABLE_UPDATES] {
            check(get(feature) == (error::NOT_SUPPORTED, 0), "a feature that guests do not get can be read")?;
            check(set(feature, 1, 0) == error::NOT_SUPPORTED, "a feature that guests do not get can be set")?;
        }
    }
    let Ok(other) = harts::other_hart(machine, hart) else { return Ok(()) };
    // The second life of the other hart begins without the lock of the first.
    for _ in 0..2 {
        STEP.store(0, Ordering::SeqCst);
        check(entry::start_hart(other, lock) == 0, "hart_start failed")?;
        check(wait_for(|| STEP.load(Ordering::SeqCst) == 1), "a lock does not hold, or outlives the hart that set it")?;
        check(wait_for(|| sbi::hart_status(other) == harts::STOPPED), "the other hart does not stop")?;
    }
    check(set(MISALIGNED, 1, 0) == 0, "a lock of one hart holds on another")
}

static STEP: AtomicU64 = AtomicU64::new(0);

extern "C" fn lock() -> ! {
    let value = get(MISALIGNED).1;
    let is_open = set(MISALIGNED, value, 0) == 0 && set(MISALIGNED, value, LOCK) == 0;
    let is_locked = |flags| (0..2).all(|value| set(MISALIGNED, value, flags) == error::DENIED_LOCKED);
    if is_open && is_locked(0) && is_locked(LOCK) && get(MISALIGNED) == (0, value) {
        STEP.store(1, Ordering::SeqCst);
    }
    harts::stop()
}

/// Whether an address with a tag reaches what the address without it does.
fn ignores_tags(hart: u64) -> bool {
    cpu::store(layout::SCRATCH, 0x1234);
    let value = AtomicU64::new(0);
    let trap = exception_of(hart, || value.store(cpu::load(layout::SCRATCH | TAG), Ordering::SeqCst));
    trap.is_none() && value.load(Ordering::SeqCst) == 0x1234
}

/// Each hart masks its own pointers. Some emulators keep the setting of a virtual hart and do nothing: then only that it is kept is
/// checked.
pub fn masking(machine: &Machine, hart: u64) -> Outcome {
    if get(POINTER_MASKING).0 != 0 {
        return skip("no pointer masking");
    }
    check(get(POINTER_MASKING) == (0, 0), "pointers are masked after reset")?;
    check(!ignores_tags(hart), "tags are ignored although nobody asked for it")?;
    check(set(POINTER_MASKING, 3, 0) == error::INVALID_PARAM, "a length that nobody has is taken")?;
    check(set(POINTER_MASKING, 7, 0) == 0, "pointers cannot be masked")?;
    IS_DONE.store(u64::from(ignores_tags(hart)), Ordering::SeqCst);
    STEP.store(0, Ordering::SeqCst);
    let others = || (0..machine.harts).filter(|other| *other != hart);
    for other in others() {
        check(entry::start_hart(other, mask_own) == 0, "hart_start failed")?;
    }
    for _ in 0..ROUNDS {
        check(is_masked(hart, true), "another hart changes this one's pointers")?;
        sbi::call(0x10, 4, [0; 5]);
    }
    let all = wait_for(|| others().all(|other| sbi::hart_status(other) == harts::STOPPED));
    check(all && STEP.load(Ordering::SeqCst) == machine.harts - 1, "a hart's pointers are not its own")?;
    check(set(POINTER_MASKING, 0, 0) == 0 && is_masked(hart, false), "masking cannot be switched off")
}

const ROUNDS: u64 = 50;
/// 1 if these harts mask what they are told to mask, 0 if they only keep the setting.
static IS_DONE: AtomicU64 = AtomicU64::new(0);

/// Whether the hart's setting, and what its loads do by it, are as `wanted`.
fn is_masked(hart: u64, wanted: bool) -> bool {
    let is_done = IS_DONE.load(Ordering::SeqCst) != 0;
    get(POINTER_MASKING) == (0, if wanted { 7 } else { 0 }) && ignores_tags(hart) == (wanted && is_done)
}

extern "C" fn mask_own() -> ! {
    let own = cpu::this_hart() as u64;
    let wants = own.is_multiple_of(2);
    let mut is_right = is_masked(own, false);
    if wants {
        is_right &= set(POINTER_MASKING, 7, 0) == 0;
    }
    for _ in 0..ROUNDS {
        is_right &= is_masked(own, wants);
        sbi::call(0x10, 4, [0; 5]);
    }
    if is_right {
        STEP.fetch_add(1, Ordering::SeqCst);
    }
    harts::stop()
}
