//! The core of the NUMA machine model, the role that SimOS + FLASH had in the Disco papers: per-hart caches, a directory
//! with a home node per line, a TLB with two-dimensional walks, deterministic virtual time and counters.
//!
//! Key types: [`Config`] (checked description) makes a [`Hierarchy`] (caches + directory), a [`Tlb`] per hart and a
//! [`Clocks`]; [`Counters`] are filled by whoever drives them; [`Config::header`] is the header of the shared file
//! (`model-file`) in which readers find them. [`Description`] is what the launcher tells the plugin.
//!
//! The model is in-order: misses do not overlap, links and memory have no contention, and DMA does not pass the caches.
//! It knows nothing of QEMU: addresses come in, stalls go out. It has no locks; one thread drives it, since its order of
//! events is its result. `tests/` compares it with a slow simulator that is written another way.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod clock;
mod config;
mod counters;
mod description;
mod hierarchy;
mod lru;
mod pages;
mod tlb;

pub use clock::Clocks;
pub use config::{CacheShape, Config, ConfigError, TlbShape};
pub use counters::Counters;
pub use description::{Description, Fidelity};
pub use hierarchy::{Access, Hierarchy, Outcome, Source};
pub use model_file::{MAX_HARTS, MAX_NODES, PAGE_BYTES};
pub use pages::{HotPage, PageMisses};
pub use tlb::{PageSize, Space, Stage, Tlb, WalkStep};
