//! Probe guest: checks one behaviour of the virtual machine at a time, from inside.
//!
//! A small S-mode program that boots like a kernel. `probe=NAME,NAME` on its command line selects what to do (all
//! checks by default); `n=COUNT` sets the repetitions of measurements. It prints, one per line:
//!
//! - `PROBE name ok`, or `PROBE name FAILED: why`
//! - `FIGURE id value unit samples`
//! - at the end `PROBES passed=N failed=M`, then it powers off.
//!
//! It runs unchanged on the bare machine (under the SBI firmware), which is the reference for what it expects.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod cpu;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod figures;
#[cfg(target_os = "none")]
mod probes;
#[cfg(target_os = "none")]
mod sbi;
#[cfg(target_os = "none")]
mod tree;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the probe guest runs inside a virtual machine: build it with `./x build`");
    std::process::exit(2);
}
