//! How VMs share harts with others.

use control::{LATENCY_LIMITS_US, Latencies, ShareStats};
use serde::Serialize;

/// How a VM shares harts with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShareView {
    /// Its weight.
    pub weight: u16,
    /// Whether its vCPUs run together: `auto`, `yes`, `no`.
    pub gang: &'static str,
    /// Whether they do now.
    pub together: bool,
    /// Turns in which they did.
    pub turns: u64,
    /// Waits of vCPUs that woke up, until they ran.
    pub wakes: LatencyView,
    /// Waits of vCPUs that had lost their hart, until they ran again.
    pub steals: LatencyView,
}

/// Waits for harts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LatencyView {
    /// How many there were.
    pub total: u64,
    /// Classes: the most microseconds of each (none for the last), and how many waits it has.
    pub classes: Vec<(Option<u32>, u64)>,
    /// Half of them lasted so many microseconds at most.
    pub p50_us: Option<u32>,
    /// 99 of 100.
    pub p99_us: Option<u32>,
}

impl From<&ShareStats> for ShareView {
    fn from(share: &ShareStats) -> Self {
        Self {
            weight: share.weight,
            gang: share.gang.label(),
            together: share.gathers,
            turns: share.turns,
            wakes: LatencyView::from(&share.wakes),
            steals: LatencyView::from(&share.steals),
        }
    }
}

impl From<&Latencies> for LatencyView {
    fn from(waits: &Latencies) -> Self {
        let limits = LATENCY_LIMITS_US.iter().copied().map(Some).chain([None]);
        Self {
            total: waits.total(),
            classes: limits.zip(waits.counts).collect(),
            p50_us: waits.limit_of(500),
            p99_us: waits.limit_of(990),
        }
    }
}
