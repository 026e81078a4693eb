//! A machine that tests play: memory, nodes, a clock that runs when it is read, and moments in which others may act.

use crate::{ByteMemory, GuestRam, Machine};
use addr::{CpuIndex, MachineAddr, Mfn, NodeId, VmId};
use alloc::{boxed::Box, collections::BTreeSet, rc::Rc, vec::Vec};
use control::EventKind;
use core::cell::{Cell, RefCell};
use frames::{Frames, MachineMemory, testing};

/// Ticks of a second.
pub const HZ: u64 = 1000;

/// What others do meanwhile.
pub type Others = Box<dyn FnMut()>;

/// Memory in which long copies take time: others act before each page.
pub struct PlayedMemory {
    words: testing::FakeMemory,
    others: RefCell<Option<Others>>,
}

impl PlayedMemory {
    fn let_others_act(&self) {
        // Not while they act.
        let others = self.others.borrow_mut().take();
        if let Some(mut others) = others {
            others();
            *self.others.borrow_mut() = Some(others);
        }
    }

    fn bytes_of(addr: MachineAddr, len: u64) -> impl Iterator<Item = (MachineAddr, u32)> {
        let byte = move |at: u64| (MachineAddr::new(at & !7), (at & 7) as u32 * 8);
        (addr.raw()..addr.raw() + len).map(byte)
    }
}

impl MachineMemory for PlayedMemory {
    fn read_u64(&self, addr: MachineAddr) -> u64 {
        self.words.read_u64(addr)
    }

    fn write_u64(&self, addr: MachineAddr, value: u64) {
        self.words.write_u64(addr, value);
    }

    fn zero_pages(&self, first: Mfn, pages: u64) {
        self.let_others_act();
        self.words.zero_pages(first, pages);
    }

    fn copy_page(&self, from: Mfn, to: Mfn) {
        self.let_others_act();
        self.words.copy_page(from, to);
    }
}

impl ByteMemory for PlayedMemory {
    fn load_u16(&self, addr: MachineAddr) -> u16 {
        let mut bytes = [0; 2];
        self.read_bytes(addr, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    fn load_u32(&self, addr: MachineAddr) -> u32 {
        let mut bytes = [0; 4];
        self.read_bytes(addr, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn store_u16(&self, addr: MachineAddr, value: u16) {
        self.write_bytes(addr, &value.to_le_bytes());
    }

    fn store_u32(&self, addr: MachineAddr, value: u32) {
        self.write_bytes(addr, &value.to_le_bytes());
    }

    fn store_u64(&self, addr: MachineAddr, value: u64) {
        self.words.write_u64(addr, value);
    }

    fn read_bytes(&self, addr: MachineAddr, buf: &mut [u8]) {
        for (byte, (word, shift)) in buf.iter_mut().zip(Self::bytes_of(addr, u64::MAX >> 2)) {
            *byte = (self.words.read_u64(word) >> shift) as u8;
        }
    }

    fn write_bytes(&self, addr: MachineAddr, data: &[u8]) {
        for (byte, (word, shift)) in data.iter().zip(Self::bytes_of(addr, u64::MAX >> 2)) {
            let others = self.words.read_u64(word) & !(0xff << shift);
            self.words.write_u64(word, others | u64::from(*byte) << shift);
        }
    }

    fn copy_bytes(&self, to: MachineAddr, from: MachineAddr, len: u64) {
        let mut bytes = alloc::vec![0; len as usize];
        self.read_bytes(from, &mut bytes);
        self.write_bytes(to, &bytes);
    }
}

/// The machine.
pub struct Played {
    memory: PlayedMemory,
    frames: Frames,
    nearest: Vec<Vec<NodeId>>,
    harts: usize,
    /// The node of the hart that executes the monitor's code at this moment.
    here: Cell<NodeId>,
    clock: Cell<u64>,
    kicked: RefCell<BTreeSet<CpuIndex>>,
    told: RefCell<Vec<EventKind>>,
    deferred: Cell<u64>,
    on_time: RefCell<Option<Others>>,
    relief: RefCell<Option<Box<dyn FnMut() -> bool>>>,
}

/// A handle to it.
#[derive(Clone)]
pub struct Handle(Rc<Played>);

impl Handle {
    /// `harts` harts, by turns on nodes with so many MiB.
    pub fn new(megabytes: &[u64], harts: usize) -> Self {
        let (words, frames) = testing::small_machine(megabytes);
        let nodes = megabytes.len();
        let from = |first: usize| (0..nodes).map(|step| NodeId(((first + step) % nodes) as u8)).collect();
        Self(Rc::new(Played {
            memory: PlayedMemory { words, others: RefCell::default() },
            frames,
            nearest: (0..nodes).map(from).collect(),
            harts,
            here: Cell::new(NodeId(0)),
            clock: Cell::new(0),
            kicked: RefCell::default(),
            told: RefCell::default(),
            deferred: Cell::new(0),
            on_time: RefCell::default(),
            relief: RefCell::default(),
        }))
    }

    /// What others do before each page that is zeroed or copied.
    pub fn set_others(&self, others: Others) {
        *self.0.memory.others.borrow_mut() = Some(others);
    }

    /// They act now.
    pub fn let_others_act(&self) {
        self.0.memory.let_others_act();
    }

    /// What happens whenever somebody asks for the time.
    pub fn set_on_time(&self, others: Others) {
        *self.0.on_time.borrow_mut() = Some(others);
    }

    /// What is given up in a shortage.
    pub fn set_relief(&self, relief: impl FnMut() -> bool + 'static) {
        *self.0.relief.borrow_mut() = Some(Box::new(relief));
    }

    /// Makes `node` the one on which the monitor executes; the one before.
    pub fn go_to(&self, node: NodeId) -> NodeId {
        self.0.here.replace(node)
    }

    /// The node of a hart.
    pub fn node_of(&self, hart: usize) -> NodeId {
        NodeId((hart % self.0.nearest.len()) as u8)
    }

    /// Nodes.
    pub fn nodes(&self) -> usize {
        self.0.nearest.len()
    }

    /// Whether the hart was interrupted since the last call.
    pub fn take_kick(&self, hart: usize) -> bool {
        self.0.kicked.borrow_mut().remove(&CpuIndex(hart as u16))
    }

    /// Events since the last call.
    pub fn take_told(&self) -> Vec<EventKind> {
        self.0.told.take()
    }

    /// How often somebody was asked to come back for frames that wait.
    pub fn deferred(&self) -> u64 {
        self.0.deferred.get()
    }

    /// Lets time pass.
    pub fn pass(&self, ticks: u64) {
        self.0.clock.set(self.0.clock.get() + ticks);
    }
}

impl Machine for Handle {
    type Memory = PlayedMemory;

    fn memory(&self) -> &PlayedMemory {
        &self.0.memory
    }

    fn frames(&self) -> &Frames {
        &self.0.frames
    }

    fn nearest(&self, node: NodeId) -> &[NodeId] {
        &self.0.nearest[node.index()]
    }

    fn here(&self) -> NodeId {
        self.0.here.get()
    }

    fn harts(&self) -> usize {
        self.0.harts
    }

    fn kick(&self, cpu: CpuIndex) {
        self.0.kicked.borrow_mut().insert(cpu);
    }

    fn now(&self) -> u64 {
        self.pass(1);
        let others = self.0.on_time.borrow_mut().take();
        if let Some(mut others) = others {
            others();
            *self.0.on_time.borrow_mut() = Some(others);
        }
        self.0.clock.get()
    }

    fn ticks_per_second(&self) -> u64 {
        HZ
    }

    fn tell(&self, _vm: VmId, what: EventKind) {
        self.0.told.borrow_mut().push(what);
    }

    fn note_deferred(&self) {
        self.0.deferred.set(self.0.deferred.get() + 1);
    }

    fn relieve(&self, _asking: &GuestRam<Self>) -> bool {
        let relief = self.0.relief.borrow_mut().take();
        relief.is_some_and(|mut relief| {
            let is_freed = relief();
            *self.0.relief.borrow_mut() = Some(relief);
            is_freed
        })
    }
}
