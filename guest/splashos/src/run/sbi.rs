//! SBI calls.
//
// UNSAFETY: ecall.
#![expect(unsafe_code)]

use core::arch::asm;

/// (error, value) of a call.
fn call(eid: usize, fid: usize, [a, b, c]: [u64; 3]) -> (i64, u64) {
    let (error, value);
    // SAFETY: callers pass numbers, or memory of their own; the SBI preserves all other registers.
    unsafe {
        asm!("ecall", inlateout("a0") a => error, inlateout("a1") b => value, in("a2") c, in("a6") fid, in("a7") eid,
            options(nostack));
    }
    (error, value)
}

/// Whether this is a VM of Mirrorball, rather than a machine of its own.
pub fn is_mirrorball() -> bool {
    call(0x10, 1, [0; 3]) == (0, 0x4d42)
}

/// Starts a hart; its argument arrives in `a1`.
pub fn hart_start(hart: u64, address: u64, argument: u64) -> bool {
    call(0x48_534D, 0, [hart, address, argument]).0 == 0
}

/// Sends a software interrupt to a hart.
pub fn send_ipi(hart: u64) {
    call(0x73_5049, 0, [1, hart, 0]);
}

/// Writes bytes that lie at a physical address to the debug console; how many it took.
pub fn console_write(bytes: &[u8]) -> Option<usize> {
    let (error, count) = call(0x4442_434e, 0, [bytes.len() as u64, bytes.as_ptr() as u64, 0]);
    (error == 0).then_some((count as usize).min(bytes.len()))
}

/// Powers off.
pub fn shutdown(failure: bool) -> ! {
    call(0x5352_5354, 0, [0, u64::from(failure), 0]);
    loop {
        super::cpu::wait_for_interrupt();
    }
}
