//! Trapped instructions, as far as it takes no hart to tell what they ask for.

use rv::{
    decode::{self, CsrAccess},
    fields::sstatus,
};

/// What an instruction that traps as a virtual instruction asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trapped {
    /// WFI: the hart waits for an interrupt.
    Wait,
    /// WRS.NTO: it waits for a store of another hart, most likely for a lock.
    WaitForStore,
    /// An access to a control and status register.
    Csr(CsrAccess),
    /// Something that a guest's hart does not have.
    Illegal,
}

/// What the instruction `raw` asks for.
#[inline(always)]
#[must_use]
pub const fn virtual_instruction(raw: u64) -> Trapped {
    match raw {
        decode::WFI => Trapped::Wait,
        decode::WRS_NTO => Trapped::WaitForStore,
        _ => match CsrAccess::decode(raw) {
            Some(access) => Trapped::Csr(access),
            None => Trapped::Illegal,
        },
    }
}

/// Whether there is a `pause` in code, which loops that wait have: `code` is its halfwords.
#[must_use]
pub fn has_pause(code: &[u16]) -> bool {
    const PAUSE: [u16; 2] = [0x000f, 0x0100];
    code.windows(PAUSE.len()).any(|instruction| instruction == PAUSE)
}

/// The first of the 32 counters that a guest reads (`cycle`), and how many there are.
const FIRST_COUNTER: u16 = 0xc00;
const COUNTERS: u16 = 32;
const STOPEI: u16 = 0x15c;
const SIREG: u16 = 0x151;

/// The mode that an instruction of a guest was executed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// VU-mode.
    User = 0,
    /// VS-mode.
    Supervisor = 1,
}

impl Privilege {
    /// The mode that a trap came from, by the `sstatus` that it left (`SPP`).
    #[inline]
    #[must_use]
    pub const fn before_trap(status: u64) -> Self {
        if status & sstatus::SPP == 0 { Self::User } else { Self::Supervisor }
    }

    /// Whether it may access a register of this number: bits 9 and 8 are the lowest privilege that may.
    const fn may_access(self, csr: u16) -> bool {
        csr >> 8 & 3 <= self as u16
    }
}

/// An access to a register that the monitor may emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrRequest {
    /// A read of this counter, 0 to 31 (`cycle`, `time`, `instret`, then `hpmcounter`s).
    Counter(u8),
    /// A read of `stopei`: the most urgent message of the interrupt file.
    TopMessage,
    /// A write of `stopei`, of any value: the most urgent message is taken.
    ClaimMessage,
    /// An access to the register of the interrupt file that `siselect` names.
    FileRegister,
}

impl CsrRequest {
    /// What `access` asks for; `None` if it is for no register that is emulated, or is a write of one that cannot be written, or comes
    /// from a mode that the register is not for.
    #[inline]
    #[must_use]
    pub const fn decode(access: CsrAccess, privilege: Privilege) -> Option<Self> {
        if !privilege.may_access(access.csr) {
            return None;
        }
        match (access.csr, access.is_write()) {
            (STOPEI, true) => Some(Self::ClaimMessage),
            (STOPEI, false) => Some(Self::TopMessage),
            (SIREG, _) => Some(Self::FileRegister),
            (csr, false) if csr.wrapping_sub(FIRST_COUNTER) < COUNTERS => {
                Some(Self::Counter((csr - FIRST_COUNTER) as u8))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csr(raw: u64) -> Option<CsrRequest> {
        csr_from(raw, Privilege::Supervisor)
    }

    fn csr_from(raw: u64, privilege: Privilege) -> Option<CsrRequest> {
        match virtual_instruction(raw) {
            Trapped::Csr(access) => CsrRequest::decode(access, privilege),
            other => panic!("{raw:#x} is {other:?}"),
        }
    }

    #[test]
    fn waits() {
        assert_eq!(virtual_instruction(0x1050_0073), Trapped::Wait);
        assert_eq!(virtual_instruction(0x00d0_0073), Trapped::WaitForStore);
        // sret, sfence.vma, zero
        for raw in [0x1020_0073, 0x1200_0073, 0] {
            assert_eq!(virtual_instruction(raw), Trapped::Illegal);
        }
    }

    #[test]
    fn loops_that_wait() {
        // 1: lw a0, 0(a1); pause; bnez a0, 1b
        assert!(has_pause(&[0xa503, 0x0005, 0x000f, 0x0100, 0x9de3, 0xfe05]));
        // fence rw, rw; and halves of two instructions
        assert!(!has_pause(&[0x000f, 0x0330]) && !has_pause(&[0x0100, 0x000f]) && !has_pause(&[0x000f]));
    }

    #[test]
    fn registers() {
        assert_eq!(csr(0x15c0_1573), Some(CsrRequest::ClaimMessage), "csrrw a0, stopei, zero");
        assert_eq!(csr(0x15c0_2573), Some(CsrRequest::TopMessage), "csrr a0, stopei");
        assert_eq!(csr(0x1515_1073), Some(CsrRequest::FileRegister), "csrw sireg, a0");
        assert_eq!(csr(0xc000_2573), Some(CsrRequest::Counter(0)), "rdcycle a0");
        assert_eq!(csr(0xc1f0_2573), Some(CsrRequest::Counter(31)), "csrr a0, hpmcounter31");
        assert_eq!(csr(0xc005_1073), None, "csrw cycle, a0");
        assert_eq!(csr(0xc200_2573), None, "csrr a0, vl");
    }

    #[test]
    fn user_mode_has_counters_and_nothing_else() {
        assert_eq!(csr_from(0xc000_2573, Privilege::User), Some(CsrRequest::Counter(0)), "rdcycle a0");
        assert_eq!(csr_from(0x15c0_1573, Privilege::User), None, "csrrw a0, stopei, zero");
        assert_eq!(csr_from(0x15c0_2573, Privilege::User), None, "csrr a0, stopei");
        assert_eq!(csr_from(0x1515_1073, Privilege::User), None, "csrw sireg, a0");
    }

    #[test]
    fn no_register_is_emulated_for_a_mode_that_it_is_not_for() {
        for number in 0..1 << 12 {
            let lowest = number >> 8 & 3;
            for funct3 in [1, 2, 3, 5, 6, 7] {
                let raw = number << 20 | 1 << 15 | funct3 << 12 | 10 << 7 | 0x73;
                for privilege in [Privilege::User, Privilege::Supervisor] {
                    assert!(csr_from(raw, privilege).is_none() || lowest <= privilege as u64, "{raw:#x}");
                }
            }
        }
    }

    #[test]
    fn the_mode_before_the_trap() {
        assert_eq!(Privilege::before_trap(!sstatus::SPP), Privilege::User);
        assert_eq!(Privilege::before_trap(sstatus::SPP), Privilege::Supervisor);
    }
}
