//! The same on the host: its threads instead of vCPUs.

use std::fmt;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use crate::machine::MAX_VCPUS;
use crate::{Outcome, threads};

/// How many threads a program has that says nothing else by `vcpus=N`.
const USUAL: usize = 4;

/// How many vCPUs there are, the first among them.
pub fn vcpus() -> usize {
    let wanted = argument("vcpus").and_then(|word| word.parse().ok());
    wanted.unwrap_or(USUAL).clamp(1, MAX_VCPUS)
}

/// The value of word `name=value` of the command line; the last one counts.
pub fn argument(name: &str) -> Option<&'static str> {
    static WORDS: OnceLock<Vec<String>> = OnceLock::new();
    let words = WORDS.get_or_init(|| std::env::args().skip(1).collect());
    words.iter().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Nanoseconds since the program began.
pub fn now_ns() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A mark for an emulator: nobody here sees it.
pub const fn mark<const N: u16>() {}

pub(crate) fn write_fmt(text: fmt::Arguments<'_>) {
    print!("{text}");
}

/// The word has changed for a vCPU's thread.
pub(crate) fn offer(vcpu: usize, _: &AtomicU32) {
    std::thread::spawn(move || threads::serve(vcpu));
}

/// Waits a moment; the caller looks again.
pub(crate) fn sleep_while(_: &AtomicU32, _: u32) {
    std::thread::yield_now();
}

/// Nobody sleeps for long here.
pub(crate) const fn wake_all(_: &AtomicU32) {}

/// A program of the host.
pub fn main(program: fn() -> Outcome) -> ExitCode {
    now_ns();
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("the program failed: {why}");
            ExitCode::FAILURE
        }
    }
}
