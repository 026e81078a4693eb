//! RISC-V supervisor and hypervisor mechanisms for a monitor that runs in HS-mode.
//!
//! Two kinds of modules live here. *Pure* ones ([`decode`], [`cause`], [`fields`]) turn bits into values and are
//! tested on the host. *Privileged* ones ([`copy`], [`csr`], [`fence`], [`sbi`], [`world`], [`guarded`], [`host_trap`]) exist only on the
//! target and are the only code of the monitor that executes privileged instructions.
//!
//! Field and register names are those of the RISC-V Privileged Architecture, version 20240411, chapters
//! "Supervisor-Level ISA" and "Hypervisor Extension".
//!
//! # Locking
//! None: everything here concerns the hart that executes it.
#![cfg_attr(target_os = "none", no_std)]

pub mod cause;
pub mod decode;
pub mod fields;

#[cfg(target_arch = "riscv64")]
pub mod copy;
#[cfg(target_arch = "riscv64")]
pub mod csr;
#[cfg(target_arch = "riscv64")]
pub mod fence;
#[cfg(target_arch = "riscv64")]
pub mod fp;
#[cfg(target_arch = "riscv64")]
pub mod guarded;
#[cfg(target_arch = "riscv64")]
pub mod host_trap;
#[cfg(target_arch = "riscv64")]
pub mod sbi;
#[cfg(target_arch = "riscv64")]
pub mod world;
