//! The machine has no page left for who needs one: how they ask for relief.
//!
//! Who finds that nothing is left says so, and whoever knows all VMs ends one of them.
//!
//! What can be given up belongs to rooms above (disk cache, copies of pages), so they say at boot who answers.

use super::{agenda, capabilities};
use addr::VmId;
use core::sync::atomic::{AtomicU32, Ordering};
use rv::csr;
use spin::Once;

/// How long a device waits for memory that is on its way.
const PATIENCE_MS: u64 = 100;

/// What whoever asks has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// No disk, not the registry.
    Nothing,
    /// Perhaps one of these: what they guard stays, if somebody is at it.
    Something,
}

/// What giving something up has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Something is free now.
    Freed,
    /// Something will be when harts have left guests: who can, tries again after a moment.
    Coming,
    /// Nothing is left, and what others have given up meanwhile is free: the caller's last attempt comes after this.
    Nothing,
}

/// A VM's memory as far as it can help itself.
pub trait Asking {
    /// Gives up copies of its pages, at most `pages`; how many.
    fn give_up_copies(&self, pages: usize) -> u64;
    /// Frees a bounded part of what waited for shootdowns. `true` while something waits.
    fn free_deferred(&self) -> bool;
}

/// Gives something up.
type Handler = fn(Option<&dyn Asking>, Locked) -> Relief;

static HANDLER: Once<Handler> = Once::new();

/// The VM that waits because nothing is left; [`NOBODY`] if none does.
static SHORT: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = u32::MAX;

/// The VM has no page, nothing can be given up, and it will try again: a VM has to end. The first that says so counts.
#[cold]
pub fn tell_short(vm: VmId) {
    let _ = SHORT.compare_exchange(NOBODY, vm.0.into(), Ordering::Relaxed, Ordering::Relaxed);
    agenda::wake_control();
}

/// The VM that has said so.
#[must_use]
pub fn short() -> Option<VmId> {
    let vm = SHORT.load(Ordering::Relaxed);
    (vm != NOBODY).then_some(VmId(vm as u16))
}

/// It need not wait any longer. If there is still nothing, it says so again.
pub fn clear_short() {
    SHORT.store(NOBODY, Ordering::Relaxed);
}

/// Boot: `handler` answers.
pub fn install(handler: Handler) {
    HANDLER.call_once(|| handler);
}

/// Gives up something, for the VM with this memory if it is for one. No VM's memory may be locked.
#[must_use]
pub fn ask(asking: Option<&dyn Asking>, locked: Locked) -> Relief {
    HANDLER.get().map_or(Relief::Nothing, |handler| handler(asking, locked))
}

/// The same for who cannot try again later, a device: waits for harts that were called away from guests. `false` if nothing
/// is left, or they do not come: one of them may be dead.
#[must_use]
pub fn ask_now(asking: Option<&dyn Asking>) -> bool {
    let begin = csr::time::read();
    loop {
        match ask(asking, Locked::Something) {
            Relief::Freed => return true,
            Relief::Nothing => return false,
            Relief::Coming => {}
        }
        // Harts leave guests as soon as they take an interrupt.
        if csr::time::read().wrapping_sub(begin) > capabilities().timebase_hz * PATIENCE_MS / 1000 {
            return false;
        }
        core::hint::spin_loop();
    }
}
