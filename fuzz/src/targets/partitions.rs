//! Partition tables. A guest that writes one knows how its checksums are made.

use crc::{CRC_32_ISO_HDLC, Crc};
use storage::SECTOR;
use storage::gpt::read_partitions;

use crate::Input;

const CAPACITY: u64 = 96;
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// Edits of a good table, in pairs of a place and some bytes; then checksums are made right, or not.
pub fn partitions(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut image = good();
    let is_signed = input.byte() > 15;
    while !input.is_empty() {
        let at = usize::from(input.u16()) % (image.len() - 16);
        let count = usize::from(input.below(17));
        let edit = input.bytes(count);
        image[at..at + edit.len()].copy_from_slice(edit);
    }
    if is_signed {
        sign(&mut image);
    }
    let mut reads = 0;
    let found = read_partitions(CAPACITY, &mut |sector, buf| {
        reads += buf.len();
        let start = usize::try_from(sector.saturating_mul(SECTOR)).unwrap_or(usize::MAX);
        let bytes = start.checked_add(buf.len()).and_then(|end| image.get(start..end));
        bytes.is_some_and(|bytes| {
            buf.copy_from_slice(bytes);
            true
        })
    });
    assert!(reads <= 2 * (65 << 10), "{reads} bytes read");
    for partition in found.unwrap_or_default() {
        let end = partition.first_sector.checked_add(partition.sectors);
        assert!(partition.sectors > 0 && end.is_some_and(|end| end <= CAPACITY), "{partition:?}");
    }
}

/// A header, and a table with two partitions.
fn good() -> Vec<u8> {
    let mut image = vec![0; (CAPACITY * SECTOR) as usize];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(512, b"EFI PART\0\0\x01\0\x5c\0\0\0");
    for (at, value) in [(24, 1_u64), (32, CAPACITY - 1), (40, 34), (48, CAPACITY - 34), (72, 2)] {
        put(512 + at, &value.to_le_bytes());
    }
    // Few entries: sums over many take long.
    put(512 + 80, &8_u32.to_le_bytes());
    put(512 + 84, &128_u32.to_le_bytes());
    for (index, (first, last, name)) in [(34_u64, 40_u64, b"a\0b\0"), (41, 60, b"c\0d\0")].into_iter().enumerate() {
        let at = 1024 + index * 128;
        put(at, &[1; 16]);
        put(at + 32, &first.to_le_bytes());
        put(at + 40, &last.to_le_bytes());
        put(at + 56, name);
    }
    sign(&mut image);
    image
}

/// Makes the checksums right, of as many entries as the header says where they are.
fn sign(image: &mut [u8]) {
    let start = field(image, 512 + 72).saturating_mul(512).min(image.len());
    let bytes = field(image, 512 + 80).saturating_mul(field(image, 512 + 84)).min(image.len() - start);
    let sum = CRC.checksum(&image[start..start + bytes]);
    image[512 + 88..512 + 92].copy_from_slice(&sum.to_le_bytes());
    image[512 + 16..512 + 20].fill(0);
    let header = field(image, 512 + 12).clamp(92, 512);
    let sum = CRC.checksum(&image[512..512 + header]);
    image[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
}

fn field(image: &[u8], at: usize) -> usize {
    u32::from_le_bytes([image[at], image[at + 1], image[at + 2], image[at + 3]]) as usize
}
