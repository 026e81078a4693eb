//! Interrupt controllers that S-mode may use: IMSIC, APLIC, PLIC, ACLINT SSWI.

use alloc::vec::Vec;

use addr::{HartId, MachineAddr, NodeId};

use crate::{
    address::AddressRange,
    error::{Problem, TreeError},
    harts::hart_of_local_controller,
    nodes::Nodes,
    tree::{Tree, TreeNode},
};

/// Supervisor software interrupt at a hart's local controller.
const SUPERVISOR_SOFTWARE: u32 = 1;
/// Supervisor external interrupt at a hart's local controller.
const SUPERVISOR_EXTERNAL: u32 = 9;
/// Most harts, contexts or files that one controller may list; a bound for hostile trees, far above real ones.
const MAX_TARGETS: usize = 4096;
/// Bytes of one interrupt file.
const FILE_BYTES: u64 = 4096;

/// The S-level incoming MSI controllers of all harts (binding `riscv,imsics`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imsic {
    /// The memory that holds the files.
    pub regions: Vec<AddressRange>,
    /// Every hart with its S-level file; guest file `g` of a hart is `g` pages further on.
    pub files: Vec<ImsicFile>,
    /// Interrupt identities 1..=`num_ids` exist in an S-level file.
    pub num_ids: u32,
    /// The same for guest files.
    pub num_guest_ids: u32,
    /// Address bits that select the file inside a hart; there is room for `2^bits - 1` guest files.
    pub guest_index_bits: u32,
    /// Address bits that select the hart inside a group.
    pub hart_index_bits: u32,
    /// Address bits that select the group.
    pub group_index_bits: u32,
    /// Where those begin.
    pub group_index_shift: u32,
    phandle: Option<u32>,
}

/// Where a hart's S-level interrupt file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImsicFile {
    /// The hart.
    pub hart: HartId,
    /// The file's page.
    pub base: MachineAddr,
}

impl Imsic {
    /// The page of a hart's S-level file.
    #[must_use]
    pub fn file(&self, hart: HartId) -> Option<MachineAddr> {
        self.files.iter().find(|file| file.hart == hart).map(|file| file.base)
    }

    /// The page of a hart's guest file `guest` (1 and up), if the address layout has room for it. How many files
    /// exist is known only to the hart (`hgeie`).
    #[must_use]
    pub fn guest_file(&self, hart: HartId, guest: u32) -> Option<MachineAddr> {
        if guest == 0 || guest >= 1 << self.guest_index_bits {
            return None;
        }
        self.file(hart)?.checked_add(u64::from(guest) * FILE_BYTES)
    }
}

/// An S-level domain of an advanced platform-level interrupt controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aplic {
    /// Registers.
    pub registers: AddressRange,
    /// Interrupt sources 1..=`num_sources`.
    pub num_sources: u32,
    /// It forwards interrupts as MSIs to [`Imsic`]; otherwise `contexts` are wired.
    pub is_msi: bool,
    /// Interrupt delivery control structures of the wired (direct) mode; empty in MSI mode.
    pub contexts: Vec<Context>,
    /// The node it is closest to.
    pub node: NodeId,
    phandle: Option<u32>,
}

/// A platform-level interrupt controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plic {
    /// Registers.
    pub registers: AddressRange,
    /// Interrupt sources 1..=`num_sources`.
    pub num_sources: u32,
    /// S-mode contexts.
    pub contexts: Vec<Context>,
    /// The node it is closest to.
    pub node: NodeId,
    phandle: Option<u32>,
}

/// A controller's wire to a hart's supervisor external interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The hart.
    pub hart: HartId,
    /// Index of the context (PLIC) or delivery structure (APLIC).
    pub index: u32,
}

/// A supervisor software interrupt device (`riscv,aclint-sswi`): a 32-bit register per hart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sswi {
    /// Registers.
    pub registers: AddressRange,
    /// Register `index` (times four bytes) interrupts `hart`.
    pub contexts: Vec<Context>,
}

/// All S-level controllers of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct InterruptControllers {
    /// Incoming MSI controllers.
    pub imsic: Option<Imsic>,
    /// APLIC domains, by address.
    pub aplics: Vec<Aplic>,
    /// PLICs, by address.
    pub plics: Vec<Plic>,
    /// Supervisor software interrupt devices.
    pub sswis: Vec<Sswi>,
}

impl InterruptControllers {
    pub(crate) fn read(tree: &Tree<'_>, nodes: &Nodes) -> Result<Self, TreeError> {
        let mut found = Self::default();
        for node in tree.compatible(&["riscv,imsics"]) {
            let imsic = read_imsic(&node)?;
            // M-level files are the firmware's: no hart takes them as its supervisor external interrupt.
            found.imsic = found.imsic.or(imsic.filter(|imsic| !imsic.files.is_empty()));
        }
        for node in tree.compatible(&["riscv,aplic"]) {
            found.aplics.extend(read_aplic(&node, nodes, found.imsic.as_ref())?);
        }
        for node in tree.compatible(&["riscv,plic0", "sifive,plic-1.0.0", "thead,c900-plic"]) {
            found.plics.push(read_plic(&node, nodes)?);
        }
        for node in tree.compatible(&["riscv,aclint-sswi"]) {
            let contexts = contexts(&node, SUPERVISOR_SOFTWARE)?;
            found.sswis.push(Sswi { registers: node.first_reg()?, contexts });
        }
        order::by_key(&mut found.aplics, |aplic| aplic.registers);
        order::by_key(&mut found.plics, |plic| plic.registers);
        Ok(found)
    }

    /// The APLIC or PLIC that a phandle names.
    pub(crate) fn by_phandle(&self, phandle: u32) -> Option<Controller> {
        let aplic = self.aplics.iter().position(|aplic| aplic.phandle == Some(phandle)).map(Controller::Aplic);
        aplic.or_else(|| self.plics.iter().position(|plic| plic.phandle == Some(phandle)).map(Controller::Plic))
    }

    pub(crate) fn num_sources(&self, controller: Controller) -> u32 {
        match controller {
            Controller::Aplic(index) => self.aplics.get(index).map_or(0, |aplic| aplic.num_sources),
            Controller::Plic(index) => self.plics.get(index).map_or(0, |plic| plic.num_sources),
        }
    }
}

/// A controller of wired interrupts, as an index into [`InterruptControllers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Index into `aplics`.
    Aplic(usize),
    /// Index into `plics`.
    Plic(usize),
}

fn read_imsic(node: &TreeNode<'_, '_>) -> Result<Option<Imsic>, TreeError> {
    let contexts = contexts(node, SUPERVISOR_EXTERNAL)?;
    if contexts.is_empty() {
        return Ok(None);
    }
    let num_ids = node.u32("riscv,num-ids")?;
    let num_ids = node.required("riscv,num-ids", num_ids)?;
    let guest_index_bits = index_bits(node, "riscv,guest-index-bits", 0, 7)?;
    let targets = target_count(node)?;
    let default_hart_bits = targets.next_power_of_two().trailing_zeros();
    let hart_index_bits = index_bits(node, "riscv,hart-index-bits", default_hart_bits, 15)?;
    let mut imsic = Imsic {
        regions: node.reg()?,
        files: Vec::new(),
        num_ids: bounded(node, "riscv,num-ids", num_ids, 63..=2047)?,
        num_guest_ids: bounded(
            node,
            "riscv,num-guest-ids",
            node.u32("riscv,num-guest-ids")?.unwrap_or(num_ids),
            63..=2047,
        )?,
        guest_index_bits,
        hart_index_bits,
        group_index_bits: index_bits(node, "riscv,group-index-bits", 0, 7)?,
        group_index_shift: index_bits(node, "riscv,group-index-shift", 24, 55)?,
        phandle: node.u32("phandle")?,
    };
    for context in contexts {
        let base = file_base(&imsic.regions, context.index, guest_index_bits);
        let base = base.ok_or_else(|| node.error("reg", Problem::OutOfRange { value: u64::from(context.index) }))?;
        imsic.files.push(ImsicFile { hart: context.hart, base });
    }
    Ok(Some(imsic))
}

/// The page of the `index`th hart's file: harts follow one another through all regions, each with room for
/// `2^guest_index_bits` files.
fn file_base(regions: &[AddressRange], index: u32, guest_index_bits: u32) -> Option<MachineAddr> {
    let stride = FILE_BYTES << guest_index_bits;
    let mut offset = u64::from(index).checked_mul(stride)?;
    for region in regions {
        if offset < region.bytes() {
            return region.start().checked_add(offset);
        }
        // A region's last hart may lack pages for guests that do not exist.
        offset -= region.bytes().checked_next_multiple_of(stride)?.min(offset);
    }
    None
}

fn read_aplic(node: &TreeNode<'_, '_>, nodes: &Nodes, imsic: Option<&Imsic>) -> Result<Option<Aplic>, TreeError> {
    let msi_parent = node.u32("msi-parent")?;
    let contexts = contexts(node, SUPERVISOR_EXTERNAL)?;
    let is_msi = msi_parent.is_some() && msi_parent == imsic.and_then(|imsic| imsic.phandle);
    // The machine-level domain, which is the firmware's.
    if !is_msi && contexts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Aplic {
        registers: node.first_reg()?,
        num_sources: sources(node, "riscv,num-sources")?,
        is_msi,
        contexts: if is_msi { Vec::new() } else { contexts },
        node: nodes.of(node)?,
        phandle: node.u32("phandle")?,
    }))
}

fn read_plic(node: &TreeNode<'_, '_>, nodes: &Nodes) -> Result<Plic, TreeError> {
    Ok(Plic {
        registers: node.first_reg()?,
        num_sources: sources(node, "riscv,ndev")?,
        contexts: contexts(node, SUPERVISOR_EXTERNAL)?,
        node: nodes.of(node)?,
        phandle: node.u32("phandle")?,
    })
}

/// The entries of `interrupts-extended` that go to a hart's `interrupt`, each with its position in the list.
fn contexts(node: &TreeNode<'_, '_>, interrupt: u32) -> Result<Vec<Context>, TreeError> {
    const NAME: &str = "interrupts-extended";
    let mut found = Vec::new();
    let Some(mut cells) = node.cells(NAME)? else { return Ok(found) };
    target_count(node)?;
    let mut index = 0;
    while !cells.is_empty() {
        let (Some(phandle), Some(number)) = (cells.cell(), cells.cell()) else {
            return Err(node.cut_short(NAME, 2));
        };
        if number == interrupt {
            found.push(Context { hart: hart_of_local_controller(node, NAME, phandle)?, index });
        }
        index += 1;
    }
    Ok(found)
}

fn target_count(node: &TreeNode<'_, '_>) -> Result<usize, TreeError> {
    let count = node.bytes("interrupts-extended").map_or(0, |bytes| bytes.len() / 8);
    if count > MAX_TARGETS {
        return Err(node.error("interrupts-extended", Problem::TooMany { found: count, limit: MAX_TARGETS }));
    }
    Ok(count)
}

fn sources(node: &TreeNode<'_, '_>, name: &str) -> Result<u32, TreeError> {
    let count = node.u32(name)?;
    bounded(node, name, node.required(name, count)?, 1..=1023)
}

fn index_bits(node: &TreeNode<'_, '_>, name: &str, default: u32, most: u32) -> Result<u32, TreeError> {
    bounded(node, name, node.u32(name)?.unwrap_or(default), 0..=most)
}

fn bounded(
    node: &TreeNode<'_, '_>,
    name: &str,
    value: u32,
    legal: core::ops::RangeInclusive<u32>,
) -> Result<u32, TreeError> {
    match legal.contains(&value) {
        true => Ok(value),
        false => Err(node.error(name, Problem::OutOfRange { value: u64::from(value) })),
    }
}
