//! From an ELF file to the flat binary that a boot loader copies to memory: the loadable segments at the distances that
//! their physical addresses have, gaps filled with zeroes. What is zero at the end (.bss) is left out: the program itself
//! clears it.

use anyhow::{Context, Result, bail, ensure};
use object::elf::{FileHeader64, PT_LOAD};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader};

/// More than any boot image should be; a stray segment far away would otherwise fill the disk with zeroes.
const MAX_FLAT_SIZE: u64 = 256 << 20;

/// The loadable content of a little-endian 64-bit ELF file, from its lowest physical address on.
///
/// # Errors
/// The file is damaged, has nothing to load, or its segments overlap or lie too far apart.
pub fn flatten(elf: &[u8]) -> Result<Vec<u8>> {
    let header = FileHeader64::<LittleEndian>::parse(elf).context("not a 64-bit ELF file")?;
    let endian = header.endian().context("not little-endian")?;
    let mut pieces = Vec::new();
    for segment in header.program_headers(endian, elf)? {
        if segment.p_type(endian) != PT_LOAD || segment.p_filesz(endian) == 0 {
            continue;
        }
        let data = segment.data(endian, elf).ok().context("a segment lies outside the file")?;
        pieces.push((segment.p_paddr(endian), data));
    }
    pieces.sort_by_key(|(address, _)| *address);
    lay_out(&pieces)
}

/// Puts sorted pieces of memory into one, starting at the first piece's address.
fn lay_out(pieces: &[(u64, &[u8])]) -> Result<Vec<u8>> {
    let Some((base, _)) = pieces.first() else { bail!("nothing to load") };
    let mut flat = Vec::new();
    for (address, data) in pieces {
        let offset = address - base;
        ensure!(offset <= MAX_FLAT_SIZE, "a segment at {address:#x} lies too far from the first, at {base:#x}");
        let offset = usize::try_from(offset)?;
        ensure!(offset >= flat.len(), "the segment at {address:#x} overlaps the one before it");
        flat.resize(offset, 0);
        flat.extend_from_slice(data);
    }
    Ok(flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_and_the_first_address_is_the_start() {
        let flat = lay_out(&[(0x8020_0000, b"text"), (0x8020_0008, b"data")]).unwrap();
        assert_eq!(flat, b"text\0\0\0\0data");
    }

    #[test]
    fn overlaps_distance_and_nothing_are_refused() {
        assert!(lay_out(&[(0x1000, b"abcd"), (0x1002, b"x")]).is_err());
        assert!(lay_out(&[(0x1000, b"abcd"), (0xffff_0000_0000, b"x")]).is_err());
        assert!(lay_out(&[]).is_err());
        assert!(flatten(b"not an elf file").is_err());
    }

    #[test]
    fn segments_are_taken_by_physical_address() {
        // A minimal ELF64: header, two program headers in descending physical order, eight bytes of content.
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[16..18].copy_from_slice(&2u16.to_le_bytes()); // e_type = EXEC
        elf[18..20].copy_from_slice(&243u16.to_le_bytes()); // e_machine = RISCV
        elf[20..24].copy_from_slice(&1u32.to_le_bytes());
        elf[32..40].copy_from_slice(&64u64.to_le_bytes()); // e_phoff
        elf[52..54].copy_from_slice(&64u16.to_le_bytes()); // e_ehsize
        elf[54..56].copy_from_slice(&56u16.to_le_bytes()); // e_phentsize
        elf[56..58].copy_from_slice(&2u16.to_le_bytes()); // e_phnum
        for (index, (offset, physical)) in [(176u64, 0x8020_0004u64), (180, 0x8020_0000)].into_iter().enumerate() {
            let at = 64 + index * 56;
            elf[at..at + 4].copy_from_slice(&PT_LOAD.0.to_le_bytes());
            elf[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            elf[at + 24..at + 32].copy_from_slice(&physical.to_le_bytes());
            elf[at + 32..at + 40].copy_from_slice(&4u64.to_le_bytes()); // p_filesz
            elf[at + 40..at + 48].copy_from_slice(&4u64.to_le_bytes()); // p_memsz
        }
        elf.extend_from_slice(b"highlow.");
        assert_eq!(flatten(&elf).unwrap(), b"low.high");
    }
}
