//! The core of the NUMA machine model, the role that SimOS + FLASH had in the Disco papers: per-hart caches, a directory
//! with a home node per line, a TLB with two-dimensional walks, deterministic virtual time, counters, and the layout of
//! the file in which the monitor and the tools read them.
//!
//! Key types: [`Config`] (checked description) makes a [`Hierarchy`] (caches + directory), a [`Tlb`] per hart and a
//! [`Clocks`]; [`Counters`] are filled by whoever drives them; [`layout::Layout`] says where they lie in the shared file.
//! [`Description`] is what the launcher tells the plugin.
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
pub mod layout;
mod lru;
mod pages;
mod tlb;

pub use clock::{Clocks, Turn};
pub use config::{CacheShape, Config, ConfigError, MAX_HARTS, MAX_NODES, TlbShape};
pub use counters::{Counters, MODES, Mode, ModeCounters, STALLS, Stall};
pub use description::{Description, Fidelity};
pub use hierarchy::{Access, Hierarchy, Outcome, Source};
pub use pages::{HotPage, PAGE_BYTES, PageMisses};
pub use tlb::{PageSize, Space, Stage, Tlb, WalkStep};
