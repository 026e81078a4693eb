//! For tests of this crate and of who drives it: a guest to decode calls for, and what has to hold of each request.

use crate::{
    sbi::{Guest, Request},
    sse::{self, ATTRIBUTES},
};
use addr::{GuestPhysAddr, VcpuIndex};

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

/// Extensions that are known, and one that is not.
pub const EXTENSIONS: [u64; 13] = [
    0x10,
    0x5449_4D45,
    0x73_5049,
    0x5246_4E43,
    0x48_534D,
    0x5352_5354,
    0x4442_434E,
    0x50_4D55,
    0x53_5441,
    0x5355_5350,
    0x4657_4654,
    0x53_5345,
    0,
];

fn is_entry(guest: &Known, pc: u64) -> bool {
    pc & 1 == 0 && guest.is_ram(GuestPhysAddr::new(pc), 4)
}

/// Whether a request names only vCPUs and memory that the guest has.
#[must_use]
pub fn is_sound(guest: &Known, request: &Request) -> bool {
    let exists = |hart: VcpuIndex| hart.0 < guest.vcpus;
    match *request {
        Request::SendIpi(mut harts) | Request::Fence(_, mut harts) => {
            harts.by_ref().take(100).all(exists) && harts.next().is_none()
        }
        Request::StartHart(hart, entry) => exists(hart) && is_entry(guest, entry.pc),
        Request::HartStatus(hart) => exists(hart),
        Request::SuspendHart(entry) => entry.is_none_or(|entry| is_entry(guest, entry.pc)),
        Request::SuspendSystem(entry) => is_entry(guest, entry.pc),
        Request::ConsoleWrite(at, bytes) => bytes <= 256 && guest.is_ram(at, bytes as u64),
        Request::StealRecord(at) => at.is_none_or(|at| guest.is_ram(at, 64)),
        Request::Event(sse::Call::Read(range) | sse::Call::Write(range)) => {
            range.count > 0
                && range.first + range.count <= ATTRIBUTES.len()
                && guest.is_ram(range.at, 8 * range.count as u64)
        }
        Request::Event(sse::Call::Inject(id, hart)) => id.is_injectable() && exists(hart),
        Request::Event(sse::Call::Register { entry, .. }) => entry & 1 == 0,
        _ => true,
    }
}
