//! The monitor's own log, over the SBI debug console: the one output that every machine has.
//!
//! For what the monitor has to say about itself, not a trace: a guest can never cause a line per action here.

use super::memory;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use rv::{csr, sbi};
use spin::{Mutex, Once};

/// Ticks of the clock in a second. Until the device tree has told, lines carry ticks as if they were microseconds.
static TIMEBASE_HZ: AtomicU64 = AtomicU64::new(1_000_000);

static CONSOLE: Mutex<Line> = Mutex::new(Line { bytes: [0; LINE_BYTES], len: 0 });

/// What the cell is called, for machines that have several.
static CELL: Once<&'static str> = Once::new();

/// Bytes that go to the firmware at once. Lines of several cells mix only where they are longer.
const LINE_BYTES: usize = 256;

/// A line on its way out. It lies in the image, of which the firmware can be told the machine address.
struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    fn push(&mut self, byte: u8) {
        if self.len == LINE_BYTES {
            self.flush();
        }
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Hands over what there is, in one call where the firmware has one for it.
    fn flush(&mut self) {
        let at = memory::machine_address_of(self.bytes.as_ptr() as u64).raw();
        let mut done = 0;
        while done < self.len {
            let answer = sbi::console_write(at + done as u64, (self.len - done) as u64);
            if !answer.is_ok() || answer.value == 0 {
                break;
            }
            done += answer.value as usize;
        }
        self.bytes[..self.len].iter().skip(done).for_each(|byte| sbi::console_byte(*byte));
        self.len = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

/// The console without a lock and a memory.
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
        let _ = write!(console, "[{seconds:>5}.{us:06}] {:<5} ", record.level());
        if let Some(cell) = CELL.get() {
            let _ = write!(console, "cell {cell}: ");
        }
        let _ = writeln!(console, "{}", record.args());
        console.flush();
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

/// From here on lines say which cell they are of.
pub fn set_cell(name: &'static str) {
    CELL.call_once(|| name);
}

/// Ticks of the clock in a second.
#[must_use]
pub fn timebase() -> u64 {
    TIMEBASE_HZ.load(Ordering::Relaxed)
}

/// Writes bytes as they are, for whoever dies: at once if nobody is at the log, else byte by byte.
pub fn last_bytes(bytes: &[u8]) {
    match CONSOLE.try_lock() {
        Some(mut console) => {
            // What another hart has left there comes first.
            for byte in bytes {
                console.push(*byte);
            }
            console.flush();
        }
        None => bytes.iter().for_each(|byte| sbi::console_byte(*byte)),
    }
}

/// Writes a last message without taking the lock: whoever holds it may be the one that died.
pub fn last_words(args: fmt::Arguments<'_>) {
    let cell = CELL.get().copied().unwrap_or_default();
    let _ = writeln!(Console, "\nMONITOR PANIC: {cell}{}{args}", if cell.is_empty() { "" } else { ": " });
}
