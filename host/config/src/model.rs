//! The NUMA machine model that an emulated machine may run with.

use machine_model::{CacheShape, Config, ConfigError, Description, Fidelity, TlbShape};
use thiserror::Error;

use crate::plan::{Hardware, NodePlan};

/// What `[model]` says: a preset, and what differs from it. `None` is as in the preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPlan {
    /// The machine that it starts from.
    pub preset: Preset,
    /// How exact time is.
    pub fidelity: Fidelity,
    /// Perturbs the start of the harts and the firmware's random numbers.
    pub seed: u64,
    /// Whether the model is on from the first instruction.
    pub starts_on: bool,
    /// How far a hart may run ahead of the others.
    pub window_ns: Option<u64>,
    /// Time of one instruction without stalls.
    pub cycle_ps: Option<u64>,
    /// Latencies between nodes.
    pub latency: Latency,
    /// Stall of an L1 miss that the L2 serves.
    pub l2_hit_ns: Option<u64>,
    /// Added when another hart owns the line.
    pub owned_extra_ns: Option<u64>,
    /// Line size of every cache.
    pub line_bytes: Option<u64>,
    /// L1 instruction cache.
    pub l1i: Option<CacheShape>,
    /// L1 data cache.
    pub l1d: Option<CacheShape>,
    /// L2 cache.
    pub l2: Option<CacheShape>,
    /// TLB and page-walk cache.
    pub tlb: Option<TlbShape>,
    /// Remote misses of one node that make a page hot.
    pub hot_misses: Option<u32>,
}

/// A machine to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// FLASH, as in Disco section 5.1.
    Flash,
    /// A present-day server of two dies.
    TwoDie,
}

/// Latencies between nodes, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Latency {
    /// One for a node's own memory and one for all other; `None` as in the preset.
    Flat {
        /// Own memory.
        local_ns: Option<u64>,
        /// Memory of another node.
        remote_ns: Option<u64>,
    },
    /// A row per node, a column per node whose memory it is.
    Matrix(Vec<Vec<u64>>),
}

/// Why a machine cannot be modelled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// Nodes of different sizes.
    #[error("the model needs nodes of one size: node {node} has {} harts and {} MiB, node 0 has {} and {}",
        .found.harts, .found.memory_mib, .first.harts, .first.memory_mib)]
    Uneven {
        /// The first node that differs.
        node: usize,
        /// What it has.
        found: NodePlan,
        /// What node 0 has.
        first: NodePlan,
    },
    /// Another number of nodes than the preset has dies.
    #[error("preset \"two-die\" is a machine of 2 nodes, this one has {nodes}")]
    NotTwoDies {
        /// The machine's nodes.
        nodes: usize,
    },
    /// A matrix of another size.
    #[error("the matrix must have {nodes} rows of {nodes} numbers, one per node")]
    NotSquare {
        /// The machine's nodes.
        nodes: usize,
    },
    /// Two clocks.
    #[error("icount and the model both keep the machine's time")]
    TwoClocks,
    /// What the model itself refuses.
    #[error(transparent)]
    Machine(#[from] ConfigError),
}

impl ModelPlan {
    /// A preset as it is: reference mode, seed 0, on from the start.
    #[must_use]
    pub const fn new(preset: Preset) -> Self {
        Self {
            preset,
            fidelity: Fidelity::Reference,
            seed: 0,
            starts_on: true,
            window_ns: None,
            cycle_ps: None,
            latency: Latency::Flat { local_ns: None, remote_ns: None },
            l2_hit_ns: None,
            owned_extra_ns: None,
            line_bytes: None,
            l1i: None,
            l1d: None,
            l2: None,
            tlb: None,
            hot_misses: None,
        }
    }

    /// The model of this machine.
    ///
    /// # Errors
    /// Says what about the machine, or about the plan, cannot be modelled.
    pub fn describe(&self, hardware: &Hardware) -> Result<Description, ModelError> {
        if hardware.icount {
            return Err(ModelError::TwoClocks);
        }
        let machine = self.machine(hardware)?;
        machine.check()?;
        Ok(Description { machine, mode: self.fidelity, seed: self.seed, starts_on: self.starts_on })
    }

    fn machine(&self, hardware: &Hardware) -> Result<Config, ModelError> {
        let nodes = hardware.nodes.len();
        let first = hardware.nodes.first().copied().unwrap_or(NodePlan { harts: 0, memory_mib: 0 });
        if let Some((node, found)) = hardware.nodes.iter().enumerate().find(|(_, node)| **node != first) {
            return Err(ModelError::Uneven { node, found: *found, first });
        }
        let (harts, node_bytes) = (hardware.harts() as usize, u64::from(first.memory_mib) << 20);
        let mut machine = match self.preset {
            Preset::Flash => Config::flash(harts, nodes, node_bytes),
            Preset::TwoDie if nodes == 2 => Config::two_die_server(harts, node_bytes),
            Preset::TwoDie => return Err(ModelError::NotTwoDies { nodes }),
        };
        self.latency.apply(&mut machine)?;
        let ps = |ns: u64| ns.saturating_mul(1000);
        set(&mut machine.window_ps, self.window_ns.map(ps));
        set(&mut machine.cycle_ps, self.cycle_ps);
        set(&mut machine.l2_hit_ps, self.l2_hit_ns.map(ps));
        set(&mut machine.owned_extra_ps, self.owned_extra_ns.map(ps));
        set(&mut machine.line_bytes, self.line_bytes);
        set(&mut machine.l1i, self.l1i);
        set(&mut machine.l1d, self.l1d);
        set(&mut machine.l2, self.l2);
        set(&mut machine.tlb, self.tlb);
        set(&mut machine.hot_misses, self.hot_misses);
        Ok(machine)
    }
}

impl Latency {
    fn apply(&self, machine: &mut Config) -> Result<(), ModelError> {
        let nodes = machine.nodes;
        match self {
            Self::Flat { local_ns, remote_ns } => {
                for (pair, latency) in machine.latency_ps.iter_mut().enumerate() {
                    let chosen = if pair / nodes == pair % nodes { local_ns } else { remote_ns };
                    set(latency, chosen.map(|ns| ns.saturating_mul(1000)));
                }
            }
            Self::Matrix(rows) if rows.len() == nodes && rows.iter().all(|row| row.len() == nodes) => {
                machine.latency_ps = rows.iter().flatten().map(|ns| ns.saturating_mul(1000)).collect();
            }
            Self::Matrix(_) => return Err(ModelError::NotSquare { nodes }),
        }
        Ok(())
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
