//! What a policy wants to know of a page before it proposes something.

use crate::{GuestRam, Inner, Machine};
use addr::{Gfn, Mfn, NodeId, PageSize};
use frames::{Frames, PageInfo};
use pmap::PageState;

/// How often a page was tried, and at which tick of the policy's clock last: three bytes of its row in the memmap, which only the
/// policy understands.
pub type Tries = (u8, u16);

/// What backs a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A page of the VM's own.
    Private,
    /// A page that other VMs or the disk cache have, too.
    Shared,
    /// Copies of a page: bit `n` for node `n`, the first copy's node not included.
    Replicated {
        /// The nodes.
        nodes: u8,
    },
}

/// A page as the pmap knows it.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// How much one state covers.
    pub size: PageSize,
    /// What backs it.
    pub backing: Backing,
    /// Whether a device uses it.
    pub is_pinned: bool,
    /// How often it was tried.
    pub tries: Tries,
}

pub(super) fn tries_of(frames: &Frames, page: Mfn) -> Tries {
    frames.map().entry(page).map_or((0, 0), frames::MemMapEntry::history)
}

pub(super) fn set_tries(frames: &Frames, page: Mfn, (tries, last): Tries) {
    if let Some(row) = frames.map().entry(page) {
        row.set_history(tries, last);
    }
}

impl<M: Machine> GuestRam<M> {
    /// What is at `gfn`, if `page` is (a copy of) it; `row` is that page's.
    #[must_use]
    #[inline(always)]
    pub fn locate(&self, gfn: Gfn, page: Mfn, row: &PageInfo) -> Option<Located> {
        let inner = self.inner.lock();
        let node = row.node;
        if let Some((first, found, nodes)) = inner.pmap.own_page_for(self.frames(), self.memory(), gfn, node) {
            let backing = if nodes == 0 { Backing::Private } else { Backing::Replicated { nodes } };
            let tries = if first == page { (row.moves, row.tick) } else { tries_of(self.frames(), first) };
            return (found == page).then_some(Located { size: PageSize::Base, backing, is_pinned: false, tries });
        }
        inner.locate_slowly(gfn, page, node)
    }

    /// The page at `gfn` was tried once more, though nothing became of it.
    pub fn note_try(&self, gfn: Gfn, tried: impl FnOnce(Tries) -> Tries) {
        let inner = self.inner.lock();
        if let Some(page) = inner.pmap.lookup(self.memory(), gfn).ok().and_then(|mapping| mapping.state.mfn()) {
            set_tries(self.frames(), page, tried(tries_of(self.frames(), page)));
        }
    }

    /// The node of what backs `gfn`.
    #[must_use]
    pub fn node_of(&self, gfn: Gfn) -> Option<NodeId> {
        let page = self.inner.lock().pmap.lookup(self.memory(), gfn).ok()?.state.mfn()?;
        self.frames().map().node_of(page)
    }
}

impl<M: Machine> Inner<M> {
    /// [`GuestRam::locate`] of what is no single page that is the VM's own.
    #[inline(never)]
    fn locate_slowly(&self, gfn: Gfn, page: Mfn, node: NodeId) -> Option<Located> {
        let frames = self.machine.frames();
        let mapping = self.pmap.lookup(self.machine.memory(), gfn).ok()?;
        let found = match mapping.size {
            PageSize::Base => self.pmap.page_for(frames, &mapping, node),
            PageSize::Large => mapping.machine_page(gfn),
        };
        let (backing, is_pinned) = match mapping.state {
            PageState::Private { pins, .. } => (Backing::Private, pins != 0),
            PageState::Shared { pins, .. } => (Backing::Shared, pins != 0),
            PageState::Replicated { nodes, .. } => (Backing::Replicated { nodes }, false),
            _ => return None,
        };
        let first = mapping.state.mfn().filter(|_| found == Some(page))?;
        Some(Located { size: mapping.size, backing, is_pinned, tries: tries_of(frames, first) })
    }
}
