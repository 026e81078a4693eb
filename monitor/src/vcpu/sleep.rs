//! Suspended vCPUs (HSM suspend, SUSP): from the call until an interrupt that the guest has enabled, and what is seen of it by
//! others.
//!
//! Unlike a WFI, which may end for no reason, a suspension ends for an interrupt or event only. So requests of others are
//! served in between, and the vCPU sleeps on.

use super::{Next, RunState, Until, Vcpu, registers};
use ::vcpu::{
    hsm::{Change, HartState},
    sbi::Entry,
};
use rv::{csr, fields::interrupt};

impl Vcpu {
    /// The guest asks to be suspended, and to go on at `resume`, or behind the call.
    #[cold]
    pub(super) fn suspend(&mut self, resume: Option<Entry>) -> Next {
        self.shared.change_hsm(Change::AskSuspend);
        self.resume = resume;
        self.waiting.begin(Until::Wakeup);
        Next::Suspend
    }

    /// The hart's loop takes it out of the queue. `false` if there is something for it already. Loaded vCPUs only.
    #[cold]
    #[inline(never)]
    pub fn sleep(&mut self) -> bool {
        self.shared.change_hsm(Change::Sleep);
        self.wake_at = self.timer_deadline();
        self.shared.set_blocked(true);
        // As in `block`.
        if self.is_called() {
            self.shared.set_blocked(false);
            return false;
        }
        self.run_state = RunState::Suspended;
        true
    }

    /// Whether it must have a turn, to wake up or to serve requests.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.shared.has_requests() || self.has_interrupt()
    }

    /// It gets a turn.
    pub fn call(&mut self, now: u64) {
        if self.has_interrupt() {
            self.shared.change_hsm(Change::Wake);
        }
        self.mark_runnable(now);
    }

    /// The guest interrupt files whose messages wake it up.
    #[must_use]
    pub fn wake_files(&self) -> u64 {
        let enabled = if self.shared.is_loaded() {
            interrupt::enabled_by(csr::vsie::read())
        } else {
            self.vs.enabled_interrupts()
        };
        if enabled & interrupt::VSEI != 0 { self.file_mask() } else { 0 }
    }

    /// It has a turn, and its requests have been served: wakes it up if something has come, and tells whether.
    pub(super) fn wakes_up(&mut self) -> bool {
        let wakes = self.shared.hsm() == HartState::ResumePending || self.has_interrupt() || self.has_event();
        if wakes {
            self.shared.change_hsm(Change::Wake);
            self.wake_up();
        }
        wakes
    }

    fn wake_up(&mut self) {
        self.waiting.end();
        if let Some(entry) = self.resume.take() {
            self.reset_context(entry);
            registers::suspend_vs();
        }
        self.shared.change_hsm(Change::Resume);
        self.deliver_events();
    }
}
