//! The monitor's own log, over the SBI debug console: the one output that every machine has.
//!
//! For what the monitor has to say about itself, not a trace: a guest can never cause a line per action here.

use core::fmt::{self, Write};
use rv::{csr, sbi};
use spin::Mutex;

static CONSOLE: Mutex<Console> = Mutex::new(Console);

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            sbi::console_byte(byte);
        }
        Ok(())
    }
}

struct Sink;

static SINK: Sink = Sink;

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut console = CONSOLE.lock();
        // The console cannot fail; a formatting error of a caller's type is not worth dying for.
        let _ = writeln!(console, "[{:>12}] {:<5} {}", csr::time::read(), record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Starts the log.
pub fn init() {
    if log::set_logger(&SINK).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Writes a last message without taking the lock: whoever holds it may be the one that died.
pub fn last_words(args: fmt::Arguments<'_>) {
    let _ = writeln!(Console, "\nMONITOR PANIC: {args}");
}
