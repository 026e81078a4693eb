//! What the launcher tells the plugin: one document, written as JSON beside the machine's other files.

use serde::{Deserialize, Serialize};

use crate::{Config, ConfigError};

/// The machine to model and how to model it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The machine.
    pub machine: Config,
    /// How exact its time is.
    pub mode: Fidelity,
    /// Perturbs the start of the harts; 0 perturbs nothing.
    pub seed: u64,
    /// Whether the model is on from the first instruction; otherwise a mark or the control word switches it on.
    pub starts_on: bool,
}

/// How exact the model's time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fidelity {
    /// Every access is modelled, and two runs with one seed are identical.
    Reference,
    /// Faster and approximate.
    Fast,
}

impl Description {
    /// Refuses a machine that cannot be modelled.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn check(&self) -> Result<(), ConfigError> {
        self.machine.check()
    }
}
