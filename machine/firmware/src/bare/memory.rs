//! Registers of devices, and memory of the programs above.
//
// UNSAFETY: machine addresses are turned into accesses here and nowhere else.
#![expect(unsafe_code)]

use containment::Hardware;

/// Writes a device's 32-bit register.
///
/// # Panics
/// If it is not aligned.
pub fn write_register32(address: u64, value: u32) {
    let register = address as *mut u32;
    assert!(register.is_aligned(), "a register at {address:#x}");
    // SAFETY: the addresses are those that the device tree gives to devices; they are no memory, so no Rust object is there.
    unsafe { register.write_volatile(value) };
}

/// Writes a device's 64-bit register.
///
/// # Panics
/// If it is not aligned.
pub fn write_register64(address: u64, value: u64) {
    let register = address as *mut u64;
    assert!(register.is_aligned(), "a register at {address:#x}");
    // SAFETY: as above.
    unsafe { register.write_volatile(value) };
}

/// Reads a device's 8-bit register.
pub fn read_register8(address: u64) -> u8 {
    // SAFETY: as above.
    unsafe { (address as *const u8).read_volatile() }
}

/// Writes a device's 8-bit register.
pub fn write_register8(address: u64, value: u8) {
    // SAFETY: as above.
    unsafe { (address as *mut u8).write_volatile(value) };
}

/// Reads a byte of a program above; `None` where there is no memory, or the firmware's.
pub fn read_byte(hardware: &Hardware, address: u64) -> Option<u8> {
    // SAFETY: it is memory and none of the firmware's, so no Rust object is there; volatile, as others may write it.
    hardware.is_open_memory(address, 1).then(|| unsafe { (address as *const u8).read_volatile() })
}

/// The device tree with the room behind it: up to the next multiple of 2 MiB, which is as far as QEMU leaves free.
pub fn tree_room(address: u64) -> &'static mut [u8] {
    const ROOM: u64 = 2 << 20;
    let bytes = ROOM - address % ROOM;
    // SAFETY: (1) QEMU puts the tree below the end of memory at a multiple of 2 MiB and nothing behind it; (2) only the boot
    // hart calls this, once, before anything else runs.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u8, bytes as usize) }
}

/// Writes a byte of a program above; whether there is memory that is not the firmware's.
pub fn write_byte(hardware: &Hardware, address: u64, byte: u8) -> bool {
    let is_open = hardware.is_open_memory(address, 1);
    if is_open {
        // SAFETY: as for `read_byte`.
        unsafe { (address as *mut u8).write_volatile(byte) };
    }
    is_open
}
