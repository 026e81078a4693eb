//! A guest to decode calls for.

use addr::GuestPhysAddr;
use vcpu::sbi::{Call, Error, Guest, Request, decode};

/// First byte of RAM.
pub const RAM: u64 = 0x8000_0000;
/// Bytes of RAM.
pub const BYTES: u64 = 64 << 20;

/// A guest.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// vCPUs.
    pub vcpus: u16,
    /// Double traps come to the monitor.
    pub has_double_trap: bool,
}

impl Guest for Known {
    fn vcpus(&self) -> u16 {
        self.vcpus
    }

    fn is_ram(&self, at: GuestPhysAddr, bytes: u64) -> bool {
        let offset = at.raw().wrapping_sub(RAM);
        offset < BYTES && bytes <= BYTES - offset
    }

    fn has_double_trap(&self) -> bool {
        self.has_double_trap
    }
}

/// A call of a guest with four vCPUs.
#[allow(dead_code, reason = "each test program has this module, not each asks")]
pub fn ask(extension: usize, function: u64, arguments: [u64; 5]) -> Result<Request, Error> {
    let call = Call { extension: extension as u64, function, arguments };
    decode(&call, &Known { vcpus: 4, has_double_trap: false })
}
