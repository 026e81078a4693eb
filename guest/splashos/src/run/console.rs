//! The console: the SBI's, or the UART where there is none.
//
// UNSAFETY: device registers.
#![expect(unsafe_code)]

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use spin::Mutex;

use super::sbi;

/// Most bytes of a call.
const BUFFER: usize = 256;

/// Text on its way. It lies in the image, whose addresses are physical, as the SBI wants them.
struct Console {
    text: [u8; BUFFER],
    used: usize,
}

static CONSOLE: Mutex<Console> = Mutex::new(Console { text: [0; BUFFER], used: 0 });
/// For who dies, and may hold the other.
static LAST: Mutex<Console> = Mutex::new(Console { text: [0; BUFFER], used: 0 });

impl Console {
    fn flush(&mut self) {
        /// A console that takes nothing is asked so often.
        const PATIENCE: usize = 1000;
        let mut rest = self.text.get(..self.used).unwrap_or_default();
        for _ in 0..PATIENCE {
            match sbi::console_write(rest) {
                Some(count) => rest = rest.get(count..).unwrap_or_default(),
                None => {
                    rest.iter().for_each(|byte| uart(*byte));
                    rest = &[];
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        self.used = 0;
    }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if let Some(place) = self.text.get_mut(self.used) {
                *place = byte;
                self.used += 1;
            }
            if self.used == BUFFER {
                self.flush();
            }
        }
        Ok(())
    }
}

/// Writes to the UART of QEMU's `virt` machine.
fn uart(byte: u8) {
    const UART: *mut u8 = 0x1000_0000 as *mut u8;
    const LINE_STATUS: usize = 5;
    const EMPTY: u8 = 1 << 5;
    const PATIENCE: usize = 1 << 20;
    // SAFETY: device registers; polling and writing have no effect on memory.
    unsafe {
        let _ = (0..PATIENCE).find(|_| UART.add(LINE_STATUS).read_volatile() & EMPTY != 0);
        UART.write_volatile(byte);
    }
}

/// Writes to the console.
pub(crate) fn write_fmt(text: fmt::Arguments<'_>) {
    let mut console = CONSOLE.lock();
    let _ = console.write_fmt(text);
    console.flush();
}

/// Says why the VM ends, and ends it. Who dies second, waits for that.
pub(super) fn die(why: fmt::Arguments<'_>) -> ! {
    static DIES: AtomicBool = AtomicBool::new(false);
    // Relaxed: it guards nothing but the right to speak last.
    if !DIES.swap(true, Ordering::Relaxed) {
        if let Some(mut console) = LAST.try_lock() {
            let _ = console.write_fmt(format_args!("SPLASHOS ends the VM: vCPU {}: {why}\n", super::cpu::this_vcpu()));
            console.flush();
        }
        sbi::shutdown(true);
    }
    loop {
        super::cpu::wait_for_interrupt();
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    die(format_args!("{info}"))
}
