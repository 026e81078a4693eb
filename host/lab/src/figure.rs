//! Figures: what is measured, what it must reach, what others reach.

use serde::Serialize;

/// A figure that an experiment can give, as issue 2 lists it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Its id.
    pub id: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// At most this.
    pub target: f64,
    /// What Linux KVM reaches on the same emulated machine: measured once, apart from this program (kernel 6.12 and
    /// kvmtool, instructions counted by a plugin; docs/claims.md). `None` where nobody has measured.
    pub peer: Option<f64>,
    /// What it is, for people.
    pub meaning: &'static str,
}

const fn goal(id: &'static str, unit: &'static str, target: f64, peer: Option<f64>, meaning: &'static str) -> Goal {
    Goal { id, unit, target, peer, meaning }
}

const INSTRUCTIONS: &str = "instructions";
const EXITS: &str = "exits";
const RATIO: &str = "ratio";
const BYTES: &str = "bytes";

/// All figures with a target.
pub const GOALS: &[Goal] = &[
    goal("sbi_null", INSTRUCTIONS, 150.0, Some(1_150.0), "null SBI call, exit to re-entry"),
    goal("timer_exits", EXITS, 0.0, Some(0.0), "exits per guest timer"),
    goal("ipi_exits", EXITS, 0.0, Some(1.0), "exits per IPI between running vCPUs"),
    goal("rfence_exits", EXITS, 0.0, Some(1.0), "exits per remote fence between running vCPUs"),
    goal("wfi_wake", INSTRUCTIONS, 1_500.0, Some(12_500.0), "WFI, descheduled, woken by its timer, running again"),
    goal("first_touch", INSTRUCTIONS, 600.0, Some(9_300.0), "first touch of a 4 KiB page, without zeroing"),
    goal("mmio", INSTRUCTIONS, 400.0, Some(1_474.0), "trapped access to a device model"),
    goal("blk_read_4k", INSTRUCTIONS, 3_000.0, Some(28_900.0), "4 KiB read served from memory, below the guest"),
    goal("vcpu_switch", INSTRUCTIONS, 800.0, None, "switch between two vCPUs on a hart"),
    goal("compile_ratio", RATIO, 1.003, Some(1.0035), "compile workload, over the bare machine"),
    goal("cpu_ratio", RATIO, 1.001, Some(1.002), "CPU-bound workload, over the bare machine"),
    goal("syscall_ratios", RATIO, 1.02, Some(1.045), "the worst system-call loop, over the bare machine"),
    goal("sleep_ratio", RATIO, 1.5, Some(2.38), "1,000 sleeps of 50 us, over the bare machine"),
    goal("boot_ratio", RATIO, 1.05, Some(1.21), "boot to the first user program, over the bare machine"),
    goal("vm_overhead_mib", "MiB", 1.0, Some(3.1), "monitor memory per 256 MiB VM beyond its own pages"),
    goal("monitor_bytes", BYTES, 524_288.0, None, "monitor image, text and read-only data"),
    goal("memmap_bytes", BYTES, 32.0, Some(64.0), "memmap per 4 KiB page"),
];

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its id.
    pub id: String,
    /// Its value; `None` if it could not be measured, see `note`.
    pub value: Option<f64>,
    /// What it counts.
    pub unit: String,
    /// At most this, if there is a target.
    pub target: Option<f64>,
    /// What Linux KVM reaches, if measured (apart from this program).
    pub peer: Option<f64>,
    /// How many operations the value is the mean of.
    pub samples: u64,
    /// Why there is no value, or what to know about it. Only for people.
    #[serde(skip)]
    pub note: String,
}

impl Figure {
    /// A figure of the list, or a part of one for the breakdown, which has no target.
    #[must_use]
    pub fn new(id: &str, value: f64, unit: &str, samples: u64) -> Self {
        let goal = GOALS.iter().find(|goal| goal.id == id);
        Self {
            id: id.to_owned(),
            value: Some(value),
            unit: goal.map_or(unit, |goal| goal.unit).to_owned(),
            target: goal.map(|goal| goal.target),
            peer: goal.and_then(|goal| goal.peer),
            samples,
            note: goal.map_or("", |goal| goal.meaning).to_owned(),
        }
    }

    /// A figure that could not be measured.
    #[must_use]
    pub fn missing(id: &str, why: impl Into<String>) -> Self {
        Self { value: None, note: first_line(&why.into()), ..Self::new(id, 0.0, "", 0) }
    }

    /// Whether it reaches its target; `None` without value or target.
    #[must_use]
    pub fn is_reached(&self) -> Option<bool> {
        Some(self.value? <= self.target?)
    }
}

/// Enough for a table: the rest of an error is logs.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
