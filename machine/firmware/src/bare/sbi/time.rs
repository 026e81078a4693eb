//! TIME: the supervisor's timer.

use super::pmu::{self, event};
use crate::bare::{csr, timer};

/// The extension.
pub struct Timer;

impl rustsbi::Timer for Timer {
    fn set_timer(&self, deadline: u64) {
        pmu::count(event::SET_TIMER);
        timer::set_supervisor(csr::this_hart(), deadline);
    }
}
