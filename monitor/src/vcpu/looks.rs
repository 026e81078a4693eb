//! What others see of a vCPU's inside: a debugger its registers while the VM is paused, a profiler where it is while it runs.

use super::{Next, Vcpu};
use crate::{
    hart::{Hart, HartTools},
    machine::agenda,
    vm::debug::{Answer, Asked},
};
use ::vcpu::hsm::HartState;
use alloc::{boxed::Box, vec::Vec};
use control::{DebugStop, MAX_STACK, Sample, SupervisorRegisters, VcpuRegisters};
use rv::{csr, fields::sstatus, world::Supervisor};

/// The frame pointer, by the calling convention.
const S0: usize = 8;
/// Bytes from the return address up to where the frame pointer points, and from the caller's frame pointer.
const RETURN_ADDRESS: u64 = 8;
const CALLERS_FRAME: u64 = 16;

impl Vcpu {
    /// Does what a debugger has asked for. The vCPU is not loaded, and owned by the calling hart.
    #[cold]
    pub fn serve_debugger(&mut self) {
        let asked = self.shared.looks.lock().asked.take();
        let answer = match asked {
            Some(Asked::Read) => Answer::Read(Box::new(self.registers())),
            Some(Asked::Write(registers)) => {
                self.set_registers(&registers);
                Answer::Written
            }
            None => return,
        };
        self.shared.looks.lock().answer = Some(answer);
        agenda::wake_control();
    }

    fn registers(&self) -> VcpuRegisters {
        let (f, fcsr) = self.units.fp().bits();
        VcpuRegisters {
            x: self.context.x,
            pc: self.context.pc,
            is_supervisor: self.context.sstatus & sstatus::SPP != 0,
            is_started: !matches!(self.shared.hsm(), HartState::Stopped | HartState::StartPending),
            f: *f,
            fcsr,
            csrs: shown(&self.vs.supervisor()),
        }
    }

    fn set_registers(&mut self, registers: &VcpuRegisters) {
        self.context.x = registers.x;
        self.context.x[0] = 0;
        self.context.pc = registers.pc & !1;
        if registers.is_supervisor {
            self.context.sstatus |= sstatus::SPP;
        } else {
            self.context.sstatus &= !sstatus::SPP;
        }
        self.units.set_fp(registers.f, registers.fcsr);
        self.vs.set_supervisor(&taken(&registers.csrs));
    }

    /// An `ebreak`, which comes here only while a debugger is there. If it has gone since, the guest meets the instruction again, which is
    /// another one if it was the debugger's.
    #[cold]
    pub(super) fn breakpoint(&mut self) -> Next {
        if !self.vm.debug().is_attached() {
            self.set_debugged(false);
            return Next::Resume;
        }
        self.vm.stop_for_debugger(DebugStop { vcpu: self.index, pc: self.context.pc });
        Next::VmStateChanged
    }

    /// Keeps where the vCPU is for whoever has asked.
    #[cold]
    pub(super) fn take_sample(&mut self, hart: &Hart, tools: &mut HartTools) {
        let sample = Sample {
            vcpu: self.index,
            ticks: csr::time::read(),
            is_supervisor: self.context.sstatus & sstatus::SPP != 0,
            stack: self.stack(hart, tools),
        };
        self.shared.looks.lock().sample = Some(Box::new(sample));
    }

    fn stack(&mut self, hart: &Hart, tools: &mut HartTools) -> Vec<u64> {
        // Bounded: a constant.
        let mut stack = Vec::with_capacity(MAX_STACK);
        stack.push(self.context.pc);
        let mut frame = self.context.x[S0];
        while stack.len() < MAX_STACK && frame.is_multiple_of(8) && frame > CALLERS_FRAME {
            let [address, next] = [RETURN_ADDRESS, CALLERS_FRAME].map(|offset| frame - offset);
            let Some([address, next]) = self.load_pair(hart, tools, [address, next]) else { break };
            if address == 0 {
                break;
            }
            stack.push(address);
            // Stacks grow downwards: a frame that is not above the last one leads nowhere.
            if next <= frame {
                break;
            }
            frame = next;
        }
        stack
    }
}

const fn shown(registers: &Supervisor) -> SupervisorRegisters {
    let Supervisor { sstatus, sie, stvec, scounteren, senvcfg, sscratch, sepc, scause, stval, sip, stimecmp, satp } =
        *registers;
    SupervisorRegisters { sstatus, sie, stvec, scounteren, senvcfg, sscratch, sepc, scause, stval, sip, stimecmp, satp }
}

const fn taken(registers: &SupervisorRegisters) -> Supervisor {
    let SupervisorRegisters {
        sstatus,
        sie,
        stvec,
        scounteren,
        senvcfg,
        sscratch,
        sepc,
        scause,
        stval,
        sip,
        stimecmp,
        satp,
    } = *registers;
    Supervisor { sstatus, sie, stvec, scounteren, senvcfg, sscratch, sepc, scause, stval, sip, stimecmp, satp }
}
