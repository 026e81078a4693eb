//! A vCPU's registers as gdb knows them, in the order of the target description.

use std::fmt::Write as _;
use std::sync::OnceLock;

use control::{SupervisorRegisters, VcpuRegisters};
use gdbstub::arch::{Arch, Registers};

/// A vCPU of a VM: RV64 with floating point and supervisor registers.
#[derive(Debug)]
pub enum Vcpu {}

impl Arch for Vcpu {
    type Usize = u64;
    type Registers = Regs;
    type BreakpointKind = usize;
    type RegId = ();

    fn target_description_xml() -> Option<&'static str> {
        static XML: OnceLock<String> = OnceLock::new();
        Some(XML.get_or_init(description))
    }
}

/// Registers, with those that gdb splits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regs(pub VcpuRegisters);

const GENERAL: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
const FLOATING: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5",
    "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];

type Csr = (&'static str, fn(&mut SupervisorRegisters) -> &mut u64);

const CSRS: [Csr; 12] = [
    ("sstatus", |csrs| &mut csrs.sstatus),
    ("sie", |csrs| &mut csrs.sie),
    ("stvec", |csrs| &mut csrs.stvec),
    ("scounteren", |csrs| &mut csrs.scounteren),
    ("senvcfg", |csrs| &mut csrs.senvcfg),
    ("sscratch", |csrs| &mut csrs.sscratch),
    ("sepc", |csrs| &mut csrs.sepc),
    ("scause", |csrs| &mut csrs.scause),
    ("stval", |csrs| &mut csrs.stval),
    ("sip", |csrs| &mut csrs.sip),
    ("stimecmp", |csrs| &mut csrs.stimecmp),
    ("satp", |csrs| &mut csrs.satp),
];

/// Fields of `fcsr`.
const FFLAGS: u64 = 0x1f;
const FRM_SHIFT: u32 = 5;
const FRM: u64 = 7;

/// Bytes of all: 32 + 1 + 32 of 8, three of 4, the supervisor's and the privilege.
const BYTES: usize = (32 + 1 + 32) * 8 + 3 * 4 + CSRS.len() * 8 + 8;

fn description() -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\
         <target version=\"1.0\"><architecture>riscv:rv64</architecture>\
         <feature name=\"org.gnu.gdb.riscv.cpu\">",
    );
    for name in GENERAL {
        let kind = match name {
            "ra" => "code_ptr",
            "sp" | "gp" | "tp" | "fp" => "data_ptr",
            _ => "int",
        };
        // Writing to a string cannot fail.
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"64\" type=\"{kind}\"/>");
    }
    xml += "<reg name=\"pc\" bitsize=\"64\" type=\"code_ptr\"/></feature><feature name=\"org.gnu.gdb.riscv.fpu\">\
            <union id=\"riscv_double\"><field name=\"float\" type=\"ieee_single\"/>\
            <field name=\"double\" type=\"ieee_double\"/></union>";
    for name in FLOATING {
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"64\" type=\"riscv_double\"/>");
    }
    for name in ["fflags", "frm", "fcsr"] {
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"32\" type=\"int\" group=\"float\"/>");
    }
    xml += "</feature><feature name=\"org.gnu.gdb.riscv.csr\">";
    for (name, _) in CSRS {
        let _ = write!(xml, "<reg name=\"{name}\" bitsize=\"64\" type=\"int\" group=\"csr\"/>");
    }
    xml += "</feature><feature name=\"org.gnu.gdb.riscv.virtual\"><reg name=\"priv\" bitsize=\"64\" type=\"int\"/>\
            </feature></target>";
    xml
}

impl Registers for Regs {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.0.pc
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        let mut registers = self.0.clone();
        let mut put = |bytes: &[u8]| bytes.iter().for_each(|byte| write_byte(Some(*byte)));
        registers.x.iter().for_each(|value| put(&value.to_le_bytes()));
        put(&registers.pc.to_le_bytes());
        registers.f.iter().for_each(|value| put(&value.to_le_bytes()));
        let fcsr = registers.fcsr;
        for part in [fcsr & FFLAGS, fcsr >> FRM_SHIFT & FRM, fcsr & 0xff] {
            put(&(part as u32).to_le_bytes());
        }
        for (_, of) in CSRS {
            put(&of(&mut registers.csrs).to_le_bytes());
        }
        put(&u64::from(registers.is_supervisor).to_le_bytes());
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        if bytes.len() != BYTES {
            return Err(());
        }
        let mut rest = bytes;
        let mut take = |len: usize| {
            let (value, behind) = rest.split_at_checked(len).unwrap_or_default();
            rest = behind;
            value.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let before = self.0.fcsr;
        self.0.x.iter_mut().for_each(|value| *value = take(8));
        self.0.pc = take(8);
        self.0.f.iter_mut().for_each(|value| *value = take(8));
        let (fflags, frm, fcsr) = (take(4), take(4), take(4));
        // Whichever gdb has changed.
        self.0.fcsr = if fcsr == before & 0xff { frm << FRM_SHIFT | fflags } else { fcsr };
        for (_, of) in CSRS {
            *of(&mut self.0.csrs) = take(8);
        }
        self.0.is_supervisor = take(8) & 1 != 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Regs {
        let mut regs = VcpuRegisters { pc: 0x8020_0000, is_supervisor: true, fcsr: 0x43, ..VcpuRegisters::default() };
        for (number, value) in (0..).zip(&mut regs.x) {
            *value = 0x1111 * number;
        }
        for (number, value) in (0..).zip(&mut regs.f) {
            *value = 0x4000_0000_0000_0000 + number;
        }
        for ((_, of), value) in CSRS.iter().zip(0x100..) {
            *of(&mut regs.csrs) = value;
        }
        Regs(regs)
    }

    fn bytes(regs: &Regs) -> Vec<u8> {
        let mut bytes = Vec::new();
        regs.gdb_serialize(|byte| bytes.extend(byte));
        bytes
    }

    #[test]
    fn registers_come_back_as_they_went() {
        let regs = filled();
        let sent = bytes(&regs);
        assert_eq!(sent.len(), BYTES);
        let mut back = regs.clone();
        back.gdb_deserialize(&sent).expect("they are whole");
        assert_eq!(back, regs);
        assert_eq!(back.gdb_deserialize(&sent[1..]), Err(()));
    }

    #[test]
    fn a_part_of_fcsr_can_be_changed() {
        let (mut regs, mut sent) = (filled(), bytes(&filled()));
        sent[(32 + 1 + 32) * 8] = 0x10;
        regs.gdb_deserialize(&sent).expect("they are whole");
        assert_eq!(regs.0.fcsr, 0x50);
    }

    /// The order is all that gdb knows: as many bits in the description as bytes are sent.
    #[test]
    fn the_description_names_what_is_sent() {
        let xml = description();
        let bits = |size: &str| xml.matches(&format!("bitsize=\"{size}\"")).count();
        assert_eq!(bits("64") * 8 + bits("32") * 4, BYTES);
    }
}
