//! Firmware features (FWFT): double traps of the supervisor, where the hart can tell them.
//!
//! They are off at reset: a supervisor that does not know of them would take each trap within a trap for one.

use rustsbi::SbiRet;

use super::super::csr::{self, MENVCFG};

/// The extension, "FWFT".
pub const EID: u64 = 0x4657_4654;

const SET: u64 = 0;
const GET: u64 = 1;
/// The last feature that the specification defines.
const LAST: u32 = 5;
const DOUBLE_TRAP: u32 = 3;
/// `menvcfg`: double traps of S-mode.
const DTE: u64 = 1 << 59;

/// Answers a call.
pub fn call(function: u64, [feature, value, flags]: [u64; 3]) -> SbiRet {
    match (function, feature as u32) {
        (SET | GET, feature) if feature > LAST => SbiRet::denied(),
        (SET, DOUBLE_TRAP) => set_double_trap(value, flags),
        (GET, DOUBLE_TRAP) => SbiRet::success(usize::from(csr::read::<MENVCFG>() & DTE != 0)),
        _ => SbiRet::not_supported(),
    }
}

fn set_double_trap(value: u64, flags: u64) -> SbiRet {
    if value > 1 || flags != 0 {
        return SbiRet::invalid_param();
    }
    if value == 0 {
        csr::clear::<MENVCFG>(DTE);
        return SbiRet::success(0);
    }
    csr::set::<MENVCFG>(DTE);
    // A hart without Ssdbltrp keeps 0 there.
    if csr::read::<MENVCFG>() & DTE == 0 { SbiRet::not_supported() } else { SbiRet::success(0) }
}
