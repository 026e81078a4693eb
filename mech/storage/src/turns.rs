//! Which request goes on next: the disks that have some take turns.

use crate::disk::SharedDisk;
use crate::request::{JobId, MountId, MountKey, Ready};

impl SharedDisk {
    /// Whether [`SharedDisk::next_ready`] may have requests. It has none if this is `false`.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The next pending request that can go on, of the mount whose turn it is. It does so in [`SharedDisk::resume`].
    pub fn next_ready(&mut self) -> Option<Ready> {
        // Ends: a mount without requests loses its turn.
        while let Some(key) = self.turns.pop_front() {
            let found = self.take_ready(key);
            let Some(mount) = self.mounts.get_mut(key) else { continue };
            mount.has_turn = !mount.ready.is_empty();
            if mount.has_turn {
                self.turns.push_back(key);
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether [`SharedDisk::next_ready_of`] may have requests. It has none if this is `false`.
    #[must_use]
    pub fn has_ready_of(&self, mount: MountId) -> bool {
        self.mounts.get(mount.0).is_some_and(|mount| !mount.ready.is_empty())
    }

    /// The same for one mount, whether it is its turn or not.
    pub fn next_ready_of(&mut self, mount: MountId) -> Option<Ready> {
        let found = self.take_ready(mount.0);
        if let Some(mounted) = self.mounts.get_mut(mount.0).filter(|mounted| mounted.ready.is_empty())
            && core::mem::take(&mut mounted.has_turn)
        {
            self.turns.retain(|key| *key != mount.0);
        }
        found
    }

    fn take_ready(&mut self, key: MountKey) -> Option<Ready> {
        let mount = self.mounts.get_mut(key)?;
        // Ends: each step takes one out.
        while let Some(id) = mount.ready.pop_front() {
            if let Some(pending) = self.pending.get_mut(id)
                && let Some(job) = pending.job.as_ref()
            {
                pending.is_ready = false;
                return Some(Ready { mount: job.mount, tag: job.tag, job: id });
            }
        }
        None
    }

    pub(crate) fn make_ready(&mut self, id: JobId) {
        if let Some(pending) = self.pending.get_mut(id)
            && !pending.is_ready
            && let Some(key) = pending.job.as_ref().map(|job| job.mount.0)
            && let Some(mount) = self.mounts.get_mut(key)
        {
            pending.is_ready = true;
            mount.ready.push_back(id);
            if !core::mem::replace(&mut mount.has_turn, true) {
                self.turns.push_back(key);
            }
        }
    }

    /// Lets requests try again that found no room: a few, or all when nothing is left whose end could wake them.
    pub(crate) fn wake_stalled(&mut self) {
        const AT_ONCE: usize = 4;
        let count = if self.ops.is_empty() { self.stalled.len() } else { AT_ONCE };
        for _ in 0..count {
            let Some(id) = self.stalled.pop_front() else { return };
            self.make_ready(id);
        }
    }
}
