//! Workload guest: the first and only program of a Linux system, which does things that operating systems are measured
//! by and marks where each begins and ends.
//!
//! A static program without a C library: it runs on any RISC-V Linux as `/init`, bare or in a VM. The marks are
//! `slti x0, x0, N`, which does nothing but can be seen by a counting emulator: 1 = the program begins, then 2k and
//! 2k + 1 around workload k. `/compile` is started as workload 9 if it exists. At the end it powers off.
//!
//! `scale=N` on the kernel's command line (an environment variable here) divides all repetitions.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the workload guest runs inside a virtual machine: build it with `./x build`");
    std::process::exit(2);
}

#[cfg(target_os = "none")]
mod guest;
