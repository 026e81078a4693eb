//! Registers of the goldfish real-time clock (Android emulator, GOLDFISH-VIRTUAL-HARDWARE).

/// Low half of the time in ns since 1970; reading it freezes the high half.
pub(super) const TIME_LOW: u64 = 0x00;
/// High half of the time.
pub(super) const TIME_HIGH: u64 = 0x04;
/// Low half of the alarm; writing it arms the alarm.
pub(super) const ALARM_LOW: u64 = 0x08;
/// High half of the alarm, written first.
pub(super) const ALARM_HIGH: u64 = 0x0c;
/// Bit 0 enables the interrupt.
pub(super) const IRQ_ENABLED: u64 = 0x10;
/// Writing disarms the alarm.
pub(super) const CLEAR_ALARM: u64 = 0x14;
/// 1 while the alarm is armed.
pub(super) const ALARM_STATUS: u64 = 0x18;
/// Writing clears the interrupt.
pub(super) const CLEAR_INTERRUPT: u64 = 0x1c;
