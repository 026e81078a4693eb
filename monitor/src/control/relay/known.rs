//! Which VMs the other cells have.

use crate::{
    machine::{cell, config},
    services::cells,
};
use ::cell::CellId;
use addr::VmId;
use alloc::{boxed::Box, vec::Vec};
use control::{Event, EventKind, Name, OnFailure, Setting, StopReason, VmSpec, VmState, VmSummary};

/// What the leader knows of a VM of another cell: it is enough to say what was lost.
#[derive(Debug)]
pub struct Vm {
    spec: Box<VmSpec>,
    /// Whether it runs, by the latest event of its cell.
    is_running: bool,
}

impl Vm {
    /// The VM of this description.
    pub fn of(spec: &VmSpec) -> Self {
        Self { spec: Box::new(spec.clone()), is_running: false }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.spec.name
    }
}

/// All VMs of other cells.
#[derive(Debug)]
pub struct Directory {
    vms: Vec<Vm>,
}

impl Directory {
    /// Those that the machine begins with. Of lost cells those run that began with the machine, as far as this cell knows; cells that live
    /// tell what has become of theirs.
    pub fn of_config() -> Self {
        let others = config().vms.iter().filter(|spec| usize::from(spec.cell) != cell::index());
        let vm = |spec: &VmSpec| {
            let vm = Vm::of(spec);
            Vm { is_running: spec.autostart && vm.cell().is_some_and(|cell| cells::loss_of(cell).is_some()), ..vm }
        };
        Self { vms: others.map(vm).collect() }
    }

    /// The cell of a VM, if that is another one.
    pub fn cell_of(&self, name: &Name) -> Option<CellId> {
        self.vms.iter().find(|vm| vm.spec.name == *name).and_then(Vm::cell)
    }

    /// A VM was made.
    pub fn add(&mut self, vm: Vm) {
        self.vms.push(vm);
    }

    /// A VM was forgotten.
    pub fn remove(&mut self, name: &Name) {
        self.vms.retain(|vm| vm.spec.name != *name);
    }

    /// A VM was changed.
    pub fn set(&mut self, name: &Name, settings: &[Setting]) {
        for vm in self.vms.iter_mut().filter(|vm| vm.spec.name == *name) {
            settings.iter().for_each(|setting| setting.apply(&mut vm.spec));
        }
    }

    /// Another cell tells what has become of a VM.
    pub fn hear(&mut self, event: &Event) {
        let name = event.vm.as_ref().and_then(|vm| vm.name.as_ref());
        for vm in self.vms.iter_mut().filter(|vm| Some(&vm.spec.name) == name) {
            match event.kind {
                EventKind::VmStarted => vm.is_running = true,
                EventKind::VmStopped { .. } => vm.is_running = false,
                _ => {}
            }
        }
    }

    /// The VMs of a cell that is lost which are to start again, as they are to be.
    pub fn to_restart(&self, cell: CellId) -> Vec<VmSpec> {
        let wants = |vm: &&Vm| vm.cell() == Some(cell) && vm.is_running && vm.spec.on_failure == OnFailure::Restart;
        self.vms
            .iter()
            .filter(wants)
            .map(|vm| VmSpec { cell: cell::index() as u8, ..VmSpec::clone(&vm.spec) })
            .collect()
    }

    /// The VMs of lost cells that are not `listed`.
    pub fn lost(&self, listed: impl Fn(&Name) -> bool) -> Vec<VmSummary> {
        let is_lost = |vm: &&Vm| vm.cell().is_some_and(|cell| cells::loss_of(cell).is_some());
        self.vms.iter().filter(is_lost).filter(|vm| !listed(&vm.spec.name)).map(Vm::as_lost).collect()
    }
}

impl Vm {
    fn cell(&self) -> Option<CellId> {
        CellId::new(self.spec.cell.into())
    }

    fn as_lost(&self) -> VmSummary {
        let cell = cell::facts(self.spec.cell.into()).map(|facts| facts.name.clone());
        VmSummary {
            name: self.spec.name.clone(),
            id: VmId(0),
            state: VmState::Stopped,
            reason: cell.map(|cell| StopReason::CellLost { cell }),
            vcpus: self.spec.vcpus,
            memory_mib: self.spec.memory_mib,
            promised_mib: 0,
            resident: Vec::new(),
            uptime_ticks: 0,
            resets: 0,
            cell: self.spec.cell,
            disks: Vec::new(),
        }
    }
}
