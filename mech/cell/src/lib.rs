//! How the cells of one machine talk, although each of them may fail at any moment (Cellular Disco, sections 2.2 and 6).
//!
//! # Key types
//! Each cell has a [`board`]: plain words in its own memory, laid out the same in every copy of the monitor. A cell writes
//! only its own board, and reads the others' through a [`Port`], whose reads fail when that memory is gone. So no store ever
//! leaves a cell, and no load of foreign memory can take it down.
//!
//! [`Calls`] and [`Service`] are the two ends of a remote procedure call: the request stands on the caller's board, the answer
//! on the callee's. Each call is carried out once, or not at all and never later.
//!
//! A [`Pipe`] carries bytes between two cells by calls, each byte once and in order. [`Errands`] are calls to whoever leads that survive
//! the loss of leaders: reads of the machine's disks. [`message`] is what calls carry.
//!
//! A [`LiveSet`] finds out who is still there, and agrees with the others on who goes on: the [`View`] that calls need.
//!
//! # What it refuses
//! It waits for nobody: each function takes a bounded number of steps and returns. It has no clock, no lock and no allocation;
//! time is told to it, in ticks of the caller's choice. A call does not interpret what it carries.
//!
//! # Locking
//! None. A board has one writer at a time, its own cell's control hart. Readers on other cells notice a record that changes
//! under their eyes.
//!
//! # Tests
//! `tests/calls.rs` searches every order of steps, deaths and cut links of three cells; each rule that the search relies on is
//! broken once, and the search must find it. Torn records are tried at every word. `tests/live.rs` does the same for the live set,
//! `tests/errands.rs` loses leaders at random moments.
#![no_std]
#![forbid(unsafe_code)]

pub mod board;
mod calls;
mod errands;
mod ids;
mod live;
pub mod message;
mod pipe;
mod service;

pub use board::{Payload, Port, Unreadable};
pub use calls::{CallError, CallId, Calls, Refused};
pub use errands::Errands;
pub use ids::{CellId, CellSet, View};
pub use live::{LiveSet, Patience, Verdict, has_stopped, stop};
pub use pipe::{PIECE_BYTES, Pipe, Times};
pub use service::{Service, Ticket};
