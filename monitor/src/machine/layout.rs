//! The monitor's own virtual address space (Sv39, the mode that every supported machine has).
//!
//! | from | to | what |
//! | --- | --- | --- |
//! | `0xffff_ffc0_0000_0000` | + 128 GiB | direct map: machine address `m` at `DIRECT_BASE + m`, read-write |
//! | `0xffff_ffff_8000_0000` | + image | the monitor's image: text and read-only data from the node's own copy |
//!
//! The lower half is not used: a null pointer or a machine address taken for a virtual one traps.

use addr::MachineAddr;

/// Where the direct map begins.
pub const DIRECT_BASE: u64 = 0xffff_ffc0_0000_0000;
/// Bytes of machine address space in the direct map; memory above it is not used.
pub const DIRECT_SIZE: u64 = 128 << 30;
/// Where the image is linked.
pub const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;
/// The largest image that the boot tables map.
pub const IMAGE_MAX: u64 = 16 << 20;

/// Where the harts' stacks are, a slot for each.
pub const STACK_BASE: u64 = 0xffff_ffff_c000_0000;
/// Bytes of a stack's slot; what the stack does not take of it, at its lower end, is not mapped.
pub const STACK_SLOT: u64 = 1 << 20;
/// Bytes of a stack, at the upper end of its slot.
pub const STACK_BYTES: u64 = 128 << 10;

/// The top of the stack of the hart with this index.
#[must_use]
pub const fn stack_top(index: u64) -> u64 {
    STACK_BASE + (index + 1) * STACK_SLOT
}

/// The direct-map address of machine address `addr`.
#[inline(always)]
#[must_use]
pub const fn direct(addr: MachineAddr) -> u64 {
    DIRECT_BASE + addr.raw()
}

/// The machine address behind a direct-map address.
#[inline(always)]
#[must_use]
pub const fn machine_of_direct(va: u64) -> MachineAddr {
    MachineAddr::new(va - DIRECT_BASE)
}
