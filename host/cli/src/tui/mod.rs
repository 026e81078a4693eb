//! The live view: `top`, and `run` on a terminal.
//!
//! [`App`] is state and reacts to keys and to data, [`draw`] turns it into a picture, [`feed`] asks the machine in
//! threads of its own, and [`screen`] puts them together on a real terminal. The first two know no terminal and no
//! machine, so tests draw them at any size.

mod app;
mod bars;
mod draw;
mod feed;
mod grid;
mod keys;
mod log_tail;
mod screen;
mod theme;

#[cfg(test)]
mod tests;

pub use log_tail::LogTail;
pub use screen::{Ending, Screen, Setup};
