//! Signs that vCPUs of a VM wait for each other, so that they had better run at the same time.
//!
//! None counts unless another vCPU of the VM could run and waits for another hart: where all have one, running together gains nothing,
//! and two that share one cannot.

use super::Vcpu;
use crate::{
    hart::{Hart, HartTools},
    machine,
};
use ::vcpu::trap::has_pause;
use control::WaitSign;
use rv::csr;

/// Looks for signs of one vCPU in a second, at most.
const SIGNS_HZ: u64 = 1_000;

impl Vcpu {
    /// It waits for another vCPU, whichever that is.
    #[cold]
    #[inline(never)]
    pub(super) fn note_wait(&mut self, sign: WaitSign) {
        if self.may_note() && self.others_wait() {
            self.note_sign(sign);
        }
    }

    /// Its slice has ended on a hart that others want: it may be in a loop that waits.
    #[inline]
    pub(super) fn look_for_spin(&mut self, hart: &Hart, tools: &mut HartTools) {
        if !self.is_alone && self.vm.vcpus().len() > 1 {
            self.look_at_code(hart, tools);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_at_code(&mut self, hart: &Hart, tools: &mut HartTools) {
        if self.may_note() && self.others_wait() && has_pause(&self.code_around(hart, tools)) {
            self.note_sign(WaitSign::Spin);
        }
    }

    /// It has called another vCPU that waits for its hart.
    pub(super) fn note_late_call(&mut self) {
        if self.may_note() {
            self.note_sign(WaitSign::Call);
        }
    }

    /// Whether another vCPU waits for another hart.
    fn others_wait(&self) -> bool {
        let here = self.shared.cpu();
        let mut others = self.vm.vcpus().iter().filter(|other| other.index != self.index);
        others.any(|other| other.cpu() != here && other.waits_for_hart())
    }

    /// Whether it is time for another look.
    fn may_note(&mut self) -> bool {
        let now = csr::time::read();
        let is_time = now >= self.next_sign;
        if is_time {
            self.next_sign = now.saturating_add(machine::capabilities().timebase_hz / SIGNS_HZ);
        }
        is_time
    }

    fn note_sign(&self, sign: WaitSign) {
        self.vm.together().note(self.vm.id, sign, machine::second(csr::time::read()));
    }
}
