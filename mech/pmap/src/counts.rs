//! How much of what a VM has.

use alloc::vec::Vec;

use addr::NodeId;
use frames::Frames;

use crate::{PageState, StateKind};

/// A VM's pages by kind, and its machine pages by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmapCounts {
    by_kind: [u64; StateKind::COUNT],
    by_node: Vec<OnNode>,
    large: u64,
    tables: u64,
}

/// Guest pages that a node's pages back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OnNode {
    all: u64,
    shared: u64,
    replicas: u64,
}

impl PmapCounts {
    pub(crate) fn new(pages: u64) -> Self {
        let mut counts = Self::default();
        counts.by_kind[StateKind::Absent as usize] = pages;
        counts
    }

    /// Guest pages of this kind.
    #[must_use]
    pub const fn of(&self, kind: StateKind) -> u64 {
        self.by_kind[kind as usize]
    }

    /// Guest pages that machine pages of this node back (masters only, of replicated ones).
    #[must_use]
    pub fn on(&self, node: NodeId) -> u64 {
        self.by_node.get(node.index()).map_or(0, |count| count.all)
    }

    /// Of these, the ones that are shared copy-on-write.
    #[must_use]
    pub fn shared_on(&self, node: NodeId) -> u64 {
        self.by_node.get(node.index()).map_or(0, |count| count.shared)
    }

    /// Replicas on this node of pages whose master is elsewhere.
    #[must_use]
    pub fn replicas_on(&self, node: NodeId) -> u64 {
        self.by_node.get(node.index()).map_or(0, |count| count.replicas)
    }

    /// Blocks backed by one 2 MiB page.
    #[must_use]
    pub const fn large_blocks(&self) -> u64 {
        self.large
    }

    /// Machine pages that the pmap's tables take.
    #[must_use]
    pub const fn table_pages(&self) -> u64 {
        self.tables
    }

    /// `pages` guest pages changed from one state to another.
    #[inline(always)]
    pub(crate) fn change(&mut self, frames: &Frames, from: PageState, to: PageState, pages: u64) {
        self.by_kind[from.kind() as usize] -= pages;
        self.by_kind[to.kind() as usize] += pages;
        if from.mfn() == to.mfn() && from.kind() == to.kind() {
            return;
        }
        if let Some(count) = self.node_of(frames, from) {
            count.all -= pages;
            count.shared -= if from.kind() == StateKind::Shared { pages } else { 0 };
        }
        if let Some(count) = self.node_of(frames, to) {
            count.all += pages;
            count.shared += if to.kind() == StateKind::Shared { pages } else { 0 };
        }
    }

    /// A shared page of node `to` backs a guest page in the place of another page.
    #[inline(always)]
    pub(crate) fn share(&mut self, from: NodeId, was_shared: bool, to: NodeId) {
        if was_shared && from == to {
            return;
        }
        self.by_kind[StateKind::Private as usize] -= u64::from(!was_shared);
        self.by_kind[StateKind::Shared as usize] += u64::from(!was_shared);
        if let Some(count) = self.by_node.get_mut(from.index()) {
            count.all -= 1;
            count.shared -= u64::from(was_shared);
        }
        if self.by_node.len() <= to.index() {
            self.add_node(to);
        }
        if let Some(count) = self.by_node.get_mut(to.index()) {
            count.all += 1;
            count.shared += 1;
        }
    }

    /// A page of `node` backs one more guest page.
    #[inline(always)]
    pub(crate) fn add_private(&mut self, node: NodeId) {
        self.by_kind[StateKind::Absent as usize] -= 1;
        self.by_kind[StateKind::Private as usize] += 1;
        if self.by_node.len() <= node.index() {
            self.add_node(node);
        }
        if let Some(count) = self.by_node.get_mut(node.index()) {
            count.all += 1;
        }
    }

    /// A private page moved.
    #[inline(always)]
    pub(crate) fn migrate(&mut self, from: NodeId, to: NodeId) {
        if let Some(count) = self.by_node.get_mut(from.index()) {
            count.all -= 1;
        }
        if self.by_node.len() <= to.index() {
            self.add_node(to);
        }
        if let Some(count) = self.by_node.get_mut(to.index()) {
            count.all += 1;
        }
    }

    /// A page has a copy on `node`; it `is_first`: before, it was a private one.
    #[inline(always)]
    pub(crate) fn replicate(&mut self, node: NodeId, is_first: bool) {
        self.by_kind[StateKind::Private as usize] -= u64::from(is_first);
        self.by_kind[StateKind::Replicated as usize] += u64::from(is_first);
        self.change_replicas(node, 1);
    }

    pub(crate) fn change_replicas(&mut self, node: NodeId, by: i64) {
        if self.by_node.len() <= node.index() {
            self.add_node(node);
        }
        if let Some(count) = self.by_node.get_mut(node.index()) {
            count.replicas = count.replicas.saturating_add_signed(by);
        }
    }

    pub(crate) fn change_large(&mut self, by: i64) {
        self.large = self.large.saturating_add_signed(by);
    }

    pub(crate) fn change_tables(&mut self, by: i64) {
        self.tables = self.tables.saturating_add_signed(by);
    }

    #[cold]
    fn add_node(&mut self, node: NodeId) {
        // Bounded: nodes of the machine.
        self.by_node.resize(node.index() + 1, OnNode::default());
    }

    #[inline(always)]
    fn node_of(&mut self, frames: &Frames, state: PageState) -> Option<&mut OnNode> {
        let node = frames.map().node_of(state.mfn()?)?;
        if self.by_node.len() <= node.index() {
            self.add_node(node);
        }
        self.by_node.get_mut(node.index())
    }
}
