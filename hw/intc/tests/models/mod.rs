//! Models of the controllers, enough to show what a driver makes the hardware do.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use intc::{FileRegisters, Registers};

/// Devices that share a machine's wires and messages.
#[derive(Default)]
pub struct Board {
    /// Asserted wires, by source.
    pub wires: BTreeSet<u32>,
    /// Messages in flight, in order: (address or, from an APLIC, target; identity).
    pub messages: Vec<(u64, u32)>,
}

/// What a register block is.
pub enum Block {
    Plic(PlicModel),
    Aplic(AplicModel),
    /// Pages of interrupt files at an address.
    Files(u64, usize),
}

/// A register block on a board. A copy is the same block: the firmware's hand on it.
#[derive(Clone)]
pub struct Model {
    pub board: Rc<RefCell<Board>>,
    pub block: Rc<RefCell<Block>>,
}

impl Registers for Model {
    fn bytes(&self) -> usize {
        match &*self.block.borrow() {
            Block::Plic(_) => 0x60_0000,
            Block::Aplic(_) => 0x8000,
            Block::Files(_, bytes) => *bytes,
        }
    }

    fn read(&self, offset: usize) -> u32 {
        let wires = &self.board.borrow().wires;
        match &mut *self.block.borrow_mut() {
            Block::Plic(plic) => plic.read(offset, wires),
            Block::Aplic(aplic) => aplic.read(offset, wires),
            Block::Files(..) => 0,
        }
    }

    fn write(&self, offset: usize, value: u32) {
        let board = &mut *self.board.borrow_mut();
        match &mut *self.block.borrow_mut() {
            Block::Plic(plic) => plic.write(offset, value, &board.wires),
            Block::Aplic(aplic) => aplic.write(offset, value, board),
            Block::Files(base, _) => board.messages.push((*base + offset as u64, value)),
        }
    }
}

/// Level-triggered sources, any number of contexts.
///
/// Like QEMU's, it looks again at the wires to the harts when a priority, a threshold or a claim changes, but not when
/// an enable word does.
#[derive(Default)]
pub struct PlicModel {
    registers: BTreeMap<usize, u32>,
    claimed: BTreeSet<u32>,
    /// Contexts whose wire to their hart is up.
    calling: BTreeSet<usize>,
}

impl PlicModel {
    const CONTEXTS: usize = 16;

    /// Whether the hart of this context sees an interrupt.
    pub fn calls(&self, context: usize) -> bool {
        self.calling.contains(&context)
    }

    fn register(&self, offset: usize) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn pending(&self, context: usize, wires: &BTreeSet<u32>) -> Option<u32> {
        let threshold = self.register(0x20_0000 + context * 0x1000);
        wires.iter().copied().find(|&source| {
            let enabled = self.register(0x2000 + context * 0x80 + source as usize / 32 * 4) >> (source % 32) & 1 == 1;
            enabled && !self.claimed.contains(&source) && self.register(4 * source as usize) > threshold
        })
    }

    fn look_again(&mut self, wires: &BTreeSet<u32>) {
        self.calling = (0..Self::CONTEXTS).filter(|&context| self.pending(context, wires).is_some()).collect();
    }

    fn read(&mut self, offset: usize, wires: &BTreeSet<u32>) -> u32 {
        let Some(context) = offset.checked_sub(0x20_0004).filter(|rest| rest % 0x1000 == 0).map(|rest| rest / 0x1000)
        else {
            return self.register(offset);
        };
        let pending = self.pending(context, wires);
        self.claimed.extend(pending);
        self.look_again(wires);
        pending.unwrap_or(0)
    }

    fn write(&mut self, offset: usize, value: u32, wires: &BTreeSet<u32>) {
        if offset >= 0x20_0000 && offset % 0x1000 == 4 {
            self.claimed.remove(&value);
        } else {
            self.registers.insert(offset, value);
        }
        if !(0x2000..0x20_0000).contains(&offset) {
            self.look_again(wires);
        }
    }
}

/// One S-level domain.
#[derive(Default)]
pub struct AplicModel {
    registers: BTreeMap<usize, u32>,
    enabled: BTreeSet<u32>,
    /// Sources that the firmware kept.
    withheld: BTreeSet<u32>,
}

impl AplicModel {
    /// A domain to which the firmware did not delegate `source`.
    pub fn without(source: u32) -> Self {
        Self { withheld: [source].into(), ..Self::default() }
    }

    fn register(&self, offset: usize) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn read(&self, offset: usize, wires: &BTreeSet<u32>) -> u32 {
        if offset < 0x4000 || offset % 32 != 0x1c {
            return self.register(offset);
        }
        let context = (offset - 0x4000) as u32 / 32;
        let open = self.register(0) & 0x100 != 0 && self.register(offset - 0x1c) == 1;
        let mine = |source: &&u32| {
            let target = self.register(0x3000 + 4 * **source as usize);
            self.enabled.contains(*source) && target >> 18 == context
        };
        wires.iter().find(mine).filter(|_| open).map_or(0, |source| source << 16 | 1)
    }

    fn write(&mut self, offset: usize, value: u32, board: &mut Board) {
        match offset {
            0x1edc => {
                self.enabled.insert(value);
                self.assert(value, board);
            }
            0x1fdc => {
                self.enabled.remove(&value);
            }
            0x1cdc => self.assert(value, board),
            1..0x1000 if self.withheld.contains(&(offset as u32 / 4)) => {}
            _ => {
                self.registers.insert(offset, value);
            }
        }
    }

    /// A wire is looked at: in MSI mode a message leaves if it is active.
    fn assert(&self, source: u32, board: &mut Board) {
        let is_msi = self.register(0) == 0x104;
        if is_msi && board.wires.contains(&source) && self.enabled.contains(&source) {
            board.messages.push((
                u64::from(self.register(0x3000 + 4 * source as usize)) >> 12,
                self.register(0x3000 + 4 * source as usize) & 0x7ff,
            ));
        }
    }
}

/// The current hart's file.
#[derive(Default, Clone)]
pub struct FileModel(pub Rc<RefCell<FileState>>);

/// State of an interrupt file.
#[derive(Default)]
pub struct FileState {
    pub registers: BTreeMap<u16, u64>,
    pub pending: BTreeSet<u16>,
}

impl FileState {
    fn is_enabled(&self, identity: u16) -> bool {
        let open = self.registers.get(&0x70) == Some(&1);
        open && self.registers.get(&(0xc0 + identity / 64 * 2)).is_some_and(|word| word >> (identity % 64) & 1 == 1)
    }
}

impl FileRegisters for FileModel {
    fn write(&self, register: u16, value: u64) {
        let mut state = self.0.borrow_mut();
        assert!(register < 0x80 || register.is_multiple_of(2), "odd registers do not exist on RV64");
        if (0x80..0xc0).contains(&register) && value == 0 {
            let word = (register - 0x80) / 2;
            state.pending.retain(|identity| identity / 64 != word);
        }
        state.registers.insert(register, value);
    }

    fn set(&self, register: u16, mask: u64) {
        *self.0.borrow_mut().registers.entry(register).or_default() |= mask;
    }

    fn clear(&self, register: u16, mask: u64) {
        *self.0.borrow_mut().registers.entry(register).or_default() &= !mask;
    }

    fn claim_top(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        let top = state.pending.iter().copied().find(|&identity| state.is_enabled(identity));
        top.inspect(|identity| assert!(state.pending.remove(identity)))
            .map_or(0, |identity| u64::from(identity) << 16 | u64::from(identity))
    }
}
