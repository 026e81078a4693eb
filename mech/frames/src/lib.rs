//! Machine memory by the page: the memmap, the frame allocator and what waits for a shootdown.
//!
//! # Key types
//! - [`MemMap`]: one 24-byte [`MemMapEntry`] per machine page (Disco, "NUMA memory management"): state, node, reference
//!   count, who maps it where, the SPU charged, how often it moved. Found from an address with two loads.
//!   [`MemMapPlan`] says how much memory each node's part needs before any of it exists.
//! - [`Frames`]: the allocator. Per node a buddy system from 4 KiB to 2 MiB, a short stack of single pages in front of
//!   it, and pages zeroed ahead in idle time ([`Frames::idle_step`]). Taking a page and describing it in the memmap is
//!   one step.
//! - [`Frame`]: a frame *in motion*, a linear value that knows whether it was [`Clean`]ed. At rest a frame is a row of
//!   the memmap.
//! - Replicas: [`Frames::attach_replica`], [`Frames::replica_on`], [`Frames::drop_replicas`].
//! - Shared pages have copies on other nodes, too: [`Frames::attach_spread`], [`Frames::spread_on`], [`Frames::sweep_spread`],
//!   [`Frames::retire_spread`].
//! - [`DyingList`], [`PendingShootdown`], [`FreeableList`]: frames that left their tables come back to the allocator
//!   only along this road, behind a [`tlb::ShootdownToken`]. So do references to shared pages.
//! - [`Pool`]: all that a VM's fault path needs to get pages: allocator, memory, nodes in order of preference.
//! - [`Promises`], [`Account`]: what VMs are promised of all pages, and who ends when there are too few.
//! - [`MachineMemory`]: the only way to touch memory itself; the monitor implements it over its direct map, host tests
//!   with `testing::FakeMemory`.
//!
//! # What it refuses
//! It places nothing by itself: which node to try next is the caller's policy. A frame whose memmap row does not say
//! what the caller claims (owner, guest page, size) is not taken away ([`FrameError`]). Pages are never handed to a guest
//! with old contents: [`Pool`] gives out [`Clean`] frames only.
//!
//! # Locking
//! One ticket lock per node, a leaf of the lock order (nothing is called with it held, no memory is touched but the
//! memmap and pages of back-maps), and one before it for the copies of shared pages. It guards that node's free pages and the back-maps of shared pages. The row of a private page is guarded by
//! its VM's memory lock; rows are made of relaxed atomics, so a reader without a lock sees old or new words, not garbage.
//! Counters are statistics and may lag each other.
//!
//! # Tests
//! Unit tests and random operations against a naive model (proptest): no page twice, none lost, contents zeroed, blocks
//! merge again, holes and uneven nodes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod backmap;
mod buddy;
mod census;
mod dying;
mod entry;
mod frame;
mod frames;
mod links;
mod memmap;
mod memory;
mod node;
mod plan;
mod pool;
mod promises;
mod replica;
mod shared;
mod spread;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use backmap::MOST_REFERENCES;
pub use census::{Census, NodeCounts, VmCensus, VmPages};
pub use dying::{DyingList, FreeableList, PendingShootdown};
pub use entry::{MemMapEntry, PageInfo, PageOwner, PageState, PageUse};
pub use frame::{Clean, Dirty, Frame};
pub use frames::{FrameError, Frames};
pub use memmap::MemMap;
pub use memory::MachineMemory;
pub use node::IdleWork;
pub use plan::{MemMapPlan, NodeRegion, PlanError, Span};
pub use pool::Pool;
pub use promises::{Account, Promises, most_over};
pub use shared::Sharing;
pub use spread::RetiredCopies;

/// log2 of the largest block in base pages: 2 MiB.
pub const MAX_ORDER: u8 = 9;
