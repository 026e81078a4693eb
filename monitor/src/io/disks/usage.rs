//! What virtual disks have of the machine's memory, for who must not wait for a disk: it may be locked while it waits for memory.

use addr::BASE_PAGE;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use storage::{MountId, SharedDisk};

/// What a disk of a VM had when it was looked at last. Its copies tell the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    pages: AtomicU64,
    charged: AtomicU64,
}

impl Usage {
    /// Machine pages of modified blocks.
    pub(super) fn pages(&self) -> u64 {
        self.0.pages.load(Relaxed)
    }

    /// Bytes that count towards a disk's limit of modified blocks.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.0.charged.load(Relaxed) * BASE_PAGE
    }

    /// Looks at a mount after work on it.
    pub(super) fn note(&self, shared: &SharedDisk, mount: MountId) {
        self.0.pages.store(shared.private_pages(mount), Relaxed);
        self.0.charged.store(shared.charged_pages(mount), Relaxed);
    }

    /// Tells of a volume: what it has is its store's.
    pub(super) fn note_volume(&self, blocks: u64) {
        self.0.charged.store(blocks, Relaxed);
    }
}
