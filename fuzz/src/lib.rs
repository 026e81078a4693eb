//! Targets for coverage-guided fuzzing: one for each place where the monitor or its host's programs read what they cannot trust.
//!
//! A target is a function of bytes. It makes something hostile of them, gives it to the code under test, and panics if that breaks
//! a promise: by a panic of its own, or because what came out is not what the crate says. What the code *refuses* is no finding.
//!
//! `./x fuzz` builds a target with the compiler's coverage instrumentation and libFuzzer and runs it for some time. What it finds is
//! kept in `target/fuzz/TARGET`, and [`TARGETS`] has the corpora's folders in `fuzz/corpus`. `cargo test -p fuzz` replays the
//! corpora and some thousand damaged copies of each seed, always the same ones.
//!
//! # A new target
//! A file in `targets/`, a line in [`TARGETS`], a folder with some good inputs in `corpus/`. It must do the same each time it is given the
//! same bytes, take well under a millisecond, and keep nothing.
#![forbid(unsafe_code)]

mod input;
mod targets;

pub use input::Input;

/// A target: its name, and what it does with bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its corpus' folder.
    pub name: &'static str,
    /// What it tries, in a few words.
    pub about: &'static str,
    /// Runs it once. Panics if it has found something.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 21] = [
    target("balloon", "virtio balloon over a hostile queue", targets::balloon),
    target("block", "virtio disk over a hostile queue", targets::block),
    target("bundle", "the boot bundle, as the monitor finds it in memory", targets::bundle),
    target("cells", "pipes between cells whose memory comes and goes", targets::cells),
    target("clients", "the supervisor's routing of clients, and of what the monitor answers", targets::clients),
    target("console", "virtio console over a hostile queue", targets::console),
    target("crash-log", "what a panic left in a log that guests write to", targets::crash_log),
    target("dsm", "frames between machines that share a VM's memory, and messages in them", targets::dsm),
    target("entropy", "virtio entropy device over a hostile queue", targets::entropy),
    target("frames", "control frames and messages, both ways", targets::frames),
    target("instructions", "instructions and page-table entries that the monitor decodes", targets::instructions),
    target("machine-file", "machine files", targets::machine_file),
    target("machine-tree", "the machine's device tree, whole and cut to nodes", targets::machine_tree),
    target("nbd", "the disk server's client", targets::nbd),
    target("net", "virtio network card over a hostile queue", targets::net),
    target("offload", "frames with work left undone, to a guest and to the gateway", targets::offload),
    target("partitions", "partition tables with right checksums", targets::partitions),
    target("platform", "UART, clock, power switch and interrupt controllers", targets::platform),
    target("programs", "ELF files", targets::programs),
    target("sbi", "SBI calls and what they change in a hart", targets::sbi),
    target("volumes", "a store's log with right checksums, and use of what it describes", targets::volumes),
];

const fn target(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run }
}

/// The target of this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub const fn find(name: &str) -> Target {
    let mut at = 0;
    while at < TARGETS.len() {
        if is_same(TARGETS[at].name.as_bytes(), name.as_bytes()) {
            return TARGETS[at];
        }
        at += 1;
    }
    panic!("no such target")
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    left.len() == right.len()
}
