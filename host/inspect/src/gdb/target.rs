//! A VM as gdb's target.

use std::collections::HashMap;
use std::time::Duration;

use addr::VcpuIndex;
use control::{DebugStop, Name, VcpuRegisters};
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::breakpoints::{Breakpoints, BreakpointsOps, SwBreakpoint, SwBreakpointOps};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{TargetError, TargetResult};

use super::arch::{Regs, Vcpu};
use crate::{InspectError, Session, Space, Step, plan};

type Stop = MultiThreadStopReason<u64>;

/// A trap by a breakpoint (`scause`).
const BREAKPOINT: u64 = 3;
/// Fields of `sstatus`.
const SIE: u64 = 1 << 1;
const SPIE: u64 = 1 << 5;
const SPP: u64 = 1 << 8;

/// A VM that gdb looks at.
#[derive(Debug)]
pub struct Target {
    session: Session,
    space: Space,
    /// Registers while the VM stands still.
    registers: HashMap<u16, VcpuRegisters>,
    /// gdb's breakpoints: guest-virtual address, and where that was then.
    breakpoints: HashMap<u64, u64>,
    /// What gdb wants of the next time that the VM runs.
    wish: Wish,
    stepping: Option<Stepping>,
    /// What to say at once, without running.
    ready: Option<Stop>,
    /// The vCPU that stopped last.
    current: u16,
}

/// How the VM is to run.
#[derive(Debug, Default)]
struct Wish {
    /// This vCPU makes a step.
    step: Option<u16>,
    /// This one runs.
    run: Option<u16>,
    /// And no other does.
    is_alone: bool,
}

/// A step under way.
#[derive(Debug)]
struct Stepping {
    vcpu: u16,
    /// Breakpoints that are there for it only, by guest-physical address.
    to: Vec<u64>,
    /// `sie` as the guest has it.
    sie: Option<u64>,
}

const fn tid(vcpu: u16) -> Tid {
    Tid::MIN.saturating_add(vcpu as usize)
}

const fn vcpu_of(tid: Tid) -> u16 {
    (tid.get() - 1) as u16
}

impl Target {
    /// Of a VM that stands still.
    pub fn new(session: Session) -> Result<Self, InspectError> {
        Ok(Self {
            session,
            space: Space::default(),
            registers: HashMap::new(),
            breakpoints: HashMap::new(),
            wish: Wish::default(),
            stepping: None,
            ready: None,
            current: 0,
        })
    }

    pub const fn vm(&self) -> &Name {
        self.session.vm()
    }

    fn of(&mut self, vcpu: u16) -> Result<&mut VcpuRegisters, InspectError> {
        if !self.registers.contains_key(&vcpu) {
            let read = self.session.registers(VcpuIndex(vcpu))?;
            self.registers.insert(vcpu, read);
        }
        self.registers.get_mut(&vcpu).ok_or_else(|| InspectError::Other("no registers".into()))
    }

    fn store(&mut self, vcpu: u16) -> Result<(), InspectError> {
        let registers = self.of(vcpu)?.clone();
        self.session.set_registers(VcpuIndex(vcpu), registers)
    }

    fn satp(&mut self, vcpu: u16) -> Result<u64, InspectError> {
        Ok(self.of(vcpu)?.csrs.satp)
    }

    fn translate(&mut self, vcpu: u16, address: u64) -> Result<u64, InspectError> {
        let satp = self.satp(vcpu)?;
        self.space.translate(&self.session, satp, address)
    }

    fn forget(&mut self) {
        self.registers.clear();
        self.space.forget();
    }

    fn go(&mut self, only: Option<u16>) -> Result<(), InspectError> {
        self.session.resume(only.map(VcpuIndex))?;
        self.forget();
        Ok(())
    }

    /// Begins a step of one vCPU; the others stay where they are.
    fn begin_step(&mut self, vcpu: u16) -> Result<(), InspectError> {
        let registers = self.of(vcpu)?.clone();
        let fetch = |address: u64| {
            let mut bytes = [0; 2];
            let count = self.space.read(&self.session, registers.csrs.satp, address, &mut bytes).ok()?;
            (count == 2).then_some(u16::from_le_bytes(bytes))
        };
        let done = Some(Stop::DoneStep);
        match plan(&registers, fetch) {
            Some(Step::Skip { to }) => {
                self.of(vcpu)?.pc = to;
                self.store(vcpu)?;
                (self.current, self.ready) = (vcpu, done);
                Ok(())
            }
            Some(Step::Breakpoint) => {
                self.give_to_guest(vcpu)?;
                (self.current, self.ready) = (vcpu, done);
                Ok(())
            }
            Some(Step::Run { to, sees_sie }) => self.run_to(vcpu, &to, sees_sie),
            // The fetch faults: the guest's handler, or the monitor, brings the page.
            None => self.run_to(vcpu, &[registers.pc], false),
        }
    }

    fn run_to(&mut self, vcpu: u16, to: &[u64], sees_sie: bool) -> Result<(), InspectError> {
        let handler = self.of(vcpu)?.csrs.stvec & !3;
        let pc = self.of(vcpu)?.pc;
        let mut stepping = Stepping { vcpu, to: Vec::new(), sie: None };
        // An instruction that leads to itself would be replaced: it makes its step for as long as somebody lets it.
        for address in to.iter().chain([&handler]).filter(|address| **address != pc) {
            // Where nothing is mapped it cannot come without a fault, which leads to the handler.
            let Ok(at) = self.translate(vcpu, *address) else { continue };
            if !self.breakpoints.values().any(|known| *known == at) && !stepping.to.contains(&at) {
                self.session.set_breakpoint(at)?;
                stepping.to.push(at);
            }
        }
        if !sees_sie {
            // An interrupt would make the step lead into its handler.
            let registers = self.of(vcpu)?;
            stepping.sie = Some(std::mem::take(&mut registers.csrs.sie));
            self.store(vcpu)?;
        }
        self.stepping = Some(stepping);
        self.go(Some(vcpu))
    }

    /// The VM stands still again: what was there for a step only is taken away.
    fn end_step(&mut self) -> Result<Option<u16>, InspectError> {
        let Some(stepping) = self.stepping.take() else { return Ok(None) };
        for at in stepping.to {
            self.session.clear_breakpoint(at)?;
        }
        if let Some(sie) = stepping.sie {
            self.of(stepping.vcpu)?.csrs.sie = sie;
            self.store(stepping.vcpu)?;
        }
        self.space.forget();
        Ok(Some(stepping.vcpu))
    }

    /// The guest's own `ebreak` is the guest's business: what the hart would have done.
    fn give_to_guest(&mut self, vcpu: u16) -> Result<(), InspectError> {
        let registers = self.of(vcpu)?;
        let csrs = &mut registers.csrs;
        (csrs.sepc, csrs.scause, csrs.stval) = (registers.pc, BREAKPOINT, registers.pc);
        let mut status = csrs.sstatus & !(SPP | SPIE | SIE);
        if registers.is_supervisor {
            status |= SPP;
        }
        if csrs.sstatus & SIE != 0 {
            status |= SPIE;
        }
        csrs.sstatus = status;
        registers.pc = csrs.stvec & !3;
        registers.is_supervisor = true;
        self.store(vcpu)
    }

    /// Waits for the VM to stop, at most so long.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<Stop>, InspectError> {
        if let Some(ready) = self.ready.take() {
            return Ok(Some(ready));
        }
        match self.session.wait(patience) {
            Ok(Some(stop)) => self.stopped(stop),
            Ok(None) => Ok(None),
            Err(error) if error.is_gone() => Ok(Some(Stop::Exited(0))),
            Err(error) => Err(error),
        }
    }

    fn stopped(&mut self, DebugStop { vcpu, pc }: DebugStop) -> Result<Option<Stop>, InspectError> {
        self.forget();
        let vcpu = vcpu.0;
        let at = self.translate(vcpu, pc).ok();
        let is_gdbs = at.is_some_and(|at| self.breakpoints.values().any(|known| *known == at));
        let is_steps = at.is_some_and(|at| self.stepping.as_ref().is_some_and(|step| step.to.contains(&at)));
        let stepped = self.end_step()?;
        if !is_gdbs && !is_steps {
            self.give_to_guest(vcpu)?;
            if stepped.is_none() {
                self.go(None)?;
                return Ok(None);
            }
        }
        self.current = vcpu;
        Ok(Some(match stepped {
            Some(_) => Stop::DoneStep,
            None => Stop::SwBreak(tid(vcpu)),
        }))
    }

    /// gdb's user has had enough.
    pub fn interrupt(&mut self) -> Result<Tid, InspectError> {
        self.session.stop()?;
        self.forget();
        self.end_step()?;
        Ok(tid(self.current))
    }
}

/// What gdb may do wrong costs it an error; the rest ends the conversation.
fn lenient<T>(result: Result<T, InspectError>) -> TargetResult<T, Target> {
    result.map_err(|error| if error.is_gone() { TargetError::Fatal(error) } else { TargetError::NonFatal })
}

impl gdbstub::target::Target for Target {
    type Arch = Vcpu;
    type Error = InspectError;

    fn base_ops(&mut self) -> BaseOps<'_, Vcpu, InspectError> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Target {
    fn read_registers(&mut self, regs: &mut Regs, tid: Tid) -> TargetResult<(), Self> {
        regs.0 = lenient(self.of(vcpu_of(tid)).cloned())?;
        Ok(())
    }

    fn write_registers(&mut self, regs: &Regs, tid: Tid) -> TargetResult<(), Self> {
        let vcpu = vcpu_of(tid);
        self.registers.insert(vcpu, regs.0.clone());
        self.space.forget();
        lenient(self.store(vcpu))
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        let satp = lenient(self.satp(vcpu_of(tid)))?;
        lenient(self.space.read(&self.session, satp, start, data))
    }

    fn write_addrs(&mut self, start: u64, data: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let satp = lenient(self.satp(vcpu_of(tid)))?;
        let written = lenient(self.space.write(&self.session, satp, start, data))?;
        if written == data.len() { Ok(()) } else { Err(TargetError::NonFatal) }
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), InspectError> {
        (0..self.session.vcpus()).for_each(|vcpu| each(tid(vcpu)));
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Target {
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, InspectError> {
        let vcpu = vcpu_of(tid);
        let is_started = self.registers.get(&vcpu).is_none_or(|registers| registers.is_started);
        let text = format!("vCPU {vcpu}{}", if is_started { "" } else { ", not started" });
        let len = text.len().min(buf.len());
        buf[..len].copy_from_slice(&text.as_bytes()[..len]);
        Ok(len)
    }
}

impl MultiThreadResume for Target {
    fn resume(&mut self) -> Result<(), InspectError> {
        let wish = std::mem::take(&mut self.wish);
        let began = match wish.step {
            Some(vcpu) => self.begin_step(vcpu),
            None => self.go(wish.run.filter(|_| wish.is_alone)),
        };
        match began {
            // It ended before gdb let it go on.
            Err(error) if error.is_gone() => {
                self.ready = Some(Stop::Exited(0));
                Ok(())
            }
            began => began,
        }
    }

    fn clear_resume_actions(&mut self) -> Result<(), InspectError> {
        self.wish = Wish::default();
        Ok(())
    }

    fn set_resume_action_continue(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), InspectError> {
        self.wish.run = Some(vcpu_of(tid));
        Ok(())
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSchedulerLocking for Target {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), InspectError> {
        self.wish.is_alone = true;
        Ok(())
    }
}

impl MultiThreadSingleStep for Target {
    fn set_resume_action_step(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), InspectError> {
        self.wish.step = Some(vcpu_of(tid));
        Ok(())
    }
}

impl Breakpoints for Target {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for Target {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        let current = self.current;
        let Ok(at) = lenient(self.translate(current, address)) else { return Ok(false) };
        lenient(self.session.set_breakpoint(at))?;
        self.breakpoints.insert(address, at);
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        let Some(at) = self.breakpoints.remove(&address) else { return Ok(false) };
        if !self.breakpoints.values().any(|known| *known == at) {
            lenient(self.session.clear_breakpoint(at))?;
        }
        Ok(true)
    }
}
