//! A vCPU's turn on its hart: what it is told when it begins, and when it gives the hart away.

use super::Vcpu;
use crate::machine::{self, memory};
use crate::vm::shared::add;
use addr::NodeId;
use device::GuestMemory as _;
use rv::fields::hstatus;

impl Vcpu {
    /// The turn begins. WFI has to give the hart away if others share it or if background work waits for its rest.
    pub fn begin_turn(&mut self, now: u64, is_shared: bool, wants_rest: bool, node: NodeId) {
        let waited = now.saturating_sub(self.runnable_since);
        add(&self.shared.counters.wait_ticks, waited);
        self.shared.set_in_turn(true);
        self.owes_rest = self.owes_rest && memory::frames().wants_zeroing(node);
        self.is_alone = !is_shared;
        if is_shared || wants_rest || self.owes_rest {
            self.context.hstatus |= hstatus::VTW;
        } else {
            self.context.hstatus &= !hstatus::VTW;
        }
        if waited != 0 {
            self.report_steal();
        }
        self.count_wait(waited);
    }

    /// A wait for a hart is over. Who goes on on its own hart at once did not wait.
    #[inline]
    fn count_wait(&mut self, waited: u64) {
        if core::mem::take(&mut self.woke_up) {
            self.shared.counters.count_wait(machine::ticks_to_us(waited), true);
        } else if waited > self.least_steal {
            self.shared.counters.count_wait(machine::ticks_to_us(waited), false);
        }
    }

    /// It has taken memory that was zeroed ahead: it leaves the hart when it waits for an interrupt, until that is made up for.
    #[inline]
    pub fn leave_when_waiting(&mut self) {
        self.owes_rest = true;
        self.context.hstatus |= hstatus::VTW;
    }

    /// It waits for a lock; whether somebody else wants the hart. If not, it is left alone for the rest of the turn,
    /// for waiting for a lock is no rest, and each look at one would be an exit.
    pub fn yields(&mut self) -> bool {
        if self.is_alone {
            self.context.hstatus &= !hstatus::VTW;
        }
        !self.is_alone
    }

    /// The turn is over.
    pub fn end_turn(&mut self, now: u64) {
        self.runnable_since = now;
        self.shared.set_runnable_since(now);
        self.shared.set_in_turn(false);
        // This hart may be the last one that had to leave the guest.
        let _ = self.vm.tell_late_requests();
        self.shared.counters.add_sbi_calls(core::mem::take(&mut self.context.fast_exits));
    }

    fn report_steal(&mut self) {
        const STEAL_OFFSET: u64 = 8;
        let Some(record) = self.steal_record else { return };
        let ticks = self.shared.counters.wait_ticks.load(core::sync::atomic::Ordering::Relaxed);
        let nanoseconds = crate::machine::ticks_to_ns(ticks);
        let memory = self.vm.memory();
        // The guest may have unplugged the page since: then it does not hear of it.
        let Ok(sequence) = memory.read_u32(record) else { return };
        let _ = memory.write_u32(record, sequence.wrapping_add(1) | 1);
        memory.fence();
        if let Some(field) = record.checked_add(STEAL_OFFSET) {
            let _ = memory.write_u64(field, nanoseconds);
        }
        memory.fence();
        let _ = memory.write_u32(record, (sequence.wrapping_add(1) | 1).wrapping_add(1));
    }
}
