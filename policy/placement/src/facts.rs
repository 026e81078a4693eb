//! What the planner is told, and what it asks for.
//!
//! [`Look`] is what is known when a look begins. [`Facts`] are questions in the middle of one: which page was hot, whose it is, how
//! often it was missed on. [`Hands`] take proposals. The monitor answers from its counters and tables; a simulator from its own.
//!
//! Nobody has to believe either side. Any answer may be out of date by the time that a proposal is carried out, and a wrong one (a page
//! that does not exist, a node that the machine lacks) leads to no proposal, or to one that [`Hands`] refuse.

use addr::{Gfn, Mfn, NodeId, PageSize, VmId};
use alloc::vec::Vec;
use arrayvec::ArrayVec;

use crate::{Backing, History, Misses, NODES, NodeBits, Reason, Samples, Switches};

/// Guest pages with the same page that are asked about at once: others come to the copy by their faults, or are hot again.
pub const SHARERS: usize = 16;

/// What is known when a look begins.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The time, in ticks.
    pub now: u64,
    /// Ticks of a second.
    pub hz: u64,
    /// Nodes of the machine.
    pub nodes: usize,
    /// The VMs that take part. An answer that says "guest 3" means the fourth of these.
    pub guests: &'a [Guest],
}

/// A VM that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its identity.
    pub vm: VmId,
    /// What may be done to its pages.
    pub switches: Switches,
    /// Its first guest page.
    pub base: Gfn,
    /// How many pages it has.
    pub pages: u64,
    /// When a vCPU of it changed nodes last, in ticks; 0: never.
    pub node_change_at: u64,
    /// It takes no more jobs.
    pub is_ending: bool,
    /// Jobs with pages of it ([`Work::takes_lane`]) that are under way.
    pub jobs: usize,
}

impl Look<'_> {
    /// The VM's place among the guests, and what is known of it.
    #[must_use]
    pub(crate) fn find(&self, vm: VmId) -> Option<(usize, &Guest)> {
        self.guests.iter().enumerate().find(|(_, guest)| guest.vm == vm)
    }

    /// Whether a vCPU of the guest has changed nodes so lately, within an interval of what counts, that its counts tell
    /// of where it was.
    #[inline(always)]
    pub(crate) const fn is_unsettled(&self, guest: &Guest, intervals_hz: u64) -> bool {
        let changed = guest.node_change_at;
        changed != 0 && self.now.saturating_sub(changed) < self.hz / intervals_hz
    }

    /// The machine's nodes, as far as they can be told apart.
    pub(crate) fn node_ids<const N: usize>(&self) -> impl Iterator<Item = NodeId> + use<N> {
        (0..self.nodes.min(N)).map(|node| NodeId(node as u8))
    }
}

/// A page that a node misses on often although it is another node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// The page.
    pub page: Mfn,
    /// The node that misses.
    pub by: NodeId,
}

/// What a machine page is to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Whose it is: its place in [`Look::guests`].
    pub guest: usize,
    /// The guest page that it backs.
    pub gfn: Gfn,
    /// The page's node.
    pub home: NodeId,
    /// How much one state covers.
    pub size: PageSize,
    /// What it is to the guest.
    pub backing: Backing,
    /// Whether a device uses it.
    pub is_pinned: bool,
    /// How often it was tried.
    pub history: History,
}

/// What backs a guest page that was sampled or noted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backed {
    /// A page of the guest's own.
    Own(Located),
    /// One that others have, too.
    Shared {
        /// Its node.
        home: NodeId,
    },
}

/// Who maps a page that is no VM's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The page's node.
    pub home: NodeId,
    /// Those of the guests whose leaf on the node that asks names the very page.
    pub sharers: ArrayVec<Sharer, SHARERS>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// Its place in [`Look::guests`].
    pub guest: usize,
    /// The guest page.
    pub gfn: Gfn,
    /// What stands for it in the guest's table.
    pub backing: Backing,
}

/// A hart, as far as jobs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hart {
    /// Where it is.
    pub node: NodeId,
    /// Whether it takes jobs.
    pub is_online: bool,
    /// It has other duties: it gets jobs that no other hart of its node can take.
    pub is_control: bool,
}

/// What the planner asks in the middle of a look. `guest` is a place in [`Look::guests`].
pub trait Facts<const N: usize = NODES> {
    /// Whether the machine counts misses.
    fn counts_misses(&self) -> bool;

    /// Takes the next reports of hot pages, up to `most`; how many there were. [`Facts::hot`] tells which.
    fn take_hot(&mut self, most: usize) -> usize;

    /// One of the reports that were taken last; `None` if it makes no sense.
    fn hot(&self, at: usize) -> Option<Hot>;

    /// Adds each node's misses on the `pages` pages from `first` on.
    fn add_misses(&self, first: Mfn, pages: u64, to: &mut Misses<N>);

    /// Whose own page this is, if it is that of a guest that takes part.
    fn locate(&self, page: Mfn) -> Option<Located>;

    /// What backs the guest page, if `page` (still) does.
    fn look_up(&self, guest: usize, gfn: Gfn, page: Mfn) -> Option<Backed>;

    /// Who maps `page`, which is no VM's own, and sees it on `by`; `None` if nobody has it.
    fn shared(&self, page: Mfn, by: NodeId) -> Option<Shared>;

    /// Whether `on` has a copy of this shared page.
    fn has_copy(&self, page: Mfn, on: NodeId) -> bool;

    /// Whether the block is on its way to having copies.
    fn is_copying_block(&self, guest: usize, gfn: Gfn) -> bool;

    /// Whether nobody has written to the block, which `page` backs, since [`Order::WatchBlock`].
    fn is_unwritten(&self, guest: usize, gfn: Gfn, page: Mfn) -> bool;

    /// Blocks of the guest that are on their way to `node`.
    fn block_moves(&self, guest: usize, node: NodeId) -> usize;

    /// Whether a copy of a block of the guest is being made for `node`.
    fn has_block_copy(&self, guest: usize, node: NodeId) -> bool;

    /// How many harts there are.
    fn harts(&self) -> usize;

    /// One of them.
    fn hart(&self, at: usize) -> Option<Hart>;

    /// How long the guest's vCPUs have run, in ticks.
    fn ran(&self, guest: usize) -> u64;

    /// Ticks that this look has taken so far.
    fn spent(&self) -> u64;

    /// Microseconds that a fault takes, on the average.
    fn fault_us(&self) -> u64;
}

/// Who takes proposals. What cannot be done is refused, with `false` or by doing nothing.
pub trait Hands<const N: usize = NODES> {
    /// A preemption point: whether nobody calls the hart that looks. If somebody does, what can wait for the next look does so.
    fn may_go_on(&mut self) -> bool;

    /// Pages are hot from so many misses of one node on.
    fn set_threshold(&mut self, misses: u32);

    /// Counters begin anew, and reports that were not taken are dropped.
    fn count_anew(&mut self);

    /// Lets writes to these pages be noticed from now on; those where that cannot be are dropped.
    fn watch(&mut self, guest: usize, node: NodeId, gfns: &mut Vec<Gfn>);

    /// Begins a round of samples.
    fn begin_samples(&mut self, guest: usize, samples: &mut Samples<N>);

    /// One look at the pages of the round; how many faults the look before has caused.
    fn look_at(&mut self, guest: usize, samples: &mut Samples<N>) -> u64;

    /// Does this at once; whether it was done.
    fn carry_out(&mut self, guest: usize, order: Order) -> bool;

    /// Leaves a hart, which has no other job of this look, something to do.
    fn send(&mut self, hart: usize, job: Job);

    /// Pages stay where they are, for this reason. It is told for most pages that somebody asks about.
    fn leave(&mut self, guest: usize, pages: u64, reason: Reason);

    /// What samples of a page ask for, and what its miss counters do.
    fn compare(&mut self, guest: usize, by_samples: Wish, by_misses: Wish);
}

/// Who answers and takes proposals.
pub trait Machine<const N: usize = NODES>: Facts<N> + Hands<N> {}

impl<const N: usize, M: Facts<N> + Hands<N>> Machine<N> for M {}

/// Something that is done at once, or begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The block's pages have different users, and go their own ways from now on.
    Split(Gfn),
    /// The same, to find out who uses which of them.
    Examine(Gfn),
    /// A block that was examined is one large page again, if none of its pages has left.
    Join(Gfn),
    /// Writes to the block are noticed from soon on.
    WatchBlock(Gfn),
    /// These nodes read the block: they are to have copies of all of it.
    CopyBlock {
        /// Its first guest page.
        gfn: Gfn,
        /// The nodes.
        nodes: NodeBits,
    },
    /// The same with a block of shared pages, for one node.
    CopyShared {
        /// A guest page of it.
        gfn: Gfn,
        /// The node.
        on: NodeId,
    },
    /// The page was tried, though nothing becomes of it.
    NoteTry {
        /// The page.
        gfn: Gfn,
        /// The policy's clock.
        tick: u16,
        /// By samples, or by misses: tries are forgiven after different times.
        by_samples: bool,
    },
}

/// Something for a hart to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// For whom: its place in [`Look::guests`].
    pub guest: usize,
    /// Where pages go.
    pub node: NodeId,
    /// The policy's clock, for the pages' histories.
    pub tick: u16,
    /// What is to be done.
    pub work: Work,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Move these pages: the node is their only user.
    Migrate(Vec<Gfn>),
    /// Copy these pages: the node is one of their readers.
    Replicate(Vec<Gfn>),
    /// Let harts of the node have copies of these shared pages.
    Spread(Vec<Gfn>),
    /// Begin to move this block.
    BeginBlock(Gfn),
    /// Move on the blocks that are on their way to the node.
    StepBlock,
    /// Copy on the block that the node is to have a copy of.
    CopyBlock,
}

impl Work {
    /// Whether it counts against the jobs that a VM has at a time. Pages are copied with the VM's lock held; blocks are
    /// not.
    #[must_use]
    pub const fn takes_lane(&self) -> bool {
        matches!(self, Self::Migrate(_) | Self::Replicate(_) | Self::Spread(_))
    }
}

/// What a proposal comes to. Watching comes before copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The page stays.
    Stay,
    /// It leaves.
    Move,
    /// It gets a copy.
    Copy,
}
