//! The SiFive test finisher: one register, commands in its low half, a code in its high half.

/// The only register.
pub(super) const FINISH: u64 = 0;
/// Fail with the code in the high half.
pub(super) const FAIL: u16 = 0x3333;
/// Power off.
pub(super) const PASS: u16 = 0x5555;
/// Reset.
pub(super) const RESET: u16 = 0x7777;
