//! SRST: the end of the machine.

use rustsbi::SbiRet;

use crate::bare::{csr, harts::hardware, memory};

const SHUTDOWN: u32 = 0;
const COLD_REBOOT: u32 = 1;
const WARM_REBOOT: u32 = 2;
const SYSTEM_FAILURE: u32 = 1;

/// What the finisher takes.
const PASS: u32 = 0x5555;
const FAIL: u32 = 0x1_3333;
const RESET: u32 = 0x7777;

/// The extension.
pub struct Reset;

impl rustsbi::Reset for Reset {
    fn system_reset(&self, kind: u32, reason: u32) -> SbiRet {
        let value = match (kind, reason) {
            (_, 2..0xe000_0000) => return SbiRet::invalid_param(),
            (SHUTDOWN, SYSTEM_FAILURE) => FAIL,
            (SHUTDOWN, _) => PASS,
            (COLD_REBOOT | WARM_REBOOT, _) => RESET,
            (0xf000_0000.., _) => return SbiRet::not_supported(),
            _ => return SbiRet::invalid_param(),
        };
        let Some(finisher) = hardware().finisher else { return SbiRet::not_supported() };
        memory::write_register32(finisher, value);
        loop {
            csr::wait_for_interrupt();
        }
    }
}
