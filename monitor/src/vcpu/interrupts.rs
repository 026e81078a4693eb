//! A vCPU's interrupts: what is pending, and what the interrupt file in software shows.

use super::{RunState, Vcpu, file, registers};
use ::vcpu::trap::{CsrRequest, Privilege};
use platform::{ExternalLine, FilePlace, Shown};
use rv::{
    csr,
    decode::CsrAccess,
    fields::{hvictl, interrupt},
};

impl Vcpu {
    pub(super) fn set_hvip(&mut self, bit: u64, asserted: bool) {
        if self.shared.is_loaded() {
            registers::write_hvip_bit(bit, asserted);
        } else if asserted {
            self.vs.hvip |= bit;
        } else {
            self.vs.hvip &= !bit;
        }
    }

    /// Whether an interrupt is pending and enabled, so that a WFI would fall through.
    #[inline(always)]
    #[must_use]
    pub fn has_interrupt(&self) -> bool {
        let (pending, enabled, deadline) = if self.shared.is_loaded() {
            (csr::hvip::read(), interrupt::enabled_by(csr::vsie::read()), csr::vstimecmp::read())
        } else {
            (self.vs.hvip, self.vs.enabled_interrupts(), self.vs.timer_deadline())
        };
        let mut pending = pending;
        if deadline <= csr::time::read() {
            pending |= interrupt::VSTI;
        }
        if file::pending_files() & self.file_mask() != 0 {
            pending |= interrupt::VSEI;
        }
        pending & enabled != 0
    }

    /// When the guest's timer interrupts it. Loaded vCPUs only.
    #[inline(always)]
    pub(super) fn timer_deadline(&self) -> u64 {
        if csr::vsie::read() & interrupt::STI != 0 { csr::vstimecmp::read() } else { u64::MAX }
    }

    /// The guest waits for an interrupt. `false` if one is there already. Loaded vCPUs only.
    pub fn block(&mut self) -> bool {
        self.wake_at = self.timer_deadline();
        self.shared.set_blocked(true);
        // A request from before is seen here; one from after comes with a kick, which wakes it.
        if self.shared.has_requests() || self.has_interrupt() {
            self.shared.set_blocked(false);
            return false;
        }
        self.run_state = RunState::Blocked;
        true
    }

    /// Emulates a CSR: performance counters, and the AIA's for a vCPU without a hardware interrupt file. `false`: not
    /// ours, or not for the guest to read where it is.
    #[inline(never)]
    pub fn emulate_csr(&mut self, access: CsrAccess) -> bool {
        let privilege = Privilege::before_trap(self.context.sstatus);
        let Some(request) = CsrRequest::decode(access, privilege) else { return false };
        match request {
            CsrRequest::Counter(counter) => self.read_counter(counter, access.rd),
            CsrRequest::TopMessage | CsrRequest::ClaimMessage | CsrRequest::FileRegister => {
                file::emulate_csr(self, request, access)
            }
        }
    }

    /// The registers show its external interrupts as they are: by the level of its line, and by its interrupt file, wherever that is.
    pub fn refresh_external(&mut self) {
        let line = ExternalLine::of(self.file_place(), self.shared.external_level());
        self.set_hvip(interrupt::VSEI, line.is_pending);
        match line.shown {
            Shown::NoRegister => {}
            Shown::Nothing => self.set_hvictl(0),
            Shown::SoftwareFile(is_asserted) => self.set_hvictl(hvictl::software_file(is_asserted)),
        }
    }

    fn file_place(&self) -> FilePlace {
        match self.file {
            _ if !self.vm.has_imsic() => FilePlace::Absent,
            0 => FilePlace::Software { is_asserted: self.shared.file.lock().software().is_asserted() },
            _ => FilePlace::Hardware,
        }
    }

    fn set_hvictl(&mut self, value: u64) {
        if self.shared.is_loaded() {
            registers::write_hvictl(value);
        } else {
            self.vs.hvictl = value;
        }
    }
}
