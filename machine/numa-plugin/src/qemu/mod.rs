//! QEMU as this plugin needs it: the plugin API, and the few insides that the API does not give.

mod api;
mod inside;

pub use api::{Block, Entry, Id, MODES_OF_PRIV, Register, Scoreboard, on_exit, on_hart, on_translation};
pub use inside::{Deadline, Inside};
