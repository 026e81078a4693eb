//! Text for standard output.

use core::fmt::{self, Write};

/// Standard output, in one write for each call of [`print!`] that is not very long.
pub struct Output {
    buffer: [u8; 256],
    used: usize,
}

impl Output {
    /// With nothing to write yet.
    pub const fn new() -> Self {
        Self { buffer: [0; 256], used: 0 }
    }

    /// Writes what has been gathered.
    pub fn flush(&mut self) {
        super::linux::write(1, &self.buffer[..self.used]);
        self.used = 0;
    }
}

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.used == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.used] = byte;
            self.used += 1;
        }
        Ok(())
    }
}

macro_rules! print {
    ($($part:tt)*) => {{
        let mut output = crate::guest::output::Output::new();
        // Gathering text cannot fail.
        let _ = core::fmt::Write::write_fmt(&mut output, format_args!($($part)*));
        output.flush();
    }};
}
pub(crate) use print;
