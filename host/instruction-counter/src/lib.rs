//! QEMU plugin: counts instructions by privilege mode, on all harts together.
//!
//! The instruction `slti x0, x0, N` does nothing in any mode on any RISC-V hart: N = 1 to 2047 marks a place in a
//! program. At each mark, at the first instruction of a supervisor and of a virtual supervisor, and at the end, a line
//! goes to the file given by `out=`:
//!
//! ```text
//! MARK n u hs m vu vs       n = the mark; the counts so far
//! FIRST mode u hs m vu vs   mode = hs or vs
//! END u hs m vu vs
//! ```
//!
//! Counted per translation block, before it runs: a block that ends early by an exception counts wholly. That is
//! below 1 in 10,000 on the workloads of the lab.
//!
//! Written against the plugin API of QEMU 10.0 (version 4), declared by hand in `qemu`: only what is used.

mod modes;
mod qemu;

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

use modes::{MODES, Mode, Reader};
use qemu::{Block, Id, Scoreboard};

/// Mask and value of `slti x0, x0, N`.
const MARK: (u32, u32) = (0x000f_ffff, 0x0000_2013);

struct Counter {
    counts: Scoreboard<{ MODES }>,
    out: Mutex<File>,
    /// Which modes have been met.
    seen: Mutex<[bool; MODES]>,
    reader: Mutex<Reader>,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

impl Counter {
    /// The first instruction of a mode is about to be executed.
    fn meet(&self, mode: Mode) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !std::mem::replace(&mut seen[mode.index()], true)
            && let Some(name) = mode.supervisor_name()
        {
            self.print(&format!("FIRST {name}"));
        }
    }

    fn print(&self, what: &str) {
        let mut line = what.to_owned();
        for mode in 0..MODES {
            line.push_str(&format!(" {}", self.counts.sum(mode)));
        }
        let mut out = self.out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Nobody is there to be told that the file cannot be written; the reader misses the line.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// Called by QEMU when it loads the plugin: 0 = ready.
pub(crate) fn install(id: Id, arguments: &[String]) -> i32 {
    let Some(path) = arguments.iter().find_map(|argument| argument.strip_prefix("out=")) else {
        eprintln!("instruction-counter: say out=FILE");
        return -1;
    };
    let out = match File::create(path) {
        Ok(file) => Mutex::new(file),
        Err(error) => {
            eprintln!("instruction-counter: {path}: {error}");
            return -1;
        }
    };
    let counter =
        Counter { counts: Scoreboard::new(), out, seen: Mutex::default(), reader: Mutex::new(Reader::default()) };
    if COUNTER.set(counter).is_err() {
        return -1;
    }
    qemu::on_translation(id, translate);
    qemu::on_exit(id, || {
        if let Some(counter) = COUNTER.get() {
            counter.print("END");
        }
    });
    0
}

fn translate(block: &Block) {
    let Some(counter) = COUNTER.get() else { return };
    let mode = counter.reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner).mode();
    counter.meet(mode);
    block.add_at_each_run(counter.counts.entry(mode.index()), block.len() as u64);
    for instruction in block.instructions() {
        let word = instruction.word();
        if word & MARK.0 == MARK.1 && word >> 20 != 0 {
            instruction.call_at_each_run(at_mark, (word >> 20) as usize);
        }
    }
}

fn at_mark(number: usize) {
    if let Some(counter) = COUNTER.get() {
        counter.print(&format!("MARK {number}"));
    }
}
