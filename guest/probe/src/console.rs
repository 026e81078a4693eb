//! Output over the 16550 UART (polled), so that it also exercises a device model.
//
// UNSAFETY: device registers.
#![expect(unsafe_code)]

use core::fmt;

const UART: *mut u8 = 0x1000_0000 as *mut u8;
const LINE_STATUS: usize = 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;

/// The UART.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the UART of QEMU's `virt` machine; polling and writing have no effect on memory.
            unsafe {
                while UART.add(LINE_STATUS).read_volatile() & TRANSMITTER_EMPTY == 0 {}
                UART.write_volatile(byte);
            }
        }
        Ok(())
    }
}

/// Takes what was typed, as far as it has come.
pub fn typed() -> impl Iterator<Item = u8> {
    const DATA_READY: u8 = 1;
    core::iter::from_fn(|| {
        // SAFETY: as above.
        unsafe { (UART.add(LINE_STATUS).read_volatile() & DATA_READY != 0).then(|| UART.read_volatile()) }
    })
}

/// Prints one line.
macro_rules! println {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _ = writeln!($crate::console::Console, $($arg)*);
    }};
}
pub(crate) use println;
