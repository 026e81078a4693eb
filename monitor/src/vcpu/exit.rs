//! From a trap's cause to what happens next.

use super::{Until, Vcpu, guest_loads::Tried, sbi};
use crate::vm::{platform::Reached, shared::request};
use crate::{
    hart::{Hart, HartTools},
    machine::memory,
    vm::memory::{Access, Touch},
};
use ::vcpu::trap::{Trapped, virtual_instruction as virtual_instruction_of};
use addr::GuestPhysAddr;
use control::{ExitCause, WaitSign};
use device::{GuestFault, Width};
use platform::pmu::FirmwareEvent;
use rv::{
    cause, csr,
    decode::{self, MemoryAccess},
    fields::htval,
    world,
};

/// What the per-hart loop does after an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Re-enter the guest.
    Resume,
    /// The vCPU waits for an interrupt: give the hart away unless one is pending.
    Wait,
    /// The time slice may be over or others may have become runnable: ask the run queue.
    Reschedule,
    /// The vCPU waits for a lock: somebody else should run first.
    Yield,
    /// The vCPU waits for other harts ([`super::Until`]).
    Held,
    /// The vCPU is suspended until an interrupt comes.
    Suspend,
    /// The vCPU stopped itself (HSM).
    Stopped,
    /// The VM is stopping, resetting or pausing.
    VmStateChanged,
}

/// Handles a full exit with cause `scause`.
pub fn handle(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, scause: u64) -> Next {
    match scause {
        cause::ECALL_FROM_VS => {
            vcpu.count(ExitCause::SbiCall);
            sbi::handle(vcpu)
        }
        cause::LOAD_GUEST_PAGE_FAULT => guest_page_fault(vcpu, hart, tools, Access::Read),
        cause::STORE_GUEST_PAGE_FAULT => guest_page_fault(vcpu, hart, tools, Access::Write),
        cause::INSTRUCTION_GUEST_PAGE_FAULT => guest_page_fault(vcpu, hart, tools, Access::Execute),
        cause::VIRTUAL_INSTRUCTION => virtual_instruction(vcpu, hart, tools),
        cause::SUPERVISOR_TIMER => {
            vcpu.count(ExitCause::TimerInterrupt);
            tools.timer_fired();
            vcpu.look_for_spin(hart, tools);
            Next::Reschedule
        }
        cause::SUPERVISOR_SOFTWARE => {
            vcpu.count(ExitCause::Ipi);
            Next::Reschedule
        }
        cause::SUPERVISOR_EXTERNAL => {
            vcpu.count(ExitCause::ExternalInterrupt);
            Next::Reschedule
        }
        cause::SUPERVISOR_GUEST_EXTERNAL => {
            vcpu.count(ExitCause::GuestExternal);
            Next::Reschedule
        }
        other => rare(vcpu, hart, tools, other),
    }
}

/// Causes that are kept out of the way of the frequent ones: those stay shorter by it.
#[inline(never)]
fn rare(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, scause: u64) -> Next {
    match scause {
        cause::ILLEGAL_INSTRUCTION => illegal_instruction(vcpu),
        cause::INSTRUCTION_ACCESS_FAULT | cause::LOAD_ACCESS_FAULT | cause::STORE_ACCESS_FAULT => {
            vcpu.count(ExitCause::AccessFault);
            access_fault(vcpu, hart, tools, scause)
        }
        cause::BREAKPOINT => {
            vcpu.count(ExitCause::Other);
            vcpu.breakpoint()
        }
        cause::DOUBLE_TRAP => {
            vcpu.count(ExitCause::Other);
            vcpu.double_trap(csr::htval::read())
        }
        other => {
            vcpu.count(ExitCause::Other);
            inject_or_fail(vcpu, other)
        }
    }
}

/// Exceptions that are not delegated but mean nothing to the monitor go to the guest as they are.
#[cold]
fn inject_or_fail(vcpu: &mut Vcpu, scause: u64) -> Next {
    if scause & cause::INTERRUPT != 0 {
        return Next::Reschedule;
    }
    if scause > cause::STORE_PAGE_FAULT {
        return vcpu.fail("hart", "unknown trap", scause);
    }
    inject(vcpu, scause, csr::stval::read())
}

/// The guest's kernel handles an exception, if it can take one.
#[cold]
#[inline(never)]
fn inject(vcpu: &mut Vcpu, cause: u64, value: u64) -> Next {
    match world::inject_exception(&mut vcpu.context, cause, value) {
        Ok(()) => Next::Resume,
        Err(world::DoubleTrap) => vcpu.double_trap(cause),
    }
}

/// Only chooses: what the two ways need of the stack and of registers differs too much to pay for both.
#[inline(always)]
fn guest_page_fault(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, access: Access) -> Next {
    let gpa = GuestPhysAddr::new(htval::guest_physical(csr::htval::read(), csr::stval::read()));
    if vcpu.vm.is_ram(gpa) { touch(vcpu, hart, tools, access, gpa) } else { mmio(vcpu, hart, tools, access, gpa) }
}

/// A first touch of RAM by this node.
#[inline(never)]
fn touch(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, access: Access, gpa: GuestPhysAddr) -> Next {
    vcpu.count(match access {
        Access::Read => ExitCause::LoadGuestPageFault,
        Access::Write => ExitCause::StoreGuestPageFault,
        Access::Execute => ExitCause::InstructionGuestPageFault,
    });
    match vcpu.vm.touch(gpa, access, hart.node) {
        Touch::Mapped => {
            crate::vm::shared::add(&vcpu.shared.counters.faults, 1);
            if memory::frames().wants_zeroing(hart.node) {
                // What it took is made up for when it rests.
                vcpu.leave_when_waiting();
            }
            Next::Resume
        }
        Touch::Repeated => {
            vcpu.tlb.forget();
            Next::Resume
        }
        Touch::Waits(generation) => vcpu.wait_until(Until::Shootdown(generation)),
        Touch::Busy => vcpu.wait_until(Until::Moment),
        Touch::GoesOn => go_on_touching(vcpu, hart, tools, access, gpa),
        Touch::OutOfMemory => Next::VmStateChanged,
    }
}

/// A block is zeroed for the vCPU, piece by piece, until it is there or somebody wants something else of the hart. Then the guest
/// faults once more, and the next piece follows.
#[cold]
fn go_on_touching(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, access: Access, gpa: GuestPhysAddr) -> Next {
    // A block has an end.
    loop {
        tools.look(csr::time::read(), &hart.counters.stretches);
        if tools.is_called() {
            return Next::Reschedule;
        }
        match vcpu.vm.touch(gpa, access, hart.node) {
            Touch::GoesOn => {}
            // The fault comes again, and finds what there is.
            _ => return Next::Resume,
        }
    }
}

/// An access to an address where the guest has nothing: it sees what hardware would show, an access fault.
#[cold]
fn wild(vcpu: &mut Vcpu, access_fault: u64, gpa: GuestPhysAddr) -> Next {
    if vcpu.is_fault_loop() {
        return vcpu.fail("bus", "the guest's trap handler itself faults for ever", gpa.raw());
    }
    match access_fault {
        cause::LOAD_ACCESS_FAULT => vcpu.pmu.count(FirmwareEvent::AccessLoad),
        cause::STORE_ACCESS_FAULT => vcpu.pmu.count(FirmwareEvent::AccessStore),
        _ => {}
    }
    inject(vcpu, access_fault, csr::stval::read())
}

/// The machine refuses an access that the tables allow. A guest's own interrupt file is a device that takes aligned words
/// only: then a word can be read there, and the fault is the guest's as it would be on a machine of its own. Else memory
/// is broken.
#[cold]
fn access_fault(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, scause: u64) -> Next {
    let gva = csr::stval::read();
    let (pc, sstatus) = (vcpu.context.pc, vcpu.context.sstatus);
    let tried = match scause {
        cause::INSTRUCTION_ACCESS_FAULT => Tried::Refused,
        _ => vcpu.try_load(hart, tools, gva),
    };
    if tried == Tried::Unmapped {
        // The page went meanwhile, as that of an interrupt file does when its vCPU moves. The guest tries again, and sees what is there now.
        return Next::Resume;
    }
    if tried == Tried::Refused {
        log::error!("VM {}: {scause:#x} at {gva:#x}, pc {pc:#x}, sstatus {sstatus:#x}", vcpu.vm.spec().name);
        return vcpu.fail("memory", "machine memory does not answer", gva);
    }
    if vcpu.is_fault_loop() {
        return vcpu.fail("bus", "the guest's trap handler itself faults for ever", gva);
    }
    inject(vcpu, scause, gva)
}

/// An access outside RAM.
#[inline(always)]
fn mmio(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools, access: Access, gpa: GuestPhysAddr) -> Next {
    if access == Access::Execute {
        vcpu.count(ExitCause::InstructionGuestPageFault);
        return wild(vcpu, cause::INSTRUCTION_ACCESS_FAULT, gpa);
    }
    let decoded = match csr::htinst::read() {
        0 => match decode_fetched(vcpu, hart, tools) {
            Some(decoded) => decoded,
            None => return is_gone(vcpu),
        },
        htinst => decode::from_htinst(htinst),
    };
    let Some(access) = decoded else { return not_decoded(vcpu, access, gpa) };
    let width = Width::from_log2(access.width_log2);
    let outcome = if access.is_store {
        vcpu.count(ExitCause::MmioStore);
        let value = width.truncate(vcpu.context.x[usize::from(access.register & 31)]);
        vcpu.vm.bus_write(gpa, width, value)
    } else {
        vcpu.count(ExitCause::MmioLoad);
        match vcpu.vm.bus_read(gpa, width) {
            Ok(Reached::Done(raw)) => {
                if access.register != 0 {
                    vcpu.context.x[usize::from(access.register & 31)] = access.extend(raw);
                }
                Ok(Reached::Done(()))
            }
            Ok(Reached::Nothing) => Ok(Reached::Nothing),
            Ok(Reached::Busy) => Ok(Reached::Busy),
            Err(fault) => Err(fault),
        }
    };
    match outcome {
        Ok(Reached::Done(())) => {
            vcpu.context.pc += u64::from(access.length);
            // What the access asked of this vCPU is served before it goes on.
            if access.is_store && vcpu.vm.platform().has_backlog() {
                vcpu.shared.request(request::BACKLOG);
                return Next::Reschedule;
            }
            Next::Resume
        }
        Ok(Reached::Busy) => Next::Reschedule,
        Ok(Reached::Nothing) => {
            let fault = if access.is_store { cause::STORE_ACCESS_FAULT } else { cause::LOAD_ACCESS_FAULT };
            wild(vcpu, fault, gpa)
        }
        Err(GuestFault { device, reason, value }) => vcpu.fail(device, reason, value),
    }
}

/// An access that means nothing to a device: by an AMO, by FP or vector registers, or by a walk of the guest's page tables.
#[cold]
fn not_decoded(vcpu: &mut Vcpu, access: Access, gpa: GuestPhysAddr) -> Next {
    vcpu.count(ExitCause::Other);
    let fault = if access == Access::Write { cause::STORE_ACCESS_FAULT } else { cause::LOAD_ACCESS_FAULT };
    wild(vcpu, fault, gpa)
}

/// The hart had the instruction from its TLB or fetched it before the leaf of its page was taken away. The guest tries again, and
/// faults on it.
#[cold]
fn is_gone(vcpu: &Vcpu) -> Next {
    vcpu.count(ExitCause::Other);
    Next::Resume
}

/// What the instruction at the guest's `pc` accesses, where the hart did not report that. `None` if it cannot be fetched any more,
/// `Some(None)` if it is no access that the monitor makes out.
#[cold]
#[inline(never)]
fn decode_fetched(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools) -> Option<Option<MemoryAccess>> {
    vcpu.fetch_instruction(hart, tools).map(decode::from_instruction)
}

fn virtual_instruction(vcpu: &mut Vcpu, hart: &Hart, tools: &mut HartTools) -> Next {
    let instruction = match csr::stval::read() {
        // Hardware may leave stval zero, and QEMU does for `wrs.nto`.
        0 => match vcpu.fetch_instruction(hart, tools) {
            Some(instruction) => u64::from(instruction),
            None => {
                vcpu.count(ExitCause::VirtualInstruction);
                return Next::Resume;
            }
        },
        instruction => instruction,
    };
    let trapped = virtual_instruction_of(instruction);
    if trapped == Trapped::Wait {
        vcpu.count(ExitCause::Wfi);
        vcpu.context.pc += 4;
        return Next::Wait;
    }
    vcpu.count(ExitCause::VirtualInstruction);
    match trapped {
        Trapped::WaitForStore => {
            // The guest waits for a lock whose holder may be waiting for this hart.
            vcpu.context.pc += 4;
            vcpu.note_wait(WaitSign::Store);
            return if vcpu.yields() { Next::Yield } else { Next::Resume };
        }
        Trapped::Csr(access) if vcpu.emulate_csr(access) => {
            vcpu.context.pc += 4;
            return Next::Resume;
        }
        _ => {}
    }
    inject(vcpu, cause::ILLEGAL_INSTRUCTION, instruction)
}

fn illegal_instruction(vcpu: &mut Vcpu) -> Next {
    if vcpu.units.load_missing(&mut vcpu.context.sstatus, crate::machine::capabilities().vector) {
        vcpu.count(ExitCause::FpLazy);
        return Next::Resume;
    }
    vcpu.count(ExitCause::IllegalInstruction);
    vcpu.pmu.count(FirmwareEvent::IllegalInstruction);
    inject(vcpu, cause::ILLEGAL_INSTRUCTION, csr::stval::read())
}
