//! The address space (Sv39), and the heap's pages.
//!
//! | addresses | what |
//! | --- | --- |
//! | `0x1000_0000`, `0x2800_0000`, 2 MiB each | devices; interrupt files |
//! | `0x8020_0000`, 2 MiB | the image and static memory: text, read-only and writable pages |
//! | [`HEAP`] | the heap: a block of 2 MiB is mapped when it is touched |
//! | [`OWN`] + n * 4 MiB | for vCPU n: an unmapped block, then a block with its stack and its first small things |
//
// UNSAFETY: page tables have addresses, and the linker's symbols are addresses.
#![expect(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use spin::Mutex;

use super::{cpu, entry};
use crate::machine::{MAX_VCPUS, Machine};
use crate::pools::{BLOCK, Pools};

/// Where the heap begins.
pub const HEAP: u64 = 0x10_0000_0000;
/// Where the vCPUs' own blocks begin.
pub const OWN: u64 = 0x20_0000_0000;
/// From one vCPU's own block to the next one's.
pub const OWN_DISTANCE: u64 = 2 * BLOCK;
/// Most GiB of heap: each has a table.
const MAX_GIB: usize = 16;
/// Most blocks of heap.
pub const MAX_BLOCKS: usize = MAX_GIB * ENTRIES;
const ENTRIES: usize = 512;
const PAGE: u64 = 4096;

/// An entry that points to a table.
const TABLE: u64 = 1;
/// Valid, accessed, dirty: hardware need not write them.
const LEAF: u64 = 1 | 1 << 6 | 1 << 7;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;

#[repr(align(4096))]
struct Table([AtomicU64; ENTRIES]);

impl Table {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    /// The entry that a part of an address selects. There are as many entries as that part has values.
    fn entry(&self, index: u64) -> &AtomicU64 {
        &self.0[index as usize % ENTRIES]
    }

    fn point_to(&self, index: u64, table: &Self) {
        self.entry(index).store((core::ptr::from_ref(table) as u64 >> 2) | TABLE, Ordering::Relaxed);
    }

    fn map(&self, index: u64, address: u64, rights: u64) {
        // Release: who sees the entry sees what was prepared before.
        self.entry(index).store((address >> 2) | LEAF | rights, Ordering::Release);
    }
}

static ROOT: Table = Table::new();
static DEVICES: Table = Table::new();
static RAM: Table = Table::new();
static IMAGE: Table = Table::new();
static OWN_BLOCKS: Table = Table::new();
static HEAP_BLOCKS: [Table; MAX_GIB] = [const { Table::new() }; MAX_GIB];
static POOLS: Mutex<Pools> = Mutex::new(Pools::new());

const _: () = assert!(MAX_VCPUS as u64 * OWN_DISTANCE <= 1 << 30, "one table is enough for all vCPUs' own blocks");

unsafe extern "C" {
    static __image_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __image_end: u8;
}

/// The addresses of the image's parts.
fn sections() -> [u64; 4] {
    // Only their addresses are taken.
    [&raw const __image_start, &raw const __text_end, &raw const __rodata_end, &raw const __image_end]
        .map(|at| at as u64)
}

/// Makes the tables, with the blocks that vCPUs have of their own; gives the value of `satp` and the number of blocks of heap.
///
/// # Errors
/// There is not enough memory.
pub fn prepare(machine: &Machine, tree: (u64, u64)) -> Result<(u64, usize), &'static str> {
    let [start, text_end, rodata_end, end] = sections();
    let mut pools = POOLS.lock();
    for range in machine.ranges() {
        // What lies before the image belongs to the firmware, where there is one.
        let first = if (range.start..range.end).contains(&start) { start } else { range.start };
        pools.add(range.node, first, range.end, &[(start, end), tree, machine.initrd]);
    }
    ROOT.point_to(0, &DEVICES);
    for device in [0x1000_0000, 0x2800_0000_u64] {
        DEVICES.map(device / BLOCK, device, READ | WRITE);
    }
    ROOT.point_to(start >> 30, &RAM);
    RAM.point_to(start / BLOCK, &IMAGE);
    for page in (start..end).step_by(PAGE as usize) {
        let rights = match page {
            page if page < text_end => READ | EXECUTE,
            page if page < rodata_end => READ,
            _ => READ | WRITE,
        };
        IMAGE.map(page / PAGE, page, rights);
    }
    ROOT.point_to(OWN >> 30, &OWN_BLOCKS);
    for (number, vcpu) in machine.vcpus().iter().enumerate() {
        let block = pools.take(vcpu.node).ok_or("there is no memory for the stacks of all vCPUs")?;
        OWN_BLOCKS.map(own_block(number) / BLOCK, block, READ | WRITE);
    }
    for (gib, table) in HEAP_BLOCKS.iter().enumerate() {
        ROOT.point_to((HEAP >> 30) + gib as u64, table);
    }
    const SV39: u64 = 8 << 60;
    let root = core::ptr::from_ref(&ROOT) as u64 / PAGE;
    Ok((SV39 | root, pools.count().min(MAX_BLOCKS)))
}

/// Where the own block of a vCPU begins.
pub const fn own_block(vcpu: usize) -> u64 {
    OWN + vcpu as u64 * OWN_DISTANCE + BLOCK
}

/// The entry of a block of the heap.
fn heap_entry(block: usize) -> Option<(&'static Table, u64)> {
    Some((HEAP_BLOCKS.get(block / ENTRIES)?, (block % ENTRIES) as u64))
}

/// Whether a block of the heap has been touched: it may hold what somebody wrote.
pub fn is_touched(block: usize) -> bool {
    heap_entry(block).is_some_and(|(table, index)| table.entry(index).load(Ordering::Relaxed) != 0)
}

/// A load or store has faulted. Whether it was the first touch of a block of the heap, which is there then.
pub fn touch(address: u64, vcpu: usize) -> bool {
    let Some(offset) = address.checked_sub(HEAP) else { return false };
    let block = (offset / BLOCK) as usize;
    if block >= super::heap::blocks() {
        return false;
    }
    let Some((table, index)) = heap_entry(block) else { return false };
    let mut pools = POOLS.lock();
    // Another vCPU may have touched it in the same moment.
    if table.entry(index).load(Ordering::Acquire) == 0 {
        let node = entry::machine().and_then(|machine| machine.vcpus().get(vcpu)).map_or(0, |vcpu| vcpu.node);
        let Some(memory) = pools.take(node) else { return false };
        table.map(index, memory, READ | WRITE);
    }
    cpu::fence_address(address);
    true
}
