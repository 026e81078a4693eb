//! All counters of a machine at one moment.

use std::collections::HashMap;

use addr::VmId;
use control::{ControlError, MachineInfo, MachineStats, Name, VmStats, VmSummary};
use machine::{Client, ClientError};

/// All counters of a machine at one moment (the VMs' an instant later than the harts').
#[derive(Clone, Debug)]
pub struct Sample {
    /// What the machine is.
    pub info: MachineInfo,
    /// Its counters.
    pub stats: MachineStats,
    /// Its VMs.
    pub vms: Vec<VmSummary>,
    /// Their counters; a VM destroyed meanwhile has none, nor has one of a lost cell.
    pub vm_stats: HashMap<VmId, VmStats>,
}

impl Sample {
    /// Asks the machine for everything.
    pub fn collect(client: &Client) -> Result<Self, ClientError> {
        Self::collect_with(client, client.machine_info()?)
    }

    /// Asks the machine for its counters alone.
    pub fn collect_with(client: &Client, info: MachineInfo) -> Result<Self, ClientError> {
        let stats = client.machine_stats()?;
        let vms = client.vms()?;
        let mut vm_stats = HashMap::new();
        for vm in &vms {
            if let Some(counters) = existing(client.vm_stats(&vm.name))? {
                vm_stats.insert(counters.id, counters);
            }
        }
        Ok(Self { info, stats, vms, vm_stats })
    }

    /// The name of a VM.
    pub fn vm_name(&self, id: VmId) -> Option<&Name> {
        self.vms.iter().find(|vm| vm.id == id).map(|vm| &vm.name)
    }
}

/// `None` for a VM that was destroyed after it was listed, or whose cell is lost.
fn existing(answer: Result<VmStats, ClientError>) -> Result<Option<VmStats>, ClientError> {
    match answer {
        Ok(counters) => Ok(Some(counters)),
        Err(ClientError::Refused(ControlError::UnknownVm { .. } | ControlError::CellLost { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}
