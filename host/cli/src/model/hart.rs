//! Harts.

use control::{HartInfo, HartStats, STRETCH_LIMITS_US, StretchPlace, Stretches};
use serde::Serialize;

use super::{ExitsView, Sample, grown, seconds, share};
use crate::output::units;

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
    /// What the hart did in it, in a word.
    pub worst_place: String,
    /// The same in plain words.
    #[serde(skip)]
    pub worst_activity: String,
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
            worst_activity: activity(stretches.worst_place),
        }
    }

    /// The time that 99.9 % of the stretches did not exceed, for people.
    pub fn p999(&self) -> String {
        match (self.p999_us, STRETCH_LIMITS_US.last()) {
            (Some(limit), _) => format!("{} us", units::count(limit.into())),
            (None, Some(limit)) if self.total > 0 => format!("> {} us", units::count((*limit).into())),
            (None, _) => "-".to_owned(),
        }
    }
}

/// What a hart did in the monitor, in plain words. Numbers are those of `scause` (Privileged Architecture, "Supervisor Cause
/// Register").
fn activity(place: StretchPlace) -> String {
    let known = match place {
        StretchPlace::None => "-",
        StretchPlace::Exception(2 | 22) => "carrying out an instruction of a guest",
        StretchPlace::Exception(8 | 10) => "serving a call of a guest",
        StretchPlace::Exception(20 | 21 | 23) => "finding a page or device for a guest",
        StretchPlace::Exception(cause) => return format!("handling exception {cause} of a guest"),
        StretchPlace::Interrupt(1) => "doing what another hart asked for",
        StretchPlace::Interrupt(5) => "handling its timer",
        StretchPlace::Interrupt(9) => "handling a device's interrupt",
        StretchPlace::Interrupt(12) => "handling an interrupt for a guest",
        StretchPlace::Interrupt(cause) => return format!("handling interrupt {cause}"),
        StretchPlace::Duties => "the machine's duties",
        StretchPlace::Placement => "moving or copying pages",
        StretchPlace::Move => "taking over or giving away a vCPU",
        StretchPlace::Zeroing => "zeroing free memory",
        StretchPlace::Wakeup => "waking up",
        StretchPlace::Clients => "serving clients, beginning or ending VMs",
        StretchPlace::Disks => "going on with disk requests",
        StretchPlace::Network => "handing on frames of the network",
        StretchPlace::Merging => "merging equal pages",
        StretchPlace::Looks => "looking at who uses which pages",
        StretchPlace::Memory => "taking memory back, joining blocks",
        StretchPlace::Balance => "spreading vCPUs over harts",
    };
    known.to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_beyond_the_last_limit_are_not_told_as_none() {
        let view = |stretches: &Stretches| StretchView::new(stretches, 10_000_000);
        let mut stretches = Stretches::default();
        assert_eq!((view(&stretches).p999().as_str(), view(&stretches).worst_activity.as_str()), ("-", "-"));
        stretches.counts[0] = 999;
        assert_eq!(view(&stretches).p999(), "5 us");
        stretches.counts[STRETCH_LIMITS_US.len() - 1] = 10;
        assert_eq!(view(&stretches).p999(), "10,000 us");
        stretches.counts[STRETCH_LIMITS_US.len()] = 10;
        stretches.worst_place = StretchPlace::Exception(21);
        assert_eq!(view(&stretches).p999(), "> 10,000 us");
        assert_eq!(view(&stretches).worst_activity, "finding a page or device for a guest");
    }
}
