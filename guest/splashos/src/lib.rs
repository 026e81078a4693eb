//! SPLASHOS: a library operating system for one parallel program (Disco, section 4.4). The program is linked with it and has a VM
//! of its own: one address space, one thread on each vCPU that never moves, memory of 2 MiB pages, no kernel beside it.
//!
//! # A program
//! ```
//! # #![allow(unused)]
//! use splashos::{Crew, Vcpus, println, program};
//! program!(run);
//!
//! fn run() -> Result<(), &'static str> {
//!     let crew = Vcpus::all();
//!     crew.each(&|index| println!("hello from thread {index} of {}", crew.threads()));
//!     Ok(())
//! }
//! ```
//! Built for `riscv64gc-unknown-none-elf` with `link.ld` it boots in a VM as a kernel does; built for the host it is a program of
//! the host with the host's threads. `cargo test -p splashos` runs the latter.
//!
//! # Key types
//! - [`Vcpus`]: the threads, as workloads see them; [`start`] and [`join`] for one of them.
//! - [`Mutex`], [`Condition`], and [`workloads::Barrier`]: who waits looks a few times and then sleeps (WFI), so that the monitor
//!   gives the hart to others; who wakes it sends an interrupt.
//! - [`anl`]: the same for C, with the meaning of the macros that SPLASH-2 programs are written in (`anl.h`).
//! - [`now_ns`], [`argument`], [`println!`]: clock, words of the command line, console.
//!
//! # Memory
//! The heap hands out pieces of address space. The first touch of each 2 MiB faults, and the system maps a block of the toucher's
//! node; where the VM is shown no nodes, the monitor does the same below. Small things come from blocks of the vCPU that asks.
//! Stacks have an unmapped block below them. Text cannot be written, and nothing else be executed.
//!
//! # What it refuses
//! Every fault outside of the heap, a panic, and memory that is not there end the VM, with the reason on the console. More threads
//! than vCPUs are refused.
//!
//! # Locking
//! Two spin locks, for the map of the heap and for free blocks. Neither is held across the other, nor across a call of a program's.
#![cfg_attr(target_os = "none", no_std)]

pub mod anl;
pub mod blocks;
pub mod machine;
pub mod pools;
pub mod sizes;
mod sync;
mod threads;

#[cfg(not(target_os = "none"))]
mod host;
#[cfg(target_os = "none")]
mod run;

#[cfg(not(target_os = "none"))]
use host as platform;
#[cfg(target_os = "none")]
use run as platform;

#[cfg(not(target_os = "none"))]
#[doc(hidden)]
pub use host::main as host_main;
pub use platform::{argument, mark, now_ns, vcpus};
pub use sync::{Condition, Guard, Mutex};
pub use threads::{StartError, Vcpus, Work, join, start};
pub use workloads::{Barrier, Crew};

/// How a program ends: with the reason why it failed.
pub type Outcome = Result<(), &'static str>;

#[doc(hidden)]
pub fn write_fmt(text: core::fmt::Arguments<'_>) {
    platform::write_fmt(text);
}

/// What the system is told of a program's end.
#[doc(hidden)]
pub fn finish(outcome: Outcome) -> i32 {
    if let Err(why) = outcome {
        println!("the program failed: {why}");
    }
    i32::from(outcome.is_err())
}

/// Writes a line to the console.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::write_fmt(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Makes a function, `fn() -> splashos::Outcome`, the program.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// Called once, on the first vCPU, when the system is up.
        #[cfg(target_os = "none")]
        #[allow(unsafe_code, reason = "the name by which the system finds the program")]
        #[unsafe(no_mangle)]
        extern "C" fn splash_program() -> i32 {
            $crate::finish($main())
        }

        #[cfg(not(target_os = "none"))]
        fn main() -> std::process::ExitCode {
            $crate::host_main($main)
        }
    };
}
