//! The machine as its device tree describes it.

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node as _, Property as _};
use faults::MAX_NODES;

/// Harts that the firmware serves: ids 0 to 63.
pub const MAX_HARTS: usize = 64;
const MAX_MEMORY: usize = 32;
const MAX_APLICS: usize = 16;

/// Machine-level interrupts, as `interrupts-extended` names them.
const MACHINE_SOFTWARE: u32 = 3;
const MACHINE_TIMER: u32 = 7;
const MACHINE_EXTERNAL: u32 = 11;

/// A range of memory and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// First byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// The node that it belongs to.
    pub node: usize,
}

/// How a hart is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// By writing 1 to its `msip` register (CLINT, ACLINT).
    Register(u64),
    /// By writing an identity to its machine-level interrupt file.
    File(u64),
}

/// A hart's machine timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Address of its `mtimecmp`.
    pub compare: u64,
}

/// A hart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HartPlace {
    /// Its node.
    pub node: usize,
    /// How it is interrupted.
    pub doorbell: Option<Doorbell>,
    /// Its timer.
    pub timer: Option<Timer>,
    /// Hardware may write accessed and dirty bits (Svadu and not Svade).
    pub updates_page_tables: bool,
}

/// Where an APLIC domain's messages go: the fields of its `msiaddrcfg` registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsiTarget {
    /// Address of the first interrupt file without group and hart bits.
    pub base: u64,
    /// Bits of the guest file index.
    pub guest_bits: u32,
    /// Bits of the hart index within a group.
    pub hart_bits: u32,
    /// Bits of the group index.
    pub group_bits: u32,
    /// Where the group index is.
    pub group_shift: u32,
}

/// A machine-level APLIC domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aplic {
    /// Its registers.
    pub base: u64,
    /// Its sources: 1 to this.
    pub sources: u32,
    /// Whether it has a child, to which all sources go.
    pub has_child: bool,
}

/// Why a tree cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// It is no device tree.
    NotATree,
    /// It has no `/cpus`, or no hart in it.
    NoHarts,
    /// A hart's id, or a node's number, is 64 or more.
    TooLarge(u32),
    /// There is no memory, or in more ranges than fit.
    Memory,
    /// A hart cannot be interrupted, or has no timer.
    Unreachable(usize),
    /// There are more interrupt domains than fit.
    TooManyDomains,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// By hart id.
    pub harts: [Option<HartPlace>; MAX_HARTS],
    /// All memory.
    pub memory: ArrayVec<Memory, MAX_MEMORY>,
    /// Nodes: one more than the highest number.
    pub nodes: usize,
    /// The UART.
    pub uart: Option<u64>,
    /// The device that ends or resets the machine.
    pub finisher: Option<u64>,
    /// Machine-level APLIC domains.
    pub aplics: ArrayVec<Aplic, MAX_APLICS>,
    /// Where their messages go, and those of their children.
    pub msi: Option<[MsiTarget; 2]>,
    /// phandles of the harts' interrupt controllers.
    handles: [u32; MAX_HARTS],
}

impl Hardware {
    /// The machine of the device tree at the beginning of `blob`.
    ///
    /// # Errors
    /// What the firmware cannot do without, or has no room for.
    pub fn read(blob: &[u8]) -> Result<Self, TreeError> {
        let blob = live_part(blob).ok_or(TreeError::NotATree)?;
        let tree = Fdt::new(blob).map_err(|_| TreeError::NotATree)?;
        let mut hardware = Self {
            harts: [None; MAX_HARTS],
            memory: ArrayVec::new(),
            nodes: 1,
            uart: None,
            finisher: None,
            aplics: ArrayVec::new(),
            msi: None,
            handles: [0; MAX_HARTS],
        };
        hardware.read_harts(&tree)?;
        hardware.read_memory(&tree)?;
        let soc = tree.find_node("/soc").ok_or(TreeError::NotATree)?;
        hardware.msi = msi_targets(&soc);
        soc.children().try_for_each(|device| hardware.read_device(&device))?;
        for (id, hart) in hardware.harts() {
            if hart.doorbell.is_none() || hart.timer.is_none() {
                return Err(TreeError::Unreachable(id));
            }
        }
        Ok(hardware)
    }

    /// All harts with their ids.
    pub fn harts(&self) -> impl Iterator<Item = (usize, &HartPlace)> {
        self.harts.iter().enumerate().filter_map(|(id, hart)| Some((id, hart.as_ref()?)))
    }

    /// Whether one memory holds all of this range, and none of it is the firmware's.
    #[must_use]
    pub fn is_open_memory(&self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let firmware_end = faults::FIRMWARE_AT + faults::FIRMWARE_BYTES;
        let in_one = self.memory.iter().any(|memory| memory.start <= start && end <= memory.end);
        in_one && (end <= faults::FIRMWARE_AT || start >= firmware_end)
    }

    fn read_harts(&mut self, tree: &Fdt<'_>) -> Result<(), TreeError> {
        let cpus = tree.find_node("/cpus").ok_or(TreeError::NoHarts)?;
        for cpu in cpus.children().filter(|child| child.name_without_address() == "cpu" && is_enabled(child)) {
            let id = number(&cpu, "reg").unwrap_or(u32::MAX);
            let index = usize::try_from(id).ok().filter(|index| *index < MAX_HARTS).ok_or(TreeError::TooLarge(id))?;
            let node = self.node_of(&cpu)?;
            let isa = bytes(&cpu, "riscv,isa").unwrap_or_default();
            let has = |name: &[u8]| isa.split(|byte| *byte == b'_' || *byte == 0).any(|word| word == name);
            let updates_page_tables = has(b"svadu") && !has(b"svade");
            self.harts[index] = Some(HartPlace { node, updates_page_tables, ..HartPlace::default() });
            let controller = cpu.children().find(|child| child.name_without_address() == "interrupt-controller");
            self.handles[index] = controller.and_then(|controller| number(&controller, "phandle")).unwrap_or(0);
        }
        if self.harts().next().is_some() { Ok(()) } else { Err(TreeError::NoHarts) }
    }

    fn read_memory(&mut self, tree: &Fdt<'_>) -> Result<(), TreeError> {
        for node in tree.root().children().filter(|child| bytes(child, "device_type") == Some(b"memory\0")) {
            let owner = self.node_of(&node)?;
            for (start, size) in ranges(&node).filter(|(_, size)| *size > 0) {
                let end = start.checked_add(size).ok_or(TreeError::Memory)?;
                self.memory.try_push(Memory { start, end, node: owner }).map_err(|_| TreeError::Memory)?;
            }
        }
        self.memory.sort_unstable_by_key(|memory| memory.start);
        if self.memory.is_empty() { Err(TreeError::Memory) } else { Ok(()) }
    }

    fn node_of(&mut self, device: &FdtNode<'_>) -> Result<usize, TreeError> {
        let number = number(device, "numa-node-id").unwrap_or(0);
        let node = number as usize;
        if node >= MAX_NODES {
            return Err(TreeError::TooLarge(number));
        }
        self.nodes = self.nodes.max(node + 1);
        Ok(node)
    }

    fn read_device(&mut self, device: &FdtNode<'_>) -> Result<(), TreeError> {
        let Some((base, _)) = ranges(device).next() else { return Ok(()) };
        let is = |name| is_compatible(device, name);
        if is("ns16550a") {
            self.uart = Some(base);
        } else if is("sifive,test0") {
            self.finisher = Some(base);
        } else if is("riscv,clint0") || is("sifive,clint0") {
            self.attach(device, MACHINE_SOFTWARE, |hart, index| {
                hart.doorbell = Some(Doorbell::Register(base + 4 * index));
            });
            self.attach(device, MACHINE_TIMER, |hart, index| {
                hart.timer = Some(Timer { compare: base + 0x4000 + 8 * index });
            });
        } else if is("riscv,aclint-mswi") {
            self.attach(device, MACHINE_SOFTWARE, |hart, index| {
                hart.doorbell = Some(Doorbell::Register(base + 4 * index));
            });
        } else if is("riscv,aclint-mtimer") {
            // `mtime` first, then the harts' `mtimecmp`.
            let Some((compare, _)) = ranges(device).nth(1) else { return Ok(()) };
            self.attach(device, MACHINE_TIMER, |hart, index| {
                hart.timer = Some(Timer { compare: compare + 8 * index });
            });
        } else if is("riscv,imsics") {
            let parts: ArrayVec<(u64, u64), MAX_NODES> = ranges(device).take(MAX_NODES).collect();
            self.attach(device, MACHINE_EXTERNAL, |hart, index| {
                // A running index over all parts, each with as many files as it has pages.
                let mut left = index;
                for (start, size) in &parts {
                    if left < size >> 12 {
                        hart.doorbell = Some(Doorbell::File(start + (left << 12)));
                        return;
                    }
                    left -= size >> 12;
                }
            });
        } else if is("riscv,aplic") && property(device, "riscv,children").is_some() {
            let aplic = Aplic { base, sources: number(device, "riscv,num-sources").unwrap_or(0), has_child: true };
            self.aplics.try_push(aplic).map_err(|_| TreeError::TooManyDomains)?;
        }
        Ok(())
    }

    /// Tells each hart that the device interrupts by `interrupt` which of these it is.
    fn attach(&mut self, device: &FdtNode<'_>, interrupt: u32, mut tell: impl FnMut(&mut HartPlace, u64)) {
        let list = bytes(device, "interrupts-extended").unwrap_or_default();
        let pairs = list.chunks_exact(8).map(|pair| (be32(pair), be32(&pair[4..])));
        for (index, (handle, _)) in (0..).zip(pairs.filter(|(_, number)| *number == interrupt)) {
            let hart = self.handles.iter().position(|known| *known == handle && handle != 0);
            if let Some(hart) = hart.and_then(|hart| self.harts[hart].as_mut()) {
                tell(hart, index);
            }
        }
    }
}

/// The bytes that the header counts to the tree.
pub(crate) fn live_part(room: &[u8]) -> Option<&[u8]> {
    let total = room.get(4..8).map(be32)?;
    room.get(..usize::try_from(total).ok()?)
}

/// Where messages of machine-level and supervisor-level domains go, if there are interrupt files for both.
fn msi_targets(soc: &FdtNode<'_>) -> Option<[MsiTarget; 2]> {
    let target = |machine: bool| {
        let mut files = soc.children().filter(|device| is_compatible(device, "riscv,imsics"));
        let device = files.find(|device| is_machine_level(device) == machine)?;
        let bits = |name| number(&device, name).unwrap_or(0);
        let (guest_bits, hart_bits, group_bits) =
            (bits("riscv,guest-index-bits"), bits("riscv,hart-index-bits"), bits("riscv,group-index-bits"));
        let group_shift = number(&device, "riscv,group-index-shift").unwrap_or(24);
        let in_group = (1_u64 << (guest_bits + hart_bits + 12).min(63)) - 1;
        let groups = ((1_u64 << group_bits.min(32)) - 1).checked_shl(group_shift).unwrap_or(0);
        let base = ranges(&device).next()?.0 & !in_group & !groups;
        Some(MsiTarget { base, guest_bits, hart_bits, group_bits, group_shift })
    };
    Some([target(true)?, target(false)?])
}

/// Whether this interrupt controller interrupts M-mode, by the first entry of its `interrupts-extended`.
pub(crate) fn is_machine_level(device: &FdtNode<'_>) -> bool {
    let list = bytes(device, "interrupts-extended").unwrap_or_default();
    list.get(4..8).is_some_and(|number| be32(number) == MACHINE_EXTERNAL)
}

pub(crate) fn is_compatible(device: &FdtNode<'_>, name: &str) -> bool {
    let list = bytes(device, "compatible").unwrap_or_default();
    list.split(|byte| *byte == 0).any(|entry| entry == name.as_bytes())
}

pub(crate) fn property<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    bytes(node, name)
}

fn is_enabled(node: &FdtNode<'_>) -> bool {
    bytes(node, "status").is_none_or(|status| status.starts_with(b"ok"))
}

fn bytes<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    let found = node.properties().find(|property| property.name() == name)?;
    found.value_as::<&'a [u8]>().ok()
}

fn number(node: &FdtNode<'_>, name: &str) -> Option<u32> {
    bytes(node, name)?.get(..4).map(be32)
}

/// Address and size, two cells each, as everything of this machine has them.
fn ranges<'a>(node: &FdtNode<'a>) -> impl Iterator<Item = (u64, u64)> + 'a {
    let list = bytes(node, "reg").unwrap_or_default();
    let be64 = |cells: &[u8]| u64::from(be32(cells)) << 32 | u64::from(be32(&cells[4..]));
    list.chunks_exact(16).map(move |entry| (be64(entry), be64(&entry[8..])))
}

/// The first four bytes, which are there.
fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests;
