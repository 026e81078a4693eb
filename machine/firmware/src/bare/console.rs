//! The UART: what the firmware says itself, and the SBI's debug console.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spin::Mutex;

use super::memory::{read_register8, write_register8};

const LINE_STATUS: u64 = 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
const DATA_READY: u8 = 1 << 0;

static UART: AtomicU64 = AtomicU64::new(0);
/// Held for a line, so that those of several harts do not mix.
static TURN: Mutex<()> = Mutex::new(());

/// Sets the UART's address.
pub fn init(uart: u64) {
    UART.store(uart, Relaxed);
}

struct Uart(u64);

impl Uart {
    fn get() -> Option<Self> {
        let address = UART.load(Relaxed);
        (address != 0).then_some(Self(address))
    }

    fn put(&self, byte: u8) {
        // The emulated transmitter is always ready after at most a moment; a broken one must not hold the hart.
        for _ in 0..1_000_000 {
            if read_register8(self.0 + LINE_STATUS) & TRANSMITTER_EMPTY != 0 {
                break;
            }
        }
        write_register8(self.0, byte);
    }
}

impl fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.put(byte));
        Ok(())
    }
}

/// Writes bytes in one go.
pub fn write(bytes: impl Iterator<Item = u8>) {
    if let Some(uart) = Uart::get() {
        let _turn = TURN.lock();
        bytes.for_each(|byte| uart.put(byte));
    }
}

/// A byte that was typed.
pub fn read() -> Option<u8> {
    let uart = Uart::get()?;
    let _turn = TURN.lock();
    (read_register8(uart.0 + LINE_STATUS) & DATA_READY != 0).then(|| read_register8(uart.0))
}

/// Prints a line.
pub fn print_line(text: fmt::Arguments<'_>) {
    if let Some(mut uart) = Uart::get() {
        let _turn = TURN.lock();
        let _ = fmt::Write::write_fmt(&mut uart, format_args!("firmware: {text}\r\n"));
    }
}

/// Prints a line even if somebody is at it: the last words of a hart.
pub fn print_last_words(text: fmt::Arguments<'_>) {
    if let Some(mut uart) = Uart::get() {
        let _ = fmt::Write::write_fmt(&mut uart, format_args!("\r\nfirmware: {text}\r\n"));
    }
}
