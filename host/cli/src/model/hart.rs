//! Harts.

use control::{HartInfo, HartStats, STRETCH_LIMITS_US, Stretches};
use serde::Serialize;

use super::{ExitsView, Sample, grown, seconds, share};

/// A hart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HartView {
    /// Its dense index.
    pub index: u16,
    /// Its SBI hart id.
    pub hart_id: u64,
    /// Its node.
    pub node: u8,
    /// Whether it runs the monitor.
    pub online: bool,
    /// Seconds in guests.
    pub guest_s: f64,
    /// Seconds in the monitor.
    pub monitor_s: f64,
    /// Seconds with nothing to do.
    pub idle_s: f64,
    /// Switches from one vCPU to another.
    pub switches: u64,
    /// vCPUs in its run queue now, the running one included.
    pub queued: u32,
    /// What runs now.
    pub running: Option<RunningView>,
    /// All exits.
    pub exits_total: u64,
    /// Exits by cause.
    pub exits: ExitsView,
    /// How long it stays in the monitor at a time.
    pub stretches: StretchView,
    /// What it did between two looks.
    pub load: Option<Load>,
}

/// How long a hart stays in the monitor at a time, with interrupts off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StretchView {
    /// How many stretches there were.
    pub total: u64,
    /// Classes: the most microseconds of each (none for the last), and how many stretches it has.
    pub classes: Vec<(Option<u32>, u64)>,
    /// 99.9 % of them took no longer than so many microseconds; `None` if that is beyond the last limit.
    pub p999_us: Option<u32>,
    /// The longest, in microseconds.
    pub worst_us: f64,
    /// What the hart did in it.
    pub worst_place: String,
}

impl StretchView {
    fn new(stretches: &Stretches, timebase_hz: u64) -> Self {
        let limits = STRETCH_LIMITS_US.iter().copied().map(Some).chain([None]);
        Self {
            total: stretches.total(),
            classes: limits.zip(stretches.counts).collect(),
            p999_us: stretches.limit_of(999),
            worst_us: seconds(stretches.worst_ticks, timebase_hz) * 1e6,
            worst_place: stretches.worst_place.to_string(),
        }
    }
}

/// A vCPU on a hart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningView {
    /// Its VM; `None` if that was destroyed meanwhile.
    pub vm: Option<String>,
    /// Its index.
    pub vcpu: u16,
}

/// What a hart did between two looks. The three shares add up to 1 (0 if no time has passed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Share of time in guests.
    pub guest: f64,
    /// Share of time in the monitor.
    pub monitor: f64,
    /// Share of time with nothing to do.
    pub idle: f64,
    /// Exits per second.
    pub exits_per_s: f64,
    /// Switches per second.
    pub switches_per_s: f64,
}

impl HartView {
    /// The harts in `sample`, with loads since `before` if given.
    pub fn all(sample: &Sample, before: Option<&Sample>) -> Vec<Self> {
        let infos = &sample.info.harts;
        let view = |stats: &HartStats| {
            let info = infos.iter().find(|info| info.index == stats.index);
            let earlier = before.and_then(|before| before.stats.harts.iter().find(|hart| hart.index == stats.index));
            Self::new(sample, info, stats, earlier)
        };
        sample.stats.harts.iter().map(view).collect()
    }

    fn new(sample: &Sample, info: Option<&HartInfo>, stats: &HartStats, earlier: Option<&HartStats>) -> Self {
        let hz = sample.info.timebase_hz;
        let running = stats
            .running
            .map(|(vm, vcpu)| RunningView { vm: sample.vm_name(vm).map(ToString::to_string), vcpu: vcpu.0 });
        Self {
            index: stats.index.0,
            hart_id: info.map_or(0, |info| info.hart.0),
            node: stats.node.0,
            online: info.is_none_or(|info| info.online),
            guest_s: seconds(stats.guest_ticks, hz),
            monitor_s: seconds(stats.monitor_ticks, hz),
            idle_s: seconds(stats.idle_ticks, hz),
            switches: stats.switches,
            queued: stats.queued,
            running,
            exits_total: stats.exits.total(),
            exits: stats.exits.into(),
            stretches: StretchView::new(&stats.stretches, hz),
            load: earlier.map(|earlier| Load::between(stats, earlier, hz)),
        }
    }
}

impl Load {
    fn between(now: &HartStats, before: &HartStats, timebase_hz: u64) -> Self {
        let all = grown(now.guest_ticks, before.guest_ticks)
            .saturating_add(grown(now.monitor_ticks, before.monitor_ticks))
            .saturating_add(grown(now.idle_ticks, before.idle_ticks));
        let per_second = |growth: u64| share(growth, 0, all) * timebase_hz as f64;
        Self {
            guest: share(now.guest_ticks, before.guest_ticks, all),
            monitor: share(now.monitor_ticks, before.monitor_ticks, all),
            idle: share(now.idle_ticks, before.idle_ticks, all),
            exits_per_s: per_second(now.exits.since(&before.exits).total()),
            switches_per_s: per_second(grown(now.switches, before.switches)),
        }
    }

    /// Share of time with something to do.
    pub fn busy(&self) -> f64 {
        self.guest + self.monitor
    }
}
