//! Nodes and properties in few words, flattened as they are written (Devicetree Specification 0.4, chapter 5): the control hart has
//! other things to do than to look after hundreds of small lists.

use alloc::vec::Vec;
use dtoolkit::ToPropertyValue;

const MAGIC: u32 = 0xd00d_feed;
const VERSION: u32 = 17;
const LAST_COMPATIBLE: u32 = 16;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;
const HEADER_BYTES: usize = 40;
/// One entry of zeroes: nothing is reserved.
const RESERVED_BYTES: usize = 16;
/// What most trees need at most, so that the list grows once.
const USUAL_BYTES: usize = 8192;

/// Names of all properties, the more frequent ones first. A property of another name is a mistake that tests find, and is left out.
const NAMES: &[&str] = &[
    "reg",
    "compatible",
    "interrupts",
    "dma-coherent",
    "phandle",
    "#address-cells",
    "#interrupt-cells",
    "interrupt-controller",
    "device_type",
    "status",
    "riscv,isa",
    "riscv,isa-base",
    "riscv,isa-extensions",
    "mmu-type",
    "riscv,cbom-block-size",
    "riscv,cbop-block-size",
    "riscv,cboz-block-size",
    "numa-node-id",
    "cpu",
    "#size-cells",
    "#msi-cells",
    "bootargs",
    "clock-frequency",
    "distance-matrix",
    "fifo-size",
    "interrupt-parent",
    "interrupts-extended",
    "linux,initrd-end",
    "linux,initrd-start",
    "model",
    "msi-controller",
    "msi-parent",
    "offset",
    "ranges",
    "regmap",
    "riscv,ndev",
    "riscv,num-ids",
    "riscv,num-sources",
    "rng-seed",
    "serial0",
    "stdout-path",
    "timebase-frequency",
    "value",
];

/// Where a name is in the block of names.
fn offset_of(name: &str) -> Option<u32> {
    let mut offset = 0;
    for known in NAMES {
        if *known == name {
            return Some(offset as u32);
        }
        offset += known.len() + 1;
    }
    None
}

/// A node under construction: what the flattened tree says of it, but for its end.
pub(super) struct NodeWriter {
    bytes: Vec<u8>,
    has_children: bool,
}

impl NodeWriter {
    pub(super) fn new(name: impl AsRef<str>) -> Self {
        Self::with_room(name.as_ref(), 0)
    }

    /// The root, with room for all others.
    pub(super) fn root() -> Self {
        Self::with_room("", USUAL_BYTES)
    }

    fn with_room(name: &str, room: usize) -> Self {
        // Bounded: USUAL_BYTES.
        let mut node = Self { bytes: Vec::with_capacity(room), has_children: false };
        node.word(BEGIN_NODE);
        node.bytes.extend_from_slice(name.as_bytes());
        node.bytes.push(0);
        node.align();
        node
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_be_bytes());
    }

    fn align(&mut self) {
        // Bounded: three bytes.
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A property with any value. A node's properties stand before its children.
    pub(super) fn with(mut self, name: &str, value: impl ToPropertyValue) -> Self {
        let Some(offset) = offset_of(name).filter(|_| !self.has_children) else {
            debug_assert!(false, "{name} is no known property, or stands behind a child");
            return self;
        };
        let len = value.property_value_len();
        self.word(PROPERTY);
        self.word(len as u32);
        self.word(offset);
        let begin = self.bytes.len();
        // Bounded: the longest is the command line of a description.
        self.bytes.resize(begin + len, 0);
        value.write_property_value(self.bytes.get_mut(begin..).unwrap_or(&mut []));
        self.align();
        self
    }

    /// A property without a value: true by being there.
    pub(super) fn flag(self, name: &str) -> Self {
        self.with(name, [0_u8; 0])
    }

    /// One 32-bit cell; spares literals their suffix.
    pub(super) fn cell(self, name: &str, cell: u32) -> Self {
        self.with(name, cell)
    }

    /// `reg` with one area, two cells each.
    pub(super) fn reg(self, base: u64, size: u64) -> Self {
        self.with("reg", [(base >> 32) as u32, base as u32, (size >> 32) as u32, size as u32])
    }

    pub(super) fn child(mut self, child: Self) -> Self {
        self.has_children = true;
        self.bytes.extend_from_slice(&child.bytes);
        self.word(END_NODE);
        self
    }

    pub(super) fn children(self, children: impl IntoIterator<Item = Self>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    /// The structure block of the tree whose root this is.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.word(END_NODE);
        self.word(END);
        self.bytes
    }
}

/// A tree with this structure block, and so many unused bytes at its end.
pub(super) fn flatten(structure: &[u8], slack: usize) -> Vec<u8> {
    let names: usize = NAMES.iter().map(|name| name.len() + 1).sum();
    let structure_at = HEADER_BYTES + RESERVED_BYTES;
    let names_at = structure_at + structure.len();
    let total = names_at + names + slack;
    // Bounded: the tree describes MAX_VCPUS harts and as many slots as the platform has.
    let mut blob = Vec::with_capacity(total);
    let header = [
        MAGIC,
        total as u32,
        structure_at as u32,
        names_at as u32,
        HEADER_BYTES as u32,
        VERSION,
        LAST_COMPATIBLE,
        0,
        names as u32,
        structure.len() as u32,
    ];
    header.iter().for_each(|word| blob.extend_from_slice(&word.to_be_bytes()));
    blob.extend_from_slice(&[0; RESERVED_BYTES]);
    blob.extend_from_slice(structure);
    for name in NAMES {
        blob.extend_from_slice(name.as_bytes());
        blob.push(0);
    }
    // Bounded: reserved above.
    blob.resize(total, 0);
    blob
}
