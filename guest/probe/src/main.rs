//! Probe guest: checks one behaviour of the virtual machine at a time, from inside.
//!
//! A small S-mode program that boots like a kernel. `probe=NAME,NAME` on its command line selects what to do (all
//! checks by default); `n=COUNT` sets the repetitions of measurements. It prints, one per line:
//!
//! - `PROBE name ok`, `PROBE name FAILED: why`, or `PROBE name skipped: why` where the machine lacks something
//! - `FIGURE id value unit samples`
//! - at the end `PROBES passed=N failed=M`, then it powers off.
//!
//! `figure=NAME,NAME` measures instead (and with `stay` waits then for ever, with `ticks=N` counts by time); `attack=NAME` does what only a broken or hostile guest does and expects to be
//! stopped: it says `ATTACK name survived` if it is not. `attack=hostile-DEVICE-BEHAVIOUR` goes on for ever (see `hostile/`),
//! and so do `attack=canary-hide` and `attack=canary-seek` (see `canary.rs`).
//!
//! `disk=OP,OP` does what a driver does with a disk, and what it should not (see `disk.rs`).
//!
//! It runs unchanged on the bare machine (under the SBI firmware), which is the reference for what it expects. Where a
//! Mirrorball VM promises more than a machine has to, the probe knows the monitor by its SBI implementation id.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod attacks;
#[cfg(target_os = "none")]
mod canary;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod cpu;
#[cfg(target_os = "none")]
mod disk;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod figures;
#[cfg(target_os = "none")]
mod fpu;
#[cfg(target_os = "none")]
mod hostile;
#[cfg(target_os = "none")]
mod imsic;
#[cfg(target_os = "none")]
mod layout;
#[cfg(target_os = "none")]
mod no_heap;
#[cfg(target_os = "none")]
mod probes;
#[cfg(target_os = "none")]
mod resume;
#[cfg(target_os = "none")]
mod sbi;
#[cfg(target_os = "none")]
mod storms;
#[cfg(target_os = "none")]
mod tree;
#[cfg(target_os = "none")]
mod user;
#[cfg(target_os = "none")]
mod virtio;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the probe guest runs inside a virtual machine: build it with `./x build`");
    std::process::exit(2);
}
