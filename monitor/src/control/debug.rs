//! A debugger's session with a VM. It ends with its stream: then the guest is as it was, but for what the debugger has written.

use super::Until;
use crate::{
    hart,
    services::{
        mail::{self, Message},
        registry::{self, Record},
    },
    vm::{
        Vm,
        debug::{Answer, Asked},
        shared::SharedVcpu,
    },
};
use addr::{GuestPhysAddr, VcpuIndex};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec,
    vec::Vec,
};
use control::{
    ControlError, DebugAction, MAX_BREAKPOINTS, MAX_PEEK, Name, Reply, Sample, StreamData, StreamEnd, VmState,
};
use device::{GuestMemory as _, MemoryFault};

/// `c.ebreak`. In the place of the first half of a long instruction it stands for the whole: all harts have short ones.
const EBREAK: u16 = 0x9002;

/// A breakpoint, and what was there.
#[derive(Clone, Copy, Debug)]
struct Breakpoint {
    at: GuestPhysAddr,
    original: u16,
}

/// A debugger at a VM.
#[derive(Debug)]
pub(super) struct Session {
    vm: Name,
    life: Weak<Vm>,
    breakpoints: Vec<Breakpoint>,
    /// The VM is paused because of this session.
    has_stopped: bool,
}

/// What comes of an action.
pub(super) enum Done {
    Now(Box<Reply>),
    /// The answer comes when this has been reached.
    When(Until),
}

impl Session {
    pub(super) fn open(vm: Name) -> Result<Self, ControlError> {
        let life = {
            let mut registry = registry::lock();
            registry.find(&vm)?.need_alive()?.clone()
        };
        if !life.attach_debugger() {
            return Err(ControlError::Busy { what: "another debugger is at this VM".into() });
        }
        Ok(Self { vm, life: Arc::downgrade(&life), breakpoints: Vec::new(), has_stopped: false })
    }

    pub(super) const fn vm(&self) -> &Name {
        &self.vm
    }

    fn life(&self) -> Option<Arc<Vm>> {
        self.life.upgrade().filter(|life| !life.is_ending())
    }

    fn need_life(&self) -> Result<Arc<Vm>, ControlError> {
        let bad = || ControlError::BadState { vm: self.vm.clone(), state: VmState::Stopped, wanted: VmState::Running };
        self.life().ok_or_else(bad)
    }

    pub(super) fn act(&mut self, action: DebugAction) -> Result<Done, ControlError> {
        let life = self.need_life()?;
        match action {
            DebugAction::Stop => return self.stop(&life),
            DebugAction::Resume { only } => self.resume(&life, only)?,
            DebugAction::ReadRegisters { vcpu } => return self.ask(&life, vcpu, Asked::Read),
            DebugAction::WriteRegisters { vcpu, registers } => return self.ask(&life, vcpu, Asked::Write(registers)),
            DebugAction::ReadMemory { address, bytes } => return self.read(&life, address, bytes),
            DebugAction::WriteMemory { address, bytes } => self.write(&life, address, &bytes)?,
            DebugAction::SetBreakpoint { address } => self.set_breakpoint(&life, address)?,
            DebugAction::ClearBreakpoint { address } => self.clear_breakpoint(&life, address),
        }
        Ok(Done::Now(Box::new(Reply::Done)))
    }

    fn stop(&mut self, life: &Vm) -> Result<Done, ControlError> {
        let mut registry = registry::lock();
        let record = registry.find(&self.vm)?;
        record.note_pause();
        if record.state != VmState::Paused {
            record.pause()?;
            self.has_stopped = true;
        }
        self.has_stopped |= life.debug().stop().is_some();
        life.debug().forget_stop();
        Ok(Done::When(Until::State(VmState::Paused)))
    }

    fn resume(&mut self, life: &Vm, only: Option<VcpuIndex>) -> Result<(), ControlError> {
        if let Some(vcpu) = only {
            find_vcpu(&self.vm, life, vcpu)?;
        }
        let mut registry = registry::lock();
        let record = registry.find(&self.vm)?;
        record.note_pause();
        record.need(VmState::Paused)?;
        life.debug().forget_stop();
        life.let_run(only);
        self.has_stopped = false;
        record.resume()
    }

    /// Asks the hart that owns a vCPU.
    fn ask(&self, life: &Vm, vcpu: VcpuIndex, asked: Asked) -> Result<Done, ControlError> {
        let shared = find_vcpu(&self.vm, life, vcpu)?;
        {
            let mut registry = registry::lock();
            let record = registry.find(&self.vm)?;
            record.need(VmState::Paused)?;
            if !record.has_reached(VmState::Paused) {
                return Err(ControlError::Busy { what: "some vCPUs have not stopped yet".into() });
            }
        }
        let mut looks = shared.looks.lock();
        if looks.asked.is_some() {
            return Err(ControlError::Busy { what: "the vCPU is asked something already".into() });
        }
        (looks.asked, looks.answer) = (Some(asked), None);
        drop(looks);
        send(shared);
        Ok(Done::When(Until::Looked(vcpu)))
    }

    fn read(&self, life: &Vm, address: u64, bytes: u32) -> Result<Done, ControlError> {
        check_size(bytes.into())?;
        // Bounded: MAX_PEEK.
        let mut bytes = vec![0; bytes as usize];
        life.memory().peek(GuestPhysAddr::new(address), &mut bytes).map_err(no_memory)?;
        for Breakpoint { at, original } in &self.breakpoints {
            for (offset, byte) in (0..).zip(original.to_le_bytes()) {
                let place = at.raw().wrapping_add(offset).wrapping_sub(address);
                if let Some(shown) = usize::try_from(place).ok().and_then(|place| bytes.get_mut(place)) {
                    *shown = byte;
                }
            }
        }
        Ok(Done::Now(Box::new(Reply::Memory { bytes })))
    }

    fn write(&mut self, life: &Vm, address: u64, bytes: &[u8]) -> Result<(), ControlError> {
        check_size(bytes.len() as u64)?;
        let end = address.saturating_add(bytes.len() as u64);
        let touched = |breakpoint: &Breakpoint| breakpoint.at.raw() < end && address < breakpoint.at.raw() + 2;
        let (within, rest) = self.breakpoints.iter().partition(|breakpoint| touched(breakpoint));
        let within: Vec<Breakpoint> = within;
        self.breakpoints = rest;
        within.iter().for_each(|breakpoint| take_away(life, breakpoint));
        let written = life.memory().write(GuestPhysAddr::new(address), bytes).map_err(no_memory);
        for breakpoint in within {
            self.set_breakpoint(life, breakpoint.at.raw())?;
        }
        life.refetch();
        written
    }

    fn set_breakpoint(&mut self, life: &Vm, address: u64) -> Result<(), ControlError> {
        let at = GuestPhysAddr::new(address & !1);
        if self.breakpoints.iter().any(|breakpoint| breakpoint.at == at) {
            return Ok(());
        }
        if self.breakpoints.len() >= MAX_BREAKPOINTS {
            let value = self.breakpoints.len() as u64 + 1;
            return Err(ControlError::TooLarge { what: "breakpoints".into(), value, max: MAX_BREAKPOINTS as u64 });
        }
        let original = life.memory().read_u16(at).map_err(no_memory)?;
        life.memory().write_u16(at, EBREAK).map_err(no_memory)?;
        self.breakpoints.push(Breakpoint { at, original });
        life.refetch();
        Ok(())
    }

    fn clear_breakpoint(&mut self, life: &Vm, address: u64) {
        let Some(place) = self.breakpoints.iter().position(|breakpoint| breakpoint.at.raw() == address & !1) else {
            return;
        };
        take_away(life, &self.breakpoints.swap_remove(place));
        life.refetch();
    }

    /// The next thing to tell the debugger.
    pub(super) fn next(&mut self) -> Result<Option<StreamData>, StreamEnd> {
        let life = self.life().ok_or(StreamEnd::VmGone)?;
        // The last vCPU to stop calls.
        let Some(stop) = life.debug().stop().filter(|_| life.is_still()) else { return Ok(None) };
        life.debug().forget_stop();
        let mut registry = registry::lock();
        let Ok(record) = registry.find(&self.vm) else { return Err(StreamEnd::VmGone) };
        record.note_pause();
        if record.state != VmState::Paused {
            return Ok(None);
        }
        self.has_stopped = true;
        Ok(Some(StreamData::Debug(stop)))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(life) = self.life() else { return };
        for breakpoint in self.breakpoints.drain(..) {
            take_away(&life, &breakpoint);
        }
        life.refetch();
        let has_stopped = self.has_stopped || life.debug().stop().is_some();
        life.detach_debugger();
        let mut registry = registry::lock();
        if let Ok(record) = registry.find(&self.vm) {
            record.note_pause();
            if has_stopped && record.state == VmState::Paused {
                let _ = record.resume();
            }
        }
    }
}

/// Puts back what was there, unless the guest has put something else there.
fn take_away(life: &Vm, breakpoint: &Breakpoint) {
    if life.memory().read_u16(breakpoint.at) == Ok(EBREAK) {
        // Where it could be read, it was written.
        let _ = life.memory().write_u16(breakpoint.at, breakpoint.original);
    }
}

fn find_vcpu<'a>(vm: &Name, life: &'a Vm, vcpu: VcpuIndex) -> Result<&'a SharedVcpu, ControlError> {
    let last = life.vcpus().len().saturating_sub(1) as u16;
    life.vcpus().get(vcpu.index()).ok_or_else(|| ControlError::NoSuchVcpu { vm: vm.clone(), vcpu: vcpu.0, last })
}

fn send(vcpu: &SharedVcpu) {
    match hart::all().get(vcpu.cpu().index()) {
        Some(owner) => mail::send(owner, Message::Look(vcpu.clone())),
        None => vcpu.looks.lock().answer = Some(Answer::Elsewhere),
    }
}

/// What has come of a question to a vCPU; `None` while that is not certain.
pub(super) fn outcome(record: &Record, vcpu: VcpuIndex) -> Option<Result<Reply, ControlError>> {
    let bad =
        || Err(ControlError::BadState { vm: record.spec.name.clone(), state: record.state, wanted: VmState::Paused });
    let Some(shared) = record.vcpus.get(vcpu.index()).filter(|_| record.state == VmState::Paused) else {
        return Some(bad());
    };
    let mut looks = shared.looks.lock();
    match looks.answer.take()? {
        Answer::Read(registers) => Some(Ok(Reply::Registers(registers))),
        Answer::Written => Some(Ok(Reply::Done)),
        Answer::Elsewhere => {
            drop(looks);
            // It is on its way to another hart, which has it soon.
            send(shared);
            None
        }
    }
}

/// Where vCPUs were since somebody asked last; they are asked again.
pub(super) fn samples(name: &Name) -> Result<Reply, ControlError> {
    let life = registry::lock().find(name)?.need_alive()?.clone();
    let taken = |vcpu: &SharedVcpu| vcpu.looks.lock().sample.take();
    // Bounded: MAX_VCPUS.
    let samples: Vec<Sample> = life.vcpus().iter().filter_map(taken).map(|sample: Box<Sample>| *sample).collect();
    life.ask_for_samples();
    Ok(Reply::Samples(samples))
}

fn check_size(bytes: u64) -> Result<(), ControlError> {
    if bytes > MAX_PEEK.into() {
        return Err(ControlError::TooLarge { what: "bytes of memory".into(), value: bytes, max: MAX_PEEK.into() });
    }
    Ok(())
}

const fn no_memory(fault: MemoryFault) -> ControlError {
    ControlError::NoMemoryThere { address: fault.addr.raw() }
}
