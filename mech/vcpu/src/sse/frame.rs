//! What the delivery of an event changes in a hart, and how that is undone.

use addr::VcpuIndex;
use rv::fields::sstatus;

/// What a delivery overwrites, as the event's attributes show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// `sepc`.
    pub sepc: u64,
    /// Bits of `sstatus`, in [`Interrupted::FLAGS`].
    pub flags: u64,
    /// Register `a6`.
    pub a6: u64,
    /// Register `a7`.
    pub a7: u64,
}

/// In the flags: `sstatus.SPP`.
const SPP: u64 = 1 << 0;
/// In the flags: `sstatus.SPIE`.
const SPIE: u64 = 1 << 1;
/// In the flags: `sstatus.SDT`.
const SDT: u64 = 1 << 5;

impl Interrupted {
    /// Before any delivery.
    pub const NONE: Self = Self { sepc: 0, flags: 0, a6: 0, a7: 0 };
    /// All flags that have a meaning: SPP, SPIE, two of `hstatus`, SPELP, SDT. Guests have neither the H extension nor landing
    /// pads; those three are kept, and mean nothing.
    pub const FLAGS: u64 = 0x3f;
}

/// The registers of a guest's hart that a delivery changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supervisor {
    /// Where it goes on.
    pub pc: u64,
    /// Whether it executes in S-mode, not in U-mode.
    pub is_supervisor: bool,
    /// Register `a6`.
    pub a6: u64,
    /// Register `a7`.
    pub a7: u64,
    /// `sepc` (of a guest: `vsepc`).
    pub sepc: u64,
    /// `sstatus` (of a guest: `vsstatus`).
    pub sstatus: u64,
}

/// `value` with the bits of `mask` set or cleared.
const fn with(value: u64, mask: u64, is_set: bool) -> u64 {
    if is_set { value | mask } else { value & !mask }
}

impl Supervisor {
    /// The handler at `entry` begins, in S-mode, with interrupts off and double traps on. Returns what must be put back.
    pub(super) const fn enter(&mut self, entry: u64, hart: VcpuIndex, argument: u64) -> Interrupted {
        let old = self.sstatus;
        let spp = if old & sstatus::SPP != 0 { SPP } else { 0 };
        let spie = if old & sstatus::SPIE != 0 { SPIE } else { 0 };
        let sdt = if old & sstatus::SDT != 0 { SDT } else { 0 };
        let interrupted = Interrupted { sepc: self.sepc, flags: spp | spie | sdt, a6: self.a6, a7: self.a7 };
        let status = with(old, sstatus::SPP, self.is_supervisor);
        let status = with(status, sstatus::SPIE, old & sstatus::SIE != 0);
        self.sstatus = status & !sstatus::SIE | sstatus::SDT;
        self.sepc = self.pc;
        self.pc = entry;
        self.is_supervisor = true;
        self.a6 = hart.0 as u64;
        self.a7 = argument;
        interrupted
    }

    /// The handler has done its work.
    pub(super) const fn leave(&mut self, interrupted: &Interrupted) {
        let old = self.sstatus;
        self.pc = self.sepc;
        self.is_supervisor = old & sstatus::SPP != 0;
        let status = with(old, sstatus::SIE, old & sstatus::SPIE != 0);
        let status = with(status, sstatus::SPIE, interrupted.flags & SPIE != 0);
        let status = with(status, sstatus::SPP, interrupted.flags & SPP != 0);
        self.sstatus = with(status, sstatus::SDT, interrupted.flags & SDT != 0);
        self.sepc = interrupted.sepc;
        self.a6 = interrupted.a6;
        self.a7 = interrupted.a7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_leaves_no_trace() {
        let settings = [sstatus::SPP, sstatus::SPIE, sstatus::SIE, sstatus::SDT];
        for bits in 0..32_u32 {
            let chosen = settings.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0);
            let before = Supervisor {
                pc: 0x8020_0000,
                is_supervisor: bits & 16 != 0,
                a6: 6,
                a7: 7,
                sepc: 0x1234,
                sstatus: chosen.fold(sstatus::UXL_64, |status, (_, bit)| status | bit),
            };
            let mut hart = before;
            let interrupted = hart.enter(0xffff_ffff_8000_0000, VcpuIndex(3), 0x77);
            assert_eq!((hart.pc, hart.a6, hart.a7, hart.is_supervisor), (0xffff_ffff_8000_0000, 3, 0x77, true));
            assert_eq!(hart.sepc, before.pc);
            assert_eq!(hart.sstatus & (sstatus::SIE | sstatus::SDT), sstatus::SDT);
            hart.leave(&interrupted);
            assert_eq!(hart, before);
        }
    }

    #[test]
    fn the_handler_may_send_the_hart_elsewhere() {
        let mut hart = Supervisor { pc: 0x1000, is_supervisor: true, ..Supervisor::default() };
        let mut interrupted = hart.enter(0x2000, VcpuIndex(0), 0);
        interrupted.sepc = 0x42;
        interrupted.a6 = 9;
        hart.sepc += 4;
        hart.leave(&interrupted);
        assert_eq!((hart.pc, hart.sepc, hart.a6), (0x1004, 0x42, 9));
    }
}
