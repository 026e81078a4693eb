//! Launches the emulated machine, supervises it, and talks to its monitor and its guests.
//!
//! # Key types
//! - [`Machine`]: a machine that this process started from a [`config::MachinePlan`] and supervises.
//! - [`BareMachine`]: the same hardware under a kernel without the monitor.
//! - [`ModelFiles`]: what a machine with a NUMA model is started with; [`SharedModel`]: a look at it while it runs.
//! - [`FaultPort`]: makes hardware of a running machine fail, where its firmware can.
//! - [`Client`]: a session with a running machine, from any process: typed calls and [`Stream`]s.
//! - [`GuestAgent`]: commands inside a guest.
//! - [`RunRoot`] and [`RunDir`]: where running machines are found.
//! - [`Supervisor`]: many clients on the one connection to a monitor, whatever that runs on.
//! - [`spawn_detached`] and [`Daemon`]: a supervisor that outlives the command which started it.
//!
//! # How a machine starts
//! ```text
//! claim the run directory -> write the boot bundle -> listen on qemu.sock and control.sock -> start the emulator,
//! which connects its control port to qemu.sock -> greet the monitor -> serve clients on control.sock
//! ```
//! The emulator dies with its supervisor, however that ends. If it ends early, the error carries the last lines of its
//! output and of the machine's log.
//!
//! # What it refuses
//! Run directories that others could enter, a second machine of a name, emulators that are too old, or whose insides the
//! machine model does not know. Of clients:
//! frames that are none, more than [`Limits`] allow, and reading too slowly; each costs that client its connection
//! and nobody else anything.
//!
//! # Locking
//! See `supervisor` and `client`: no lock is held while waiting for another side.
//!
//! No `unsafe`. Tested with a fake monitor over socket pairs; the launcher with a shell in place of the emulator.
#![forbid(unsafe_code)]

mod agent;
mod bare;
mod bundle;
mod client;
mod detach;
mod emulator;
mod faults;
mod launch;
mod logs;
mod model;
mod panics;
mod ram;
mod rundir;
mod supervisor;
mod symbols;
mod wait;

pub use self::faults::{FaultError, FaultPort, Injection};
pub use agent::{AgentError, ExecResult, ExecStatus, GuestAgent, MAX_INPUT, Progress, RunningCommand, ShutdownMode};
pub use bare::{BareBoot, BareMachine};
pub use bundle::{BundleError, write_bundle};
pub use client::{Client, ClientError, DEFAULT_TIMEOUT, Stream, find};
pub use detach::{Daemon, DetachError, spawn_detached};
pub use emulator::tree;
pub use emulator::{
    Emulator, EmulatorError, FaultWiring, MIN_VERSION, ModelWiring, Payload, Process, Version, Wiring, arguments,
};
pub use launch::{LaunchError, LaunchOptions, Machine, Outcome, Step};
pub use logs::Logs;
pub use model::{
    HartState, MODELLED_VERSION, ModelFiles, ModelStartError, ModelState, PLUGIN_FILE, PageMisses, RoomError,
    SharedError, SharedModel,
};
pub use panics::{Restarts, crashes_in};
pub use rundir::{Claim, Phase, RUNTIME_DIR_VARIABLE, RunDir, RunDirError, RunRoot, State};
/// Who asked what: see [`Supervisor`].
#[cfg(feature = "testing")]
pub use supervisor::router as routing;
pub use supervisor::{Limits, Supervisor, SupervisorError};
pub use symbols::{Symbol, Symbols, SymbolsError};
pub use wait::{WaitError, wait_for_text, wait_for_vm};
