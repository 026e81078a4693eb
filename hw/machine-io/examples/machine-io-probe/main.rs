//! Drives the machine's own devices for real: boots in S-mode under OpenSBI, finds the devices in the tree, and uses
//! them by interrupts. The test `on_qemu` boots it on several machines.
//!
//! It prints a line per check and, at the end, `probe passed` or `probe FAILED`. The control port echoes what it gets
//! until a line `quit` comes.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare;
#[cfg(target_os = "none")]
mod checks;

/// On the host there is nothing to probe.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("build for riscv64imac-unknown-none-elf and boot it, as the test on_qemu does");
}
