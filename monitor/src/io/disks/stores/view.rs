//! A VM's view of a volume.

use super::{
    super::{Due, access::Guest, units},
    StoreUnit,
};
use crate::machine::HOME_NODE;
use alloc::string::String;
use device::GuestMemory;
use storage::{MountId, Outcome, Request};
use virtio::block::BlockTag;
use volumes::{Share, VolumeId};

/// Requests of a volume that can go on. What they have under way on the store's disk is the control hart's: nobody can tell whose it is.
pub struct DueVolume {
    store: &'static StoreUnit,
    volume: VolumeId,
}

impl DueVolume {
    /// Goes on with them as far as `budget` goes: blocks.
    pub fn run(self, budget: &mut u64) {
        self.store.pump(Some(self.volume), budget);
    }
}

/// A VM's view of a volume; given back when it is dropped.
pub struct VolumeView {
    store: &'static StoreUnit,
    volume: VolumeId,
    base_unit: usize,
    base: MountId,
}

impl VolumeView {
    pub(super) const fn new(store: &'static StoreUnit, volume: VolumeId, base_unit: usize, base: MountId) -> Self {
        Self { store, volume, base_unit, base }
    }

    /// Sectors of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.store.store.lock().sectors(self.volume)
    }

    /// The store's name.
    pub fn store_name(&self) -> String {
        self.store.name.clone()
    }

    /// What it has of its store, and what is kept for it.
    pub fn share(&self) -> Share {
        self.store.store.lock().share(self.volume)
    }

    /// The same, if the store is not locked.
    pub fn try_share(&self) -> Option<Share> {
        self.store.store.try_lock().map(|store| store.share(self.volume))
    }

    /// Starts a request. Also says whether there is work for [`VolumeView::due`].
    pub fn submit(&self, tag: BlockTag, request: Request<'_>, memory: &dyn GuestMemory) -> (Outcome, bool) {
        let node = crate::hart::this_hart().map_or(HOME_NODE, |hart| hart.node);
        let guest = Guest::new(memory);
        let mut disks = self.store.disks(node);
        let (outcome, has_ready) = {
            let mut store = self.store.store.lock();
            self.store.bound_index(&mut store);
            let outcome = store.submit(self.volume, tag.raw(), &request, &guest, &mut disks);
            store.pump(&mut disks);
            (outcome, store.has_ready() || store.has_garbage())
        };
        guest.settle();
        (outcome, has_ready || self.is_disk_ready())
    }

    /// Forgets the requests under way. Says whether there is work for [`VolumeView::due`].
    pub fn cancel(&self) -> bool {
        let mut store = self.store.store.lock();
        units()[self.base_unit].shared.lock().cancel(self.base);
        store.cancel(self.volume);
        store.has_ready() || store.has_garbage() || self.is_disk_ready()
    }

    pub fn due(&self) -> Due {
        let volume = Some(DueVolume { store: self.store, volume: self.volume });
        Due { unit: self.base_unit, mount: self.base, volume }
    }

    fn is_disk_ready(&self) -> bool {
        [self.base_unit, self.store.unit].into_iter().any(|unit| units()[unit].shared.lock().has_ready())
    }
}

impl Drop for VolumeView {
    fn drop(&mut self) {
        let mut store = self.store.store.lock();
        units()[self.base_unit].shared.lock().unmount(self.base);
        store.unmount(self.volume);
        self.store.users.lock().retain(|user| user.volume != self.volume);
        // What its guest did not flush need not be kept, but is.
        store.sync();
        store.pump(&mut self.store.disks(HOME_NODE));
    }
}
