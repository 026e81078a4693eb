//! On which hart each vCPU should be.
//!
//! Three questions, as in Cellular Disco (section 4.2): where does a new VM go ([`place_vm`]), what may an idle hart
//! take ([`pull_for_idle`]; does most of the balancing), and which few moves repair what idle harts cannot
//! ([`rebalance`], periodically). The answers are proposals; a caller that finds one outdated drops it.
//!
//! Harts of large machines look at a part of it at a time: [`LoadTree`] says which, and when.
//!
//! Departures from the paper: *rotation*: where
//! vCPUs do not divide evenly, such as three on two harts, [`rebalance`] moves the best-served one in with the
//! others, so that over some seconds all are served alike. And *stays*: who was moved is left alone for a while.

mod even;
mod home;
mod loads;
mod place;
mod pull;
mod service;
mod stay;
#[cfg(test)]
mod tests;
mod tree;

pub use even::{MAX_MOVES, rebalance};
pub use home::home_of;
pub use place::{place_parts, place_vm};
pub use pull::pull_for_idle;
pub use service::ServiceHistory;
pub use stay::{LastMove, MoveHistory};
pub use tree::{Domain, LoadTree, REGION, Sum};

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
    /// Whether it runs vCPUs. Nothing is moved to a hart that does not.
    pub is_online: bool,
    /// Whether it does the machine's duties besides. Its guests wait meanwhile, so it gets its first vCPU last.
    pub has_duties: bool,
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
    /// When and whence it came where it is; `None` if it was placed there ([`MoveHistory`]).
    pub last_move: Option<LastMove>,
    /// Whether the vCPUs of its VM run together ([`crate::gang`]).
    pub is_gang: bool,
}

impl VcpuFacts {
    /// Whether both belong to one VM.
    fn is_sibling(&self, other: &Self) -> bool {
        self.entity.vm == other.entity.vm && self.entity.vcpu != other.entity.vcpu
    }
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
    /// The target has nothing to do, and its VM is to run together.
    Together,
}

/// How hesitant the balancer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caution {
    /// A vCPU changes harts inside its node only after waiting for so many ticks, or when it was served badly lately.
    pub local_wait_ticks: u64,
    /// A vCPU leaves its node only after waiting for so many ticks, or when it was served very badly lately.
    pub remote_wait_ticks: u64,
    /// A hart that has been idle for so long takes over one of several vCPUs for which a VM waits that runs together.
    pub patience_ticks: u64,
    /// vCPUs of one node take turns when their service differs by more than this many thousandths; one that got less
    /// than it wanted by more than this was served badly.
    pub local_unfair_permille: u16,
    /// The same between nodes.
    pub remote_unfair_permille: u16,
    /// A vCPU that was moved stays for so many ticks at least, as a rule: the table of [`MoveHistory`]'s module.
    pub stay_ticks: u64,
    /// The span over which [`ServiceHistory`] averages.
    pub history_ticks: u64,
}

impl Caution {
    /// The usual numbers: 4 ms and 6 ms of waiting, the optimum that Cellular Disco found (section 4.2), and 10% and
    /// 25% of service. A vCPU stays for half a second: to fill 1 MiB of cache again, 128 bytes in 300 ns at a time, takes
    /// it 2.4 ms, which is then half a percent of its time.
    #[must_use]
    pub const fn new(timebase_hz: u64) -> Self {
        Self {
            local_wait_ticks: timebase_hz / 250,
            remote_wait_ticks: timebase_hz / 167,
            patience_ticks: timebase_hz / 125,
            local_unfair_permille: 100,
            remote_unfair_permille: 250,
            stay_ticks: timebase_hz / 2,
            history_ticks: timebase_hz / 100 * 64,
        }
    }
}
