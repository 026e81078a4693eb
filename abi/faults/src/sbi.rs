//! The firmware's SBI extension, in the range that the specification leaves to firmware.

/// The extension: `base::probe_extension` tells whether the firmware has it.
pub const EID: u64 = 0x0a4d_4246;

/// Gives the machine address of the status page. No arguments.
pub const STATUS_ADDRESS: u64 = 0;
/// Injects a fault at once: kind, nodes, address, as in [`Fault::decode`](crate::Fault::decode). Returns the epoch that it
/// begins; the value beside an error is the code of a [`Refusal`](crate::Refusal).
pub const INJECT: u64 = 1;
/// The write firewall: the argument is the caller's cell, a set of nodes with the caller's own in it. The harts of these
/// nodes lose the right to write the memory of all others, until a call with 0.
pub const WRITE_FIREWALL: u64 = 2;
