//! The registers that the model reads of the hart on whose behalf it runs.

use machine_model::Root;
use model_file::Mode;

use qemu_plugin::{Buffer, Register, registers};

/// General registers by number, as QEMU names them.
const GENERAL: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
/// `mstatus.TW` and `hstatus.VTW`: waiting traps.
const TRAPS_WAIT: u64 = 1 << 21;

/// Handles of registers; the same for all harts.
pub struct Registers {
    buffer: Buffer,
    general: [Option<Register>; 32],
    pc: Register,
    privilege: Register,
    satp: Register,
    mstatus: Register,
    /// `vsatp`, `hgatp`, `hstatus`, where the hart has the hypervisor extension.
    virtual_ones: Option<[Register; 3]>,
}

impl Registers {
    /// Finds them; on a hart's thread.
    ///
    /// # Errors
    /// The name of one that every hart has, but not this one.
    pub fn find() -> Result<Self, &'static str> {
        let all = registers();
        let named = |name: &str| all.iter().find(|(held, _)| held == name).map(|(_, register)| *register);
        let must = |name: &'static str| named(name).ok_or(name);
        let virtual_ones = match ["vsatp", "hgatp", "hstatus"].map(named) {
            [Some(vsatp), Some(hgatp), Some(hstatus)] => Some([vsatp, hgatp, hstatus]),
            _ => None,
        };
        Ok(Self {
            buffer: Buffer::new(),
            general: GENERAL.map(named),
            pc: must("pc")?,
            privilege: must("priv")?,
            satp: must("satp")?,
            mstatus: must("mstatus")?,
            virtual_ones,
        })
    }

    /// The mode: privilege in bits 0 and 1, virtualization in bit 2.
    pub fn mode(&self) -> Mode {
        let value = self.buffer.read(self.privilege);
        Mode::of(value, value & 4 != 0)
    }

    /// The program counter, right at the start of a block only.
    pub fn pc(&self) -> u64 {
        self.buffer.read(self.pc)
    }

    /// A general register.
    pub fn general(&self, number: usize) -> u64 {
        self.general.get(number).copied().flatten().map_or(0, |register| self.buffer.read(register))
    }

    /// A register that says how the hart translates. While the hart is virtual, QEMU shows a guest's `satp`, which is
    /// `vsatp`, under the guest's name, and an old value under the other.
    pub fn root(&self, root: Root, is_virtual: bool) -> u64 {
        let virtual_one = |at: usize| self.virtual_ones.map_or(0, |ones| self.buffer.read(ones[at]));
        match (root, is_virtual) {
            (Root::Satp, _) | (Root::Vsatp, true) => self.buffer.read(self.satp),
            (Root::Vsatp, false) => virtual_one(0),
            (Root::Hgatp, _) => virtual_one(1),
        }
    }

    /// Whether WFI in this mode makes the hart wait, and does not trap.
    pub fn can_wait(&self, mode: Mode) -> bool {
        let is_clear = |register: Register| self.buffer.read(register) & TRAPS_WAIT == 0;
        match mode {
            Mode::M => true,
            Mode::S => is_clear(self.mstatus),
            Mode::VS => is_clear(self.mstatus) && self.virtual_ones.is_some_and(|ones| is_clear(ones[2])),
            Mode::U | Mode::VU | Mode::Idle => false,
        }
    }
}
