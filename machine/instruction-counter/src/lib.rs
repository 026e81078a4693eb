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
//!//
// UNSAFETY: the block that is translated is a pointer.
#![expect(unsafe_code)]

mod modes;

use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use modes::{MODES, Mode, Reader};
use qemu_plugin::{Block, Callbacks, Id, Installation, Scoreboard};

/// Mask and value of `slti x0, x0, N`.
const MARK: (u32, u32) = (0x000f_ffff, 0x0000_2013);

struct Counter {
    counts: Scoreboard,
    out: Mutex<File>,
    /// Which modes have been met.
    seen: Mutex<[bool; MODES]>,
    reader: Mutex<Reader>,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

impl Counter {
    /// The first instruction of a mode is about to be executed.
    fn meet(&self, mode: Mode) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut seen[mode.index()], true)
            && let Some(name) = mode.supervisor_name()
        {
            self.print(&format!("FIRST {name}"));
        }
    }

    fn print(&self, what: &str) {
        let mut line = what.to_owned();
        for mode in 0..MODES {
            line.push_str(&format!(" {}", self.counts.entry(mode).sum()));
        }
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody is there to be told that the file cannot be written; the reader misses the line.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

qemu_plugin::export!("instruction-counter", install);

fn install(installation: Installation) -> Result<(), String> {
    let path = installation.arguments.iter().find_map(|argument| argument.strip_prefix("out="));
    let path = path.ok_or("say out=FILE")?;
    let out = File::create(path).map_err(|error| format!("{path}: {error}"))?;
    let (seen, reader) = (Mutex::default(), Mutex::default());
    let counter = Counter { counts: Scoreboard::new(MODES), out: Mutex::new(out), seen, reader };
    COUNTER.set(counter).map_err(|_| "it is loaded twice")?;
    qemu_plugin::register(installation.id, &Callbacks { hart_begins: None, translate, flush: None, exit });
    Ok(())
}

extern "C" fn exit(_: Id, _: *mut c_void) {
    if let Some(counter) = COUNTER.get() {
        counter.print("END");
    }
}

extern "C" fn translate(_: Id, block: *mut c_void) {
    let Some(counter) = COUNTER.get() else { return };
    // SAFETY: QEMU's pointer, used during this call.
    let block = unsafe { Block::new(block) };
    let mode = counter.reader.lock().unwrap_or_else(PoisonError::into_inner).mode();
    counter.meet(mode);
    block.add(counter.counts.entry(mode.index()), block.len() as u64);
    for (index, word) in block.words().enumerate() {
        if word & MARK.0 == MARK.1 && word >> 20 != 0 {
            block.instruction(index).call(at_mark, (word >> 20) as usize, false);
        }
    }
}

extern "C" fn at_mark(_: c_uint, number: *mut c_void) {
    if let Some(counter) = COUNTER.get() {
        counter.print(&format!("MARK {}", number.addr()));
    }
}
