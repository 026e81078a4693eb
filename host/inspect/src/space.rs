//! A guest's memory by virtual address, through the guest's own tables.

use std::cell::RefCell;
use std::collections::HashMap;

use addr::BASE_PAGE;
use rv_pte::{Level, Satp};

use crate::{GuestRam, InspectError};

/// Pages kept of what was read.
const KEPT: usize = 1024;

/// A guest's memory while it stands still: what was read once is kept until somebody writes, or [`Space::forget`] is called.
#[derive(Debug, Default)]
pub struct Space {
    pages: RefCell<HashMap<u64, Box<[u8]>>>,
}

impl Space {
    /// The guest goes on: nothing that was read is true any more.
    pub fn forget(&self) {
        self.pages.borrow_mut().clear();
    }

    /// Reads guest-physical memory.
    ///
    /// # Errors
    /// If there is none.
    pub fn read_physical(&self, ram: &impl GuestRam, address: u64, into: &mut [u8]) -> Result<(), InspectError> {
        let mut done = 0;
        while done < into.len() {
            let at = address.checked_add(done as u64).ok_or(InspectError::Unmapped { address })?;
            let offset = (at % BASE_PAGE) as usize;
            let len = (BASE_PAGE as usize - offset).min(into.len() - done);
            self.with_page(ram, at - offset as u64, |page| {
                into[done..done + len].copy_from_slice(&page[offset..offset + len]);
            })?;
            done += len;
        }
        Ok(())
    }

    fn with_page(&self, ram: &impl GuestRam, page: u64, see: impl FnOnce(&[u8])) -> Result<(), InspectError> {
        let mut pages = self.pages.borrow_mut();
        if !pages.contains_key(&page) {
            let mut bytes = vec![0; BASE_PAGE as usize];
            ram.read(page, &mut bytes)?;
            if pages.len() >= KEPT {
                pages.clear();
            }
            pages.insert(page, bytes.into_boxed_slice());
        }
        if let Some(bytes) = pages.get(&page) {
            see(bytes);
        }
        Ok(())
    }

    /// The guest-physical address that `satp` leads to.
    ///
    /// # Errors
    /// If nothing is mapped there.
    pub fn translate(&self, ram: &impl GuestRam, satp: u64, address: u64) -> Result<u64, InspectError> {
        let unmapped = InspectError::Unmapped { address };
        let root = match Satp::decode(satp) {
            Ok(None) => return Ok(address),
            Ok(Some(root)) if root.mode.input_bits() >= significant_bits(address) => root,
            _ => return Err(unmapped),
        };
        let read = |table: addr::Mfn, index: usize| {
            let mut entry = [0; 8];
            let at = table.raw().checked_mul(BASE_PAGE)?.checked_add(8 * index as u64)?;
            self.read_physical(ram, at, &mut entry).ok()?;
            Some(u64::from_le_bytes(entry))
        };
        let (level, leaf) = rv_pte::walk(root, address, read);
        let leaf = leaf.ok_or(unmapped)?;
        let offset = address & (level.entry_bytes() - 1);
        debug_assert!(level >= Level::BASE);
        Ok(leaf.frame.raw() * BASE_PAGE + offset)
    }

    /// Reads virtual memory: as many bytes as are mapped from `address` on.
    ///
    /// # Errors
    /// If not even the first byte is.
    pub fn read(&self, ram: &impl GuestRam, satp: u64, address: u64, into: &mut [u8]) -> Result<usize, InspectError> {
        self.each_piece(ram, satp, address, into.len(), |physical, from, to| {
            self.read_physical(ram, physical, &mut into[from..to])
        })
    }

    /// Writes virtual memory, whatever the tables say of rights: as many bytes as are mapped from `address` on.
    ///
    /// # Errors
    /// As for reading.
    pub fn write(&self, ram: &impl GuestRam, satp: u64, address: u64, bytes: &[u8]) -> Result<usize, InspectError> {
        let written = self
            .each_piece(ram, satp, address, bytes.len(), |physical, from, to| ram.write(physical, &bytes[from..to]));
        self.forget();
        written
    }

    fn each_piece(
        &self,
        ram: &impl GuestRam,
        satp: u64,
        address: u64,
        len: usize,
        mut each: impl FnMut(u64, usize, usize) -> Result<(), InspectError>,
    ) -> Result<usize, InspectError> {
        let mut done = 0;
        while done < len {
            let at = address.wrapping_add(done as u64);
            let piece = (BASE_PAGE - at % BASE_PAGE).min((len - done) as u64) as usize;
            let did = self.translate(ram, satp, at).and_then(|physical| each(physical, done, done + piece));
            match did {
                Ok(()) => done += piece,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Bits that a sign-extended address needs.
const fn significant_bits(address: u64) -> u32 {
    let folded = (address ^ (address as i64 >> 63) as u64).leading_zeros();
    65 - folded
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// RAM of 16 pages from 0x8000_0000 on.
    struct Played {
        bytes: RefCell<Vec<u8>>,
        reads: Cell<u32>,
    }

    const START: u64 = 0x8000_0000;

    impl Played {
        fn new() -> Self {
            Self { bytes: RefCell::new(vec![0; 16 * 4096]), reads: Cell::new(0) }
        }

        fn put(&self, address: u64, word: u64) {
            self.write(address, &word.to_le_bytes()).expect("it is RAM");
        }
    }

    impl GuestRam for Played {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), InspectError> {
            self.reads.set(self.reads.get() + 1);
            let at = address.wrapping_sub(START) as usize;
            let bytes = self.bytes.borrow();
            let found = at.checked_add(into.len()).and_then(|end| bytes.get(at..end));
            into.copy_from_slice(found.ok_or(InspectError::Unmapped { address })?);
            Ok(())
        }

        fn write(&self, address: u64, from: &[u8]) -> Result<(), InspectError> {
            let at = address.wrapping_sub(START) as usize;
            self.bytes.borrow_mut()[at..at + from.len()].copy_from_slice(from);
            Ok(())
        }
    }

    const KERNEL: u64 = 0xffff_ffff_8000_0000;

    /// Sv39: the root in page 1, a table in page 2, one in page 3; two kernel pages, backwards, and a pointer to nowhere.
    fn tables(ram: &Played) -> u64 {
        let entry = |address: u64, flags: u64| address >> 12 << 10 | flags;
        ram.put(START + 0x1000 + 8 * 510, entry(START + 0x2000, 1));
        ram.put(START + 0x1000 + 8 * 511, entry(0x1_0000_0000, 1));
        ram.put(START + 0x2000, entry(START + 0x3000, 1));
        ram.put(START + 0x3000, entry(START + 0x5000, 0xcf));
        ram.put(START + 0x3008, entry(START + 0x4000, 0xcf));
        8 << 60 | (START + 0x1000) >> 12
    }

    #[test]
    fn virtual_memory_goes_through_the_guests_tables() {
        let (ram, space) = (Played::new(), Space::default());
        let satp = tables(&ram);
        assert_eq!(space.translate(&ram, satp, KERNEL + 0x1234).expect("mapped"), START + 0x4234);
        assert_eq!(space.translate(&ram, 0, 0x8000_0123).expect("bare"), 0x8000_0123);
        for address in [0, 0x1000, KERNEL + 0x2000, KERNEL + 0x4000_0000, KERNEL & !(1 << 63), 1 << 40] {
            assert!(matches!(space.translate(&ram, satp, address), Err(InspectError::Unmapped { .. })), "{address:#x}");
        }
        assert!(space.translate(&ram, 3 << 60, KERNEL).is_err(), "a reserved mode");
    }

    #[test]
    fn pieces_cross_pages_and_end_where_nothing_is() {
        let (ram, space) = (Played::new(), Space::default());
        let satp = tables(&ram);
        assert_eq!(space.write(&ram, satp, KERNEL + 0xffe, &[1, 2, 3, 4]).expect("mapped"), 4);
        let mut found = [0; 2];
        ram.read(START + 0x5ffe, &mut found).expect("RAM");
        assert_eq!(found, [1, 2]);
        let mut found = [0; 4];
        assert_eq!(space.read(&ram, satp, KERNEL + 0xffe, &mut found).expect("mapped"), 4);
        assert_eq!(found, [1, 2, 3, 4]);
        let mut many = [7; 0x100];
        assert_eq!(space.read(&ram, satp, KERNEL + 0x1f80, &mut many).expect("mapped"), 0x80);
        assert!(space.read(&ram, satp, KERNEL + 0x2000, &mut many).is_err());
    }

    #[test]
    fn what_was_read_is_kept_until_the_guest_goes_on() {
        let (ram, space) = (Played::new(), Space::default());
        let satp = tables(&ram);
        let mut word = [0; 8];
        space.read(&ram, satp, KERNEL, &mut word).expect("mapped");
        let reads = ram.reads.get();
        space.read(&ram, satp, KERNEL + 8, &mut word).expect("mapped");
        assert_eq!(ram.reads.get(), reads);
        ram.put(START + 0x5008, 99);
        space.forget();
        space.read(&ram, satp, KERNEL + 8, &mut word).expect("mapped");
        assert_eq!(u64::from_le_bytes(word), 99);
    }
}
