//! The file that says what is played.

use serde::Deserialize;

/// A machine and its VMs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// The machine.
    pub machine: MachineScene,
    /// Its VMs.
    #[serde(default)]
    pub vm: Vec<VmScene>,
}

/// A machine, and what things cost on it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineScene {
    /// Nodes, 1 to 255.
    #[serde(default = "one")]
    pub nodes: u8,
    /// Harts of each node; at most 8,192 in all.
    pub harts_per_node: u16,
    /// How long it is played, in milliseconds, 1 to 600,000. It ends sooner when all VMs with `rounds` have ended.
    #[serde(default = "two_seconds")]
    pub ms: u32,
    /// From a call until the other hart looks, in microseconds.
    #[serde(default = "two")]
    pub call_us: u32,
    /// What a vCPU loses when it moves inside its node, in microseconds: the move, and its caches.
    #[serde(default = "half_a_millisecond")]
    pub move_us: u32,
    /// The same between nodes.
    #[serde(default = "two_thousand")]
    pub move_between_nodes_us: u32,
}

impl MachineScene {
    /// `nodes` nodes of `harts_per_node` harts, and the usual costs.
    #[must_use]
    pub const fn new(nodes: u8, harts_per_node: u16) -> Self {
        Self {
            nodes,
            harts_per_node,
            ms: two_seconds(),
            call_us: two(),
            move_us: half_a_millisecond(),
            move_between_nodes_us: two_thousand(),
        }
    }
}

/// VMs of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmScene {
    /// Their name.
    pub name: String,
    /// How many there are, at most 4,096.
    #[serde(default = "one")]
    pub count: u16,
    /// vCPUs of each, 1 to 1,024.
    pub vcpus: u16,
    /// Weight, 1 to 10,000.
    #[serde(default = "hundred")]
    pub weight: u32,
    /// Whether its vCPUs run together.
    #[serde(default)]
    pub gang: GangKey,
    /// What each vCPU does, again and again.
    pub program: Vec<Step>,
    /// How often; for ever if nothing is said.
    pub rounds: Option<u32>,
    /// The hart of each vCPU; where the policy wants them if nothing is said.
    pub harts: Option<Vec<u16>>,
}

/// Whether vCPUs of a VM run together, as files say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GangKey {
    /// While they wait for each other.
    #[default]
    Auto,
    /// Always.
    Yes,
    /// Never.
    No,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Computes for so many microseconds, at least 1.
    ComputeUs(u32),
    /// Computes for at most so many microseconds, each time as chance wants.
    UpToUs(u32),
    /// Sleeps for so many microseconds, at least 1.
    SleepUs(u32),
    /// Waits until all vCPUs of the VM are there.
    Barrier(Wait),
    /// Takes the VM's only lock, spinning, and holds it for so many microseconds.
    LockUs(u32),
}

/// How somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// It spins, and nobody can tell.
    Spin,
    /// It waits for a store (`wrs.nto`), which traps where others want the hart.
    Wrs,
    /// It sleeps.
    Block,
}

/// Why a scene cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum SceneError {
    /// It is no scene.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A number is out of its range.
    #[error("{what}: {value} is not in {least}..={most}")]
    Range {
        /// What it is the number of.
        what: &'static str,
        /// It.
        value: u64,
        /// The least that is possible.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A program takes no time.
    #[error("the program of VM {0} takes no time")]
    Timeless(String),
    /// A VM's harts are not on the machine, or not as many as its vCPUs.
    #[error("the harts of VM {0}: one of the machine for each vCPU is needed")]
    Harts(String),
}

impl Scene {
    /// Most harts of a machine.
    pub const MAX_HARTS: u64 = 8_192;
    /// Most vCPUs in all.
    pub const MAX_VCPUS: u64 = 65_536;

    /// Reads a file's text.
    ///
    /// # Errors
    /// What is wrong with it, the first thing found.
    pub fn parse(text: &str) -> Result<Self, SceneError> {
        let scene: Self = toml::from_str(text)?;
        scene.check()?;
        Ok(scene)
    }

    /// Harts of the machine.
    #[must_use]
    pub fn harts(&self) -> usize {
        usize::from(self.machine.nodes) * usize::from(self.machine.harts_per_node)
    }

    fn check(&self) -> Result<(), SceneError> {
        in_range("machine.nodes", self.machine.nodes.into(), 1, 255)?;
        in_range("harts of the machine", self.harts() as u64, 1, Self::MAX_HARTS)?;
        in_range("machine.ms", self.machine.ms.into(), 1, 600_000)?;
        for vm in &self.vm {
            in_range("vm.count", vm.count.into(), 1, 4_096)?;
            in_range("vm.vcpus", vm.vcpus.into(), 1, 1_024)?;
            in_range("vm.weight", vm.weight.into(), 1, sched::MAX_WEIGHT.into())?;
            if !vm.program.iter().any(|step| step.takes_time()) {
                return Err(SceneError::Timeless(vm.name.clone()));
            }
            let is_there = |hart: &u16| usize::from(*hart) < self.harts();
            if vm
                .harts
                .as_ref()
                .is_some_and(|harts| harts.len() != usize::from(vm.vcpus) || !harts.iter().all(is_there))
            {
                return Err(SceneError::Harts(vm.name.clone()));
            }
        }
        in_range("all VMs", self.vm.iter().map(|vm| u64::from(vm.count)).sum(), 0, 4_096)?;
        let vcpus = self.vm.iter().map(|vm| u64::from(vm.vcpus) * u64::from(vm.count)).sum();
        in_range("all vCPUs", vcpus, 0, Self::MAX_VCPUS)
    }
}

impl Step {
    const fn takes_time(self) -> bool {
        matches!(self, Self::ComputeUs(us) | Self::UpToUs(us) | Self::SleepUs(us) | Self::LockUs(us) if us > 0)
    }
}

impl From<GangKey> for sched::gang::GangMode {
    fn from(key: GangKey) -> Self {
        match key {
            GangKey::Auto => Self::Auto,
            GangKey::Yes => Self::Yes,
            GangKey::No => Self::No,
        }
    }
}

const fn in_range(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), SceneError> {
    if value < least || value > most { Err(SceneError::Range { what, value, least, most }) } else { Ok(()) }
}

const fn one<T: One>() -> T {
    T::ONE
}

/// Has a 1.
trait One {
    const ONE: Self;
}

impl One for u8 {
    const ONE: Self = 1;
}

impl One for u16 {
    const ONE: Self = 1;
}

const fn two() -> u32 {
    2
}

const fn hundred() -> u32 {
    100
}

const fn half_a_millisecond() -> u32 {
    500
}

const fn two_thousand() -> u32 {
    2_000
}

const fn two_seconds() -> u32 {
    2_000
}
