//! What harts tell each other.

use crate::{
    machine::{locality::Job, node_box::NodeBox},
    vcpu::Vcpu,
};
use addr::{CpuIndex, VmId};
use control::MigrationReason;
use sched::Entity;

/// A message to a hart.
#[derive(Debug)]
pub enum Message {
    /// Here is a vCPU: it is yours from now on.
    Adopt(NodeBox<Vcpu>),
    /// Give this vCPU to another hart, if it is still yours.
    HandOver {
        /// The vCPU.
        entity: Entity,
        /// Its new hart.
        to: CpuIndex,
        /// Why.
        reason: MigrationReason,
    },
    /// Drop the vCPUs of this VM: it is being torn down.
    Release(VmId),
    /// Move or copy pages.
    Place(Job),
}
