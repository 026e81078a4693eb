//! What the log says: records, and the blocks that carry them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use storage::BLOCK;

use crate::layout::{checksum, word};

/// Longest name of a volume or snapshot, of a disk or partition, in bytes.
pub const MAX_NAME: usize = 80;
/// Bytes of a log block before its records.
const HEADER: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"MBVOLLOG");
const PAYLOAD: usize = BLOCK as usize - HEADER;
/// Bytes of a [`Record::Map`], type and length included.
const MAP_BYTES: usize = 3 + 4 + 4 + 8 + 8 + 1;
/// Records of one run each that fit one log block.
pub const MAPS_PER_BLOCK: u64 = (PAYLOAD / MAP_BYTES) as u64;

/// What a volume shows where it was never written: a disk of the machine, or a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The disk's name.
    pub disk: String,
    /// The partition's label; the whole disk if `None`.
    pub partition: Option<String>,
    /// Its size.
    pub sectors: u64,
}

/// A change of a store. Each sets what it says, so that a record may be read twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A layer came to be.
    Layer { id: u32, parent: Option<u32>, is_snapshot: bool, name: String, base: Base },
    /// A volume's layer became the snapshot `name`; the volume goes on with the new layer `next`.
    Freeze { layer: u32, next: u32, name: String },
    /// A layer is gone, and its blocks with it.
    Drop { layer: u32 },
    /// `count` blocks from `block` on: `mask` says which of their sectors are the layer's own. They lie in data blocks from
    /// `target` on; if that is 0, they are zero.
    Map { layer: u32, block: u64, count: u32, target: u64, mask: u8 },
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAP_BYTES);
        bytes.extend([self.tag(), 0, 0]);
        match self {
            Self::Layer { id, parent, is_snapshot, name, base } => {
                bytes.extend(id.to_le_bytes());
                bytes.extend(parent.unwrap_or(0).to_le_bytes());
                bytes.push(u8::from(*is_snapshot));
                bytes.extend(base.sectors.to_le_bytes());
                let partition = base.partition.as_deref();
                bytes.push(u8::from(partition.is_some()));
                for text in [name, &base.disk, partition.unwrap_or_default()] {
                    put_text(&mut bytes, text);
                }
            }
            Self::Freeze { layer, next, name } => {
                bytes.extend(layer.to_le_bytes());
                bytes.extend(next.to_le_bytes());
                put_text(&mut bytes, name);
            }
            Self::Drop { layer } => bytes.extend(layer.to_le_bytes()),
            Self::Map { layer, block, count, target, mask } => {
                bytes.extend(layer.to_le_bytes());
                bytes.extend(count.to_le_bytes());
                bytes.extend(block.to_le_bytes());
                bytes.extend(target.to_le_bytes());
                bytes.push(*mask);
            }
        }
        // At most some 300 bytes: names are bounded.
        let len = (bytes.len() as u16).to_le_bytes();
        bytes[1..3].copy_from_slice(&len);
        bytes
    }

    /// Blocks that it says something of.
    pub fn named(&self) -> u64 {
        match self {
            Self::Map { count, .. } => u64::from(*count),
            Self::Layer { .. } | Self::Freeze { .. } | Self::Drop { .. } => 0,
        }
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::Layer { .. } => 1,
            Self::Freeze { .. } => 2,
            Self::Drop { .. } => 3,
            Self::Map { .. } => 4,
        }
    }

    /// Takes the first record off `bytes`.
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let len = usize::from(u16::from_le_bytes([*bytes.get(1)?, *bytes.get(2)?]));
        let (tag, mut body) = (*bytes.first()?, Fields(bytes.get(3..len)?));
        *bytes = bytes.get(len..)?;
        let record = match tag {
            1 => {
                let (id, parent) = (body.u32()?, body.u32()?);
                let is_snapshot = body.u8()? != 0;
                let (sectors, has_partition) = (body.u64()?, body.u8()? != 0);
                let (name, disk, partition) = (body.text()?, body.text()?, body.text()?);
                let base = Base { disk, partition: has_partition.then_some(partition), sectors };
                Self::Layer { id, parent: (parent != 0).then_some(parent), is_snapshot, name, base }
            }
            2 => Self::Freeze { layer: body.u32()?, next: body.u32()?, name: body.text()? },
            3 => Self::Drop { layer: body.u32()? },
            4 => {
                let (layer, count) = (body.u32()?, body.u32()?);
                Self::Map { layer, count, block: body.u64()?, target: body.u64()?, mask: body.u8()? }
            }
            _ => return None,
        };
        Some(record)
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(text.len().min(255) as u8);
    bytes.extend_from_slice(&text.as_bytes()[..text.len().min(255)]);
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u8()?);
        let text = core::str::from_utf8(self.0.get(..len)?).ok()?;
        self.0 = self.0.get(len..)?;
        Some(text.to_owned())
    }
}

/// What all blocks of one log carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub epoch: u64,
    pub nonce: u64,
}

/// Packs records into log blocks; none lies in two of them.
#[derive(Debug)]
pub struct Packer {
    stamp: Stamp,
    /// Position in the log of the first block.
    first: u64,
    blocks: Vec<u8>,
    /// Bytes used in the last block; 0: there is none that is open.
    used: usize,
}

impl Packer {
    pub const fn new(stamp: Stamp, first: u64) -> Self {
        Self { stamp, first, blocks: Vec::new(), used: 0 }
    }

    pub const fn blocks(&self) -> u64 {
        self.blocks.len() as u64 / BLOCK
    }

    pub fn push(&mut self, record: &Record) {
        let bytes = record.encode();
        if self.used == 0 || self.used + bytes.len() > BLOCK as usize {
            self.seal();
            // Bounded: MAX_BACKLOG changes, or MAX_OP_BLOCKS blocks of a checkpoint at a time.
            self.blocks.resize(self.blocks.len() + BLOCK as usize, 0);
            self.used = HEADER;
        }
        let at = self.blocks.len() - BLOCK as usize + self.used;
        self.blocks[at..at + bytes.len()].copy_from_slice(&bytes);
        self.used += bytes.len();
    }

    /// The blocks, ready to be written.
    pub fn finish(mut self) -> Vec<u8> {
        self.seal();
        self.blocks
    }

    fn seal(&mut self) {
        if self.used == 0 {
            return;
        }
        let start = self.blocks.len() - BLOCK as usize;
        let position = self.first + start as u64 / BLOCK;
        write_header(&mut self.blocks[start..], self.stamp, position, self.used);
        self.used = 0;
    }
}

/// Makes a whole block one of a log: its first `used` bytes count.
fn write_header(block: &mut [u8], stamp: Stamp, position: u64, used: usize) {
    let words = [MAGIC, stamp.epoch, stamp.nonce, position, used as u64];
    for (at, word) in (0..).step_by(8).zip(words) {
        block[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(&[&block[..HEADER - 8], &block[HEADER..]]);
    block[HEADER - 8..HEADER].copy_from_slice(&sum.to_le_bytes());
}

/// Makes a block of zeroes one of a log that says `says`, as far as that fits.
#[cfg(feature = "testing")]
pub fn seal(block: &mut [u8], stamp: Stamp, position: u64, says: &[u8]) {
    let says = &says[..says.len().min(PAYLOAD)];
    block[HEADER..HEADER + says.len()].copy_from_slice(says);
    write_header(block, stamp, position, HEADER + says.len());
}

/// The records of the block at `position` of a log; `None` if it is not that block, or damaged: the log ends before it.
pub fn unpack(block: &[u8], stamp: Stamp, position: u64) -> Option<Vec<Record>> {
    let words = [MAGIC, stamp.epoch, stamp.nonce, position];
    let is_it = (0..).step_by(8).zip(words).all(|(at, want)| word(block, at) == want);
    let used = usize::try_from(word(block, 32)).ok().filter(|used| (HEADER..=BLOCK as usize).contains(used))?;
    if !is_it || block.len() != BLOCK as usize || word(block, 40) != checksum(&[&block[..40], &block[HEADER..]]) {
        return None;
    }
    let mut bytes = block.get(HEADER..used)?;
    let mut records = Vec::new();
    while !bytes.is_empty() {
        records.push(Record::decode(&mut bytes)?);
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn sample() -> Vec<Record> {
        let base = Base { disk: "d".repeat(MAX_NAME), partition: Some("p".repeat(MAX_NAME)), sectors: 77 };
        let whole = Base { disk: "disk".to_string(), partition: None, sectors: 8 };
        let mut records = vec![
            Record::Layer { id: 1, parent: None, is_snapshot: false, name: "n".repeat(MAX_NAME), base },
            Record::Layer { id: 2, parent: Some(1), is_snapshot: true, name: String::new(), base: whole },
            Record::Freeze { layer: 2, next: 3, name: "before".to_string() },
            Record::Drop { layer: 9 },
        ];
        records.extend((0..500).map(|n| Record::Map { layer: 3, block: n * 2, count: 1, target: n, mask: 255 }));
        records
    }

    #[test]
    fn records_come_back_from_their_blocks() {
        let stamp = Stamp { epoch: 3, nonce: 4 };
        let mut packer = Packer::new(stamp, 5);
        sample().iter().for_each(|record| packer.push(record));
        let blocks = packer.finish();
        let mut found = Vec::new();
        for (position, block) in (5..).zip(blocks.chunks(BLOCK as usize)) {
            assert_eq!(unpack(block, stamp, position + 1), None);
            assert_eq!(unpack(block, Stamp { epoch: 2, ..stamp }, position), None);
            assert_eq!(unpack(block, Stamp { nonce: 2, ..stamp }, position), None);
            found.extend(unpack(block, stamp, position).unwrap());
        }
        assert_eq!(found, sample());
        for at in (0..BLOCK as usize).step_by(7) {
            let mut damaged = blocks[..BLOCK as usize].to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(unpack(&damaged, stamp, 5), None, "byte {at}");
        }
    }

    #[test]
    fn a_map_has_the_length_that_the_logs_size_relies_on() {
        let map = Record::Map { layer: 1, block: 2, count: 3, target: 4, mask: 5 };
        assert_eq!(map.encode().len(), MAP_BYTES);
    }
}
