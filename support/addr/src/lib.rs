//! Addresses, page frames and identities as types that cannot be mixed up.
//!
//! *Machine* memory is the real one, *physical* memory is what a guest believes it has (Disco, section 3).
//! The address types have no arithmetic operators: every step is a named method that says what happens on
//! overflow, because many of these values come from a guest and are allegations, not facts.
//!
//! Tested on the host; no `unsafe`; no allocation.
#![no_std]
#![forbid(unsafe_code)]

mod id;
mod page;

pub use id::{CpuIndex, HartId, NodeId, SpuId, VcpuIndex, VmId, Vmid};
pub use page::{
    BASE_PAGE, BASE_PAGE_SHIFT, Gfn, GuestPhysAddr, GuestVirtAddr, LARGE_PAGE, LARGE_PAGE_SHIFT, MachineAddr, Mfn,
    PAGES_PER_LARGE, PageSize,
};
