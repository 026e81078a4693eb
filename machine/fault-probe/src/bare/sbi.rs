//! Calls to the firmware.
//
// UNSAFETY: an SBI call is an `ecall`. Those made here touch no memory, or read a line of text.
#![expect(unsafe_code)]

use core::arch::asm;

use sbi_spec::{base, dbcn, hsm, rfnc, spi, srst};

/// Error and value.
pub type Answer = (i64, u64);

fn call(extension: u64, function: u64, arguments: [u64; 5]) -> Answer {
    let (error, value);
    // SAFETY: the firmware keeps all other registers; what the calls do is described where they are made.
    unsafe {
        asm!(
            "ecall",
            inlateout("a0") arguments[0] => error,
            inlateout("a1") arguments[1] => value,
            in("a2") arguments[2],
            in("a3") arguments[3],
            in("a4") arguments[4],
            in("a6") function,
            in("a7") extension,
            options(nostack),
        );
    }
    (error, value)
}

/// Whether the firmware has the calls that inject faults.
pub fn has_faults() -> bool {
    call(base::EID_BASE as u64, base::PROBE_EXTENSION as u64, [faults::sbi::EID, 0, 0, 0, 0]).1 != 0
}

/// Where the status page is.
pub fn status_address() -> u64 {
    call(faults::sbi::EID, faults::sbi::STATUS_ADDRESS, [0; 5]).1
}

/// The write firewall around a cell of nodes; open if it is empty.
pub fn firewall(cell: u64) -> Answer {
    call(faults::sbi::EID, faults::sbi::WRITE_FIREWALL, [cell, 0, 0, 0, 0])
}

/// Asks for a fault that cannot be.
pub fn inject(kind: u64, nodes: u64, address: u64) -> Answer {
    call(faults::sbi::EID, faults::sbi::INJECT, [kind, nodes, address, 0, 0])
}

/// Starts a hart.
pub fn start(hart: usize, address: u64, opaque: u64) -> Answer {
    call(hsm::EID_HSM as u64, hsm::HART_START as u64, [hart as u64, address, opaque, 0, 0])
}

/// A supervisor software interrupt for these harts.
pub fn interrupt(harts: u64) -> Answer {
    call(spi::EID_SPI as u64, spi::SEND_IPI as u64, [harts, 0, 0, 0, 0])
}

/// A fence for all addresses on these harts.
pub fn fence(harts: u64) -> Answer {
    call(rfnc::EID_RFNC as u64, rfnc::REMOTE_SFENCE_VMA as u64, [harts, 0, 0, u64::MAX, 0])
}

/// A guest fence for all addresses on these harts.
pub fn guest_fence(harts: u64) -> Answer {
    call(rfnc::EID_RFNC as u64, rfnc::REMOTE_HFENCE_GVMA as u64, [harts, 0, 0, u64::MAX, 0])
}

/// Prints text at this machine address, in one go.
pub fn print(address: u64, bytes: usize) {
    call(dbcn::EID_DBCN as u64, dbcn::CONSOLE_WRITE as u64, [bytes as u64, address, 0, 0, 0]);
}

/// Ends the machine.
pub fn shutdown() -> ! {
    loop {
        call(srst::EID_SRST as u64, srst::SYSTEM_RESET as u64, [0, 1, 0, 0, 0]);
    }
}
