//! Waiting for a word to change: a few looks, then sleep. A vCPU that sleeps leaves its hart to others.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use super::{cpu, entry, sbi};
use crate::machine::MAX_VCPUS;

/// How often a waiting vCPU looks before it sleeps.
const LOOKS: usize = 50;

/// The address that each vCPU sleeps on; 0: none.
static SLEEPS_ON: [AtomicUsize; MAX_VCPUS] = [const { AtomicUsize::new(0) }; MAX_VCPUS];
/// Whether vCPUs have interrupt files whose place is known.
static HAS_FILES: AtomicBool = AtomicBool::new(false);

/// Before the other vCPUs start: whether they wake each other by messages.
pub(super) fn choose(has_files: bool) {
    HAS_FILES.store(has_files, Ordering::Relaxed);
}

/// Makes the executing vCPU one that can be woken.
pub(super) fn prepare() {
    cpu::enable_wake_ups(HAS_FILES.load(Ordering::Relaxed));
}

/// Sleeps while `word` has this value; may return early.
pub(crate) fn sleep_while(word: &AtomicU32, value: u32) {
    for _ in 0..LOOKS {
        if word.load(Ordering::Acquire) != value {
            return;
        }
        core::hint::spin_loop();
    }
    let Some(place) = SLEEPS_ON.get(cpu::this_vcpu()) else { return };
    place.store(core::ptr::from_ref(word) as usize, Ordering::SeqCst);
    // Either this vCPU sees the new value, or the one that wrote it sees that this one sleeps.
    fence(Ordering::SeqCst);
    while word.load(Ordering::SeqCst) == value {
        cpu::wait_for_interrupt();
        cpu::take_wake_up(HAS_FILES.load(Ordering::Relaxed));
    }
    place.store(0, Ordering::Relaxed);
}

/// Wakes those who sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    fence(Ordering::SeqCst);
    let (address, this) = (core::ptr::from_ref(word) as usize, cpu::this_vcpu());
    let Some(machine) = entry::machine() else { return };
    for (number, (vcpu, sleeps_on)) in machine.vcpus().iter().zip(&SLEEPS_ON).enumerate() {
        if number == this || sleeps_on.load(Ordering::SeqCst) != address {
            continue;
        }
        if HAS_FILES.load(Ordering::Relaxed) { cpu::send_message(vcpu.hart) } else { sbi::send_ipi(vcpu.hart) }
    }
}
