//! Tests of [`crate::Store`] on a disk that completes in any order and loses what was not flushed.

mod crash;
mod hostile;
mod shares;
mod single;
mod world;
