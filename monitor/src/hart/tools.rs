//! What the vCPUs of a hart share of it.

use super::stretch::{Place, Stretch, StretchCounters};
use crate::machine::Capabilities;
use rv::{csr, fields::interrupt};
use tlb::HartVmids;

/// How long a hart works on one thing in pieces before it goes on with its loop, in fractions of a second.
const WORK_HZ: u64 = 2_000;

/// What the timer is said to be set to when it has fired. No deadline is this: what is due at once has the date 0.
const FIRED: u64 = 1;

/// What the vCPUs of a hart share: VMIDs, guest interrupt files, the hart's own timer.
#[derive(Debug)]
pub struct HartTools {
    /// VMIDs of this hart.
    pub vmids: HartVmids,
    /// The hart's stay in the monitor.
    pub stretch: Stretch,
    files_used: u64,
    files: u16,
    timer_armed: u64,
    files_watched: u64,
    /// What [`WORK_HZ`] says, in ticks.
    work_ticks: u64,
}

impl HartTools {
    /// None of it in use.
    #[must_use]
    pub fn new(capabilities: &Capabilities) -> Self {
        Self {
            vmids: HartVmids::new(capabilities.vmid_bits),
            stretch: Stretch::new(csr::time::read(), capabilities.timebase_hz),
            files_used: 0,
            files: capabilities.guest_files,
            timer_armed: FIRED,
            files_watched: u64::MAX,
            work_ticks: capabilities.timebase_hz / WORK_HZ,
        }
    }

    /// Whether something has come that ends a stay in a guest.
    #[must_use]
    pub fn is_called(&self) -> bool {
        // A timer that has fired stays pending until it is set again.
        let timer = if self.timer_armed == FIRED { 0 } else { interrupt::STI };
        csr::sip::read() & (interrupt::SSI | interrupt::SEI | timer) != 0
            || csr::hgeip::read() & self.files_watched != 0
    }

    /// Whoever does something long in pieces looks between them whether [it is called](Self::is_called): a stretch ends there.
    pub fn look(&mut self, now: u64, counters: &StretchCounters) {
        self.stretch.end(now, counters);
        self.stretch.begin(now);
    }

    /// Takes a guest interrupt file of this hart, if one is free. File 0 is "none".
    pub fn take_file(&mut self) -> Option<u8> {
        let file = (1..=self.files).find(|file| self.files_used & 1 << file == 0)?;
        self.files_used |= 1 << file;
        Some(file as u8)
    }

    /// Gives a file back.
    pub fn release_file(&mut self, file: u8) {
        self.files_used &= !(1 << file);
    }

    /// Lets these guest files, those of vCPUs that wait, interrupt this hart.
    #[inline]
    pub fn watch(&mut self, files: u64) {
        if self.files_watched != files {
            self.files_watched = files;
            watch_files(files);
        }
    }

    /// The timer has interrupted: it does so again until it is set, even to the same deadline.
    #[inline]
    pub fn timer_fired(&mut self) {
        self.timer_armed = FIRED;
    }

    /// Sets this hart's own timer to `deadline` ticks (`u64::MAX`: never).
    #[inline]
    pub fn arm(&mut self, deadline: u64) {
        if self.timer_armed != deadline {
            self.timer_armed = deadline;
            set_timer(deadline);
        }
    }
}

/// From now on these guest files interrupt the monitor: those of vCPUs that wait.
#[inline]
#[expect(unsafe_code)]
fn watch_files(files: u64) {
    // UNSAFETY and SAFETY: hgeie only selects whose interrupts become SGEI, which the per-hart loop handles.
    unsafe { csr::hgeie::write(files) };
}

/// Where a hart that does something long in pieces looks, between any two of them, whether anybody calls it.
pub struct PreemptionPoint<'a> {
    tools: &'a mut HartTools,
    counters: &'a StretchCounters,
    place: Place,
    /// When the work has to stop for now: vCPUs that wait for this hart, and timers of those that sleep, come next.
    until: u64,
}

impl<'a> PreemptionPoint<'a> {
    /// For work that begins now, whose long stretches are told as `place`.
    pub fn new(tools: &'a mut HartTools, counters: &'a StretchCounters, place: Place) -> Self {
        let until = csr::time::read().saturating_add(tools.work_ticks);
        Self { tools, counters, place, until }
    }

    /// Whether nobody calls the hart, and the work has not lasted for [`WORK_HZ`]. If nobody calls, the hart's stretch in the monitor
    /// ends here, and another one begins.
    pub fn may_go_on(&mut self) -> bool {
        if self.tools.is_called() {
            return false;
        }
        let now = csr::time::read();
        self.tools.look(now, self.counters);
        self.tools.stretch.note(self.place);
        now < self.until
    }

    /// The same in the midst of what is done to its end even if somebody calls.
    pub fn pause(&mut self) {
        let _ = self.may_go_on();
    }
}

#[expect(unsafe_code)]
fn set_timer(deadline: u64) {
    // UNSAFETY and SAFETY: stimecmp raises HS timer interrupts, which the per-hart loop takes; Sstc is required.
    unsafe { csr::stimecmp::write(deadline) };
}
