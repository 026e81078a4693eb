//! What hostile guests do, and beside whom: the one list that `mirrorball bench hostile` and the system tests have.
//!
//! An attack is a device, a behaviour and a number of vCPUs that all behave so at the same time: `block-refill-2`. The probe guest does
//! it (`guest/probe/src/hostile`), for ever: somebody ends it, unless the monitor has stopped it for what it did. [`Neighbour`] is who
//! must not feel it.

mod list;
mod neighbour;

use control::{Name, NetSpec, StopReason, VmSpec};

use crate::LabError;
use crate::rig::{label, name, probe_vm};

pub use list::{Board, TARGETS, Target, board, on};
pub use neighbour::{Neighbour, Pulse};

/// The machine's disk that attackers have, each its own view of it.
pub const DISK: &str = "pattern";
/// The subnet that they are on. It needs no gateway: the emulator's own network, which frames can crash, is not what is attacked.
pub const SUBNET: &str = "lan";
/// Memory of an attacker.
const VM_MIB: u32 = 64;

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attack {
    /// What is attacked.
    pub device: &'static str,
    /// How.
    pub behaviour: &'static str,
    /// By how many vCPUs at the same time.
    pub vcpus: u16,
}

impl std::fmt::Display for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.device, self.behaviour, self.vcpus)
    }
}

impl Attack {
    /// What the guest calls it.
    #[must_use]
    pub fn behaviour(&self) -> String {
        format!("{}-{}", self.device.trim_end_matches(char::is_numeric), self.behaviour)
    }

    /// The name of its VM.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn vm(&self) -> Result<Name, LabError> {
        name(&self.to_string())
    }

    /// Its VM: a guest with every device that there is.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn spec(&self) -> Result<VmSpec, LabError> {
        let net = NetSpec { subnet: name(SUBNET)?, mac: None, mtu: 1500 };
        let spec = probe_vm(&self.to_string(), self.vcpus, VM_MIB, &format!("attack=hostile-{}", self.behaviour()))?;
        Ok(VmSpec {
            disks: vec![list::disk()?],
            // From one to the other.
            nets: vec![net.clone(), net],
            ports: vec![label("one")?, label("two")?],
            interrupts: list::board(self.device).interrupts(),
            ..spec
        })
    }

    /// Whether the guest overwrites what it says, so that nobody can tell from its console that it has begun.
    #[must_use]
    pub fn is_on_console(&self) -> bool {
        ["console", "uart", "sbi"].contains(&self.device)
    }

    /// Whether a guest that attacked may end so: it was ended, a device stopped it, it harmed itself and failed, or it used the power
    /// switch.
    #[must_use]
    pub const fn may_end(reason: &StopReason) -> bool {
        matches!(
            reason,
            StopReason::Killed
                | StopReason::GuestFault { .. }
                | StopReason::GuestFailure { .. }
                | StopReason::PowerOff
                | StopReason::ResetLoop { .. }
        )
    }
}
