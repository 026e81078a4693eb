//! What SBI calls do (RISC-V SBI specification 3.0). What they ask for, and what is wrong with it, says `vcpu::sbi`; what the short
//! exit finishes (see `fast`) does not come here.

use super::{Until, Vcpu, exit::Next};
use crate::vm::{
    Vm,
    shared::{kick, request},
};
use ::vcpu::{
    hsm::{Change, HartState},
    sbi::{self, Answer, Call, CounterSet, Counters, Entry, Error, HartMask, MachineId, RemoteFence, Request, Reset},
};
use addr::{GuestPhysAddr, VcpuIndex};
use control::StopReason;
use device::GuestMemory as _;
use platform::pmu::{COUNTERS, FirmwareEvent, Pmu, PmuError, Set};
use rv::sbi as firmware;

const A0: usize = 10;
const A1: usize = 11;
const A6: usize = 16;
const A7: usize = 17;

impl sbi::Guest for Vm {
    fn vcpus(&self) -> u16 {
        self.vcpus().len() as u16
    }

    fn is_ram(&self, at: GuestPhysAddr, bytes: u64) -> bool {
        self.memory().contains(at, bytes)
    }

    fn has_double_trap(&self) -> bool {
        crate::machine::capabilities().guests.double_trap
    }
}

/// Handles an SBI call that reached the full exit. Out of line: what is short on the way of other exits stays in registers.
#[inline(never)]
pub fn handle(vcpu: &mut Vcpu) -> Next {
    vcpu.context.pc += 4;
    let x = &vcpu.context.x;
    let call = Call { extension: x[A7], function: x[A6], arguments: [x[A0], x[A1], x[12], x[13], x[14]] };
    match sbi::decode(&call, &*vcpu.vm) {
        Ok(request) => perform(vcpu, request),
        Err(error) => finish(vcpu, Err(error)),
    }
}

/// Puts the answer into the guest's registers; it goes on.
pub(super) fn finish(vcpu: &mut Vcpu, answer: Answer) -> Next {
    (vcpu.context.x[A0], vcpu.context.x[A1]) = sbi::encode(answer);
    Next::Resume
}

fn perform(vcpu: &mut Vcpu, request: Request) -> Next {
    let answer = match request {
        Request::SendIpi(harts) => send_ipi(vcpu, harts),
        Request::Fence(fence, harts) => return remote_fence(vcpu, fence, harts),
        Request::Known(value) => Ok(value),
        Request::MachineId(id) => Ok(machine_id(id)),
        Request::StartHart(hart, entry) => start_hart(vcpu, hart, entry),
        Request::StopHart => return stop_hart(vcpu),
        Request::HartStatus(hart) => hart_status(vcpu, hart),
        Request::SuspendHart(resume) => return suspend(vcpu, resume),
        Request::SuspendSystem(entry) => return suspend_system(vcpu, entry),
        Request::Reset(reset) => return end(vcpu, reset),
        Request::ConsoleWrite(at, bytes) => print(vcpu, at, bytes),
        Request::ConsoleWriteByte(byte) => {
            vcpu.vm.console_output(&[byte]);
            Ok(0)
        }
        Request::Counters(call) => count(vcpu, call),
        Request::StealRecord(record) => keep_steal_time(vcpu, record),
        Request::GetFeature(feature) => vcpu.get_feature(feature),
        Request::SetFeature { feature, value, flags } => vcpu.set_feature(feature, value, flags),
        Request::Event(call) => return vcpu.event_call(call),
    };
    finish(vcpu, answer)
}

fn machine_id(id: MachineId) -> u64 {
    let (vendor, architecture, implementation) = firmware::machine_ids();
    match id {
        MachineId::Mvendorid => vendor,
        MachineId::Marchid => architecture,
        MachineId::Mimpid => implementation,
    }
}

fn send_ipi(vcpu: &mut Vcpu, harts: HartMask) -> Answer {
    vcpu.pmu.count(FirmwareEvent::IpiSent);
    let mut is_late = false;
    for target in harts.filter_map(|hart| vcpu.vm.vcpus().get(hart.index())) {
        is_late |= target.index != vcpu.index && target.waits_for_hart();
        target.request(request::SOFTWARE_INTERRUPT);
        kick(target);
    }
    if is_late {
        vcpu.note_late_call();
    }
    Ok(0)
}

fn remote_fence(vcpu: &mut Vcpu, fence: RemoteFence, harts: HartMask) -> Next {
    let (bit, event) = match fence {
        RemoteFence::Instructions => (request::FENCE_I, FirmwareEvent::FenceISent),
        RemoteFence::Translations => (request::FENCE_VVMA, FirmwareEvent::SfenceVmaSent),
        RemoteFence::TranslationsOfSpace => (request::FENCE_VVMA, FirmwareEvent::SfenceVmaAsidSent),
    };
    vcpu.pmu.count(event);
    // Those that are executing are waited for; the others fence before their next instruction.
    let (mut awaited, mut is_late) = (0, false);
    for target in harts.filter_map(|hart| vcpu.vm.vcpus().get(hart.index())) {
        target.request(bit);
        is_late |= target.index != vcpu.index && target.waits_for_hart();
        if target.index != vcpu.index && target.is_loaded() {
            awaited |= 1 << target.index.0;
            kick(target);
        }
    }
    if is_late {
        vcpu.note_late_call();
    }
    finish(vcpu, Ok(0));
    vcpu.wait_until(Until::Fences { vcpus: awaited, fences: bit })
}

fn start_hart(vcpu: &Vcpu, hart: VcpuIndex, entry: Entry) -> Answer {
    let target = vcpu.vm.vcpus().get(hart.index()).ok_or(Error::InvalidParam)?;
    target.claim_start(entry).map_err(|_| Error::AlreadyAvailable)?;
    target.request(request::START);
    kick(target);
    Ok(0)
}

fn stop_hart(vcpu: &Vcpu) -> Next {
    vcpu.shared.change_hsm(Change::AskStop);
    Next::Stopped
}

fn hart_status(vcpu: &Vcpu, hart: VcpuIndex) -> Answer {
    vcpu.vm.vcpus().get(hart.index()).map(|target| target.hsm() as u64).ok_or(Error::InvalidParam)
}

fn suspend(vcpu: &mut Vcpu, resume: Option<Entry>) -> Next {
    // What a retentive suspend returns, once it does.
    finish(vcpu, Ok(0));
    vcpu.suspend(resume)
}

fn suspend_system(vcpu: &mut Vcpu, entry: Entry) -> Next {
    let mut others = vcpu.vm.vcpus().iter().filter(|other| other.index != vcpu.index);
    if others.any(|other| other.hsm() != HartState::Stopped) {
        return finish(vcpu, Err(Error::Denied));
    }
    suspend(vcpu, Some(entry))
}

fn end(vcpu: &Vcpu, reset: Reset) -> Next {
    match reset {
        Reset::PowerOff => vcpu.vm.request_stop(StopReason::PowerOff),
        Reset::Failure => vcpu.vm.request_stop(StopReason::GuestFailure { code: 0 }),
        Reset::Restart => vcpu.vm.request_reset(),
    }
    Next::VmStateChanged
}

fn print(vcpu: &Vcpu, at: GuestPhysAddr, bytes: usize) -> Answer {
    let mut chunk = [0; sbi::CONSOLE_CHUNK as usize];
    let chunk = chunk.get_mut(..bytes).ok_or(Error::InvalidParam)?;
    vcpu.vm.memory().read(at, chunk).map_err(|_| Error::InvalidParam)?;
    vcpu.vm.console_output(chunk);
    Ok(bytes as u64)
}

/// Performance counters.
fn count(vcpu: &mut Vcpu, call: Counters) -> Answer {
    let set = |set: CounterSet| Set { base: set.base, mask: set.mask };
    let (counters, now) = (&mut vcpu.pmu, super::counters::hardware());
    let answer = match call {
        Counters::Number => Ok(COUNTERS as u64),
        Counters::Info(counter) => Pmu::info(counter, now),
        Counters::Configure { set: named, flags, event } => counters.configure(set(named), flags, event, now),
        Counters::Start { set: named, flags, value } => counters.start(set(named), flags, value, now).map(|()| 0),
        Counters::Stop { set: named, flags } => counters.stop(set(named), flags, now).map(|()| 0),
        Counters::Read(counter) => counters.firmware_value(counter),
        Counters::ReadHigh(counter) => counters.firmware_value(counter).map(|_| 0),
    };
    vcpu.open_counters();
    answer.map_err(|why| match why {
        PmuError::InvalidParam => Error::InvalidParam,
        PmuError::NotSupported => Error::NotSupported,
        PmuError::AlreadyStarted => Error::AlreadyStarted,
        PmuError::AlreadyStopped => Error::AlreadyStopped,
    })
}

/// Steal-time accounting: the guest names a record that the monitor keeps up to date.
fn keep_steal_time(vcpu: &mut Vcpu, record: Option<GuestPhysAddr>) -> Answer {
    if let Some(record) = record {
        let cleared = vcpu.vm.memory().write(record, &[0; sbi::STEAL_RECORD as usize]);
        cleared.map_err(|_| Error::InvalidAddress)?;
    }
    vcpu.steal_record = record;
    Ok(0)
}
