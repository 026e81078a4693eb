//! What a control client asks of stores: snapshots, removals, lists.

use super::super::{BLOCKS_AT_ONCE, find};
use super::{Asked, StoreUnit, all, find_store, refused, store_name};
use crate::machine::HOME_NODE;
use alloc::{borrow::ToOwned, vec::Vec};
use control::{ControlError, EventKind, Name, StoreInfo, VmSpec, VolumeInfo};
use storage::{BLOCK, SECTOR, Status};
use volumes::{Store, VolumeError};

/// Requests of one store that may wait for it.
const MAX_ASKED: usize = 64;

/// Freezes what a disk of a VM shows. The end is told by [`next_answer`].
///
/// # Errors
/// No such disk, no overlay, or the store refuses.
pub fn snapshot(spec: &VmSpec, disk: &Name, name: &Name, token: u64) -> Result<(), ControlError> {
    let found = spec.disks.iter().find(|known| known.name == *disk);
    let found = found.ok_or_else(|| ControlError::NoSuchDisk { name: disk.clone() })?;
    let no_overlay = || ControlError::NoOverlay { vm: spec.name.clone(), disk: disk.clone() };
    let overlay = found.overlay.as_ref().ok_or_else(no_overlay)?;
    let (index, unit) = find(&overlay.disk)?;
    let store = find_store(index, overlay.partition.as_deref());
    let name_of = || store_name(&unit.name, overlay.partition.as_deref());
    let store =
        store.ok_or_else(|| refused(&name_of(), &"the VM has never been started, so there is nothing in it"))?;
    store.ask(name.as_str(), token, false, |inner| inner.snapshot(&found.volume_name(&spec.name), name.as_str(), token))
}

/// Removes a volume or snapshot. The end is told by [`next_answer`].
///
/// # Errors
/// [`ControlError::VolumeRefused`].
pub fn remove(store: Option<&str>, name: &str, token: u64) -> Result<(), ControlError> {
    let has_it = |unit: &&StoreUnit| {
        store.is_none_or(|store| unit.name == store) && unit.store.lock().layers().any(|layer| layer.name == name)
    };
    let mut found = all().into_iter().filter(has_it);
    match (found.next(), found.next()) {
        (Some(unit), None) => unit.ask(name, token, true, |inner| inner.remove(name, token)),
        (None, _) => Err(refused(store.unwrap_or("any"), &alloc::format!("there is no volume or snapshot {name:?}"))),
        (Some(one), Some(other)) => {
            Err(refused(&one.name, &alloc::format!("store {:?} has a {name:?}, too; say which is meant", other.name)))
        }
    }
}

impl StoreUnit {
    fn ask(
        &self,
        name: &str,
        token: u64,
        is_removal: bool,
        change: impl FnOnce(&mut Store) -> Result<(), VolumeError>,
    ) -> Result<(), ControlError> {
        let mut store = self.store.lock();
        if self.asked.lock().len() >= MAX_ASKED {
            return Err(ControlError::Busy { what: "too many requests wait for the store".into() });
        }
        change(&mut store).map_err(|why| refused(&self.name, &why))?;
        self.asked.lock().push(Asked { token, name: name.to_owned(), is_removal });
        store.pump(&mut self.disks(HOME_NODE));
        drop(store);
        self.pump(None, &mut { BLOCKS_AT_ONCE });
        Ok(())
    }

    fn next_answer(&self) -> Option<(u64, Result<(), ControlError>)> {
        // Ends: only this hart asks for what is answered here.
        while let Some(answer) = { self.store.lock().next_answer() } {
            let mut asked = self.asked.lock();
            let Some(at) = asked.iter().position(|asked| asked.token == answer.token) else { continue };
            let Asked { name, is_removal: removed, .. } = asked.swap_remove(at);
            if answer.status == Status::Ok {
                let store = self.name.clone().into();
                crate::trace::record(None, EventKind::VolumeChanged { store, name: name.into(), removed });
                return Some((answer.token, Ok(())));
            }
            let why = "the VM has stopped meanwhile, or the store's log could not be written";
            return Some((answer.token, Err(refused(&self.name, &why))));
        }
        None
    }
}

/// What has become of a snapshot or a removal: its token and outcome.
pub fn next_answer() -> Option<(u64, Result<(), ControlError>)> {
    all().iter().find_map(|unit| unit.next_answer())
}

/// Makes everything durable; `true` when it is.
pub fn settle() -> bool {
    let mut is_quiet = true;
    for unit in all() {
        let mut store = unit.store.lock();
        store.sync();
        store.pump(&mut unit.disks(HOME_NODE));
        is_quiet &= store.is_quiet();
        drop(store);
        unit.pump(None, &mut { BLOCKS_AT_ONCE });
    }
    is_quiet
}

/// What all stores hold.
pub fn list() -> Vec<StoreInfo> {
    let info = |unit: &&'static StoreUnit| {
        let store = unit.store.lock();
        let (total, free) = store.space();
        let volumes = store.layers().map(|layer| VolumeInfo {
            name: layer.name,
            snapshot: layer.is_snapshot,
            parent: layer.parent,
            base: match &layer.base.partition {
                Some(partition) => alloc::format!("{}/{partition}", layer.base.disk),
                None => layer.base.disk.clone(),
            },
            bytes: layer.base.sectors * SECTOR,
            own_bytes: layer.blocks * BLOCK,
            holder: layer.holder.and_then(|holder| Name::new(holder).ok()),
        });
        StoreInfo {
            volumes: volumes.collect(),
            name: unit.name.clone(),
            total_bytes: total * BLOCK,
            free_bytes: free * BLOCK,
            failed: store.is_broken(),
        }
    };
    all().iter().map(info).collect()
}
