//! From the machine's flattened device tree to an owned description of the machine.
//!
//! # Key types
//! [`MachineDescription`] is everything the monitor wants to know of the machine it woke up on: [`Hart`]s with their
//! extensions, [`Nodes`] with distances, [`MemoryRange`]s and what is [`Reserved`] in them, the S-level
//! [`InterruptControllers`], and the devices it has drivers for. It borrows nothing: the blob's memory may be reused.
//! [`MachineDescription::parse`] is the only way to make one; [`MachineDescription::cut_to`] makes that of a part of a
//! machine.
//!
//! # What it refuses
//! The tree is the firmware's word, but firmware has bugs: a tree that contradicts itself (overlapping memory, two
//! harts with one id, a dangling phandle, a property of the wrong length, a range that wraps) is a [`TreeError`]
//! that names node, property and value; never a panic. What is merely unknown is left out: other devices, extensions
//! without a name here, controllers of machine level. More than [`MAX_HARTS`] harts or [`MAX_NODES`] nodes are
//! refused. Disabled nodes (`status`) do not exist, except that disabled harts are listed.
//!
//! # Locking
//! None: plain values.
//!
//! # Tests
//! Trees that QEMU generated for many shapes of machine (`tests/fixtures`), trees built by hand for the odd cases,
//! and mutations of all of them by proptest.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
mod cells;
mod chosen;
mod controllers;
mod cut;
mod devices;
mod error;
mod harts;
mod interrupts;
mod isa;
mod memory;
mod nodes;
mod pcie;
mod tree;

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use addr::HartId;
use dtoolkit::fdt::Fdt;

pub use address::AddressRange;
pub use chosen::Chosen;
pub use controllers::{Aplic, Context, Controller, Imsic, ImsicFile, InterruptControllers, Plic, Sswi};
pub use cut::{CutError, Devices, find_room, is_inside};
pub use devices::{Rtc, Uart, VirtioMmio};
pub use error::{Problem, TreeError};
pub use harts::{Hart, MmuType};
pub use interrupts::{InterruptSource, Trigger};
pub use isa::{Extension, ExtensionSet};
pub use memory::{MemoryRange, Reserved, ReservedKind};
pub use nodes::Nodes;
pub use pcie::{PciSpace, PciWindow, PcieHost};

/// Most harts that are supported.
pub const MAX_HARTS: usize = 64;
/// Most nodes that are supported.
pub const MAX_NODES: usize = 8;

/// The machine, as its device tree describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineDescription {
    /// The `model` text, for people.
    pub model: String,
    /// Ticks of `time` per second.
    pub timebase_hz: u64,
    /// Usable harts by ascending hart id; the position is the `CpuIndex`.
    pub harts: Vec<Hart>,
    /// Harts that the firmware keeps from us.
    pub disabled_harts: Vec<HartId>,
    /// Nodes and distances.
    pub nodes: Nodes,
    /// All memory, by ascending address, without overlaps. Reserved parts are included.
    pub memory: Vec<MemoryRange>,
    /// Reserved ranges by ascending address; they may overlap.
    pub reserved: Vec<Reserved>,
    /// S-level interrupt controllers.
    pub controllers: InterruptControllers,
    /// UARTs, in the tree's order.
    pub uarts: Vec<Uart>,
    /// virtio-mmio slots, by ascending address.
    pub virtio_mmio: Vec<VirtioMmio>,
    /// PCI Express host bridges.
    pub pcie: Vec<PcieHost>,
    /// Real-time clock.
    pub rtc: Option<Rtc>,
    /// The boot loader's choices.
    pub chosen: Chosen,
}

impl MachineDescription {
    /// Reads a blob. `blob` may be longer than the tree: the header says where it ends.
    pub fn parse(blob: &[u8]) -> Result<Self, TreeError> {
        let fdt = Fdt::new(trim(blob)).map_err(|why| TreeError {
            node: String::new(),
            property: String::new(),
            problem: Problem::Malformed(why),
        })?;
        let tree = tree::Tree::index(fdt)?;
        let nodes = Nodes::read(&tree)?;
        let cpus = harts::Cpus::read(&tree, &nodes)?;
        let controllers = InterruptControllers::read(&tree, &nodes)?;
        let uarts = devices::read_uarts(&tree, &controllers)?;
        let chosen = Chosen::read(&tree, &uarts)?;
        Ok(Self {
            model: tree.root().text("model")?.unwrap_or_default().to_owned(),
            timebase_hz: cpus.timebase_hz,
            harts: cpus.harts,
            disabled_harts: cpus.disabled,
            memory: memory::read_memory(&tree, &nodes)?,
            reserved: memory::read_reserved(fdt, &tree, chosen.initrd)?,
            nodes,
            uarts,
            virtio_mmio: devices::read_virtio(&tree, &controllers)?,
            pcie: pcie::read_hosts(&tree, &controllers)?,
            rtc: devices::read_rtc(&tree, &controllers)?,
            controllers,
            chosen,
        })
    }

    /// The hart with this id.
    #[must_use]
    pub fn hart(&self, id: HartId) -> Option<&Hart> {
        let index = self.harts.binary_search_by_key(&id, |hart| hart.id).ok()?;
        self.harts.get(index)
    }

    /// The extensions that every usable hart has.
    #[must_use]
    pub fn common_extensions(&self) -> ExtensionSet {
        let all = self.harts.iter().map(|hart| hart.extensions);
        all.reduce(ExtensionSet::intersection).unwrap_or_default()
    }

    /// Memory that is free to use: everything but the reserved ranges and `taken` (the monitor's image, this blob),
    /// in whole pages, by ascending address.
    #[must_use]
    pub fn free_memory(&self, taken: &[AddressRange]) -> Vec<MemoryRange> {
        let reserved = self.reserved.iter().map(|reserved| reserved.range);
        memory::subtract(&self.memory, reserved.chain(taken.iter().copied()))
    }
}

/// The blob cut to the `totalsize` of its header, if that is shorter.
fn trim(blob: &[u8]) -> &[u8] {
    let mut header = cells::Cells::new(blob);
    let announced = header.cell().and_then(|_magic| header.cell());
    announced.and_then(|bytes| blob.get(..usize::try_from(bytes).ok()?)).unwrap_or(blob)
}
