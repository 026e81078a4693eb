//! Snapshots, and the removal of layers.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;

use crate::commit::Waiter;
use crate::error::VolumeError;
use crate::layers::Layer;
use crate::record::Record;
use crate::store::{Freed, Mounted, Store, check_name};

impl Store {
    /// Freezes the volume `name` as snapshot `snapshot`, between its writes; the volume goes on. The answer with `token`
    /// says when it is durable.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn snapshot(&mut self, name: &str, snapshot: &str, token: u64) -> Result<(), VolumeError> {
        check_name(snapshot)?;
        self.check_room()?;
        let top = self.layers.find(name, false).ok_or_else(|| VolumeError::NoSuchVolume { name: name.to_owned() })?;
        let is_waiting = |mounted: &Mounted| mounted.gates.iter().any(|(other, _)| other == snapshot);
        if self.layers.find(snapshot, true).is_some() || self.mounts.values().any(is_waiting) {
            return Err(VolumeError::SnapshotExists { name: snapshot.to_owned() });
        }
        self.check_snapshot(top)?;
        if self.layers.get(top).is_none_or(|layer| layer.writers == 0) {
            self.freeze_now(top, snapshot, token);
            return Ok(());
        }
        let mounted = self.mounts.values_mut().find(|mounted| mounted.top == top).ok_or(VolumeError::Busy)?;
        mounted.gates.push((snapshot.to_owned(), token));
        Ok(())
    }

    fn freeze_now(&mut self, top: u32, snapshot: &str, token: u64) {
        let next = self.layers.next_id();
        let Some(layer) = self.layers.get_mut(top) else { return };
        let name = core::mem::replace(&mut layer.name, snapshot.to_owned());
        layer.is_snapshot = true;
        let base = layer.base.clone();
        // There is a number: `check_room` has seen to that.
        let _ = self.layers.add(next, Layer::new(Some(top), false, name, base));
        for mounted in self.mounts.values_mut().filter(|mounted| mounted.top == top) {
            mounted.top = next;
        }
        self.pending.push(Record::Freeze { layer: top, next, name: snapshot.to_owned() });
        self.waiting.push(Waiter::Token(token));
    }

    /// The writes of a layer have ended: makes the snapshots that wait for that.
    pub(crate) fn open_gates(&mut self, layer: u32) {
        if self.layers.get(layer).is_some_and(|layer| layer.writers > 0) {
            return;
        }
        let Some(mounted) = self.mounts.values_mut().find(|mounted| mounted.top == layer) else { return };
        let mut top = layer;
        for (name, token) in core::mem::take(&mut mounted.gates) {
            let next = self.layers.next_id();
            self.freeze_now(top, &name, token);
            top = next;
        }
    }

    /// Removes a volume or snapshot; the answer with `token` says when that is durable.
    ///
    /// # Errors
    /// [`VolumeError`]: somebody uses it, or continues it.
    pub fn remove(&mut self, name: &str, token: u64) -> Result<(), VolumeError> {
        let found = self.layers.find(name, false).or_else(|| self.layers.find(name, true));
        let id = found.ok_or_else(|| VolumeError::NoSuchVolume { name: name.to_owned() })?;
        if let Some(mounted) = self.mounts.values().find(|mounted| mounted.top == id) {
            return Err(VolumeError::InUse { holder: mounted.holder.clone() });
        }
        if let Some((_, child)) = self.layers.iter().find(|(_, layer)| layer.parent == Some(id)) {
            return Err(VolumeError::HasChild { name: name.to_owned(), child: child.name.clone() });
        }
        if self.layers.get(id).is_some_and(|layer| layer.writers > 0) {
            return Err(VolumeError::Busy);
        }
        if self.is_broken {
            return Err(VolumeError::Broken);
        }
        if let Some(layer) = self.layers.remove(id) {
            let counted = layer.counted();
            self.freed.push(Freed::Layer(Box::new((layer.index, counted))));
            self.pending.push(Record::Drop { layer: id });
            self.waiting.push(Waiter::Token(token));
        }
        Ok(())
    }
}
