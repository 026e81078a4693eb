//! Looks inside running VMs.
//!
//! # Key types
//! - [`Session`]: a debugger's session with a VM: registers, memory, breakpoints, going on.
//! - [`Space`]: a guest's memory by virtual address, through the guest's own tables.
//! - [`gdb::serve`]: speaks gdb's remote protocol for a session.
//! - [`profile::Profile`]: where its vCPUs spend their time.
//! - [`core::write`]: the VM as an ELF core file.
//!
//! # What it refuses
//! What a guest says in its page tables is hostile: walks have an end, and nothing leaves the guest's RAM, for the monitor looks at each
//! access. What gdb says is checked by `gdbstub`.
//!
//! No `unsafe`, no locks. Tested on played memory, and by the system test `inspect` on a real guest.
#![forbid(unsafe_code)]

pub mod core;
pub mod gdb;
pub mod profile;
mod session;
mod space;
mod step;

pub use session::Session;
pub use space::Space;
pub use step::{Step, plan};

use control::ControlError;
use machine::ClientError;
use thiserror::Error;

/// Why looking fails.
#[derive(Debug, Error)]
pub enum InspectError {
    /// The machine refuses it, or is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The guest's tables map nothing there.
    #[error("the guest has nothing at {address:#x}")]
    Unmapped {
        /// The guest-virtual address.
        address: u64,
    },
    /// gdb's connection.
    #[error("the connection to gdb ended: {0}")]
    Connection(std::io::Error),
    /// A file cannot be written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl InspectError {
    /// Whether the VM is gone.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Client(
                ClientError::StreamEnded(_)
                    | ClientError::Disconnected { .. }
                    | ClientError::Refused(ControlError::UnknownStream { .. } | ControlError::UnknownVm { .. })
            )
        )
    }
}

/// A guest's RAM by guest-physical address.
pub trait GuestRam {
    /// Reads it.
    ///
    /// # Errors
    /// If there is none.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), InspectError>;

    /// Writes it.
    ///
    /// # Errors
    /// As for reading.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), InspectError>;
}
