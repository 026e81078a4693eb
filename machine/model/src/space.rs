//! Address spaces: the tags of translations, and where their tables are.

use alloc::vec::Vec;

use model_file::Mode;

/// A register of the hart that says how it translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// `satp`, the one without virtualization.
    Satp,
    /// `vsatp`.
    Vsatp,
    /// `hgatp`.
    Hgatp,
}

/// What the model reads of a hart and of memory.
pub trait Port {
    /// The value of a register of the hart that is accessing. `is_virtual` tells what mode the hart is in.
    fn root(&mut self, root: Root, is_virtual: bool) -> u64;
    /// Where the hart is that begins a block of instructions.
    fn program_counter(&mut self) -> u64;
    /// The eight bytes at a machine address; 0, which is no translation, where there is no RAM.
    fn table_entry(&mut self, addr: u64) -> u64;
}

/// Number of an address space; [`PHYSICAL`] has no tables.
pub type SpaceId = u16;

/// Machine addresses.
pub const PHYSICAL: SpaceId = 0;
/// Address spaces that are told apart at the same time: their numbers have 12 bits in the tags.
const MOST: usize = 4000;
/// Marks that the registers were written.
const UNKNOWN: u64 = u64::MAX;

/// What tells the translations of one address space from those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// `hgatp.VMID`; `None` without virtualization.
    pub vmid: Option<u16>,
    /// Whose translations.
    pub owner: Owner,
}

/// Whose translations in a [`Space`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Those of one ASID.
    Asid(u16),
    /// Global ones.
    Global,
    /// Those of a guest that does not translate by itself.
    Bare,
}

/// How the hart translates in one kind of mode.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context {
    /// Tag of its own translations; `PHYSICAL` if there are none.
    pub space: SpaceId,
    /// Tag of global translations, and of the G-stage's.
    pub global: SpaceId,
    /// Table of the first or VS-stage; no levels = it does not translate.
    pub first: Table,
    /// Table of the G-stage, if the mode is virtual.
    pub guest: Table,
}

/// A root table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Table {
    /// Address.
    pub addr: u64,
    /// Levels.
    pub levels: u32,
}

/// All address spaces that a hart has been in, and its two current contexts.
#[derive(Debug)]
pub struct Spaces {
    list: Vec<Space>,
    /// Without and with virtualization; `None` = to be read again.
    contexts: [Option<Context>; 2],
    vsatp: u64,
    hgatp: u64,
}

impl Spaces {
    pub fn new() -> Self {
        Self { list: Vec::new(), contexts: [None; 2], vsatp: UNKNOWN, hgatp: UNKNOWN }
    }

    /// The space of this number, which is not `PHYSICAL`.
    pub fn get(&self, id: SpaceId) -> Option<Space> {
        self.list.get(usize::from(id).checked_sub(1)?).copied()
    }

    /// All VMs that it has met.
    pub fn vmids(&self) -> Vec<u16> {
        let mut vmids: Vec<u16> = self.list.iter().filter_map(|space| space.vmid).collect();
        vmids.sort_unstable();
        vmids.dedup();
        vmids
    }

    /// A register is about to be written.
    pub fn written(&mut self, root: Root) {
        match root {
            Root::Satp => self.contexts[0] = None,
            Root::Vsatp => (self.contexts[1], self.vsatp) = (None, UNKNOWN),
            Root::Hgatp => (self.contexts[1], self.hgatp) = (None, UNKNOWN),
        }
    }

    /// Forgets all spaces if there are too many; the caller then forgets all translations.
    pub fn make_room(&mut self) -> bool {
        let is_full = self.list.len() >= MOST;
        if is_full {
            self.list.clear();
            self.contexts = [None; 2];
        }
        is_full
    }

    /// How the hart translates in `mode`.
    pub fn context(&mut self, mode: Mode, port: &mut impl Port) -> Context {
        let is_virtual = match mode {
            Mode::M | Mode::Idle => return Context::default(),
            Mode::U | Mode::S => false,
            Mode::VU | Mode::VS => true,
        };
        if let Some(context) = self.contexts[usize::from(is_virtual)] {
            return context;
        }
        let context = if is_virtual { self.read_guest(port) } else { self.read_host(port) };
        self.contexts[usize::from(is_virtual)] = Some(context);
        context
    }

    fn read_host(&mut self, port: &mut impl Port) -> Context {
        let satp = port.root(Root::Satp, false);
        let first = table(satp);
        if first.levels == 0 {
            return Context::default();
        }
        let space = self.id(Space { vmid: None, owner: Owner::Asid(asid(satp)) });
        let global = self.id(Space { vmid: None, owner: Owner::Global });
        Context { space, global, first, guest: Table::default() }
    }

    fn read_guest(&mut self, port: &mut impl Port) -> Context {
        if self.vsatp == UNKNOWN {
            self.vsatp = port.root(Root::Vsatp, true);
        }
        if self.hgatp == UNKNOWN {
            self.hgatp = port.root(Root::Hgatp, true);
        }
        let (first, guest) = (table(self.vsatp), table(self.hgatp));
        if first.levels == 0 && guest.levels == 0 {
            return Context::default();
        }
        let vmid = Some((self.hgatp >> 44 & 0x3fff) as u16);
        let owner = if first.levels == 0 { Owner::Bare } else { Owner::Asid(asid(self.vsatp)) };
        let space = self.id(Space { vmid, owner });
        let global = self.id(Space { vmid, owner: Owner::Global });
        Context { space, global, first, guest }
    }

    fn id(&mut self, space: Space) -> SpaceId {
        let at = self.list.iter().position(|held| *held == space).unwrap_or_else(|| {
            self.list.push(space);
            self.list.len() - 1
        });
        at as SpaceId + 1
    }
}

/// `satp`, `vsatp` and `hgatp` have the mode and the root table at the same places.
fn table(register: u64) -> Table {
    let levels = match register >> 60 {
        8 => 3,
        9 => 4,
        10 => 5,
        _ => 0,
    };
    Table { addr: (register & ((1 << 44) - 1)) << 12, levels }
}

fn asid(register: u64) -> u16 {
    (register >> 44) as u16
}
