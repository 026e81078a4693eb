//! The machine's memory at rest: the frame allocator over everything that the device tree calls memory.

use super::layout;
use super::{direct, heap, heap_reserve};
use addr::{BASE_PAGE, MachineAddr, Mfn, NodeId, PageSize};
use alloc::vec::Vec;
use frames::{Frames, MachineMemory, MemMapEntry, MemMapPlan, NodeRegion, PageUse, Span};
use machine_tree::{AddressRange, MachineDescription, MemoryRange};
use spin::Once;

static FRAMES: Once<Frames> = Once::new();
static ORDER_OF_NODES: Once<Vec<Vec<NodeId>>> = Once::new();
static MEMMAP_BYTES: Once<Vec<u64>> = Once::new();

/// The direct map as the mechanisms see it.
#[derive(Clone, Copy, Debug)]
pub struct DirectMemory;

impl MachineMemory for DirectMemory {
    #[inline(always)]
    fn read_u64(&self, addr: MachineAddr) -> u64 {
        direct::read_u64(addr)
    }

    #[inline(always)]
    fn write_u64(&self, addr: MachineAddr, value: u64) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        direct::write_u64(addr, value);
    }

    fn zero_pages(&self, first: Mfn, pages: u64) {
        for page in 0..pages {
            direct::zero(Mfn::new(first.raw() + page), PageSize::Base);
        }
    }

    fn copy_page(&self, from: Mfn, to: Mfn) {
        direct::copy_page(to, from);
    }
}

/// The allocator.
#[must_use]
pub fn frames() -> &'static Frames {
    FRAMES.get().expect("memory is initialised first")
}

/// All nodes, nearest to `node` first.
#[must_use]
pub fn nearest(node: NodeId) -> &'static [NodeId] {
    ORDER_OF_NODES.get().map_or(&[], |orders| &orders[node.index()])
}

/// Bytes of `node`'s memory that describe its pages.
#[must_use]
pub fn memmap_bytes(node: NodeId) -> u64 {
    MEMMAP_BYTES.get().and_then(|bytes| bytes.get(node.index()).copied()).unwrap_or(0)
}

/// Sets the allocator up: every page is described in its own node's memory, everything in `taken` or reserved by the
/// firmware stays what it is, the rest is free.
///
/// # Panics
/// When the tree's memory contradicts itself, or a node's memory cannot hold its own description.
pub fn init(description: &MachineDescription, taken: &[AddressRange]) {
    let usable = |range: &AddressRange| range.end().raw() <= layout::DIRECT_SIZE;
    let regions: Vec<NodeRegion> =
        description.memory.iter().filter(|memory| usable(&memory.range)).map(|memory| region(*memory)).collect();
    let plan = MemMapPlan::new(&regions).unwrap_or_else(|why| panic!("the tree's memory: {why}"));
    let mut free: Vec<MemoryRange> =
        description.free_memory(taken).into_iter().filter(|memory| usable(&memory.range)).collect();
    // Bounded: nodes of the machine.
    let mut bytes = alloc::vec![0; description.nodes.count()];
    for span in plan.spans() {
        bytes[span.node.index()] += span.bytes();
    }
    let map = plan.build(|span| rows_for(span, &mut free)).unwrap_or_else(|why| panic!("memmap: {why}"));
    let frames = Frames::new(map);
    for memory in &free {
        let NodeRegion { start, pages, .. } = region(*memory);
        frames.donate(start, pages).unwrap_or_else(|why| panic!("free memory: {why}"));
    }
    FRAMES.call_once(|| frames);
    MEMMAP_BYTES.call_once(|| bytes);
    ORDER_OF_NODES.call_once(|| {
        let by_distance = |from: NodeId| {
            let mut nodes: Vec<NodeId> = description.nodes.ids().collect();
            order::by_key(&mut nodes, |to| (*to != from, description.nodes.distance(from, *to)));
            nodes
        };
        description.nodes.ids().map(by_distance).collect()
    });
    heap::set_growth(grow_heap);
    heap_reserve::fill();
}

fn region(memory: MemoryRange) -> NodeRegion {
    NodeRegion { node: memory.node, start: memory.range.start().mfn(), pages: memory.range.bytes() / BASE_PAGE }
}

/// Cuts the rows of `span` off the beginning of the first free range of the node that is large enough.
fn rows_for(span: &Span, free: &mut [MemoryRange]) -> &'static [MemMapEntry] {
    let bytes = span.bytes().next_multiple_of(BASE_PAGE);
    let home = free
        .iter_mut()
        .find(|memory| memory.node == span.node && memory.range.bytes() > bytes)
        .unwrap_or_else(|| panic!("node {} has no {bytes} bytes in one piece for its memmap", span.node));
    let at = home.range.start();
    let rest = at.checked_add(bytes).and_then(|start| AddressRange::new(start, home.range.bytes() - bytes));
    home.range = rest.expect("the range was longer than what was cut off");
    leak_rows(at, span.pages)
}

#[expect(unsafe_code)]
fn leak_rows(at: MachineAddr, count: u64) -> &'static [MemMapEntry] {
    // UNSAFETY and SAFETY: the range was free a moment ago and is no longer listed as free; it is page-aligned; a row
    // is made of atomics, for which all-zero bytes are valid.
    unsafe { direct::leak_array(at, count as usize) }
}

/// One page for the monitor, on `node` or as near as possible.
#[must_use]
pub fn take_monitor_page(node: NodeId) -> Option<Mfn> {
    take_monitor_run(node, 1)
}

/// Contiguous pages for the monitor (rounded up to a power of two), on `node` or as near as possible.
#[must_use]
pub fn take_monitor_run(node: NodeId, pages: u64) -> Option<Mfn> {
    let order = pages.next_power_of_two().trailing_zeros() as u8;
    let mut nodes = nearest(node).iter();
    nodes.find_map(|node| frames().alloc(*node, order, PageUse::Monitor { vm: None })).map(frames::Frame::settle)
}

/// The machine address of an object of the monitor, in the direct map or in the image.
#[must_use]
pub fn machine_address_of(va: u64) -> MachineAddr {
    if va >= layout::IMAGE_BASE { crate::machine::image::machine_of(va) } else { layout::machine_of_direct(va) }
}

/// More memory for the heap.
fn grow_heap(bytes: usize) -> Option<(*mut u8, usize)> {
    let (first, bytes) = heap_reserve::take(bytes)?;
    Some((layout::direct(first.addr()) as *mut u8, bytes))
}
