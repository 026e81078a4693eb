//! Privilege modes, as QEMU's register `priv` shows them: privilege in bits 0 and 1, virtualization in bit 2.

use qemu_plugin::{Buffer, Register, registers};

/// Number of modes that are told apart.
pub const MODES: usize = 5;

/// A privilege mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A program.
    User,
    /// A supervisor, or a hypervisor.
    Supervisor,
    /// Firmware.
    Machine,
    /// A program of a guest.
    VirtualUser,
    /// A guest's supervisor.
    VirtualSupervisor,
}

impl Mode {
    const fn from_register(value: u64) -> Self {
        match value & 7 {
            0 => Self::User,
            1 => Self::Supervisor,
            4 => Self::VirtualUser,
            5 => Self::VirtualSupervisor,
            _ => Self::Machine,
        }
    }

    /// Its place among the counts.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name if the first instruction of it is worth a line.
    pub const fn supervisor_name(self) -> Option<&'static str> {
        match self {
            Self::Supervisor => Some("hs"),
            Self::VirtualSupervisor => Some("vs"),
            _ => None,
        }
    }
}

/// Reads the mode of the hart that is being translated for.
#[derive(Default)]
pub struct Reader {
    register: Option<Register>,
    value: Buffer,
}

impl Reader {
    /// The mode; machine mode if QEMU does not tell.
    pub fn mode(&mut self) -> Mode {
        if self.register.is_none() {
            self.register = registers().into_iter().find(|(name, _)| name == "priv").map(|(_, register)| register);
        }
        self.register.map_or(Mode::Machine, |register| Mode::from_register(self.value.read(register)))
    }
}
