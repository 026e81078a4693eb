//! The system on a VM's vCPUs.

mod console;
mod cpu;
mod entry;
mod heap;
mod paging;
mod sbi;
mod wait;

use core::sync::atomic::AtomicU32;

pub(crate) use console::write_fmt;
pub use cpu::mark;
pub(crate) use wait::{sleep_while, wake_all};

/// How many vCPUs there are, the first among them.
pub fn vcpus() -> usize {
    entry::machine().map_or(1, |machine| machine.vcpus().len())
}

/// The value of word `name=value` of the command line; the last one counts.
pub fn argument(name: &str) -> Option<&'static str> {
    entry::machine()?.argument(name)
}

/// Nanoseconds of the VM's clock.
pub fn now_ns() -> u64 {
    let hz = entry::machine().map_or(1, |machine| machine.timebase_hz.max(1));
    // A clock of nanoseconds overflows after 584 years.
    (u128::from(cpu::time()) * 1_000_000_000 / u128::from(hz)) as u64
}

/// The word has changed for a vCPU's thread.
pub(crate) fn offer(_: usize, word: &AtomicU32) {
    wake_all(word);
}
