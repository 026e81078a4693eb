//! Tests of [`crate::SharedDisk`] against a world that remembers every page and every operation.

mod mapped;
mod random;
mod refused;
mod shared;
mod through;
mod world;
