//! The time of day, from the machine's clock, and the alarms of guests' clocks.
//!
//! Guests' clocks are models on the counter `time`; what they need is when it was 0, asked of the machine's own clock once.
//! The control hart looks after their alarms (`services::alarms`): the earliest of all VMs is kept here.

use super::{agenda, irq};
use core::sync::atomic::{AtomicU64, Ordering};
use intc::Registers as _;
use machine_tree::{MachineDescription, Rtc};
use rv::csr;

/// Registers of a goldfish clock: reading the low half freezes the high one.
const TIME_LOW: usize = 0;
const TIME_HIGH: usize = 4;
const REGISTER_BYTES: u64 = 8;

static EPOCH_NS: AtomicU64 = AtomicU64::new(0);
static NEXT_ALARM: AtomicU64 = AtomicU64::new(u64::MAX);

/// Boot: the time of day is known as [`epoch_of`] gives it.
pub fn init(epoch_ns: Option<u64>) {
    match epoch_ns {
        Some(epoch) => EPOCH_NS.store(epoch, Ordering::Relaxed),
        None => log::warn!("the machine has no clock that the monitor knows: guests' time begins at 1970"),
    }
}

/// Asks the machine's clock: nanoseconds since 1970 at `time` = 0.
#[must_use]
pub fn epoch_of(description: &MachineDescription) -> Option<u64> {
    let now = description.rtc.as_ref().and_then(read)?;
    let since = u128::from(csr::time::read()) * 1_000_000_000 / u128::from(description.timebase_hz);
    Some(now.wrapping_sub(since as u64))
}

fn read(rtc: &Rtc) -> Option<u64> {
    let registers = irq::map_registers(rtc.registers).filter(|_| rtc.registers.bytes() >= REGISTER_BYTES)?;
    let low = registers.read(TIME_LOW);
    Some(u64::from(registers.read(TIME_HIGH)) << 32 | u64::from(low))
}

/// Nanoseconds since 1970 at `time` = 0, as far as the machine's clock tells; 0 where there is none.
#[must_use]
pub fn epoch_ns() -> u64 {
    EPOCH_NS.load(Ordering::Relaxed)
}

/// A guest's clock has an alarm at `ticks`.
pub fn set_alarm(ticks: u64) {
    if NEXT_ALARM.fetch_min(ticks, Ordering::SeqCst) > ticks {
        agenda::note(ticks, ticks);
        // The control hart has to set its timer anew.
        agenda::wake_control();
    }
}

/// When the next alarm is due.
#[inline]
#[must_use]
pub fn next_alarm() -> u64 {
    NEXT_ALARM.load(Ordering::SeqCst)
}

/// Whether an alarm is due. Then no alarm is set from here on: whoever looks after the guests' clocks sets the next one.
#[must_use]
pub fn take_due_alarm() -> bool {
    let next = next_alarm();
    let is_due = next != u64::MAX && next <= csr::time::read();
    if is_due {
        // First this, then the looks: an alarm that is set meanwhile is either seen by these or noted after this.
        NEXT_ALARM.store(u64::MAX, Ordering::SeqCst);
    }
    is_due
}

/// The control hart has looked at a guest's clock, which has an alarm at `ticks`.
pub fn keep_alarm(ticks: u64) {
    NEXT_ALARM.fetch_min(ticks, Ordering::SeqCst);
}
