//! Fields of the CSRs that the monitor writes, by the manual's names.

use crate::cause;

/// Fields of `sstatus` (and of `vsstatus`, which has the same layout).
pub mod sstatus {
    /// Interrupts enabled in S-mode.
    pub const SIE: u64 = 1 << 1;
    /// `SIE` before the trap.
    pub const SPIE: u64 = 1 << 5;
    /// Previous privilege was S (or VS when `hstatus.SPV`).
    pub const SPP: u64 = 1 << 8;
    /// Vector unit state.
    pub const VS: u64 = 3 << 9;
    /// Vector unit: Initial (1), Clean (2), Dirty (3), in the position of [`VS`].
    pub const VS_CLEAN: u64 = 2 << 9;
    /// Floating-point unit state.
    pub const FS: u64 = 3 << 13;
    /// Floating-point unit: Clean.
    pub const FS_CLEAN: u64 = 2 << 13;
    /// Permit supervisor access to user memory.
    pub const SUM: u64 = 1 << 18;
    /// Make executable readable.
    pub const MXR: u64 = 1 << 19;
    /// S-mode-disable-trap (Ssdbltrp): another trap now is a double trap.
    pub const SDT: u64 = 1 << 24;
    /// U-mode XLEN is 64.
    pub const UXL_64: u64 = 2 << 32;
    /// Some state is dirty.
    pub const SD: u64 = 1 << 63;
}

/// Fields of `hstatus`.
pub mod hstatus {
    /// A guest virtual address was written to `stval`.
    pub const GVA: u64 = 1 << 6;
    /// Previous virtualization mode: trap came from V=1; `sret` goes there.
    pub const SPV: u64 = 1 << 7;
    /// Previous privilege for HLV/HSV: 1 = VS.
    pub const SPVP: u64 = 1 << 8;
    /// Shift of the guest external interrupt file number.
    pub const VGEIN_SHIFT: u32 = 12;
    /// Guest external interrupt file number.
    pub const VGEIN: u64 = 0x3f << VGEIN_SHIFT;
    /// Trap virtual-memory management by VS.
    pub const VTVM: u64 = 1 << 20;
    /// Trap WFI in VS.
    pub const VTW: u64 = 1 << 21;
    /// Trap SRET in VS.
    pub const VTSR: u64 = 1 << 22;
    /// VS-mode XLEN is 64.
    pub const VSXL_64: u64 = 2 << 32;

    /// `status` with guest interrupt file `file` selected, 0 for none.
    #[inline(always)]
    #[must_use]
    pub const fn with_file(status: u64, file: u8) -> u64 {
        status & !VGEIN | (file as u64) << VGEIN_SHIFT
    }
}

/// Bits of `hgeip` and `hgeie`: one for each guest interrupt file of the hart.
pub mod hgei {
    /// The bit of `file`, at most 63; none for file 0, which is "none".
    #[inline(always)]
    #[must_use]
    pub const fn of_file(file: u8) -> u64 {
        1 << file & !1
    }
}

/// What guest-page faults leave in `htval`.
pub mod htval {
    /// The guest-physical address of the fault: `htval` holds it without its two lowest bits, which are those of the virtual address in
    /// `stval`.
    #[inline(always)]
    #[must_use]
    pub const fn guest_physical(htval: u64, stval: u64) -> u64 {
        htval << 2 | stval & 3
    }
}

/// Fields of `hvictl`.
pub mod hvictl {
    /// What `vstopi` shows for an interrupt file in software: an external interrupt (IID 9), which wants to interrupt or not. With
    /// VGEIN = 0 it is shown only while IPRIO (bits 0 to 7) is not 0.
    #[inline(always)]
    #[must_use]
    pub const fn software_file(is_asserted: bool) -> u64 {
        9 << 16 | is_asserted as u64
    }
}

/// Fields of `henvcfg`.
pub mod henvcfg {
    /// Fence of I/O implies memory.
    pub const FIOM: u64 = 1 << 0;
    /// CBO.INVAL performs a flush or invalidate (2 bits, 1 = flush, 3 = invalidate).
    pub const CBIE: u64 = 3 << 4;
    /// CBO.INVAL flushes: a guest cannot make stores of the monitor undone.
    pub const CBIE_FLUSH: u64 = 1 << 4;
    /// CBO.CLEAN and CBO.FLUSH enabled.
    pub const CBCFE: u64 = 1 << 6;
    /// CBO.ZERO enabled.
    pub const CBZE: u64 = 1 << 7;
    /// Pointer masking in VS-mode (Ssnpm, field PMM): 7 bits are left out.
    pub const PMM_7: u64 = 2 << 32;
    /// Pointer masking in VS-mode: 16 bits are left out.
    pub const PMM_16: u64 = 3 << 32;
    /// Double traps of VS-mode (Ssdbltrp).
    pub const DTE: u64 = 1 << 59;
    /// Hardware updates of A/D bits in the VS-stage. Always 0 here: with it QEMU's walker writes through
    /// read-only G-stage pages, and sharing would leak.
    pub const ADUE: u64 = 1 << 61;
    /// Svpbmt in the VS-stage.
    pub const PBMTE: u64 = 1 << 62;
    /// `stimecmp` (that is `vstimecmp`) available to the guest.
    pub const STCE: u64 = 1 << 63;
}

/// Fields of `hstateen0` (Smstateen): which state beyond the usual VS-mode may reach. What the world switch does not move must stay
/// out of reach, or it is a channel from guest to guest.
pub mod hstateen0 {
    /// Custom state.
    pub const C: u64 = 1 << 0;
    /// `jvt`, the base of jump tables (Zcmt).
    pub const JVT: u64 = 1 << 2;
    /// Control transfer records (Ssctr).
    pub const CTR: u64 = 1 << 54;
    /// `scontext` (Sdtrig).
    pub const CONTEXT: u64 = 1 << 57;
    /// `stopei`, and the interrupt file behind `siselect`.
    pub const IMSIC: u64 = 1 << 58;
    /// The rest of the AIA: `stopi`.
    pub const AIA: u64 = 1 << 59;
    /// `siselect` and `sireg`.
    pub const CSRIND: u64 = 1 << 60;
    /// `senvcfg`.
    pub const ENVCFG: u64 = 1 << 62;
    /// `sstateen0`.
    pub const SE0: u64 = 1 << 63;

    /// What guests may reach: exactly what `VsState` moves. `has_aia` says that this includes registers of the AIA.
    #[must_use]
    pub const fn for_guests(has_aia: bool) -> u64 {
        if has_aia { SE0 | ENVCFG | CSRIND | AIA | IMSIC } else { SE0 | ENVCFG }
    }
}

/// Bits of `hvip`, `hip`, `vsip` aliases and `hideleg`.
pub mod interrupt {
    /// VS software interrupt.
    pub const VSSI: u64 = 1 << 2;
    /// VS timer interrupt.
    pub const VSTI: u64 = 1 << 6;
    /// VS external interrupt.
    pub const VSEI: u64 = 1 << 10;
    /// Supervisor guest external interrupt.
    pub const SGEI: u64 = 1 << 12;
    /// Supervisor software interrupt.
    pub const SSI: u64 = 1 << 1;
    /// Supervisor timer interrupt.
    pub const STI: u64 = 1 << 5;
    /// Supervisor external interrupt.
    pub const SEI: u64 = 1 << 9;

    /// What `vsie` enables, in the positions of `hvip`: one to the left.
    #[inline(always)]
    #[must_use]
    pub const fn enabled_by(vsie: u64) -> u64 {
        (vsie & (SSI | STI | SEI)) << 1
    }
}

/// Misaligned accesses in `hedeleg`.
pub mod misaligned {
    use crate::cause;

    /// Misaligned loads, and stores and AMOs.
    pub const DELEGATED: u64 = 1 << cause::LOAD_MISALIGNED | 1 << cause::STORE_MISALIGNED;
}

/// What is delegated to a guest: every exception that its own kernel handles. Access faults (1, 5, 7) are
/// never delegated: they mean that machine memory is gone, which is the monitor's business. Illegal
/// instructions (2) are not either, because they switch FP and vector state lazily.
pub const HEDELEG: u64 = 1 << cause::INSTRUCTION_MISALIGNED
    | 1 << cause::BREAKPOINT
    | misaligned::DELEGATED
    | 1 << cause::ECALL_FROM_U
    | 1 << cause::INSTRUCTION_PAGE_FAULT
    | 1 << cause::LOAD_PAGE_FAULT
    | 1 << cause::STORE_PAGE_FAULT;

/// All three VS-level interrupts are delegated.
pub const HIDELEG: u64 = interrupt::VSSI | interrupt::VSTI | interrupt::VSEI;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_file_has_its_bit_and_no_file_has_none() {
        assert_eq!([0, 1, 7, 63].map(hgei::of_file), [0, 2, 1 << 7, 1 << 63]);
    }

    #[test]
    fn a_fault_has_its_lowest_bits_in_stval() {
        assert_eq!(htval::guest_physical(0x1000_1007 >> 2, 0xffff_ffff_0000_1007), 0x1000_1007);
    }

    #[test]
    fn guests_reach_no_state_that_is_not_switched() {
        use hstateen0::{AIA, C, CONTEXT, CSRIND, CTR, ENVCFG, IMSIC, JVT, SE0, for_guests};
        assert_eq!(for_guests(false), SE0 | ENVCFG);
        assert_eq!(for_guests(true) & !for_guests(false), AIA | IMSIC | CSRIND);
        for has_aia in [false, true] {
            assert_eq!(for_guests(has_aia) & (C | JVT | CTR | CONTEXT), 0);
        }
    }
}
