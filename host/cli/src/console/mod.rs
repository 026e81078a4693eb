//! The console of a VM: on a terminal with an escape key, or through pipes.

mod attach;
mod escape;
mod input;
mod pipe;
mod replay;

pub use attach::{Attachment, Detached};
pub use escape::EscapeKey;
pub use pipe::{Pipe, PipeEnd};
