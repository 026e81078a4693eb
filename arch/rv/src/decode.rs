//! Decoding of the loads and stores that a guest aims at a device.
//!
//! Input is either `htinst` (the transformed instruction that the hardware reports) or, where the hardware
//! reports none, the instruction itself as fetched from the guest. Source: Privileged Architecture, "Transformed
//! instruction or pseudoinstruction for `mtinst` or `htinst`", and the Unprivileged Architecture's opcode maps.

/// One scalar memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// log2 of the bytes accessed, 0 to 3.
    pub width_log2: u8,
    /// Store (true) or load.
    pub is_store: bool,
    /// A load that sign-extends.
    pub is_signed: bool,
    /// The register stored, or loaded into: x0 to x31.
    pub register: u8,
    /// Bytes from this instruction to the next, 2 or 4.
    pub length: u8,
}

impl MemoryAccess {
    /// What a load of the zero-extended `raw` puts into the register.
    #[must_use]
    #[inline]
    pub const fn extend(self, raw: u64) -> u64 {
        let shift = 64 - (8 << self.width_log2);
        if self.is_signed { ((raw << shift) as i64 >> shift) as u64 } else { (raw << shift) >> shift }
    }
}

const OPCODE_LOAD: u32 = 0x03;
const OPCODE_STORE: u32 = 0x23;

/// Decodes a non-zero `htinst`. `None` for anything but a scalar load or store: AMOs, vector and FP accesses have
/// no meaning on a device, and pseudoinstructions stand for page-table walks.
#[must_use]
#[inline]
pub const fn from_htinst(htinst: u64) -> Option<MemoryAccess> {
    // Bit 0 is always set for a transformed instruction; bit 1 clear says that the original was compressed.
    if htinst & 1 == 0 {
        return None;
    }
    let length = if htinst & 2 == 0 { 2 } else { 4 };
    uncompressed(htinst as u32 | 2, length)
}

/// Decodes the instruction `raw` as found in guest memory (16 or 32 bits used).
#[must_use]
pub const fn from_instruction(raw: u32) -> Option<MemoryAccess> {
    if raw & 3 == 3 { uncompressed(raw, 4) } else { compressed(raw as u16) }
}

#[inline]
const fn uncompressed(raw: u32, length: u8) -> Option<MemoryAccess> {
    let funct3 = raw >> 12 & 7;
    match raw & 0x7f {
        OPCODE_LOAD if funct3 != 7 => Some(MemoryAccess {
            width_log2: (funct3 & 3) as u8,
            is_store: false,
            is_signed: funct3 < 4,
            register: (raw >> 7 & 31) as u8,
            length,
        }),
        OPCODE_STORE if funct3 < 4 => Some(MemoryAccess {
            width_log2: funct3 as u8,
            is_store: true,
            is_signed: false,
            register: (raw >> 20 & 31) as u8,
            length,
        }),
        _ => None,
    }
}

/// The quadrant-0 and quadrant-2 integer loads and stores of C and Zcb.
const fn compressed(raw: u16) -> Option<MemoryAccess> {
    let funct3 = raw >> 13;
    let short_register = (raw >> 2 & 7) as u8 + 8;
    match (raw & 3, funct3) {
        (0, 2) => short(2, false, true, short_register),
        (0, 3) => short(3, false, false, short_register),
        (0, 6) => short(2, true, false, short_register),
        (0, 7) => short(3, true, false, short_register),
        (0, 4) => zcb(raw, short_register),
        (2, 2) => short(2, false, true, (raw >> 7 & 31) as u8),
        (2, 3) => short(3, false, false, (raw >> 7 & 31) as u8),
        (2, 6) => short(2, true, false, (raw >> 2 & 31) as u8),
        (2, 7) => short(3, true, false, (raw >> 2 & 31) as u8),
        _ => None,
    }
}

const fn zcb(raw: u16, register: u8) -> Option<MemoryAccess> {
    match raw >> 10 & 7 {
        0 => short(0, false, false, register),
        1 => short(1, false, raw >> 6 & 1 == 1, register),
        2 => short(0, true, false, register),
        3 if raw >> 6 & 1 == 0 => short(1, true, false, register),
        _ => None,
    }
}

const fn short(width_log2: u8, is_store: bool, is_signed: bool, register: u8) -> Option<MemoryAccess> {
    Some(MemoryAccess { width_log2, is_store, is_signed, register, length: 2 })
}

/// WFI as `stval` reports it.
pub const WFI: u64 = 0x1050_0073;

/// WRS.NTO (Zawrs) as `stval` reports it: a wait for a lock that traps under `hstatus.VTW`.
pub const WRS_NTO: u64 = 0x00d0_0073;

/// A CSR access, as a virtual-instruction or illegal-instruction trap reports it in `stval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsrAccess {
    /// CSR number.
    pub csr: u16,
    /// Destination register of the old value.
    pub rd: u8,
    /// What is written.
    pub operand: CsrOperand,
    /// How it is written.
    pub operation: CsrOperation,
}

/// The source operand of a CSR instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrOperand {
    /// A register.
    Register(u8),
    /// A 5-bit immediate.
    Immediate(u8),
}

/// The three CSR operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrOperation {
    /// CSRRW(I).
    Write,
    /// CSRRS(I).
    Set,
    /// CSRRC(I).
    Clear,
}

impl CsrAccess {
    /// Decodes an instruction of the SYSTEM opcode that accesses a CSR.
    #[must_use]
    pub const fn decode(raw: u64) -> Option<Self> {
        let raw = raw as u32;
        let funct3 = raw >> 12 & 7;
        if raw & 0x7f != 0x73 || funct3 & 3 == 0 {
            return None;
        }
        let source = (raw >> 15 & 31) as u8;
        Some(Self {
            csr: (raw >> 20) as u16,
            rd: (raw >> 7 & 31) as u8,
            operand: if funct3 & 4 == 0 { CsrOperand::Register(source) } else { CsrOperand::Immediate(source) },
            operation: match funct3 & 3 {
                1 => CsrOperation::Write,
                2 => CsrOperation::Set,
                _ => CsrOperation::Clear,
            },
        })
    }

    /// Whether the instruction writes the CSR: CSRRS and CSRRC with x0 or 0 only read.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self.operation, CsrOperation::Write)
            || !matches!(self.operand, CsrOperand::Register(0) | CsrOperand::Immediate(0))
    }

    /// The value written, from the CSR's `old` value and the operand's `value`.
    #[must_use]
    pub const fn apply(self, old: u64, value: u64) -> u64 {
        match self.operation {
            CsrOperation::Write => value,
            CsrOperation::Set => old | value,
            CsrOperation::Clear => old & !value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transformed_store_of_a_compressed_instruction() {
        // sw x12, 0(x0) transformed, original compressed: bit 1 cleared.
        let sw = 0x00c0_2023_u64;
        assert_eq!(
            from_htinst(sw & !2),
            Some(MemoryAccess { width_log2: 2, is_store: true, is_signed: false, register: 12, length: 2 })
        );
        assert_eq!(from_htinst(sw).unwrap().length, 4);
    }

    #[test]
    fn page_table_walk_pseudoinstructions_are_not_accesses() {
        assert_eq!(from_htinst(0x3000), None);
        assert_eq!(from_htinst(0x3020), None);
        assert_eq!(from_htinst(0), None);
    }

    #[test]
    fn loads_extend() {
        // lb x10, 0(x11)
        let lb = from_instruction(0x0005_8503).unwrap();
        assert_eq!(lb.extend(0x80), 0xffff_ffff_ffff_ff80);
        // lbu x10, 0(x11)
        let lbu = from_instruction(0x0005_c503).unwrap();
        assert_eq!(lbu.extend(0x1_80), 0x80);
        // ld x10, 0(x11)
        let ld = from_instruction(0x0005_b503).unwrap();
        assert_eq!(ld.extend(u64::MAX), u64::MAX);
    }

    #[test]
    fn compressed_forms() {
        // c.lw a0, 0(a1) = 0x4188; c.sd a0, 0(a1) = 0xe188; c.ldsp ra, 8(sp) = 0x60a2; c.sb a0, 0(a1) = 0x8988
        assert_eq!(from_instruction(0x4188).unwrap().register, 10);
        assert_eq!(from_instruction(0x4188).unwrap().width_log2, 2);
        let sd = from_instruction(0xe188).unwrap();
        assert!(sd.is_store && sd.register == 10 && sd.width_log2 == 3);
        assert_eq!(from_instruction(0x60a2).unwrap().register, 1);
        let sb = from_instruction(0x8988).unwrap();
        assert!(sb.is_store && sb.width_log2 == 0 && sb.register == 10);
    }

    #[test]
    fn amo_and_fp_are_refused() {
        assert_eq!(from_instruction(0x00b5_202f), None); // amoadd.w
        assert_eq!(from_instruction(0x0005_3507), None); // fld
    }

    #[test]
    fn csr_access() {
        // csrrw a0, 0x15c, zero  (stopei)
        let a = CsrAccess::decode(0x15c0_1573).unwrap();
        assert_eq!((a.csr, a.rd, a.operand), (0x15c, 10, CsrOperand::Register(0)));
        assert!(a.is_write());
        // csrr a0, time
        assert!(!CsrAccess::decode(0xc010_2573).unwrap().is_write());
        assert_eq!(CsrAccess::decode(WFI), None);
    }
}
