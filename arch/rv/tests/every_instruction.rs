//! Every instruction, or all that differs between two of them, against the tables of the specification: masks, what they must match, and
//! where the register is. It stands in the place of a proof.

use rv::decode::{CsrAccess, CsrOperand, CsrOperation, MemoryAccess, from_htinst, from_instruction};

/// Mask, match, log2 of the width, whether it stores and sign-extends, and where the register is.
type Row = (u32, u32, u8, bool, bool, Register);

#[derive(Clone, Copy)]
enum Register {
    /// Five bits from here.
    At(u32),
    /// Three bits from here: x8 to x15.
    ShortAt(u32),
}

use Register::{At, ShortAt};

/// Unprivileged specification, "RV32/64C and Zcb Instruction Set Listings". Floating point is left out.
const COMPRESSED: [Row; 13] = [
    (0xe003, 0x4000, 2, false, true, ShortAt(2)),  // c.lw
    (0xe003, 0x6000, 3, false, false, ShortAt(2)), // c.ld
    (0xe003, 0xc000, 2, true, false, ShortAt(2)),  // c.sw
    (0xe003, 0xe000, 3, true, false, ShortAt(2)),  // c.sd
    (0xe003, 0x4002, 2, false, true, At(7)),       // c.lwsp
    (0xe003, 0x6002, 3, false, false, At(7)),      // c.ldsp
    (0xe003, 0xc002, 2, true, false, At(2)),       // c.swsp
    (0xe003, 0xe002, 3, true, false, At(2)),       // c.sdsp
    (0xfc03, 0x8000, 0, false, false, ShortAt(2)), // c.lbu
    (0xfc43, 0x8400, 1, false, false, ShortAt(2)), // c.lhu
    (0xfc43, 0x8440, 1, false, true, ShortAt(2)),  // c.lh
    (0xfc03, 0x8800, 0, true, false, ShortAt(2)),  // c.sb
    (0xfc43, 0x8c00, 1, true, false, ShortAt(2)),  // c.sh
];

/// "RV32/64G Instruction Set Listings": the integer loads and stores.
const FULL: [Row; 11] = [
    (0x707f, 0x0003, 0, false, true, At(7)),  // lb
    (0x707f, 0x1003, 1, false, true, At(7)),  // lh
    (0x707f, 0x2003, 2, false, true, At(7)),  // lw
    (0x707f, 0x3003, 3, false, true, At(7)),  // ld
    (0x707f, 0x4003, 0, false, false, At(7)), // lbu
    (0x707f, 0x5003, 1, false, false, At(7)), // lhu
    (0x707f, 0x6003, 2, false, false, At(7)), // lwu
    (0x707f, 0x0023, 0, true, false, At(20)), // sb
    (0x707f, 0x1023, 1, true, false, At(20)), // sh
    (0x707f, 0x2023, 2, true, false, At(20)), // sw
    (0x707f, 0x3023, 3, true, false, At(20)), // sd
];

fn expected(rows: &[Row], raw: u32, length: u8) -> Option<MemoryAccess> {
    let row = rows.iter().find(|(mask, matched, ..)| raw & mask == *matched)?;
    let (_, _, width_log2, is_store, is_signed, register) = *row;
    let register = match register {
        At(bit) => (raw >> bit & 31) as u8,
        ShortAt(bit) => (raw >> bit & 7) as u8 + 8,
    };
    Some(MemoryAccess { width_log2, is_store, is_signed, register, length })
}

/// What an access does: a load of eight bytes has no sign to extend.
fn essence(access: Option<MemoryAccess>) -> Option<MemoryAccess> {
    access.map(|access| MemoryAccess { is_signed: access.is_signed && access.width_log2 < 3, ..access })
}

#[test]
fn every_compressed_instruction() {
    for raw in (0..=0xffff_u32).filter(|raw| raw & 3 != 3) {
        // What lies behind it in memory is another instruction.
        for behind in [0, 0xffff_0000, 0x2003_0000] {
            assert_eq!(essence(from_instruction(raw | behind)), expected(&COMPRESSED, raw, 2), "{raw:#06x}");
        }
    }
}

#[test]
fn every_opcode_function_and_register() {
    for opcode in (0..0x80_u32).filter(|opcode| opcode & 3 == 3) {
        for (funct3, rd) in (0..8_u32).flat_map(|funct3| (0..32).map(move |rd| (funct3, rd))) {
            for (rs2, rest) in (0..32_u32).flat_map(|rs2| [0, 0xfe0f_8000].map(|rest| (rs2, rest))) {
                let raw = opcode | funct3 << 12 | rd << 7 | rs2 << 20 | rest;
                assert_eq!(essence(from_instruction(raw)), essence(expected(&FULL, raw, 4)), "{raw:#010x}");
                // As the hardware reports it, bit 1 says how long it was.
                let transformed = u64::from(raw & !2);
                assert_eq!(essence(from_htinst(transformed)), essence(expected(&FULL, raw, 2)), "{raw:#010x}");
                assert_eq!(essence(from_htinst(raw.into())), essence(expected(&FULL, raw, 4)), "{raw:#010x}");
                assert_eq!(from_htinst(u64::from(raw & !1)), None, "no instruction, but a pseudoinstruction");
            }
        }
    }
}

/// SYSTEM instructions: all registers of CSRs, all functions, and all sources.
#[test]
fn every_access_to_a_csr() {
    let operations = [CsrOperation::Write, CsrOperation::Set, CsrOperation::Clear];
    for (csr, funct3) in (0..1_u32 << 12).flat_map(|csr| (0..8_u32).map(move |funct3| (csr, funct3))) {
        for (rd, source) in [0, 1, 31].into_iter().flat_map(|rd| (0..32_u32).map(move |source| (rd, source))) {
            let raw = csr << 20 | source << 15 | funct3 << 12 | rd << 7 | 0x73;
            let operation = (funct3 as usize & 3).checked_sub(1).map(|at| operations[at]);
            let found = CsrAccess::decode(raw.into());
            assert_eq!(found.map(|access| access.operation), operation, "{raw:#010x}");
            let Some(access) = found else { continue };
            assert_eq!((u32::from(access.csr), u32::from(access.rd)), (csr, rd), "{raw:#010x}");
            let register = CsrOperand::Register(source as u8);
            assert_eq!(access.operand, if funct3 & 4 == 0 { register } else { CsrOperand::Immediate(source as u8) });
            let only_reads = source == 0 && access.operation != CsrOperation::Write;
            assert_eq!(access.is_write(), !only_reads, "{raw:#010x}");
        }
    }
}
