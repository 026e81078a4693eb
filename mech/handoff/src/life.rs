//! Starting and stopping a guest's hart.

use vcpu::hsm::{Change, HartState};
use vcpu::sbi::Entry;

use crate::sync::{AtomicU8, Mutex, Ordering};

/// The HSM state of a vCPU, and where it begins when somebody starts it.
///
/// Others change only the state of a stopped vCPU: one of them, once. Its owner sees that, takes the entry, and changes all else.
#[derive(Debug)]
pub struct Life {
    state: AtomicU8,
    entry: Mutex<Entry>,
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl Life {
    /// A vCPU that was never started.
    #[must_use]
    #[allow(clippy::missing_const_for_fn, reason = "not under the model checker")]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(HartState::Stopped as u8), entry: Mutex::new(Entry { pc: 0, opaque: 0 }) }
    }

    /// Its state.
    #[inline]
    #[must_use]
    pub fn state(&self) -> HartState {
        HartState::from_raw(self.state.load(Ordering::SeqCst))
    }

    /// Owner: changes the state, if this can happen in the present one.
    pub fn change(&self, change: Change) {
        if let Some(state) = self.state().after(change) {
            self.state.store(state as u8, Ordering::SeqCst);
        }
    }

    /// Claims the right to start a stopped vCPU at `entry`. The caller asks its owner's hart to look afterwards.
    ///
    /// # Errors
    /// The vCPU's state when that is not `Stopped`.
    pub fn claim_start(&self, entry: Entry) -> Result<(), HartState> {
        // The lock is held over the state change so that the owner reads the entry that belongs to it.
        let mut start = self.entry.lock();
        let (from, to) = (HartState::Stopped as u8, HartState::StartPending as u8);
        let claimed = self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        claimed.map_err(HartState::from_raw)?;
        *start = entry;
        Ok(())
    }

    /// Owner: the entry that [`Life::claim_start`] left.
    #[must_use]
    pub fn entry(&self) -> Entry {
        *self.entry.lock()
    }
}
