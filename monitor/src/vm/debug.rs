//! A debugger at a VM: who may run, where it has stopped, and what was asked of its vCPUs.
//!
//! The conversation with the debugger is the control hart's (`control/debug.rs`). Here is what vCPUs see of it.

use super::{
    Vm,
    shared::{SharedVcpu, kick, request},
};
use addr::VcpuIndex;
use alloc::boxed::Box;
use control::{DebugStop, Sample, VcpuRegisters};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spin::Mutex;

/// What a debugger has to do with one life of a VM.
#[derive(Debug, Default)]
pub struct Debug {
    is_attached: AtomicBool,
    /// vCPUs that stay where they are though the VM runs, by bit.
    held: AtomicU64,
    /// The `ebreak` that paused the VM, until the debugger is told.
    stop: Mutex<Option<DebugStop>>,
}

/// What somebody wants to know of a vCPU, and its answer.
#[derive(Debug, Default)]
pub struct Looks {
    /// What is to be done, until the owner does it.
    pub asked: Option<Asked>,
    /// What came of it.
    pub answer: Option<Answer>,
    /// Where it was when it was asked last.
    pub sample: Option<Box<Sample>>,
}

/// What a debugger wants of a vCPU's owner.
#[derive(Debug)]
pub enum Asked {
    /// Its registers.
    Read,
    /// That it has these.
    Write(Box<VcpuRegisters>),
}

/// What the owner says.
#[derive(Debug)]
pub enum Answer {
    /// Its registers.
    Read(Box<VcpuRegisters>),
    /// It has them.
    Written,
    /// Whoever was asked does not own it.
    Elsewhere,
}

impl Debug {
    /// Whether a debugger is there: `ebreak`s come to the monitor.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::SeqCst)
    }

    /// Whether the vCPU stays where it is.
    #[inline]
    pub(super) fn holds(&self, vcpu: VcpuIndex) -> bool {
        self.held.load(Ordering::Relaxed) >> (vcpu.0 & 63) & 1 != 0
    }

    /// The stop that the debugger has not been told.
    #[must_use]
    pub fn stop(&self) -> Option<DebugStop> {
        *self.stop.lock()
    }

    /// The debugger knows of it.
    pub fn forget_stop(&self) {
        *self.stop.lock() = None;
    }
}

impl Vm {
    /// A debugger comes. `false` if there is one.
    pub fn attach_debugger(&self) -> bool {
        let is_first = !self.debug.is_attached.swap(true, Ordering::SeqCst);
        if is_first {
            self.tell_vcpus(request::DEBUG);
        }
        is_first
    }

    /// It goes.
    pub fn detach_debugger(&self) {
        self.debug.held.store(0, Ordering::SeqCst);
        self.debug.forget_stop();
        self.debug.is_attached.store(false, Ordering::SeqCst);
        self.tell_vcpus(request::DEBUG);
    }

    /// From the next time that it runs, only this vCPU does, or all.
    pub fn let_run(&self, only: Option<VcpuIndex>) {
        self.debug.held.store(only.map_or(0, |vcpu| !(1 << (vcpu.0 & 63))), Ordering::SeqCst);
    }

    /// A vCPU has come to an `ebreak` while a debugger is there. The first one counts; others come to theirs again.
    #[cold]
    pub fn stop_for_debugger(&self, stop: DebugStop) {
        self.debug.stop.lock().get_or_insert(stop);
        self.set_paused(true);
        crate::machine::agenda::wake_control();
    }

    /// The guest's code has changed: each vCPU forgets what it has of it before its next instruction.
    pub fn refetch(&self) {
        self.tell_vcpus(request::FENCE_I);
    }

    /// Asks the vCPUs that run where they are.
    pub fn ask_for_samples(&self) {
        for vcpu in self.vcpus.iter().filter(|vcpu| vcpu.is_running()) {
            vcpu.request(request::SAMPLE);
            kick(vcpu);
        }
    }

    fn tell_vcpus(&self, bit: u32) {
        for vcpu in &self.vcpus {
            vcpu.request(bit);
            kick(vcpu);
        }
    }

    /// Whether no vCPU runs: while it is paused, none will.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.vcpus.iter().all(|vcpu: &SharedVcpu| !vcpu.is_running())
    }
}
