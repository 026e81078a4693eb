//! Looking inside a VM: its vCPUs' registers, its memory, and where it stops.

use addr::VcpuIndex;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Breakpoints that one debugger may have set at a time.
pub const MAX_BREAKPOINTS: usize = 256;

/// Bytes of a guest's memory in one message at most: bounded work for the monitor, which copies that much in one step.
pub const MAX_PEEK: u32 = 16 << 10;

/// Program counters of one sample at most: that of the vCPU and those of its callers.
pub const MAX_STACK: usize = 24;

/// What a debugger does with the VM whose stream ([`Request::DebugOpen`](crate::Request::DebugOpen)) it has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DebugAction {
    /// Stops the vCPUs where they are, if they are not stopped; answered when none runs any more. Answer: [`Reply::Done`](crate::Reply::Done).
    Stop,
    /// Lets all vCPUs go on, or only one, while the others stay where they are. Answer: [`Reply::Done`](crate::Reply::Done). Errors:
    /// [`ControlError::BadState`](crate::ControlError::BadState) if it is not paused.
    Resume {
        /// The only one that goes on.
        only: Option<VcpuIndex>,
    },
    /// Reads a vCPU's registers. Only while the VM is paused. Answer: [`Reply::Registers`](crate::Reply::Registers).
    ReadRegisters {
        /// The vCPU.
        vcpu: VcpuIndex,
    },
    /// Writes them. The hart takes of each what a guest itself could write there. Answer: [`Reply::Done`](crate::Reply::Done).
    WriteRegisters {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// All of them.
        registers: Box<VcpuRegisters>,
    },
    /// Reads the guest's RAM. Pages that it does not have read as zeroes, and it does not get them. Answer:
    /// [`Reply::Memory`](crate::Reply::Memory). Errors: [`ControlError::NoMemoryThere`](crate::ControlError::NoMemoryThere), [`ControlError::TooLarge`](crate::ControlError::TooLarge).
    ReadMemory {
        /// The guest-physical address.
        address: u64,
        /// How many bytes, at most [`MAX_PEEK`].
        bytes: u32,
    },
    /// Writes the guest's RAM, as a device would. Answer: [`Reply::Done`](crate::Reply::Done). Errors: as for reading.
    WriteMemory {
        /// The guest-physical address.
        address: u64,
        /// What to write, at most [`MAX_PEEK`] bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Puts an `ebreak` into the guest's RAM. It is taken away when the stream is closed. Answer: [`Reply::Done`](crate::Reply::Done), also if
    /// there is one. Errors: as for writing; [`ControlError::TooLarge`](crate::ControlError::TooLarge): there are [`MAX_BREAKPOINTS`].
    SetBreakpoint {
        /// The guest-physical address of an instruction, of 2 or 4 bytes.
        address: u64,
    },
    /// Puts back what was there. Answer: [`Reply::Done`](crate::Reply::Done), also if there is no breakpoint.
    ClearBreakpoint {
        /// As it was set.
        address: u64,
    },
}

/// A vCPU has come to an `ebreak`, and its VM is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugStop {
    /// The vCPU.
    pub vcpu: VcpuIndex,
    /// Where: the guest-virtual address of the `ebreak`.
    pub pc: u64,
}

/// Registers of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuRegisters {
    /// General registers; the first is 0.
    pub x: [u64; 32],
    /// The program counter.
    pub pc: u64,
    /// Whether it is in VS-mode, not in VU-mode.
    pub is_supervisor: bool,
    /// Whether the vCPU is started (SBI HSM). One that is not has registers of no meaning. Not written.
    pub is_started: bool,
    /// Floating-point registers, as bits.
    pub f: [u64; 32],
    /// `fcsr`.
    pub fcsr: u64,
    /// Supervisor registers.
    pub csrs: SupervisorRegisters,
}

/// Supervisor-level CSRs of a vCPU, by the names that the guest has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorRegisters {
    /// `sstatus`.
    pub sstatus: u64,
    /// `sie`.
    pub sie: u64,
    /// `stvec`.
    pub stvec: u64,
    /// `scounteren`.
    pub scounteren: u64,
    /// `senvcfg`.
    pub senvcfg: u64,
    /// `sscratch`.
    pub sscratch: u64,
    /// `sepc`.
    pub sepc: u64,
    /// `scause`.
    pub scause: u64,
    /// `stval`.
    pub stval: u64,
    /// `sip`, of what the monitor asserts. Not written.
    pub sip: u64,
    /// `stimecmp`, in ticks.
    pub stimecmp: u64,
    /// `satp`.
    pub satp: u64,
}

/// Where a vCPU was when it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The vCPU.
    pub vcpu: VcpuIndex,
    /// When, in ticks of the machine's clock.
    pub ticks: u64,
    /// Whether it was in VS-mode, not in VU-mode.
    pub is_supervisor: bool,
    /// The program counter, then the return addresses that its frame pointers (`s0`) lead to, up to [`MAX_STACK`] in all. In code that
    /// keeps no frame pointers these are wrong or missing.
    pub stack: Vec<u64>,
}
