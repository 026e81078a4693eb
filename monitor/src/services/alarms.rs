//! The alarms of guests' clocks: every VM is looked at when the earliest of all alarms is due.

use super::registry;
use crate::machine::clock;

/// Lets alarms ring that are due.
pub fn step() {
    if !clock::take_due_alarm() {
        return;
    }
    for vm in registry::lock().records().filter_map(|record| record.life.as_ref()) {
        if let Some(ticks) = vm.platform().poll_clock(vm) {
            clock::keep_alarm(ticks);
        }
    }
}
