//! Which VMs the other cells have.

use crate::{
    machine::{cell, config},
    services::cells,
};
use ::cell::CellId;
use addr::VmId;
use alloc::vec::Vec;
use control::{Name, StopReason, VmSpec, VmState, VmSummary};

/// What the first cell knows of a VM of another one: it is enough to say what was lost.
#[derive(Clone, Debug)]
pub struct Vm {
    name: Name,
    cell: u8,
    vcpus: u16,
    memory_mib: u32,
}

impl Vm {
    /// The VM of this description.
    pub fn of(spec: &VmSpec) -> Self {
        Self { name: spec.name.clone(), cell: spec.cell, vcpus: spec.vcpus, memory_mib: spec.memory_mib }
    }
}

/// All VMs of other cells.
#[derive(Debug)]
pub struct Directory {
    vms: Vec<Vm>,
}

impl Directory {
    /// Those that the machine begins with.
    pub fn of_config() -> Self {
        Self { vms: config().vms.iter().filter(|spec| spec.cell != 0).map(Vm::of).collect() }
    }

    /// The cell of a VM, if that is another one.
    pub fn cell_of(&self, name: &Name) -> Option<CellId> {
        self.vms.iter().find(|vm| vm.name == *name).and_then(|vm| CellId::new(vm.cell.into()))
    }

    /// A VM was made.
    pub fn add(&mut self, vm: Vm) {
        self.vms.push(vm);
    }

    /// A VM was forgotten.
    pub fn remove(&mut self, name: &Name) {
        self.vms.retain(|vm| vm.name != *name);
    }

    /// The VMs of lost cells that are not `listed`.
    pub fn lost(&self, listed: impl Fn(&Name) -> bool) -> Vec<VmSummary> {
        let is_lost = |vm: &&Vm| CellId::new(vm.cell.into()).is_some_and(|cell| cells::loss_of(cell).is_some());
        self.vms.iter().filter(is_lost).filter(|vm| !listed(&vm.name)).map(Vm::as_lost).collect()
    }
}

impl Vm {
    fn as_lost(&self) -> VmSummary {
        let cell = cell::facts(self.cell.into()).map(|facts| facts.name.clone());
        VmSummary {
            name: self.name.clone(),
            id: VmId(0),
            state: VmState::Stopped,
            reason: cell.map(|cell| StopReason::CellLost { cell }),
            vcpus: self.vcpus,
            memory_mib: self.memory_mib,
            promised_mib: 0,
            resident: Vec::new(),
            uptime_ticks: 0,
            resets: 0,
            cell: self.cell,
            disks: Vec::new(),
        }
    }
}
