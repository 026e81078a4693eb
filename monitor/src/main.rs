//! The bare-metal image of Mirrorball: boot, the per-hart loop, and the wiring between mechanisms, policies and
//! device models. Little logic of its own: what can be tested without a machine lives on a lower floor.
//!
//! Built for `riscv64imac-unknown-none-elf`, a target without floating point, so that the compiler never touches
//! a guest's FP state. `docs/architecture.md` tells how the parts work together.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod control;
#[cfg(target_os = "none")]
mod hart;
#[cfg(target_os = "none")]
mod io;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod run;
#[cfg(target_os = "none")]
mod services;
#[cfg(target_os = "none")]
mod trace;
#[cfg(target_os = "none")]
mod vcpu;
#[cfg(target_os = "none")]
mod version;
#[cfg(target_os = "none")]
mod vm;

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    services::crash::panicked(info)
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the monitor runs on a RISC-V machine: build it with `./x build`, start it with `./x mirrorball run`");
    std::process::exit(2);
}
