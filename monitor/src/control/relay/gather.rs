//! Answers that all cells have a part of.

use super::{super::answers, known::Directory};
use alloc::vec::Vec;
use control::{Body, CellInfo, Reply, VmSummary};

/// An answer that is being put together.
#[derive(Debug)]
pub struct Gather {
    /// The client's request.
    pub id: u32,
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    Vms(Vec<VmSummary>),
    Cells(Vec<CellInfo>),
}

impl Gather {
    /// All VMs, of which these are this cell's.
    pub fn vms(id: u32, own: Vec<VmSummary>) -> Self {
        Self { id, parts: Parts::Vms(own) }
    }

    /// All cells.
    pub fn cells(id: u32) -> Self {
        Self { id, parts: Parts::Cells(Vec::from([answers::own_cell()])) }
    }

    /// Adds what another cell says.
    pub fn add(&mut self, body: &Body) {
        match (&mut self.parts, body) {
            (Parts::Vms(all), Body::Reply(Reply::Vms(some))) => all.extend_from_slice(some),
            (Parts::Cells(all), Body::Reply(Reply::Cells(some))) => all.extend_from_slice(some),
            _ => {}
        }
    }

    /// The answer, with what is known of those who cannot be asked.
    pub fn reply(self, directory: &Directory) -> Reply {
        match self.parts {
            Parts::Vms(mut all) => {
                let missing = directory.lost(|name| all.iter().any(|vm| vm.name == *name));
                all.extend(missing);
                Reply::Vms(all)
            }
            Parts::Cells(some) => Reply::Cells(answers::all_cells(some)),
        }
    }
}
