//! What an experiment is made of, as data: trials to run, comparisons of what they measured, charts to draw.

use std::path::PathBuf;

use config::{Firmware, Hardware, Latency, ModelPlan, NodePlan, Preset};
use control::Placement;
use loads::Load;
use machine_model::{CacheShape, Fidelity};
use serde::{Deserialize, Serialize};

use crate::compare::Comparison;
use crate::plot::ChartPlan;
use crate::report::Goal;
use crate::run::{Progress, Scratch};
use crate::store::Measured;
use crate::{LabError, artifacts};

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it finds out.
    pub summary: &'static str,
    /// Figures that are to be reached, with what the papers and others reach.
    pub goals: &'static [Goal],
    /// What is run, compared and drawn.
    pub plan: fn(Size) -> Plan,
}

/// How much of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Fewer repetitions and smaller workloads: minutes.
    Quick,
    /// All.
    #[default]
    Full,
}

impl Size {
    /// Its name in paths and reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// One of two numbers.
    #[must_use]
    pub const fn pick(self, quick: u64, full: u64) -> u64 {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// What is run, compared and drawn.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Runs, in this order; no two of the same [`Trial::name`] and seed.
    pub trials: Vec<Trial>,
    /// What becomes of their values, in the order of the report.
    pub comparisons: Vec<Comparison>,
    /// What is drawn of it.
    pub charts: Vec<ChartPlan>,
}

/// One run: a workload on a machine under a system.
///
/// Everything in it goes into the key of its stored result, so a trial of the same name with anything else in it is
/// measured anew.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// What comparisons and charts call it, and the folder of its results. Repetitions share it and differ in the seed.
    pub name: String,
    /// What runs.
    pub work: Work,
    /// On what.
    pub machine: MachineSpec,
    /// Under what.
    pub system: System,
    /// How it is measured.
    pub meter: Meter,
    /// Perturbs the machine's start.
    pub seed: u64,
}

impl Trial {
    /// The same with seeds 0 to `repetitions`.
    #[must_use]
    pub fn repeated(self, repetitions: u64) -> Vec<Self> {
        (0..repetitions.max(1)).map(|seed| Self { seed, ..self.clone() }).collect()
    }

    /// Its name with the seed, where it is not the first.
    #[must_use]
    pub fn label(&self) -> String {
        if self.seed == 0 { self.name.clone() } else { format!("{} (seed {})", self.name, self.seed) }
    }
}

/// What runs a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// The workload's kernel, on the machine itself.
    Bare,
    /// A VM of this project's monitor.
    Mirrorball,
    /// A VM of Linux KVM on the same machine.
    Kvm,
}

/// How a trial is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meter {
    /// Instructions by privilege mode, counted by a plugin between marks of the workload.
    Instructions,
    /// Time and stalls by privilege mode, from the machine model, between marks of the workload.
    Model,
    /// What guests and monitor say themselves.
    Own,
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bare => "the bare machine",
            Self::Mirrorball => "a VM of Mirrorball",
            Self::Kvm => "a VM of KVM",
        })
    }
}

impl std::fmt::Display for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Instructions => "counting instructions",
            Self::Model => "the machine model",
            Self::Own => "its own figures",
        })
    }
}

/// The emulated machine of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineSpec {
    /// Its nodes: harts and memory.
    pub nodes: Vec<NodeSpec>,
    /// How its time passes.
    pub time: Time,
    /// Whether the fault firmware starts it, instead of the emulator's own, which runs out of memory with many harts.
    #[serde(skip_serializing_if = "is_off")]
    pub own_firmware: bool,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSpec {
    /// Harts.
    pub harts: u16,
    /// Memory in MiB.
    pub memory_mib: u32,
}

/// How a machine's time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Time {
    /// With the host's: nothing can be measured by it.
    Host,
    /// Each instruction takes one nanosecond, one hart after the other.
    Counting,
    /// As the machine model has it.
    Model(ModelSpec),
}

/// A machine model. What it does not say is as in the preset; the numbers of the preset are part of a result's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelSpec {
    /// The machine that it starts from.
    pub preset: ModelPreset,
    /// Whether the model is on from reset; otherwise the workload switches it on for what is measured.
    pub starts_on: bool,
    /// Whether time is approximate, and the run faster.
    pub fast: bool,
    /// How far a hart may run ahead of the others.
    pub window_ns: Option<u64>,
    /// Latency of other nodes' memory; of a uniform machine that of its own.
    pub remote_ns: Option<u64>,
    /// Size of the L2 cache of each hart.
    pub l2_kib: Option<u64>,
}

/// A machine to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ModelPreset {
    /// FLASH, as in Disco section 5.1.
    Flash,
    /// A present-day server of two dies.
    TwoDie,
}

impl ModelSpec {
    /// FLASH in the reference mode.
    pub const FLASH: Self = Self {
        preset: ModelPreset::Flash,
        starts_on: true,
        fast: false,
        window_ns: None,
        remote_ns: None,
        l2_kib: None,
    };

    /// The same, on only where the workload says so: what comes before runs at plain speed.
    #[must_use]
    pub const fn by_marks(self) -> Self {
        Self { starts_on: false, ..self }
    }

    /// The same as the launcher wants it.
    #[must_use]
    pub fn plan(self, seed: u64) -> ModelPlan {
        let preset = match self.preset {
            ModelPreset::Flash => Preset::Flash,
            ModelPreset::TwoDie => Preset::TwoDie,
        };
        let mut plan = ModelPlan::new(preset);
        plan.fidelity = if self.fast { Fidelity::Fast } else { Fidelity::Reference };
        plan.seed = seed;
        plan.starts_on = self.starts_on;
        plan.window_ns = self.window_ns;
        if self.remote_ns.is_some() {
            plan.latency = Latency::Flat { local_ns: None, remote_ns: self.remote_ns };
        }
        // A way holds the same at any size.
        plan.l2 = self.l2_kib.map(|kib| CacheShape { bytes: kib << 10, ways: 16 });
        plan
    }
}

impl MachineSpec {
    /// Nodes that are all the same.
    #[must_use]
    pub fn new(nodes: usize, harts: u16, memory_mib: u32) -> Self {
        Self { nodes: vec![NodeSpec { harts, memory_mib }; nodes], time: Time::Host, own_firmware: false }
    }

    /// Started by the fault firmware. Nothing is made to fail.
    #[must_use]
    pub fn with_own_firmware(self) -> Self {
        Self { own_firmware: true, ..self }
    }

    /// With time that counts instructions.
    #[must_use]
    pub fn counting(self) -> Self {
        Self { time: Time::Counting, ..self }
    }

    /// With the machine model's time.
    #[must_use]
    pub fn modelled(self, model: ModelSpec) -> Self {
        Self { time: Time::Model(model), ..self }
    }

    /// All harts.
    #[must_use]
    pub fn harts(&self) -> u16 {
        self.nodes.iter().map(|node| node.harts).sum()
    }

    /// All memory, in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u32 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }

    /// Makes an emulated machine this one.
    pub fn apply(&self, hardware: &mut Hardware, seed: u64) {
        let node = |node: &NodeSpec| NodePlan { harts: node.harts, memory_mib: node.memory_mib };
        hardware.nodes = self.nodes.iter().map(node).collect();
        hardware.icount = self.time == Time::Counting;
        hardware.model = match self.time {
            Time::Model(model) => Some(model.plan(seed)),
            Time::Host | Time::Counting => None,
        };
        hardware.firmware = if self.own_firmware { Firmware::Faults } else { Firmware::OpenSbi };
    }
}

/// What a trial runs.
#[derive(Clone, Debug, Serialize)]
pub enum Work {
    /// A guest that marks its phases; the same files under every system.
    Guest(Workload),
    /// Something that only makes sense on this project's monitor, in code.
    Procedure(Procedure),
}

/// A guest that runs programs, marks where each begins and ends, says `WORKLOAD done`, and powers off.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What boots: Debian's kernel, or a system of its own.
    #[serde(skip_serializing_if = "is_debian")]
    pub kernel: Artifact,
    /// Its initial file system.
    pub initrd: Initrd,
    /// Words for the kernel's command line.
    pub cmdline: String,
    /// Its memory.
    pub memory_mib: u32,
    /// Whether its pages follow their users in a VM of ours.
    pub placement: Placement,
    /// In how many VMs of ours, each with an equal part of the harts and with this command line and memory. Several begin at the
    /// same moment, which they are told on their consoles after `WORKLOAD ready`, and a phase ends when the last of them ends.
    #[serde(skip_serializing_if = "is_one")]
    pub vms: u16,
    /// Whether these VMs are on a subnet of their own: each is told its number, from 1 on, as `vm=N` on its command line.
    #[serde(skip_serializing_if = "is_off")]
    pub subnet: bool,
    /// Its phases.
    pub phases: Vec<Phase>,
}

/// Results of one VM are as good as before there could be more.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_one(vms: &u16) -> bool {
    *vms == 1
}

/// Nor do results of Debian's kernel depend on there being others.
fn is_debian(kernel: &Artifact) -> bool {
    *kernel == Artifact::LINUX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_off(option: &bool) -> bool {
    !*option
}

impl Workload {
    /// A workload of crate `loads` with so many threads: the whole of it is phase `all`. Its pages stay where they are touched
    /// first, unless an experiment is about their moving.
    #[must_use]
    pub fn load(load: &Load, size: Size, threads: u16) -> Self {
        let size = match size {
            Size::Quick => loads::Size::Small,
            Size::Full => loads::Size::Full,
        };
        let phase = |phase: loads::Phase| Phase {
            name: phase.name,
            from: Mark::Hint(phase.begins),
            to: Mark::Hint(phase.ends),
        };
        Self {
            name: load.name,
            kernel: Artifact::LINUX,
            initrd: Initrd::Load(load.name),
            cmdline: load.command_line(size, Some(threads)),
            memory_mib: load.memory_mib(size),
            placement: Placement::FirstTouch,
            vms: 1,
            subnet: false,
            phases: load.phases().into_iter().map(phase).collect(),
        }
    }
}

/// What lies between two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// Its name: the first part of its values' names.
    pub name: &'static str,
    /// Where it begins.
    pub from: Mark,
    /// Where it ends.
    pub to: Mark,
}

/// A place in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mark {
    /// The hint instruction of this number.
    Hint(u16),
    /// The first instruction of the workload's kernel.
    Kernel,
}

/// An initial file system.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Initrd {
    /// That of a workload of crate `loads`.
    Load(&'static str),
    /// Made for the experiment. Its content counts, not its maker.
    Made(#[serde(skip)] fn(&Scratch) -> Result<Content, LabError>),
}

/// A file made for an experiment.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Phases that cannot run, and why.
    pub without: Vec<(&'static str, String)>,
}

/// A measurement in code.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Procedure {
    /// How often each operation is repeated, or how many of whatever the trial varies.
    pub count: u64,
    /// Raised by whoever changes what the code measures: results of another version are not used.
    pub version: u32,
    /// Files that the result depends on, besides the monitor.
    pub needs: &'static [Artifact],
    /// The code.
    #[serde(skip)]
    pub run: fn(&Trial, &Progress) -> Result<Measured, LabError>,
}

/// A file that results depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Artifact {
    /// The monitor's image.
    Monitor,
    /// The probe guest.
    Probe,
    /// The probe guest as the linker made it.
    ProbeProgram,
    /// The instruction-counting plugin.
    Counter,
    /// The parallel programs on SPLASHOS.
    Splash,
    /// The host system for KVM.
    KvmHost,
    /// The machine model's plugin.
    Model,
    /// The fault firmware.
    Firmware,
    /// A file of the cache.
    Cached(&'static str),
}

impl Artifact {
    /// Debian's kernel.
    pub const LINUX: Self = Self::Cached("kernel/Image");

    /// What a report calls it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Monitor => "monitor image",
            Self::Probe => "probe guest",
            Self::ProbeProgram => "probe guest's program",
            Self::Counter => "counting plugin",
            Self::Splash => "programs on SPLASHOS",
            Self::KvmHost => "KVM host",
            Self::Model => "machine model's plugin",
            Self::Firmware => "fault firmware",
            Self::Cached(name) => name,
        }
    }

    /// Where it is.
    ///
    /// # Errors
    /// [`LabError::Missing`].
    pub fn path(self) -> Result<PathBuf, LabError> {
        match self {
            Self::Monitor => artifacts::monitor(),
            Self::Probe => artifacts::probe(),
            Self::ProbeProgram => artifacts::probe_program(),
            Self::Counter => artifacts::counter(),
            Self::Splash => artifacts::splash(),
            Self::KvmHost => artifacts::kvm_host(),
            Self::Model => artifacts::numa_plugin(),
            Self::Firmware => artifacts::firmware(),
            Self::Cached(name) => artifacts::cached(name),
        }
    }
}
