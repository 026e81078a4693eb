//! Programs that say themselves where they go in a guest's memory: ELF files, and flat binaries at an address.
//!
//! The result names pieces of the file; the file itself goes to the monitor as it is. What the description alone shows (that
//! pieces lie in the VM's memory and apart) is checked by [`control::VmSpec::validate`], here and in the monitor.

use control::{MAX_SEGMENTS, Segment};
use object::elf::{EM_RISCV, ET_EXEC, FileHeader64, PT_INTERP, PT_LOAD, ProgramHeader64};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader};
use thiserror::Error;

/// The largest file that the monitor takes.
pub const MAX_BYTES: u64 = 256 << 20;

/// Where a program goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it is entered.
    pub entry: u64,
    /// Which pieces of the file go where.
    pub segments: Vec<Segment>,
}

/// Why a file is no program for a VM.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// Not 64-bit.
    #[error("the ELF file is for a 32-bit machine")]
    NotSixtyFourBit,
    /// Not little-endian.
    #[error("the ELF file is big-endian")]
    BigEndian,
    /// Another machine.
    #[error("the ELF file is for another machine ({}), not for RISC-V", machine_name(*.0))]
    OtherMachine(u16),
    /// No static executable.
    #[error("the ELF file is {0}, not a static executable")]
    NotStatic(&'static str),
    /// Its headers lead nowhere.
    #[error("the ELF file is damaged: {0}")]
    Damaged(&'static str),
    /// Too many segments.
    #[error("the ELF file has {0} segments to load, at most {MAX_SEGMENTS} are possible")]
    TooMany(usize),
    /// The entry is nowhere.
    #[error("the ELF file's entry {0:#x} lies in none of its segments")]
    NoEntry(u64),
}

/// Whether this is the beginning of an ELF file. Only the magic number is looked at.
pub fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

/// A flat binary of so many bytes at an address, which is also its entry.
pub fn flat(address: u64, bytes: u64) -> Program {
    Program { entry: address, segments: vec![Segment { offset: 0, file_bytes: bytes, address, memory_bytes: bytes }] }
}

/// The loadable segments of a static RISC-V executable, at their physical addresses.
///
/// # Errors
/// What the file is instead, or how it is damaged.
pub fn elf(file: &[u8]) -> Result<Program, ProgramError> {
    // By hand, as `parse` does not tell what another file is.
    match (file.get(4), file.get(5)) {
        (Some(2), Some(1)) => {}
        (Some(1), _) => return Err(ProgramError::NotSixtyFourBit),
        (Some(2), Some(2)) => return Err(ProgramError::BigEndian),
        _ => return Err(ProgramError::Damaged("its header is none")),
    }
    let header = FileHeader64::<LittleEndian>::parse(file).map_err(|_| ProgramError::Damaged("its header is none"))?;
    let endian = LittleEndian;
    let machine = header.e_machine(endian);
    if machine != EM_RISCV {
        return Err(ProgramError::OtherMachine(machine.0));
    }
    if header.e_type(endian) != ET_EXEC {
        return Err(ProgramError::NotStatic("position-independent, a library or an object file"));
    }
    let headers = header.program_headers(endian, file).map_err(|_| ProgramError::Damaged("no program headers"))?;
    if headers.iter().any(|header| header.p_type(endian) == PT_INTERP) {
        return Err(ProgramError::NotStatic("dynamically linked"));
    }
    let loaded: Vec<_> =
        headers.iter().filter(|header| header.p_type(endian) == PT_LOAD && header.p_memsz(endian) != 0).collect();
    if loaded.is_empty() {
        return Err(ProgramError::Damaged("it has nothing to load"));
    }
    if loaded.len() > MAX_SEGMENTS {
        return Err(ProgramError::TooMany(loaded.len()));
    }
    let segments: Result<Vec<_>, _> = loaded.iter().map(|header| segment(header, file)).collect();
    let wanted = header.e_entry(endian);
    let entry = physical_entry(wanted, &loaded).ok_or(ProgramError::NoEntry(wanted))?;
    Ok(Program { entry, segments: segments? })
}

fn segment(header: &ProgramHeader64<LittleEndian>, file: &[u8]) -> Result<Segment, ProgramError> {
    let endian = LittleEndian;
    let (offset, file_bytes) = header.file_range(endian);
    let len = u64::try_from(file.len()).unwrap_or(u64::MAX);
    if offset.checked_add(file_bytes).is_none_or(|end| end > len) {
        return Err(ProgramError::Damaged("a segment lies behind its end"));
    }
    let (address, memory_bytes) = (header.p_paddr(endian), header.p_memsz(endian));
    if file_bytes > memory_bytes {
        return Err(ProgramError::Damaged("a segment has more bytes than memory"));
    }
    Ok(Segment { offset, file_bytes, address, memory_bytes })
}

/// The entry where the program lies: kernels that run at other addresses than they are loaded at give the virtual one.
fn physical_entry(entry: u64, loaded: &[&ProgramHeader64<LittleEndian>]) -> Option<u64> {
    let endian = LittleEndian;
    let inside = |start: u64, bytes: u64| entry.checked_sub(start).filter(|at| *at < bytes);
    let is_physical =
        |header: &&ProgramHeader64<LittleEndian>| inside(header.p_paddr(endian), header.p_memsz(endian)).is_some();
    if loaded.iter().any(is_physical) {
        return Some(entry);
    }
    let virtual_place = |header: &&ProgramHeader64<LittleEndian>| {
        header.p_paddr(endian).checked_add(inside(header.p_vaddr(endian), header.p_memsz(endian))?)
    };
    loaded.iter().find_map(virtual_place)
}

/// The machine's name where it is a likely one.
fn machine_name(machine: u16) -> String {
    let known = [(3, "x86"), (40, "Arm"), (62, "x86-64"), (183, "AArch64"), (247, "BPF"), (258, "LoongArch")];
    let name = known.iter().find(|(number, _)| *number == machine).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("number {machine}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with these segments: (offset, bytes of the file, virtual, physical, bytes of memory).
    fn file(entry: u64, segments: &[(u64, u64, u64, u64, u64)]) -> Vec<u8> {
        let mut elf = vec![0; 64 + segments.len() * 56];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &2u16.to_le_bytes());
        put(18, &243u16.to_le_bytes());
        put(20, &1u32.to_le_bytes());
        put(24, &entry.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(52, &64u16.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &(segments.len() as u16).to_le_bytes());
        for (index, (offset, bytes, virt, physical, memory)) in segments.iter().enumerate() {
            let at = 64 + index * 56;
            put(at, &1u32.to_le_bytes());
            for (field, value) in [(8, offset), (16, virt), (24, physical), (32, bytes), (40, memory)] {
                put(at + field, &value.to_le_bytes());
            }
        }
        elf.resize(4096, 0x5a);
        elf
    }

    const TEXT: (u64, u64, u64, u64, u64) = (1024, 512, 0x8020_0000, 0x8020_0000, 0x1000);

    fn refused(change: impl Fn(&mut Vec<u8>)) -> String {
        let mut bytes = file(0x8020_0000, &[TEXT]);
        change(&mut bytes);
        elf(&bytes).expect_err("it is wrong").to_string()
    }

    #[test]
    fn segments_go_to_their_physical_addresses() {
        let data = (2048, 16, 0xffff_ffff_8000_0000, 0x8040_0000, 64);
        let program = elf(&file(0x8020_0010, &[TEXT, data])).expect("it is good");
        assert_eq!(program.entry, 0x8020_0010);
        let [text, data] = program.segments.as_slice() else { panic!("{program:?}") };
        assert_eq!((text.offset, text.file_bytes, text.address, text.memory_bytes), (1024, 512, 0x8020_0000, 0x1000));
        assert_eq!((data.offset, data.file_bytes, data.address, data.memory_bytes), (2048, 16, 0x8040_0000, 64));
        // The entry by its virtual address is where that segment lies.
        let high = elf(&file(0xffff_ffff_8000_0004, &[TEXT, (2048, 16, 0xffff_ffff_8000_0000, 0x8040_0000, 64)]));
        assert_eq!(high.expect("it is good").entry, 0x8040_0004);
    }

    #[test]
    fn other_files_are_named() {
        assert_eq!(refused(|elf| elf[4] = 1), "the ELF file is for a 32-bit machine");
        assert_eq!(refused(|elf| elf[5] = 2), "the ELF file is big-endian");
        assert_eq!(refused(|elf| elf[18] = 62), "the ELF file is for another machine (x86-64), not for RISC-V");
        assert!(refused(|elf| elf[16] = 3).contains("position-independent"));
        assert!(refused(|elf| elf.truncate(20)).contains("damaged"));
        assert_eq!(refused(|elf| elf[64] = 3), "the ELF file is dynamically linked, not a static executable");
    }

    #[test]
    fn damaged_files_are_refused() {
        let far = |elf: &mut Vec<u8>| elf[72..80].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(refused(far), "the ELF file is damaged: a segment lies behind its end");
        let long = |elf: &mut Vec<u8>| elf[96..104].copy_from_slice(&4096u64.to_le_bytes());
        assert_eq!(refused(long), "the ELF file is damaged: a segment lies behind its end");
        assert!(refused(|elf| elf[104..112].copy_from_slice(&8u64.to_le_bytes())).contains("more bytes than memory"));
        assert!(refused(|elf| elf[56] = 0).contains("nothing to load"));
        assert!(refused(|elf| elf[32..40].copy_from_slice(&u64::MAX.to_le_bytes())).contains("no program headers"));
        assert_eq!(refused(|elf| elf[27] = 0), "the ELF file's entry 0x200000 lies in none of its segments");
        let many = vec![TEXT; 17];
        assert_eq!(elf(&file(0x8020_0000, &many)), Err(ProgramError::TooMany(17)));
    }
}
