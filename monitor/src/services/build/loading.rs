//! What a VM boots from goes into its memory in bounded steps, before its vCPUs get their harts.
//!
//! Whoever makes a [`Plan`] hears of everything that can be refused: a later step fails for want of memory alone. The VM that is
//! loaded has no running vCPU, so nobody sees a half of what is written. If the VM ends meanwhile, the loading is dropped, and
//! the memory goes back as at the end of any life.

use super::no_memory;
use crate::{
    machine::relief::{self, Locked, Relief},
    services::modules::Content,
    vm::{
        Vm,
        memory::{Access, RAM_START, Touch},
        topology::Topology,
    },
};
use ::platform::guest_tree::{GuestTree, TreeDraft};
use ::vcpu::sbi::Entry;
use addr::{BASE_PAGE, GuestPhysAddr, NodeId};
use alloc::vec::Vec;
use control::{ControlError, TREE_ROOM};
use device::GuestMemory as _;

/// Bytes that one step touches and copies at most: less than 50 us where 128 bytes take 900 ns (FLASH).
const STEP: u64 = 2 << 10;

/// Where a VM is at home.
pub struct Home {
    /// The node that vCPU 0 begins on.
    pub first: NodeId,
    /// The nodes that the guest sees, if it sees any.
    pub topology: Option<Topology>,
}

impl Home {
    fn node_at(&self, addr: u64) -> NodeId {
        self.topology.as_ref().map_or(self.first, |topology| topology.node_at(addr.saturating_sub(RAM_START)))
    }
}

/// Where bytes come from.
enum Source {
    Module(Content),
    Tree(GuestTree),
}

impl Source {
    /// At most `len` bytes from `offset` on, as many as lie together.
    fn bytes(&self, offset: u64, len: u64) -> &[u8] {
        let rest = match self {
            Self::Module(content) => content.rest_of_piece(offset),
            Self::Tree(tree) => tree.blob().get(offset as usize..).unwrap_or_default(),
        };
        rest.get(..len.min(rest.len() as u64) as usize).unwrap_or_default()
    }
}

/// Bytes that lie together in the guest's memory.
struct Piece {
    source: Source,
    /// Where they begin in the source.
    offset: u64,
    /// Where they go.
    start: u64,
    len: u64,
}

/// The device tree on its way: drafting and flattening it take a step each.
enum Tree {
    /// It goes there, and names this initrd.
    Planned { start: u64, initrd: Option<(u64, u64)> },
    /// The same, drafted.
    Drafted { start: u64, draft: TreeDraft },
    /// It is the last piece.
    Written,
}

/// What is to be loaded, in this order, and then the device tree.
pub struct Plan {
    pieces: Vec<Piece>,
    tree: Tree,
    ram_end: u64,
}

impl Plan {
    /// Nothing yet, for a VM whose memory ends at `ram_end`.
    pub const fn new(ram_end: u64) -> Self {
        Self { pieces: Vec::new(), tree: Tree::Written, ram_end }
    }

    /// Where the VM's memory ends.
    pub const fn ram_end(&self) -> u64 {
        self.ram_end
    }

    /// `len` bytes of a module from `offset` on go to `start`.
    ///
    /// # Errors
    /// The VM has no memory there.
    pub fn add(&mut self, content: &Content, offset: u64, start: u64, len: u64) -> Result<(), ControlError> {
        self.push(Piece { source: Source::Module(content.clone()), offset, start, len })
    }

    /// The device tree goes to `start`, where [`TREE_ROOM`] is left, and names this initrd.
    pub fn set_tree(&mut self, start: u64, initrd: Option<(u64, u64)>) {
        self.tree = Tree::Planned { start, initrd };
    }

    fn push(&mut self, piece: Piece) -> Result<(), ControlError> {
        let end = piece.start.checked_add(piece.len).filter(|end| *end <= self.ram_end);
        end.ok_or_else(|| no_memory((piece.start - RAM_START).saturating_add(piece.len)))?;
        self.pieces.push(piece);
        Ok(())
    }
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// All is in its place, and vCPU 0 starts when it has a hart.
    Loaded,
    /// No page is left: somebody may give some back, and the next call tries again.
    NoPage,
    /// The VM cannot be loaded; so many bytes were needed.
    NoMemory {
        /// Bytes from the beginning of RAM to the end of what did not fit.
        needed: u64,
    },
}

/// A VM's memory on its way to be what the VM boots from.
pub struct Loading {
    pieces: Vec<Piece>,
    tree: Tree,
    /// The piece that is being copied, and how much of it is in its place.
    piece: usize,
    done: u64,
    home: Home,
    entry: Entry,
}

impl Loading {
    /// Nothing is done yet.
    pub fn new(plan: Plan, home: Home, entry: Entry) -> Self {
        Self { pieces: plan.pieces, tree: plan.tree, piece: 0, done: 0, home, entry }
    }

    /// One bounded step for `vm`, the VM that this was made for.
    pub fn step(&mut self, vm: &Vm) -> Step {
        let Some(piece) = self.pieces.get(self.piece) else {
            if let Some(step) = self.step_tree(vm) {
                return step;
            }
            // vCPU 0 starts; the others wait for HSM.
            let _ = vm.vcpus().first().map(|vcpu| vcpu.claim_start(self.entry));
            return Step::Loaded;
        };
        let at = piece.start + self.done;
        // Steps end at multiples of their length, so that none goes over the end of a page.
        let room = (STEP - at % STEP).min(piece.len - self.done);
        let bytes = piece.source.bytes(piece.offset + self.done, room);
        if bytes.is_empty() {
            (self.piece, self.done) = (self.piece + 1, 0);
            return Step::More;
        }
        if !take(vm, &self.home, at, bytes.len() as u64) {
            return Step::More;
        }
        if vm.memory().write(GuestPhysAddr::new(at), bytes).is_err() {
            return Step::NoPage;
        }
        self.done += bytes.len() as u64;
        Step::More
    }

    /// A step towards the device tree; `None` if it is written.
    fn step_tree(&mut self, vm: &Vm) -> Option<Step> {
        match core::mem::replace(&mut self.tree, Tree::Written) {
            Tree::Planned { start, initrd } => match super::draft_tree(vm, initrd, self.home.topology.as_ref()) {
                Ok(draft) => self.tree = Tree::Drafted { start, draft },
                Err(why) => {
                    log::error!("device tree, which was in order when it was planned: {why}");
                    return Some(Step::NoMemory { needed: TREE_ROOM });
                }
            },
            Tree::Drafted { start, draft } => {
                let tree = draft.flatten();
                let len = tree.blob().len() as u64;
                if len > TREE_ROOM {
                    return Some(Step::NoMemory { needed: len });
                }
                self.pieces.push(Piece { source: Source::Tree(tree), offset: 0, start, len });
            }
            Tree::Written => return None,
        }
        Some(Step::More)
    }
}

/// What is loaded at `[start, start + len)` comes from the node of those who will use it. It would lie on the node of the hart
/// that loads it else, the same for all VMs, their kernels included. `false` if it is to be tried again.
fn take(vm: &Vm, home: &Home, start: u64, len: u64) -> bool {
    let mut at = start;
    while at < start + len {
        // Pages of one block, too: where no block is free, each page is one of its own.
        match vm.memory().touch(GuestPhysAddr::new(at), Access::Write, home.node_at(at)) {
            Touch::Mapped | Touch::Repeated => {}
            // The registry is locked while VMs are loaded. Whoever writes finds out whether there is nothing at all.
            Touch::OutOfMemory => return relief::ask(Some(vm.memory()), Locked::Something) == Relief::Nothing,
            // Somebody else is at it, or it takes more than one call.
            _ => return false,
        }
        at = (at | (BASE_PAGE - 1)) + 1;
    }
    true
}

impl core::fmt::Debug for Loading {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Loading").field("piece", &self.piece).field("done", &self.done).finish_non_exhaustive()
    }
}
