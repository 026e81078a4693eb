//! A vCPU's interrupt file (AIA): a guest file of its hart's IMSIC while there is one, else a file in software.
//!
//! With a hardware file the guest's interrupts never come near the monitor: its page is mapped into the guest, so that
//! other vCPUs' IPIs and device messages go straight in. Without one, stores into the page and accesses to `stopei`
//! and `sireg` trap, and [`ImsicFile`] answers.
//!
//! The content moves between the two when the vCPU comes to a hart or leaves it. The lock around [`InterruptFile`]
//! orders senders against that move; a guest's own stores are kept out by unmapping the page first.

use super::shared::{SharedVcpu, kick, request};
use crate::machine::irq;
use ::platform::{ImsicFile, decode_msi};
use addr::CpuIndex;
use core::num::NonZero;
use device::Width;
use handoff::FilePlace;

/// Interrupt identities of a guest's file, as its device tree says.
pub const GUEST_IDS: u16 = 255;

/// A vCPU's file: a hart and its guest file, or one in software.
pub type InterruptFile = FilePlace<(CpuIndex, u8), ImsicFile>;

/// An empty file in software.
#[must_use]
pub fn new() -> InterruptFile {
    FilePlace::new(ImsicFile::new(GUEST_IDS))
}

/// Makes identity `eiid` pending for `vcpu`.
pub fn send(vcpu: &SharedVcpu, eiid: u16) {
    let to_hardware = |(cpu, number)| {
        if let Some(identity) = NonZero::new(eiid) {
            irq::send_to_guest_file(cpu, number, identity);
        }
    };
    let is_software = vcpu.file.lock().send(to_hardware, |file| file.raise(eiid));
    if is_software {
        vcpu.request(request::EXTERNAL);
        kick(vcpu);
    }
}

/// A guest's store into the page of `vcpu`'s file that trapped.
pub fn store(vcpu: &SharedVcpu, offset: u64, width: Width, value: u64) {
    if let Some(eiid) = decode_msi(offset, width, value) {
        send(vcpu, eiid);
    }
}
