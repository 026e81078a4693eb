//! Tests of [`crate::SharedDisk`] against a world that remembers every page and every operation.

mod random;
mod shared;
mod through;
mod world;
