//! What a volume may take of its store, and what is kept for it.
//!
//! A volume with a share gets that many data blocks of its own and no more; as many are kept for it while it is in use. A volume
//! without one gets whatever is not kept for others. So who finds a store full has no share, or has used it up.

use alloc::string::String;

use crate::error::VolumeError;
use crate::store::{Mounted, Store, VolumeId};

/// Data blocks of a volume in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Those that it has of its own, those being written included. Snapshots that it continues count for nobody.
    pub used: u64,
    /// How many are kept for it, and the most that it gets.
    pub kept: Option<u64>,
}

impl Store {
    /// Keeps `blocks` data blocks for a volume in use, which gets no more from now on.
    ///
    /// # Errors
    /// [`VolumeError::TooLittle`] if so many are not free beside what is kept for others; nothing has changed then.
    pub fn keep(&mut self, volume: VolumeId, blocks: u64) -> Result<(), VolumeError> {
        let unknown = || VolumeError::NoSuchVolume { name: String::new() };
        let top = self.mounts.get(volume.0).ok_or_else(unknown)?.top;
        self.check_kept(top, blocks.saturating_sub(self.used(top)))?;
        if let Some(mounted) = self.mounts.get_mut(volume.0) {
            mounted.share = Some(blocks);
        }
        Ok(())
    }

    /// What a volume has and may have; nothing of one that is gone.
    #[must_use]
    pub fn share(&self, volume: VolumeId) -> Share {
        let Some(mounted) = self.mounts.get(volume.0) else { return Share { used: 0, kept: None } };
        Share { used: self.used(mounted.top), kept: mounted.share }
    }

    /// Refuses a snapshot after which less would be free than is kept: what the volume has then counts for the snapshot, and its
    /// whole share is kept for what comes.
    pub(crate) fn check_snapshot(&self, top: u32) -> Result<(), VolumeError> {
        let share = self.mounts.values().find(|mounted| mounted.top == top).and_then(|mounted| mounted.share);
        share.map_or(Ok(()), |share| self.check_kept(top, share))
    }

    /// How many more data blocks the volume with this layer on top may take now.
    pub(crate) fn allowance(&self, top: u32) -> u64 {
        let share = self.mounts.values().find(|mounted| mounted.top == top).and_then(|mounted| mounted.share);
        let left = share.map_or(u64::MAX, |share| share.saturating_sub(self.used(top)));
        left.min(self.space.free().saturating_sub(self.kept_for_others(top)))
    }

    /// How many more blocks the log can name for the volume with this layer on top: each block that is kept for others needs a name.
    pub(crate) fn names_left(&self, top: u32) -> u64 {
        let named = self.layers.entries() + self.held.blocks() + self.kept_for_others(top);
        self.geometry.max_entries().saturating_sub(named)
    }

    fn check_kept(&self, top: u32, wanted: u64) -> Result<(), VolumeError> {
        let left = self.space.free().saturating_sub(self.kept_for_others(top));
        if wanted <= left { Ok(()) } else { Err(VolumeError::TooLittle { wanted, left }) }
    }

    /// Blocks that are kept for volumes but this one, and not taken yet. There are at most as many volumes as layers.
    fn kept_for_others(&self, top: u32) -> u64 {
        // One that waits for a snapshot is about to have nothing of its own.
        let used = |mounted: &Mounted| if mounted.gates.is_empty() { self.used(mounted.top) } else { 0 };
        let kept = |mounted: &Mounted| mounted.share.map_or(0, |share| share.saturating_sub(used(mounted)));
        self.mounts.values().filter(|mounted| mounted.top != top).map(kept).sum()
    }

    fn used(&self, top: u32) -> u64 {
        self.layers.get(top).map_or(0, |layer| layer.blocks) + self.held.of(top)
    }
}
