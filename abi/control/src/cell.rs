//! Cells: groups of nodes, each with a monitor of its own.

use alloc::format;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use addr::NodeId;
use serde::{Deserialize, Serialize};

use crate::boot::BootConfig;
use crate::check::{Tell, at_most, tell, unique};
use crate::event::CellLoss;
use crate::name::Name;
use crate::problem::{SpecError, SpecProblem};
use crate::spec::{DiskMode, DiskSpec, VmSpec};

/// Most cells of a machine.
pub const MAX_CELLS: usize = 8;

/// Some nodes of the machine with a monitor of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Its name, unique in the machine.
    pub name: Name,
    /// Its nodes, by the machine's numbers.
    pub nodes: Vec<NodeId>,
}

/// A cell as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellInfo {
    /// Its number.
    pub index: u8,
    /// Its name.
    pub name: Name,
    /// Its nodes, by the machine's numbers.
    pub nodes: Vec<NodeId>,
    /// How many harts it has.
    pub harts: u16,
    /// Memory of its nodes, in bytes.
    pub total_bytes: u64,
    /// How it is.
    pub state: CellState,
    /// Which set of cells it goes on with, or the first without it.
    pub epoch: u16,
    /// What it says of itself; `None` if it cannot be asked.
    pub load: Option<CellLoad>,
}

/// How a cell is, as the first one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CellState {
    /// It runs.
    In,
    /// It has not begun.
    Booting,
    /// It is lost.
    Lost(CellLoss),
    /// It was never started: its memory had no room for it.
    Absent,
}

/// What a cell is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellLoad {
    /// Memory free for VMs, in bytes.
    pub free_bytes: u64,
    /// Its VMs.
    pub vms: u16,
    /// Of them, those that are not stopped.
    pub running_vms: u16,
}

impl BootConfig {
    /// The nodes of each cell of a machine with `count` nodes; all nodes where no cells are described.
    ///
    /// # Errors
    /// A node that the machine has not, or one that is in no cell.
    pub fn nodes_by_cell(&self, count: usize) -> Result<Vec<Vec<NodeId>>, SpecError> {
        let all = || (0..=u8::MAX).take(count).map(NodeId);
        if self.cells.is_empty() {
            return Ok(Vec::from([all().collect()]));
        }
        for (index, cell) in self.cells.iter().enumerate() {
            if let Some(node) = cell.nodes.iter().find(|node| node.index() >= count) {
                return Err(SpecError::new(format!("cells[{index}].nodes"), SpecProblem::UnknownNode { node: *node }));
            }
        }
        if let Some(node) = all().find(|node| !self.cells.iter().any(|cell| cell.nodes.contains(node))) {
            return Err(SpecError::new("cells", SpecProblem::NodeInNoCell { node }));
        }
        Ok(self.cells.iter().map(|cell| cell.nodes.clone()).collect())
    }

    /// What can be told of the cells without knowing how many nodes the machine has.
    pub(crate) fn each_problem_of_cells(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        tell(to, at_most("cells", self.cells.len(), MAX_CELLS))?;
        unique("cells", self.cells.iter().map(|cell| cell.name.as_str()), to)?;
        for index in 0..self.cells.len() {
            let wrong = |problem| SpecError::new(format!("cells[{index}].nodes"), problem);
            tell(to, self.validate_nodes_of(index).map_err(wrong))?;
        }
        ControlFlow::Continue(())
    }

    fn validate_nodes_of(&self, index: usize) -> Result<(), SpecProblem> {
        let Some(cell) = self.cells.get(index) else { return Ok(()) };
        if cell.nodes.is_empty() {
            return Err(SpecProblem::Empty);
        }
        if index == 0 && !cell.nodes.contains(&NodeId(0)) {
            return Err(SpecProblem::FirstCellLacksNode0);
        }
        for (place, node) in cell.nodes.iter().enumerate() {
            let earlier = self.cells.iter().take(index).flat_map(|cell| &cell.nodes);
            if earlier.chain(cell.nodes.iter().take(place)).any(|other| other == node) {
                return Err(SpecProblem::NodeTwice { node: *node });
            }
        }
        Ok(())
    }

    /// Refuses a VM whose cell does not exist. A machine without a list of cells has one, cell 0.
    pub(crate) fn validate_cell_of(&self, vm: &VmSpec) -> Result<(), SpecError> {
        if usize::from(vm.cell) < self.cells.len().max(1) {
            return Ok(());
        }
        Err(SpecError::new("cell", SpecProblem::UnknownCell { cell: vm.cell }))
    }
}

impl VmSpec {
    /// Refuses what only a VM of the leader can have, which drives the machine's disks: disks that are written.
    ///
    /// # Errors
    /// The first problem found.
    pub fn validate_devices(&self, leader: u8) -> Result<(), SpecError> {
        match self.each_problem_of_cell(leader, &mut |error| ControlFlow::Break(error)) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    pub(crate) fn each_problem_of_cell(&self, leader: u8, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        let written = |disk: &DiskSpec| disk.overlay.is_some() || disk.mode == DiskMode::Persistent;
        for (index, _) in self.disks.iter().enumerate().filter(|(_, disk)| written(disk) && self.cell != leader) {
            to(SpecError::new(format!("disks[{index}]"), SpecProblem::NotInFirstCell))?;
        }
        ControlFlow::Continue(())
    }
}
