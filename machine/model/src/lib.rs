//! The core of the NUMA machine model, the role that SimOS + FLASH had in the Disco papers: per-hart caches, a directory
//! with a home node per line, a TLB with two-dimensional walks, deterministic virtual time and counters.
//!
//! Key types: [`Config`] (checked description) makes a [`Machine`] (caches, directory and TLBs of all harts, which counts
//! into a [`Shared`] file) and [`Clocks`]; what the machine must read of harts and memory it asks of a [`Port`].
//! [`Description`] is what the launcher tells the plugin.
//!
//! # What is modelled
//! Per hart a split L1, an inclusive L2, a TLB with entries of each page size, and a page walker with a cache, whose reads
//! go through the data cache. A directory with the holders of each line; misses cost by the distance to the line's home, more
//! if another hart owns it. LRU in the caches and the walker's, first in first out in the TLB. Instructions take one cycle.
//!
//! # What is not
//! Misses do not overlap, links and memory have no contention, DMA does not pass the caches, prefetching and
//! write-back take no time, an access that crosses lines counts as one to the first.
//!
//! It knows nothing of QEMU: addresses come in, stalls go out. It has no locks; one thread drives it, since its order of
//! events is its result. `tests/` compares it with slow simulators that are written another way.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod caches;
mod clock;
mod config;
mod description;
mod entry;
mod fifo;
mod hierarchy;
mod lru;
mod machine;
mod marks;
mod sets;
mod shared;
mod space;
mod tlb;

pub use clock::{Clocks, Step};
pub use config::{CacheShape, Config, ConfigError, TlbShape};
pub use description::{Description, Fidelity};
pub use hierarchy::{Access, Hierarchy, Outcome, Source};
pub use machine::{FetchSite, Machine};
pub use marks::{MarkHart, MarkLine, MarkLocks, MarkMode};
pub use model_file::{MAX_HARTS, MAX_NODES, PAGE_BYTES};
pub use shared::Shared;
pub use space::{Port, Root};
pub use tlb::Fence;
