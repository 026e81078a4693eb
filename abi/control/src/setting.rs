//! What can be changed of a VM while it exists, running or not.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::problem::SpecError;
use crate::spec::{Gang, VmSpec};

/// Most settings in one [`crate::Request::SetVm`].
pub const MAX_SETTINGS: usize = 16;

/// A field of a VM's description that can be changed while the VM exists, and its new value. As text it is `KEY=VALUE`, with
/// the key and the value as in a VM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// [`VmSpec::weight`].
    Weight(u16),
    /// [`VmSpec::gang`].
    Gang(Gang),
}

impl Setting {
    /// All keys.
    pub const KEYS: [&'static str; 2] = ["weight", "gang"];

    /// Its key.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Weight(_) => "weight",
            Self::Gang(_) => "gang",
        }
    }

    /// Changes a description.
    pub const fn apply(&self, spec: &mut VmSpec) {
        match self {
            Self::Weight(weight) => spec.weight = *weight,
            Self::Gang(gang) => spec.gang = *gang,
        }
    }
}

impl VmSpec {
    /// The description with these settings, in their order.
    ///
    /// # Errors
    /// The first thing that is wrong with it then; [`crate::SpecProblem::TooMany`] of more than [`MAX_SETTINGS`].
    pub fn with_settings(&self, settings: &[Setting]) -> Result<Self, SpecError> {
        crate::check::at_most("settings", settings.len(), MAX_SETTINGS)?;
        let mut spec = self.clone();
        settings.iter().for_each(|setting| setting.apply(&mut spec));
        spec.validate()?;
        Ok(spec)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight(weight) => write!(f, "{}={weight}", self.key()),
            Self::Gang(gang) => write!(f, "{}={}", self.key(), gang.label()),
        }
    }
}
