//! DBCN: the debug console.

use rustsbi::{Physical, SbiRet};

use crate::bare::{console, harts::hardware, memory};

/// Bytes that one call writes at most; the caller asks again for the rest.
const AT_MOST: usize = 256;

/// The extension.
pub struct Console;

impl rustsbi::Console for Console {
    fn write(&self, bytes: Physical<&[u8]>) -> SbiRet {
        let (start, count) = (bytes.phys_addr_lo() as u64, bytes.num_bytes());
        if bytes.phys_addr_hi() != 0 || !hardware().is_open_memory(start, count as u64) {
            return SbiRet::invalid_param();
        }
        let count = count.min(AT_MOST);
        console::write((start..start + count as u64).map(|at| memory::read_byte(hardware(), at).unwrap_or(b'?')));
        SbiRet::success(count)
    }

    fn read(&self, bytes: Physical<&mut [u8]>) -> SbiRet {
        let (start, count) = (bytes.phys_addr_lo() as u64, bytes.num_bytes());
        if bytes.phys_addr_hi() != 0 || !hardware().is_open_memory(start, count as u64) {
            return SbiRet::invalid_param();
        }
        let typed = (start..start + count.min(AT_MOST) as u64).map_while(|at| Some((at, console::read()?)));
        SbiRet::success(typed.filter(|(at, byte)| memory::write_byte(hardware(), *at, *byte)).count())
    }

    fn write_byte(&self, byte: u8) -> SbiRet {
        console::write([byte].into_iter());
        SbiRet::success(0)
    }
}
