//! The monitor's own log, over the SBI debug console: the one output that every machine has.
//!
//! For what the monitor has to say about itself, not a trace: a guest can never cause a line per action here.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use rv::{csr, sbi};
use spin::Mutex;

/// Ticks of the clock in a second. Until the device tree has told, lines carry ticks as if they were microseconds.
static TIMEBASE_HZ: AtomicU64 = AtomicU64::new(1_000_000);

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
        let hz = TIMEBASE_HZ.load(Ordering::Relaxed);
        let now = csr::time::read();
        let (seconds, ticks) = (now / hz, now % hz);
        let us = u128::from(ticks) * 1_000_000 / u128::from(hz);
        let mut console = CONSOLE.lock();
        // The console cannot fail; a formatting error of a caller's type is not worth dying for.
        let _ = writeln!(console, "[{seconds:>5}.{us:06}] {:<5} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Starts the log.
pub fn init() {
    if log::set_logger(&SINK).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// From here on lines carry the seconds since the machine's clock began, as `mirrorball events` shows them.
pub fn set_timebase(hz: u64) {
    TIMEBASE_HZ.store(hz.max(1), Ordering::Relaxed);
}

/// Writes a last message without taking the lock: whoever holds it may be the one that died.
pub fn last_words(args: fmt::Arguments<'_>) {
    let _ = writeln!(Console, "\nMONITOR PANIC: {args}");
}
