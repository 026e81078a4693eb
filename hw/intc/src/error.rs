//! What a controller cannot do.

use core::fmt;

use addr::{CpuIndex, HartId};
use machine_tree::{AddressRange, Controller};

/// A request that a controller of this machine cannot fulfil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntcError {
    /// The registers that the tree announces do not fit into the block it gives.
    RegisterBlockTooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes given.
        got: usize,
    },
    /// The caller could not map a register block.
    NotMapped {
        /// The block.
        range: AddressRange,
    },
    /// The source number is 0 or beyond the last.
    NoSuchSource {
        /// The source.
        source: u32,
    },
    /// The firmware keeps this source to itself.
    NotDelegated {
        /// The source.
        source: u32,
    },
    /// A wired route in a domain that sends MSIs, or the other way round.
    WrongDelivery,
    /// No such controller.
    NoSuchController {
        /// The controller.
        controller: Controller,
    },
    /// A controller has no wire to any hart that may take interrupts.
    Unreachable {
        /// The controller.
        controller: Controller,
    },
    /// The hart has no interrupt file.
    NoFile {
        /// The hart.
        hart: HartId,
    },
    /// No hart has this index.
    NoSuchCpu {
        /// The index.
        cpu: CpuIndex,
    },
    /// Every identity of the interrupt files is taken.
    NoIdentityLeft,
}

impl fmt::Display for IntcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegisterBlockTooSmall { need, got } => {
                write!(f, "interrupt controller needs {need:#x} bytes of registers, the tree gives {got:#x}")
            }
            Self::NotMapped { range } => write!(f, "cannot map interrupt controller at {range:?}"),
            Self::NoSuchSource { source } => write!(f, "interrupt controller has no source {source}"),
            Self::NotDelegated { source } => write!(f, "the firmware did not delegate interrupt source {source}"),
            Self::WrongDelivery => f.write_str("interrupt controller delivers in the other way"),
            Self::NoSuchController { controller } => write!(f, "no interrupt controller {controller:?}"),
            Self::Unreachable { controller } => write!(f, "{controller:?} has no wire to a usable hart"),
            Self::NoFile { hart } => write!(f, "{hart:?} has no interrupt file"),
            Self::NoSuchCpu { cpu } => write!(f, "no {cpu:?}"),
            Self::NoIdentityLeft => f.write_str("no interrupt identity is left"),
        }
    }
}

impl core::error::Error for IntcError {}
