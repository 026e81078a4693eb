//! Experiments on the emulated machine.
mod error;

pub mod artifacts;
pub mod rig;

pub use error::LabError;
