//! Where the probe puts what it needs outside of its image. Everything lies in the first 32 MiB of RAM, the least that
//! a VM may have.

/// Rings of virtqueues.
pub const RINGS: u64 = 0x8100_0000;
/// Small things of probes: tables, words, stacks, up to the buffers.
pub const SCRATCH: u64 = 0x8104_0000;
/// Buffers for devices.
pub const BUFFERS: u64 = 0x8110_0000;
/// From here on nothing is in use, except for the device tree.
pub const FREE: u64 = 0x8120_0000;
