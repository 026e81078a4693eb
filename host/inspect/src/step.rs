//! Where a vCPU goes from an instruction. A VM has no hardware for single steps: to make one, the debugger puts `ebreak`s where the
//! vCPU can come next.

use control::VcpuRegisters;

/// `sie` and its high half by number, which an instruction may name.
const SIE: u32 = 0x104;
const WFI: u32 = 0x1050_0073;
const SRET: u32 = 0x1020_0073;
const ECALL: u32 = 0x73;
const EBREAK: u32 = 0x10_0073;
const C_EBREAK: u32 = 0x9002;

/// Instructions between a load-reserved and its store-conditional at most (the ISA promises progress for 16).
const SEQUENCE: usize = 16;

/// How to make one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Let it run until one of these addresses; the trap handler's is not among them.
    Run {
        /// Where it may come.
        to: Vec<u64>,
        /// Whether the instruction reads or writes `sie`, so that interrupts cannot be kept away by it.
        sees_sie: bool,
    },
    /// It waits for an interrupt, which may be none: it goes on here.
    Skip {
        /// The next address.
        to: u64,
    },
    /// A breakpoint of the guest's own.
    Breakpoint,
}

/// How to make a step from here. `fetch` gives two bytes of the guest's code.
///
/// `None` if the instruction cannot be fetched.
pub fn plan(registers: &VcpuRegisters, fetch: impl Fn(u64) -> Option<u16>) -> Option<Step> {
    let pc = registers.pc;
    let instruction = fetch_at(pc, &fetch)?;
    let step = match instruction {
        WFI => Step::Skip { to: pc.wrapping_add(4) },
        EBREAK | C_EBREAK => Step::Breakpoint,
        _ if is_load_reserved(instruction) => Step::Run { to: behind_sequence(pc, &fetch)?, sees_sie: false },
        _ => Step::Run { to: next(registers, pc, instruction), sees_sie: is_csr(instruction, SIE) },
    };
    Some(step)
}

fn fetch_at(pc: u64, fetch: impl Fn(u64) -> Option<u16>) -> Option<u32> {
    let low = fetch(pc)?;
    let high = if low & 3 == 3 { fetch(pc.wrapping_add(2))? } else { 0 };
    Some(u32::from(low) | u32::from(high) << 16)
}

const fn length(instruction: u32) -> u64 {
    if instruction & 3 == 3 { 4 } else { 2 }
}

const fn is_load_reserved(instruction: u32) -> bool {
    instruction & 0x7f == 0x2f && instruction >> 27 == 0b00010
}

const fn is_store_conditional(instruction: u32) -> bool {
    instruction & 0x7f == 0x2f && instruction >> 27 == 0b00011
}

const fn is_csr(instruction: u32, csr: u32) -> bool {
    instruction & 0x7f == 0x73 && instruction >> 12 & 3 != 0 && instruction >> 20 == csr
}

/// A trap between a load-reserved and its store-conditional would make that fail for ever: both are one step.
fn behind_sequence(pc: u64, fetch: impl Fn(u64) -> Option<u16>) -> Option<Vec<u64>> {
    let (mut at, mut to) = (pc, Vec::new());
    for _ in 0..SEQUENCE {
        let instruction = fetch_at(at, &fetch)?;
        let behind = at.wrapping_add(length(instruction));
        if is_store_conditional(instruction) {
            to.push(behind);
            to.retain(|target| *target <= pc || *target >= behind);
            return Some(to);
        }
        if let Some(offset) = branch(instruction) {
            to.push(at.wrapping_add(offset));
        }
        at = behind;
    }
    // It is no sequence that ends soon: a plain load.
    Some(vec![pc.wrapping_add(4)])
}

/// Where it comes from `instruction` at `pc` if it does not trap.
fn next(registers: &VcpuRegisters, pc: u64, instruction: u32) -> Vec<u64> {
    let behind = pc.wrapping_add(length(instruction));
    let x = |number: u32| registers.x[(number & 31) as usize];
    if let Some(offset) = branch(instruction) {
        return vec![behind, pc.wrapping_add(offset)];
    }
    if instruction & 3 != 3 {
        return match (instruction & 3, instruction >> 13) {
            // c.j
            (1, 0b101) => vec![pc.wrapping_add(compressed_jump(instruction))],
            // c.jr, c.jalr
            (2, 0b100) if instruction >> 2 & 31 == 0 && instruction >> 7 & 31 != 0 => vec![x(instruction >> 7) & !1],
            _ => vec![behind],
        };
    }
    match (instruction & 0x7f, instruction) {
        (0x6f, _) => vec![pc.wrapping_add(jump(instruction))],
        (0x67, _) => {
            let offset = (instruction as i32 >> 20) as i64 as u64;
            vec![x(instruction >> 15).wrapping_add(offset) & !1]
        }
        (_, SRET) => vec![registers.csrs.sepc & !1],
        // From user mode it is a trap; from the kernel a call of the SBI.
        (_, ECALL) if !registers.is_supervisor => Vec::new(),
        _ => vec![behind],
    }
}

/// How far a conditional branch goes.
fn branch(instruction: u32) -> Option<u64> {
    let bit = |from: u32, to: u32| (instruction >> from & 1) << to;
    let bits = |from: u32, count: u32, to: u32| (instruction >> from & ((1 << count) - 1)) << to;
    if instruction & 0x7f == 0x63 {
        let offset = bit(31, 12) | bit(7, 11) | bits(25, 6, 5) | bits(8, 4, 1);
        return Some(extend(offset, 13));
    }
    if instruction & 3 == 1 && instruction >> 14 & 3 == 0b11 {
        let offset = bit(12, 8) | bits(10, 2, 3) | bits(5, 2, 6) | bits(3, 2, 1) | bit(2, 5);
        return Some(extend(offset, 9));
    }
    None
}

fn jump(instruction: u32) -> u64 {
    let offset = (instruction >> 31) << 20
        | (instruction >> 12 & 0xff) << 12
        | (instruction >> 20 & 1) << 11
        | (instruction >> 21 & 0x3ff) << 1;
    extend(offset, 21)
}

fn compressed_jump(instruction: u32) -> u64 {
    let bit = |from: u32, to: u32| (instruction >> from & 1) << to;
    let bits = |from: u32, count: u32, to: u32| (instruction >> from & ((1 << count) - 1)) << to;
    let offset =
        bit(12, 11) | bit(11, 4) | bits(9, 2, 8) | bit(8, 10) | bit(7, 6) | bit(6, 7) | bits(3, 3, 1) | bit(2, 5);
    extend(offset, 12)
}

/// A signed number of so many bits.
const fn extend(value: u32, bits: u32) -> u64 {
    ((value << (32 - bits)) as i32 >> (32 - bits)) as i64 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PC: u64 = 0x8020_0000;

    fn planned(code: &[u32], change: impl FnOnce(&mut VcpuRegisters)) -> Step {
        let mut halves = Vec::new();
        for word in code {
            halves.push(*word as u16);
            if word & 3 == 3 {
                halves.push((word >> 16) as u16);
            }
        }
        let mut registers = VcpuRegisters { pc: PC, is_supervisor: true, ..VcpuRegisters::default() };
        change(&mut registers);
        plan(&registers, |at| halves.get((at - PC) as usize / 2).copied()).expect("it can be fetched")
    }

    fn to(code: u32) -> Vec<u64> {
        let step = planned(&[code], |registers| {
            registers.x[1] = 0x1000;
            registers.x[10] = 0x2001;
            registers.csrs.sepc = 0x3000;
        });
        match step {
            Step::Run { to, .. } => to,
            other => panic!("{other:?}"),
        }
    }

    /// Encodings by GNU as.
    #[test]
    fn jumps_and_branches_go_where_they_say() {
        assert_eq!(to(0x0000_0013), [PC + 4], "nop");
        assert_eq!(to(0x0001), [PC + 2], "c.nop");
        assert_eq!(to(0x0100_006f), [PC + 16], "j .+16");
        assert_eq!(to(0xff1f_f06f), [PC - 16], "j .-16");
        assert_eq!(to(0x00b5_0463), [PC + 4, PC + 8], "beq a0, a1, .+8");
        assert_eq!(to(0xfeb5_1ce3), [PC + 4, PC - 8], "bne a0, a1, .-8");
        assert_eq!(to(0x0000_8067), [0x1000], "ret");
        assert_eq!(to(0x0045_00e7), [0x2004], "jalr 4(a0)");
        assert_eq!(to(0xa801), [PC + 16], "c.j .+16");
        assert_eq!(to(0xbfc5), [PC - 16], "c.j .-16");
        assert_eq!(to(0xc501), [PC + 2, PC + 8], "c.beqz a0, .+8");
        assert_eq!(to(0xfd65), [PC + 2, PC - 8], "c.bnez a0, .-8");
        assert_eq!(to(0x8082), [0x1000], "c.jr ra");
        assert_eq!(to(0x9502), [0x2000], "c.jalr a0");
        assert_eq!(to(0x852e), [PC + 2], "c.mv a0, a1");
        assert_eq!(to(SRET), [0x3000]);
        assert_eq!(to(ECALL), [PC + 4]);
    }

    #[test]
    fn what_cannot_run_or_must_not_be_disturbed_is_told() {
        assert_eq!(planned(&[WFI], |_| ()), Step::Skip { to: PC + 4 });
        assert_eq!(planned(&[EBREAK], |_| ()), Step::Breakpoint);
        assert_eq!(planned(&[C_EBREAK], |_| ()), Step::Breakpoint);
        let user = planned(&[ECALL], |registers| registers.is_supervisor = false);
        assert_eq!(user, Step::Run { to: vec![], sees_sie: false });
        // csrs sie, a0
        assert_eq!(planned(&[0x1045_2073], |_| ()), Step::Run { to: vec![PC + 4], sees_sie: true });
        assert_eq!(plan(&VcpuRegisters::default(), |_| None), None);
    }

    #[test]
    fn a_reservation_is_not_broken() {
        // lr.w a1, (a0); bne a1, a2, .+12; sc.w a3, a4, (a0); bnez a3, .-12
        let code = [0x1005_25af, 0x00c5_9663, 0x18e5_26af, 0xfe06_9ae3];
        assert_eq!(planned(&code, |_| ()), Step::Run { to: vec![PC + 16, PC + 12], sees_sie: false });
        let mut alone = vec![0x1005_25af];
        alone.extend([0x13; 20]);
        assert_eq!(planned(&alone, |_| ()), Step::Run { to: vec![PC + 4], sees_sie: false });
    }
}
