//! What placement did to a VM's pages, counted for events and for whoever asks.
//!
//! All counters are relaxed: each tells of itself alone.

use crate::{GuestRam, Machine};
use addr::NodeId;
use control::{PlacementReason, PlacementStats, SampleStats};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};
use pmap::{PmapError, Refused};

/// What came of a batch of pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlacedCounts {
    /// Pages placed.
    pub placed: u64,
    /// Pages that were not, and why the last of them was not.
    pub refused: u64,
    /// See `refused`.
    pub reason: Option<PlacementReason>,
}

impl PlacedCounts {
    pub(super) fn note(&mut self, outcome: Result<(), PlacementReason>) {
        match outcome {
            Ok(()) => self.placed += 1,
            Err(why) => (self.refused, self.reason) = (self.refused + 1, Some(why)),
        }
    }
}

/// Why the pmap refuses to move a page, as events tell it.
pub(super) const fn reason_of(why: &PmapError) -> PlacementReason {
    match why {
        PmapError::Refused(Refused::Pinned) => PlacementReason::Pinned,
        PmapError::OutOfTables | PmapError::OutOfMemory => PlacementReason::NoMemory,
        _ => PlacementReason::Raced,
    }
}

/// What placement did to a VM's pages.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) migrated: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) replicated: AtomicU64,
    collapsed: AtomicU64,
    /// Pages that became one again because memory was short.
    given_up: AtomicU64,
    pub(super) watched: AtomicU64,
    pub(super) split: AtomicU64,
    pub(super) joined: AtomicU64,
    refused: AtomicU64,
    /// Block moves that an event has told.
    told_blocks: AtomicU64,
    /// Where the last of them went.
    pub(super) block_on: AtomicU8,
    /// Where the page of the last collapse is.
    collapsed_on: AtomicU8,
    /// Collapses that an event has told.
    told_collapses: AtomicU64,
    /// Reasons to leave a page that an event has told, by bit.
    told_reasons: AtomicU16,
    /// Where samples and miss counters were compared: proposals of both alike, of one only, and others.
    agreed: AtomicU64,
    only_samples: AtomicU64,
    only_misses: AtomicU64,
    disagreed: AtomicU64,
}

/// What is wanted of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Stay,
    /// To move it.
    Move,
    /// To copy it.
    Copy,
}

impl Counters {
    /// A block that was split to find out more is whole again.
    pub(super) fn note_join(&self) {
        self.split.fetch_sub(1, Relaxed);
    }

    pub(super) fn note_given_up(&self, pages: u64) {
        self.given_up.fetch_add(pages, Relaxed);
    }

    /// A page is one again, on this node.
    pub(super) fn note_collapse(&self, node: Option<NodeId>) {
        self.collapsed.fetch_add(1, Relaxed);
        if let Some(node) = node {
            self.collapsed_on.store(node.0, Relaxed);
        }
    }
}

impl<M: Machine> GuestRam<M> {
    /// Counts pages that stay; `true` if no event has told this reason yet.
    pub fn note_stays(&self, pages: u64, reason: PlacementReason) -> bool {
        self.placing.refused.fetch_add(pages, Relaxed);
        let bit = 1 << reason as u16;
        self.placing.told_reasons.fetch_or(bit, Relaxed) & bit == 0
    }

    /// What samples of a page ask for, and what its miss counters do.
    pub fn note_agreement(&self, by_samples: Wish, by_misses: Wish) {
        let counter = match (by_samples, by_misses) {
            (Wish::Stay, Wish::Stay) => return,
            (_, Wish::Stay) => &self.placing.only_samples,
            (Wish::Stay, _) => &self.placing.only_misses,
            (one, other) if one == other => &self.placing.agreed,
            _ => &self.placing.disagreed,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Collapses that no event has told yet (they are told now), and where the last of these pages is.
    pub fn take_collapses(&self) -> (u64, NodeId) {
        let all = self.placing.collapsed.load(Relaxed);
        let untold = all - self.placing.told_collapses.swap(all, Relaxed);
        (untold, NodeId(self.placing.collapsed_on.load(Relaxed)))
    }

    /// Blocks that have moved and no event has told yet (they are told now), and where the last of them is. It may be a
    /// writer who has done the last step.
    pub fn take_block_moves(&self) -> (u64, NodeId) {
        let all = self.placing.blocks.load(Relaxed);
        let untold = all - self.placing.told_blocks.swap(all, Relaxed);
        (untold, NodeId(self.placing.block_on.load(Relaxed)))
    }

    /// What placement did so far.
    #[must_use]
    pub fn pages_placed(&self) -> PlacementStats {
        let placing = &self.placing;
        PlacementStats {
            migrated_pages: placing.migrated.load(Relaxed),
            migrated_blocks: placing.blocks.load(Relaxed),
            replicated_pages: placing.replicated.load(Relaxed),
            collapsed_pages: placing.collapsed.load(Relaxed) + placing.given_up.load(Relaxed),
            watched_pages: placing.watched.load(Relaxed),
            split_blocks: placing.split.load(Relaxed),
            joined_blocks: placing.joined.load(Relaxed),
            refused: placing.refused.load(Relaxed),
            samples: SampleStats {
                agreed: placing.agreed.load(Relaxed),
                only_samples: placing.only_samples.load(Relaxed),
                only_misses: placing.only_misses.load(Relaxed),
                disagreed: placing.disagreed.load(Relaxed),
            },
        }
    }
}
