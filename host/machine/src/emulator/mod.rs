//! The emulator: finding it, its command line, its process.

mod arguments;
mod probe;
mod process;
pub mod tree;

pub use arguments::{FaultWiring, ModelWiring, Payload, Wiring, arguments};
pub use probe::{Emulator, EmulatorError, MIN_VERSION, Version};
pub use process::Process;
