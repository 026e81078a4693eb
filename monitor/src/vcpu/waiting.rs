//! What a vCPU waits for that is no interrupt of its guest: other harts, mostly. Its hart does something else meanwhile, or sleeps.
//!
//! Harts that were called away from a VM tell those who wait ([`Vm::tell_waiting`](crate::vm::Vm::tell_waiting)). As one of them may
//! have left just before it was called, whoever waits looks again from time to time, ever more rarely.

use super::{Next, RunState, Vcpu};
use crate::{
    hart::{Hart, HartTools},
    vm::shared::request,
};
use rv::csr;
use tlb::TlbGeneration;

/// The first look comes after so many microseconds, each other one after twice as long,
const FIRST_LOOK_US: u64 = 50;
/// up to so many.
const LONGEST_US: u64 = 2_000;

/// What a vCPU waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// No hart inside the VM is behind this generation of its tables.
    Shootdown(TlbGeneration),
    /// The vCPUs of these bits have done these fences ([`request::FENCES`]), or will before their next instruction.
    Fences { vcpus: u64, fences: u32 },
    /// Somebody else is at what it wants, for a bounded time: a moment passes.
    Moment,
    /// It is suspended: an interrupt that its guest has enabled, or an event (`sleep.rs`).
    Wakeup,
}

/// A vCPU's waiting.
#[derive(Debug, Default)]
pub struct Waiting {
    until: Option<Until>,
    look_at: u64,
    pause_us: u64,
}

impl Waiting {
    /// Whether the vCPU waits, as far as it has looked.
    #[inline(always)]
    pub const fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the vCPU is suspended.
    pub fn is_asleep(&self) -> bool {
        self.until == Some(Until::Wakeup)
    }

    /// The vCPU waits from now on.
    pub const fn begin(&mut self, until: Until) {
        *self = Self { until: Some(until), look_at: 0, pause_us: FIRST_LOOK_US };
    }

    /// The vCPU waits no more.
    pub const fn end(&mut self) {
        self.until = None;
    }
}

impl Vcpu {
    /// The vCPU executes nothing before this has come: the answer for the hart's loop.
    pub fn wait_until(&mut self, until: Until) -> Next {
        self.waiting.begin(until);
        if until == Until::Moment {
            self.plan_look(csr::time::read());
        }
        if self.waits() { Next::Held } else { Next::Resume }
    }

    /// It has a turn although it waits, as far as it knows: what ends the turn, if something does.
    #[cold]
    pub(super) fn go_on_waiting(&mut self, hart: &Hart, tools: &mut HartTools) -> Option<Next> {
        let next = if self.shared.has_requests() { self.serve_requests(hart, tools) } else { None };
        next.or_else(|| match self.waiting.is_asleep() {
            true => (!self.wakes_up()).then_some(Next::Suspend),
            false => self.waits().then_some(Next::Held),
        })
    }

    /// Whether it waits still. Its hart asks before it runs, and when somebody says that what it waits for may have
    /// come.
    pub fn waits(&mut self) -> bool {
        let Some(until) = self.waiting.until else { return false };
        // Said first, then looked: whoever leaves the VM after the look sees that somebody waits.
        self.vm.note_waiting(self.index);
        let now = csr::time::read();
        let has_come = match until {
            Until::Shootdown(generation) => self.vm.tlb().all_passed(generation),
            Until::Fences { vcpus, fences } => self.have_fenced(vcpus, fences),
            Until::Moment => now >= self.waiting.look_at,
            Until::Wakeup => false,
        };
        if has_come {
            self.waiting.end();
        } else if now >= self.waiting.look_at {
            self.plan_look(now);
        }
        !has_come
    }

    /// When to look again, at the latest.
    pub const fn look_at(&self) -> u64 {
        self.waiting.look_at
    }

    /// The hart's loop takes it out of the queue.
    pub fn hold(&mut self) {
        self.shared.set_blocked(true);
        self.run_state = RunState::Held;
    }

    fn plan_look(&mut self, now: u64) {
        let ticks = self.waiting.pause_us * crate::machine::capabilities().timebase_hz / 1_000_000;
        self.waiting.look_at = now.saturating_add(ticks.max(1));
        self.waiting.pause_us = (2 * self.waiting.pause_us).min(LONGEST_US);
    }

    fn have_fenced(&self, vcpus: u64, fences: u32) -> bool {
        debug_assert!(fences & !request::FENCES == 0, "only fences are waited for");
        let mut rest = vcpus;
        while rest != 0 {
            let target = self.vm.vcpus().get(rest.trailing_zeros() as usize);
            rest &= rest - 1;
            // One that is in no hart's registers fences before its next instruction.
            if target.is_some_and(|target| target.owes(fences)) {
                return false;
            }
        }
        true
    }
}
