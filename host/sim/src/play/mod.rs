//! A machine and VMs as a file says, played from event to event.
//!
//! Each hart does what a hart of the monitor does, in its order: charge who ran, pick, call the others if a VM's turn begins,
//! run until the slice or the work ends. `sched` decides all of it, and is the crate that the monitor runs.
//!
//! - [`Scene`]: the file.
//! - [`Play`]: the machine; [`Play::run`] lets time pass.
//! - [`Outcome`]: what each VM got done, and what harts did.
//! - [`Span`]: one turn of one vCPU; [`svg`] and [`trace`] make pictures of them.

mod begin;
mod machine;
mod moves;
mod outcome;
mod picture;
mod program;
mod scene;
mod vm;

pub use begin::NewVm;
pub use machine::Play;
pub use outcome::{Outcome, Span, VmOutcome};
pub use picture::{svg, trace};
pub use scene::{GangKey, MachineScene, Scene, SceneError, Step, VmScene, Wait};
pub(crate) use vm::Vcpu;
