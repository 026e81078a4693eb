//! The writes of a vCPU's registers: each says why it may be done.
//
// UNSAFETY: CSRs govern translation and traps. Everything here acts on the guest that is loaded, or about to be.
#![expect(unsafe_code)]

use ::vcpu::sse::Supervisor;
use rv::{
    csr,
    fields::sstatus,
    world::{self, GuestContext, HartFeatures, VsState},
};

#[inline(always)]
pub fn load_vs(vs: &VsState, features: HartFeatures) {
    // SAFETY: the caller loads the vCPU that this hart runs next.
    unsafe { vs.load(features) };
}

#[inline(always)]
pub fn write_hgatp(value: u64) {
    // SAFETY: the root is the VM's own G-stage table for this node, which lives as long as the VM.
    unsafe { csr::hgatp::write(value) };
}

/// Translation and interrupts off, as after a non-retentive suspend.
pub fn suspend_vs() {
    // SAFETY: VS-level registers of the guest that is loaded and asked for this.
    unsafe {
        csr::vsatp::write(0);
        csr::vsstatus::clear(sstatus::SIE);
    }
}

/// What an event's delivery or completion has made of the loaded vCPU's VS-level registers.
pub fn write_supervisor(registers: &Supervisor) {
    // SAFETY: both registers act on the guest that is loaded, which could write the same values itself.
    unsafe {
        csr::vsepc::write(registers.sepc);
        csr::vsstatus::write(registers.sstatus);
    }
}

/// Adds `henvcfg` bits, and takes exceptions out of `hedeleg`, for the loaded vCPU.
pub fn set_environment(henvcfg: u64, not_delegated: u64) {
    // SAFETY: bits of `::vcpu::fwft`, which concern V=1 only: double traps, pointer masking, misaligned accesses.
    unsafe {
        csr::henvcfg::set(henvcfg);
        csr::hedeleg::clear(not_delegated);
    }
}

/// Undoes [`set_environment`].
pub fn clear_environment(henvcfg: u64, not_delegated: u64) {
    // SAFETY: what all guests have is there again.
    unsafe {
        csr::henvcfg::clear(henvcfg);
        csr::hedeleg::set(not_delegated);
    }
}

pub fn write_hvictl(value: u64) {
    // SAFETY: hvictl concerns the guest that is loaded; the VM has interrupt files, so the hart has Ssaia.
    unsafe { csr::hvictl::write(value) };
}

pub fn write_hvip_bit(bit: u64, asserted: bool) {
    // SAFETY: hvip concerns the guest that is loaded.
    unsafe {
        if asserted {
            csr::hvip::set(bit);
        } else {
            csr::hvip::clear(bit);
        }
    }
}

#[inline(always)]
pub fn run_guest(context: &mut GuestContext) -> u64 {
    // SAFETY: (1) `load` put this vCPU's CSRs in place and `enter` its hgatp; (2) boot installed the trap vector on every
    // hart before its loop began.
    unsafe { world::run_guest(context) }
}
