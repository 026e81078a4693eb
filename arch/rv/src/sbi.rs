//! The SBI calls that the monitor makes to the firmware below it.
//
// UNSAFETY: an SBI call is an `ecall`. Those offered here either only start what the caller described (HSM) or
// touch no memory of ours; memory is passed by machine address and only where documented.
#![expect(unsafe_code)]

use core::arch::asm;
use sbi_spec::{base, fwft, hsm, rfnc, spi, srst, time};

/// Result of an SBI call: error code (0 = success, negative by the SBI specification) and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SbiRet {
    /// 0 or a negative error code.
    pub error: i64,
    /// The value on success.
    pub value: u64,
}

impl SbiRet {
    /// Whether the call succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.error == 0
    }
}

#[inline(always)]
fn call(eid: usize, fid: usize, args: [u64; 5]) -> SbiRet {
    let (error, value);
    // SAFETY: the callers below pass only what their SBI function documents; the SEE preserves all other registers.
    unsafe {
        asm!(
            "ecall",
            inlateout("a0") args[0] => error,
            inlateout("a1") args[1] => value,
            in("a2") args[2],
            in("a3") args[3],
            in("a4") args[4],
            in("a6") fid,
            in("a7") eid,
            options(nostack),
        );
    }
    SbiRet { error, value }
}

/// Version of the SBI specification that the firmware implements (major << 24 | minor).
#[must_use]
pub fn spec_version() -> u64 {
    call(base::EID_BASE, base::GET_SBI_SPEC_VERSION, [0; 5]).value
}

/// (implementation id, implementation version).
#[must_use]
pub fn implementation() -> (u64, u64) {
    (
        call(base::EID_BASE, base::GET_SBI_IMPL_ID, [0; 5]).value,
        call(base::EID_BASE, base::GET_SBI_IMPL_VERSION, [0; 5]).value,
    )
}

/// (`mvendorid`, `marchid`, `mimpid`).
#[must_use]
pub fn machine_ids() -> (u64, u64, u64) {
    (
        call(base::EID_BASE, base::GET_MVENDORID, [0; 5]).value,
        call(base::EID_BASE, base::GET_MARCHID, [0; 5]).value,
        call(base::EID_BASE, base::GET_MIMPID, [0; 5]).value,
    )
}

/// Whether the firmware has extension `eid`. Asks it with each call.
#[must_use]
pub fn probe(eid: usize) -> bool {
    call(base::EID_BASE, base::PROBE_EXTENSION, [eid as u64, 0, 0, 0, 0]).value != 0
}

/// Starts hart `hart_id` at machine address `start` with `opaque` in `a1`.
///
/// # Safety
/// `start` must be code written for that entry state (translation off, interrupts off), and `opaque` what it expects.
pub unsafe fn hart_start(hart_id: u64, start: u64, opaque: u64) -> SbiRet {
    call(hsm::EID_HSM, hsm::HART_START, [hart_id, start, opaque, 0, 0])
}

/// Turns double traps of the executing hart's S-mode and of its guests on (Ssdbltrp). From then on a trap while `sstatus.SDT` is
/// set ends in the firmware.
pub fn enable_double_traps() -> SbiRet {
    call(fwft::EID_FWFT, fwft::SET, [fwft::feature_type::DOUBLE_TRAP as u64, 1, 0, 0, 0])
}

/// Stops the calling hart; somebody may start it again. Returns only on refusal.
pub fn hart_stop() -> SbiRet {
    call(hsm::EID_HSM, hsm::HART_STOP, [0; 5])
}

/// Sends a supervisor software interrupt to one hart.
pub fn send_ipi(hart_id: u64) -> SbiRet {
    call(spi::EID_SPI, spi::SEND_IPI, [1, hart_id, 0, 0, 0])
}

/// Programs the next timer interrupt where Sstc is absent.
pub fn set_timer(deadline_ticks: u64) -> SbiRet {
    call(time::EID_TIME, time::SET_TIMER, [deadline_ticks, 0, 0, 0, 0])
}

/// `fence.i` on other harts of one cell: `mask` relative to hart id `base`.
pub fn remote_fence_i(mask: u64, base: u64) -> SbiRet {
    call(rfnc::EID_RFNC, rfnc::REMOTE_FENCE_I, [mask, base, 0, 0, 0])
}

/// Powers the machine off (`failure` tells the firmware that something went wrong). Returns only on refusal.
pub fn shutdown(failure: bool) -> SbiRet {
    call(srst::EID_SRST, srst::SYSTEM_RESET, [u64::from(srst::RESET_TYPE_SHUTDOWN), u64::from(failure), 0, 0, 0])
}

/// One raw call, for extensions that are forwarded (PMU).
pub fn raw(eid: u64, fid: u64, args: [u64; 5]) -> SbiRet {
    call(eid as usize, fid as usize, args)
}

/// Writes up to `len` bytes of memory at machine address `addr` to the firmware's debug console (DBCN), in one go; the value
/// is how many it took.
pub fn console_write(addr: u64, len: u64) -> SbiRet {
    call(sbi_spec::dbcn::EID_DBCN, sbi_spec::dbcn::CONSOLE_WRITE, [len, addr, 0, 0, 0])
}

/// Writes one byte to the firmware's debug console (DBCN; the legacy console where DBCN is absent).
pub fn console_byte(byte: u8) {
    const LEGACY_PUTCHAR: usize = 1;
    let ret = call(sbi_spec::dbcn::EID_DBCN, sbi_spec::dbcn::CONSOLE_WRITE_BYTE, [u64::from(byte), 0, 0, 0, 0]);
    if !ret.is_ok() {
        call(LEGACY_PUTCHAR, 0, [u64::from(byte), 0, 0, 0, 0]);
    }
}
