//! A VM as an ELF core file, which gdb reads.
//!
//! All RAM is in the file once, with holes where pages are zero or absent. Segments name it by guest-physical address, and the kernel's
//! part of it by guest-virtual address too, as the tables of the first vCPU say: so gdb finds what a kernel's symbols name. Each vCPU is a
//! thread, with its general and floating-point registers.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use addr::{BASE_PAGE, Mfn, VcpuIndex};
use control::{MAX_PEEK, PageKind, RAM_START, VcpuRegisters};
use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, Writer};
use rv_pte::{Decoded, Level, Mode, Pte, Satp};

use crate::{GuestRam, InspectError, Session};

/// Table pages that are looked at, at most: a guest may have its tables name each other.
const MAX_TABLES: usize = 1 << 16;
/// Segments in a file, at most.
const MAX_SEGMENTS: usize = 1 << 14;

/// Bytes of `struct elf_prstatus`, and where in it the thread's number and its registers are.
const PRSTATUS: usize = 376;
const PRSTATUS_SIGNAL: usize = 12;
const PRSTATUS_PID: usize = 32;
const PRSTATUS_REGISTERS: usize = 112;
/// Bytes of the floating-point registers with `fcsr`.
const PRFPREG: usize = 264;
const SIGTRAP: u8 = 5;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of RAM in the file that are no hole.
    pub data_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Segments by virtual address.
    pub virtual_segments: usize,
}

/// A range of the guest's memory under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    virtual_address: u64,
    physical: u64,
    bytes: u64,
}

/// Writes a VM that stands still. `pages` says what is behind its pages; `progress` hears how many bytes of RAM are done.
///
/// # Errors
/// If the machine fails, or the file cannot be written.
pub fn write(
    session: &Session,
    pages: &[PageKind],
    file: &mut File,
    mut progress: impl FnMut(u64),
) -> Result<Written, InspectError> {
    let vcpus = (0..session.vcpus()).map(|vcpu| session.registers(VcpuIndex(vcpu)));
    let vcpus = vcpus.collect::<Result<Vec<_>, _>>()?;
    let ram = Segment { virtual_address: RAM_START, physical: RAM_START, bytes: session.memory_bytes() };
    let satp = vcpus.first().map_or(0, |first| first.csrs.satp);
    let mut segments = vec![ram];
    segments.extend(kernel_segments(session, satp, ram));
    let head = head(&vcpus, &segments)?;
    file.write_all(&head)?;
    let data_at = head.len() as u64;
    let mut data_bytes = 0;
    for (piece, kinds) in (0..).zip(pages.chunks(MAX_PEEK as usize / BASE_PAGE as usize)) {
        let offset = piece * u64::from(MAX_PEEK);
        if kinds.iter().any(|kind| *kind != PageKind::Absent) {
            let mut bytes = vec![0; kinds.len() * BASE_PAGE as usize];
            session.read(RAM_START + offset, &mut bytes)?;
            data_bytes += write_sparse(file, data_at + offset, &bytes)?;
        }
        progress(offset + kinds.len() as u64 * BASE_PAGE);
    }
    let file_bytes = data_at + ram.bytes;
    file.set_len(file_bytes)?;
    Ok(Written { data_bytes, file_bytes, virtual_segments: segments.len() - 1 })
}

/// Writes the pages that are not all zero; how many bytes these have.
fn write_sparse(file: &mut File, at: u64, bytes: &[u8]) -> std::io::Result<u64> {
    let mut written = 0;
    for (number, page) in (0..).zip(bytes.chunks(BASE_PAGE as usize)) {
        if page.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(at + number * BASE_PAGE))?;
            file.write_all(page)?;
            written += page.len() as u64;
        }
    }
    Ok(written)
}

/// Everything before the RAM, a whole number of pages.
fn head(vcpus: &[VcpuRegisters], segments: &[Segment]) -> Result<Vec<u8>, InspectError> {
    let notes: Vec<u8> = (0..).zip(vcpus).flat_map(|(number, registers)| notes_of(number, registers)).collect();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(object::Endianness::Little, true, &mut bytes);
    let failed = |error: object::write::Error| InspectError::Other(format!("the core's header: {error}"));
    writer.reserve_file_header();
    writer.reserve_program_headers(segments.len() as u32 + 1);
    let notes_at = writer.reserve(notes.len() as u64, 4);
    let data_at = writer.reserve(0, BASE_PAGE);
    writer
        .write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_CORE,
            e_machine: elf::EM_RISCV,
            e_entry: 0,
            // Compressed instructions, doubles in floating-point registers.
            e_flags: elf::EF_RISCV_RVC | elf::EF_RISCV_FLOAT_ABI_DOUBLE,
        })
        .map_err(failed)?;
    writer.write_align_program_headers();
    writer.write_program_header(&ProgramHeader {
        p_type: elf::PT_NOTE,
        p_flags: elf::ProgramFlags(0),
        p_offset: notes_at,
        p_vaddr: 0,
        p_paddr: 0,
        p_filesz: notes.len() as u64,
        p_memsz: 0,
        p_align: 4,
    });
    for segment in segments {
        writer.write_program_header(&ProgramHeader {
            p_type: elf::PT_LOAD,
            p_flags: elf::PF_R | elf::PF_W | elf::PF_X,
            p_offset: data_at + (segment.physical - RAM_START),
            p_vaddr: segment.virtual_address,
            p_paddr: segment.physical,
            p_filesz: segment.bytes,
            p_memsz: segment.bytes,
            p_align: BASE_PAGE,
        });
    }
    writer.write_align(4);
    writer.write(&notes);
    writer.write_align(BASE_PAGE);
    Ok(bytes)
}

/// The notes of a thread, numbered from 1.
fn notes_of(number: u32, registers: &VcpuRegisters) -> Vec<u8> {
    let mut status = vec![0; PRSTATUS];
    status[PRSTATUS_SIGNAL] = SIGTRAP;
    status[PRSTATUS_PID..PRSTATUS_PID + 4].copy_from_slice(&(number + 1).to_le_bytes());
    // The place of x0 is the program counter's.
    let values = [registers.pc].into_iter().chain(registers.x[1..].iter().copied());
    for (slot, value) in status[PRSTATUS_REGISTERS..].chunks_exact_mut(8).zip(values) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
    let mut floating: Vec<u8> = registers.f.iter().flat_map(|value| value.to_le_bytes()).collect();
    floating.extend((registers.fcsr as u32).to_le_bytes());
    floating.resize(PRFPREG, 0);
    [note(elf::NT_PRSTATUS, &status), note(elf::NT_PRFPREG, &floating)].concat()
}

fn note(kind: elf::NoteType, content: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"CORE\0\0\0\0";
    let header = [5, content.len() as u32, kind.0].into_iter().flat_map(u32::to_le_bytes);
    header.chain(NAME.iter().copied()).chain(content.iter().copied()).collect()
}

/// What the kernel's half of the tables maps of RAM.
fn kernel_segments(ram: &impl GuestRam, satp: u64, all: Segment) -> Vec<Segment> {
    let Ok(Some(root)) = Satp::decode(satp) else { return Vec::new() };
    let mut walk = Walk { ram, mode: root.mode, all, tables: 0, segments: Vec::new() };
    let entries = root.mode.entries(root.mode.root_level());
    let base = u64::MAX << (root.mode.input_bits() - 1);
    walk.table(root.root, root.mode.root_level(), entries / 2..entries, base);
    walk.segments
}

struct Walk<'a, R> {
    ram: &'a R,
    mode: Mode,
    all: Segment,
    tables: usize,
    segments: Vec<Segment>,
}

impl<R: GuestRam> Walk<'_, R> {
    /// Entries of a table, the first of which stands for `address`.
    fn table(&mut self, table: Mfn, level: Level, entries: std::ops::Range<usize>, address: u64) {
        self.tables += 1;
        let mut words = vec![0; 8 * entries.len()];
        let at = table.raw().checked_mul(BASE_PAGE).and_then(|at| at.checked_add(8 * entries.start as u64));
        let is_there = at.is_some_and(|at| self.ram.read(at, &mut words).is_ok());
        if !is_there || self.tables > MAX_TABLES {
            return;
        }
        for (number, word) in (0..).zip(words.chunks_exact(8)) {
            let address = address.wrapping_add(number * level.entry_bytes());
            let raw = word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            match (Pte::from_raw(raw).decode(level), level.down()) {
                (Ok(Decoded::Leaf(leaf)), _) => self.add(address, leaf.frame, level.entry_bytes()),
                (Ok(Decoded::Table(next)), Some(lower)) => {
                    self.table(next, lower, 0..self.mode.entries(lower), address);
                }
                _ => {}
            }
        }
    }

    /// A leaf: of what it maps, what is RAM.
    fn add(&mut self, virtual_address: u64, frame: Mfn, bytes: u64) {
        let Some(physical) = frame.raw().checked_mul(BASE_PAGE) else { return };
        let skipped = self.all.physical.saturating_sub(physical);
        let (begin, end) = (physical.saturating_add(skipped), physical.saturating_add(bytes));
        let end = end.min(self.all.physical + self.all.bytes);
        if begin >= end {
            return;
        }
        let found =
            Segment { virtual_address: virtual_address.wrapping_add(skipped), physical: begin, bytes: end - begin };
        if let Some(last) = self.segments.last_mut()
            && last.virtual_address.wrapping_add(last.bytes) == found.virtual_address
            && last.physical + last.bytes == found.physical
        {
            last.bytes += found.bytes;
        } else if self.segments.len() < MAX_SEGMENTS {
            self.segments.push(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSegment};

    use super::*;

    const PAGES: u64 = 1024;

    struct Played(Vec<u8>);

    impl Played {
        fn put(&mut self, address: u64, word: u64) {
            let at = (address - RAM_START) as usize;
            self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    impl GuestRam for Played {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), InspectError> {
            let at = address.wrapping_sub(RAM_START) as usize;
            let found = at.checked_add(into.len()).and_then(|end| self.0.get(at..end));
            into.copy_from_slice(found.ok_or(InspectError::Unmapped { address })?);
            Ok(())
        }

        fn write(&self, address: u64, _: &[u8]) -> Result<(), InspectError> {
            Err(InspectError::Unmapped { address })
        }
    }

    fn ram() -> Segment {
        Segment { virtual_address: RAM_START, physical: RAM_START, bytes: PAGES * BASE_PAGE }
    }

    fn entry(address: u64, flags: u64) -> u64 {
        address >> 12 << 10 | flags
    }

    #[test]
    fn kernel_memory_is_found_by_its_tables() {
        let mut played = Played(vec![0; (PAGES * BASE_PAGE) as usize]);
        let satp = 8 << 60 | (RAM_START + 0x1000) >> 12;
        // User half: not of interest. The kernel: a block that begins in RAM, two pages in a row, a device, a table that names itself.
        played.put(RAM_START + 0x1000, entry(RAM_START + 0x2000, 1));
        played.put(RAM_START + 0x1000 + 8 * 256, entry(RAM_START + 0x2000, 1));
        played.put(RAM_START + 0x1000 + 8 * 511, entry(RAM_START + 0x1000, 1));
        played.put(RAM_START + 0x2000, entry(RAM_START + 0x20_0000, 0xcf));
        played.put(RAM_START + 0x2008, entry(RAM_START + 0x3000, 1));
        played.put(RAM_START + 0x3000, entry(RAM_START + 0x5000, 0xcf));
        played.put(RAM_START + 0x3008, entry(RAM_START + 0x6000, 0xcf));
        played.put(RAM_START + 0x3010, entry(0x1000_0000, 0xcf));
        let found = kernel_segments(&played, satp, ram());
        let half = 0xffff_ffc0_0000_0000;
        let block = Segment { virtual_address: half, physical: RAM_START + 0x20_0000, bytes: 2 << 20 };
        let pages = Segment { virtual_address: half + (2 << 20), physical: RAM_START + 0x5000, bytes: 0x2000 };
        assert_eq!(found[..2], [block, pages]);
        assert!(found.len() <= MAX_SEGMENTS);
        assert_eq!(kernel_segments(&played, 0, ram()), []);
        assert_eq!(kernel_segments(&played, 8 << 60 | 5, ram()), [], "a root outside of RAM");
    }

    #[test]
    fn the_header_names_segments_and_registers() {
        let mut registers = VcpuRegisters { pc: 0x8020_0000, ..VcpuRegisters::default() };
        registers.x[2] = 0x1234;
        let high = Segment { virtual_address: 0xffff_ffff_8000_0000, physical: RAM_START + 0x1000, bytes: 0x2000 };
        let mut core = head(&[registers.clone(), registers], &[ram(), high]).expect("it can be made");
        assert_eq!(core.len() as u64 % BASE_PAGE, 0);
        let data_at = core.len();
        core.resize(data_at + (PAGES * BASE_PAGE) as usize, 0);
        core[data_at + 0x1000] = 0x5a;
        let file = object::File::parse(&*core).expect("it is an ELF file");
        assert_eq!(file.kind(), object::ObjectKind::Core);
        let segments: Vec<_> = file.segments().map(|segment| (segment.address(), segment.size())).collect();
        assert_eq!(segments, [(RAM_START, PAGES * BASE_PAGE), (high.virtual_address, 0x2000)]);
        let last = file.segments().last().expect("there are two").data().expect("it is in the file");
        assert_eq!(last[0], 0x5a);
    }

    #[test]
    fn zero_pages_are_holes() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut bytes = vec![0; 3 * BASE_PAGE as usize];
        bytes[BASE_PAGE as usize + 7] = 1;
        assert_eq!(write_sparse(&mut file, 0, &bytes).expect("it is written"), BASE_PAGE);
        assert_eq!(file.metadata().expect("it is there").len(), 2 * BASE_PAGE);
    }
}
