//! What the harts' TLBs may still hold: shootdown generations and VMIDs.
//!
//! A removed or weakened G-stage leaf may live on in the TLB of any hart. Two things keep that from hurting:
//! - every hart *compares generations when it enters a guest* and fences if it is behind (lazy: a hart that does
//!   not run the VM is never interrupted), and
//! - nobody frees or reuses what a stale translation could reach until every hart that is inside that VM at this
//!   moment has passed the generation ([`ShootdownToken`]).
//!
//! # Key types
//! - [`ShootdownTracker`]: one per VM, shared by all harts. [`ShootdownTracker::retire`] starts a generation after
//!   the leaves were changed; [`ShootdownTracker::targets`] says which harts need an interrupt.
//! - [`TlbContext`]: one per vCPU, owned by the hart that runs it. [`TlbContext::enter`] returns the VMID to put
//!   into `hgatp` and the [`Fence`] to execute first.
//! - [`HartVmids`]: one per hart. VMIDs with generations: no flush at a switch, one full flush per wrap-around, and after the first one a
//!   VS-stage flush of each number that is handed out.
//!
//! # What it refuses
//! A token cannot be copied or forgotten silently (`#[must_use]`), and says "complete" only for the tracker's own
//! generation numbers; harts beyond [`CpuSet::CAPACITY`] do not exist.
//!
//! # Locking
//! None. The tracker is lock-free; its memory orderings each name the access that they pair with. Contexts and
//! VMID allocators have one owner.
//!
//! # Tests
//! `tests/loom_shootdown.rs` runs the tracker's own source under the `loom` model checker: in no interleaving is
//! memory reused while a hart can still reach it through a stale translation. VMIDs are tested against a TLB model
//! that keeps every entry of both stages, with tag spaces from one VMID up.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod context;
mod cpuset;
mod shootdown;
mod vmid;

/// The atomics that [`shootdown`] is written against; the model checker's test replaces this module.
mod sync {
    pub use core::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use context::{Entry, Fence, TlbContext};
pub use cpuset::CpuSet;
pub use shootdown::{ShootdownToken, ShootdownTracker, TlbGeneration};
pub use vmid::HartVmids;
