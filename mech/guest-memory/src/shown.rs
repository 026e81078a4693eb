//! What a VM's owner sees of its memory.

use crate::{GuestRam, Machine, NODES};
use addr::{BASE_PAGE, Gfn, NodeId};
use alloc::vec::Vec;
use control::{PageKind, VmMemory};
use gstage::NodeTable;
use pmap::{PageState, PmapCounts};

/// What a VM's memory takes, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Machine pages of its own.
    pub private: u64,
    /// Guest pages that shared machine pages back.
    pub shared: u64,
    /// Machine pages of its tables.
    pub tables: u64,
}

impl<M: Machine> GuestRam<M> {
    /// What is behind its pages, from the `first` one of its RAM on, as numbers of [`PageKind`]; at most
    /// [`control::PAGE_MAP_PART`] of them.
    #[must_use]
    pub fn page_kinds(&self, first: u64) -> Vec<u8> {
        let last = first.saturating_add(control::PAGE_MAP_PART).min(self.bytes() / BASE_PAGE);
        let inner = self.inner.lock();
        let kind = |page| match inner.pmap.lookup(self.memory(), Gfn::new(self.base().raw() + page)).map(|at| at.state)
        {
            Ok(PageState::Private { .. }) => PageKind::Private,
            Ok(PageState::Shared { .. }) => PageKind::Shared,
            Ok(PageState::Replicated { .. }) => PageKind::Replicated,
            _ => PageKind::Absent,
        };
        (first..last).map(|page| kind(page) as u8).collect()
    }

    /// How many pages it has on each node.
    #[must_use]
    pub fn pages_by_node(&self) -> [u64; NODES] {
        let inner = self.inner.lock();
        core::array::from_fn(|node| inner.pmap.counts().on(NodeId(node as u8)))
    }

    /// Machine pages that nobody can take back from it. Copies on other nodes go when memory is short, so they do not count.
    #[must_use]
    pub fn held(&self) -> Held {
        let inner = self.inner.lock();
        let counts = inner.pmap.counts();
        let sum =
            |of: fn(&PmapCounts, NodeId) -> u64| (0..self.roots.len() as u8).map(|node| of(counts, NodeId(node))).sum();
        let (all, shared): (u64, u64) = (sum(PmapCounts::on), sum(PmapCounts::shared_on));
        let tables = counts.table_pages() + inner.tables.iter().map(NodeTable::pages).sum::<u64>();
        Held { private: all - shared, shared, tables }
    }

    /// Its pages by node.
    #[must_use]
    pub fn resident(&self) -> Vec<VmMemory> {
        let inner = self.inner.lock();
        let counts = inner.pmap.counts();
        let large = counts.large_blocks() * addr::PAGES_PER_LARGE;
        let mut left = large;
        (0..self.roots.len() as u8)
            .map(NodeId)
            .map(|node| {
                let on_node = counts.on(node);
                // The pmap counts large blocks for the whole VM; they are shown where there is room for them.
                let own = on_node - counts.shared_on(node);
                let large_pages = left.min(own & !(addr::PAGES_PER_LARGE - 1));
                left -= large_pages;
                VmMemory {
                    node,
                    large_pages,
                    private_pages: own - large_pages,
                    shared_pages: on_node - own,
                    replica_pages: counts.replicas_on(node),
                    table_pages: inner.tables.get(node.index()).map_or(0, NodeTable::pages),
                    // Where they lie is not counted: on the nodes of those who touched first.
                    monitor_pages: if node == NodeId(0) { counts.table_pages() } else { 0 },
                    ..VmMemory::default()
                }
            })
            .collect()
    }
}
