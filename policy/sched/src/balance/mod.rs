//! On which hart each vCPU should be.
//!
//! Three questions, as in Cellular Disco (section 4.2): where does a new VM go ([`place_vm`]), what may an idle hart
//! take ([`pull_for_idle`]; does most of the balancing), and which few moves repair what idle harts cannot
//! ([`rebalance`], periodically). The answers are proposals; a caller that finds one outdated drops it.
//!
//! Departures from the paper: one flat snapshot in place of the load tree (64 harts today), and *rotation*: where
//! vCPUs do not divide evenly, such as three on two harts, [`rebalance`] moves the best-served one in with the
//! others, so that over a second all are served alike.

mod even;
mod home;
mod loads;
mod place;
mod pull;
mod service;
#[cfg(test)]
mod tests;

pub use even::{MAX_MOVES, rebalance, rebalance_between, rebalance_node};
pub use home::home_of;
pub use place::{place_parts, place_vm};
pub use pull::pull_for_idle;
pub use service::ServiceHistory;

use addr::{CpuIndex, NodeId};

use crate::Entity;

/// What the balancer knows of the machine at one moment.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The harts, by [`CpuIndex`].
    pub harts: &'a [HartFacts],
    /// All vCPUs that have a hart. Those on harts that `harts` lacks are ignored.
    pub vcpus: &'a [VcpuFacts],
    /// Distance between two nodes, as ACPI and the device tree count it (10: the same node).
    pub distance: &'a dyn Fn(NodeId, NodeId) -> u8,
}

/// A hart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HartFacts {
    /// Its node.
    pub node: NodeId,
    /// Does it run vCPUs? Nothing is moved to a hart that does not.
    pub is_online: bool,
}

/// A vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuFacts {
    /// Its name.
    pub entity: Entity,
    /// Its weight.
    pub weight: u32,
    /// The hart that owns it.
    pub hart: CpuIndex,
    /// What it does.
    pub activity: Activity,
    /// The node where most of its memory is, if that is known ([`home_of`]), or to which its guest thinks it belongs.
    pub home: Option<NodeId>,
    /// Of the time that it wanted to run lately, how much it did run, in thousandths ([`ServiceHistory`]).
    pub served_permille: u16,
}

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs on its hart.
    Running,
    /// It could run, but has not for so many ticks.
    Waiting {
        /// Ticks since it ran last or woke up.
        ticks: u64,
    },
    /// It waits for an interrupt, or is stopped.
    Blocked,
}

impl Activity {
    const fn is_runnable(self) -> bool {
        !matches!(self, Self::Blocked)
    }
}

/// A proposal: this vCPU should change harts. It may be running; its owner hands it over when its turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The vCPU.
    pub entity: Entity,
    /// Its owner according to the snapshot.
    pub from: CpuIndex,
    /// Its owner to be.
    pub to: CpuIndex,
    /// Why.
    pub reason: Reason,
}

/// Why a vCPU should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The target has nothing to do.
    IdlePull,
    /// The target has less to do, by more than this vCPU.
    Even,
    /// The harts' loads cannot be even, so the vCPUs take turns on the better place.
    Rotate,
    /// A hart is idle on the node that has its memory.
    Home,
}

/// How hesitant the balancer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caution {
    /// A vCPU changes harts inside its node only after waiting for so many ticks, or when it was served badly lately.
    pub local_wait_ticks: u64,
    /// A vCPU leaves its node only after waiting for so many ticks, or when it was served very badly lately.
    pub remote_wait_ticks: u64,
    /// vCPUs of one node take turns when their service differs by more than this many thousandths; one that got less
    /// than it wanted by more than this was served badly.
    pub local_unfair_permille: u16,
    /// The same between nodes.
    pub remote_unfair_permille: u16,
}

impl Caution {
    /// The usual numbers: 4 ms and 6 ms of waiting, the optimum that Cellular Disco found (section 4.2), and 10% and
    /// 25% of service.
    #[must_use]
    pub const fn new(timebase_hz: u64) -> Self {
        Self {
            local_wait_ticks: timebase_hz / 250,
            remote_wait_ticks: timebase_hz / 167,
            local_unfair_permille: 100,
            remote_unfair_permille: 250,
        }
    }
}
