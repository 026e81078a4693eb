//! SBI calls.
//
// UNSAFETY: ecall.
#![expect(unsafe_code)]

use core::arch::asm;

/// Error codes of the specification that probes expect.
pub mod error {
    /// `SBI_ERR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: i64 = -2;
    /// `SBI_ERR_INVALID_PARAM`.
    pub const INVALID_PARAM: i64 = -3;
    /// `SBI_ERR_DENIED`.
    pub const DENIED: i64 = -4;
    /// `SBI_ERR_DENIED_LOCKED`.
    pub const DENIED_LOCKED: i64 = -14;
    /// `SBI_ERR_INVALID_ADDRESS`.
    pub const INVALID_ADDRESS: i64 = -5;
    /// `SBI_ERR_ALREADY_AVAILABLE`.
    pub const ALREADY_AVAILABLE: i64 = -6;
    /// `SBI_ERR_ALREADY_STARTED`.
    pub const ALREADY_STARTED: i64 = -7;
}

/// Implementation id that a Mirrorball VM shows.
const MIRRORBALL: (i64, u64) = (0, 0x4d42);

/// (error, value) of any call.
#[inline(always)]
pub fn call(eid: usize, fid: usize, args: [u64; 5]) -> (i64, u64) {
    let (error, value);
    // SAFETY: probes pass addresses of their own memory only; the SBI preserves all other registers.
    unsafe {
        asm!("ecall", inlateout("a0") args[0] => error, inlateout("a1") args[1] => value, in("a2") args[2],
            in("a3") args[3], in("a4") args[4], in("a6") fid, in("a7") eid, options(nostack));
    }
    (error, value)
}

/// BASE get_spec_version: the null call.
#[inline(always)]
pub fn spec_version() -> (i64, u64) {
    call(0x10, 0, [0; 5])
}

/// BASE probe_extension.
pub fn probe_extension(eid: u64) -> (i64, u64) {
    call(0x10, 3, [eid, 0, 0, 0, 0])
}

/// Whether this is a VM of Mirrorball, rather than a machine of its own.
pub fn is_mirrorball() -> bool {
    call(0x10, 1, [0; 5]) == MIRRORBALL
}

/// HSM hart_suspend.
pub fn hart_suspend(kind: u64, resume: u64, opaque: u64) -> i64 {
    call(0x48_534D, 3, [kind, resume, opaque, 0, 0]).0
}

/// HSM hart_start.
pub fn hart_start(hart: u64, start: u64, opaque: u64) -> i64 {
    call(0x48_534D, 0, [hart, start, opaque, 0, 0]).0
}

/// HSM hart_get_status.
pub fn hart_status(hart: u64) -> (i64, u64) {
    call(0x48_534D, 2, [hart, 0, 0, 0, 0])
}

/// HSM hart_stop.
pub fn hart_stop() -> i64 {
    call(0x48_534D, 1, [0; 5]).0
}

/// IPI send_ipi.
pub fn send_ipi(mask: u64, base: u64) -> i64 {
    call(0x73_5049, 0, [mask, base, 0, 0, 0]).0
}

/// RFENCE function `fid` on (mask, base), whole address space.
pub fn remote_fence(fid: usize, mask: u64, base: u64) -> i64 {
    call(0x5246_4E43, fid, [mask, base, 0, u64::MAX, 0]).0
}

/// Powers off.
pub fn shutdown(failure: bool) -> ! {
    call(0x5352_5354, 0, [0, u64::from(failure), 0, 0, 0]);
    loop {
        crate::cpu::wfi();
    }
}
