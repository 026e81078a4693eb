//! Walking a descriptor chain that a hostile driver may have built.
//!
//! Every word of a descriptor is read once and never looked at again, so a guest that changes it under our eyes gains
//! nothing.

use addr::GuestPhysAddr;
use device::GuestMemory;

use super::chain::{Chain, GuestSegment, MAX_SEGMENTS};
use super::spec::{DESC_F_INDIRECT, DESC_F_NEXT, DESC_F_WRITE, DESC_SIZE, Descriptor};
use crate::error::RingError;

/// A descriptor table in guest memory: a queue's own, or an indirect one. Lies wholly in RAM.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its first byte.
    pub base: GuestPhysAddr,
    /// Descriptors in it, at most 65,536.
    pub count: u32,
}

impl Table {
    /// Where descriptor `index` lies. Cannot wrap as the table lies in RAM.
    fn at(self, index: u16) -> GuestPhysAddr {
        GuestPhysAddr::new(self.base.raw().wrapping_add(DESC_SIZE * u64::from(index)))
    }
}

/// Appends the chain at `head` to `chain`; follows at most one indirect table, and only as the last element.
pub fn walk(
    chain: &mut Chain,
    memory: &dyn GuestMemory,
    table: Table,
    head: u16,
    allow_indirect: bool,
) -> Result<(), RingError> {
    if u32::from(head) >= table.count {
        return Err(RingError::HeadOutOfRange(head));
    }
    let mut index = head;
    for _ in 0..table.count {
        // One at a time: neighbours in the queue's own table mostly belong to other chains.
        let descriptor = Descriptor::from_words(memory.read_u64_pair(table.at(index))?);
        if descriptor.has(DESC_F_INDIRECT) {
            let inner = indirect_table(memory, &descriptor, index, allow_indirect)?;
            return walk_indirect(chain, memory, inner);
        }
        append(chain, memory, &descriptor, index)?;
        if !descriptor.has(DESC_F_NEXT) {
            return Ok(());
        }
        index = next(table, &descriptor)?;
    }
    Err(RingError::ChainTooLong(table.count))
}

/// Descriptors of an indirect table read at once: one access for the usual short table.
const WINDOW: usize = 8;

/// A copy of up to [`WINDOW`] neighbouring descriptors of one table.
///
/// It lives in the [`Chain`] so that it is not cleared for every walk, and is aligned so that descriptors are decoded
/// by words instead of bytes: together a fifth of the cost of a small request.
#[derive(Debug)]
#[repr(align(16))]
pub struct Window {
    raw: [u8; WINDOW * DESC_SIZE as usize],
    start: u16,
    len: u16,
}

impl Window {
    pub const fn new() -> Self {
        Self { raw: [0; WINDOW * DESC_SIZE as usize], start: 0, len: 0 }
    }

    /// Forgets what it holds: another table, or the same one at another time.
    const fn clear(&mut self) {
        self.len = 0;
    }

    /// Descriptor `index` of `table`, which has it.
    fn get(&mut self, memory: &dyn GuestMemory, table: Table, index: u16) -> Result<Descriptor, RingError> {
        if index < self.start || index - self.start >= self.len {
            let count = (table.count - u32::from(index)).min(WINDOW as u32);
            let bytes = self.raw.get_mut(..count as usize * DESC_SIZE as usize).unwrap_or(&mut []);
            memory.read(table.at(index), bytes)?;
            self.start = index;
            self.len = count as u16;
        }
        let (all, _) = self.raw.as_chunks::<{ DESC_SIZE as usize }>();
        let raw = all.get(usize::from(index - self.start)).ok_or(RingError::NextOutOfRange(index))?;
        Ok(Descriptor::decode(raw))
    }
}

/// Walks an indirect table from its first descriptor.
fn walk_indirect(chain: &mut Chain, memory: &dyn GuestMemory, table: Table) -> Result<(), RingError> {
    chain.window().clear();
    let mut index = 0;
    for _ in 0..table.count {
        let descriptor = chain.window().get(memory, table, index)?;
        if descriptor.has(DESC_F_INDIRECT) {
            return Err(RingError::IndirectNested(index));
        }
        append(chain, memory, &descriptor, index)?;
        if !descriptor.has(DESC_F_NEXT) {
            return Ok(());
        }
        index = next(table, &descriptor)?;
    }
    Err(RingError::ChainTooLong(table.count))
}

/// Checks an indirect descriptor. Its `WRITE` flag means nothing and is ignored ("Indirect Descriptors", 2.7.5.3.2).
fn indirect_table(
    memory: &dyn GuestMemory,
    descriptor: &Descriptor,
    index: u16,
    allow_indirect: bool,
) -> Result<Table, RingError> {
    if !allow_indirect {
        return Err(RingError::IndirectNotNegotiated(index));
    }
    if descriptor.has(DESC_F_NEXT) {
        return Err(RingError::IndirectNested(index));
    }
    let count = descriptor.len / DESC_SIZE as u32;
    // The specification bounds a chain by the queue size; Linux ignores that for indirect tables, so our own bound holds.
    if count == 0 || !descriptor.len.is_multiple_of(DESC_SIZE as u32) || count as usize > MAX_SEGMENTS {
        return Err(RingError::IndirectSize(descriptor.len));
    }
    let base = GuestPhysAddr::new(descriptor.addr);
    if !lies_in_ram(memory, base, u64::from(descriptor.len)) {
        return Err(RingError::IndirectOutsideRam(descriptor.addr));
    }
    Ok(Table { base, count })
}

/// Validates one buffer and appends it.
fn append(chain: &mut Chain, memory: &dyn GuestMemory, descriptor: &Descriptor, index: u16) -> Result<(), RingError> {
    if descriptor.len == 0 {
        return Err(RingError::EmptyBuffer(index));
    }
    let addr = GuestPhysAddr::new(descriptor.addr);
    if !lies_in_ram(memory, addr, u64::from(descriptor.len)) {
        return Err(RingError::BufferOutsideRam(descriptor.addr));
    }
    chain.append(GuestSegment { addr, len: descriptor.len }, descriptor.has(DESC_F_WRITE), index)
}

/// The next descriptor's index.
fn next(table: Table, descriptor: &Descriptor) -> Result<u16, RingError> {
    if u32::from(descriptor.next) < table.count {
        Ok(descriptor.next)
    } else {
        Err(RingError::NextOutOfRange(descriptor.next))
    }
}

/// Whether `[addr, addr + len)` is RAM. A range that wraps is not, whatever the memory says.
pub fn lies_in_ram(memory: &dyn GuestMemory, addr: GuestPhysAddr, len: u64) -> bool {
    addr.checked_add(len).is_some() && memory.contains(addr, len)
}
