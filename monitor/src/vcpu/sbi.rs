//! The supervisor binary interface as guests see it (RISC-V SBI specification 2.0): BASE, TIME, IPI, RFENCE, HSM,
//! SRST, DBCN, PMU, STA. What the short exit finishes (see `fast`) does not come here.
//!
//! Every argument is a guest's allegation: masks that name no vCPU, addresses outside RAM and unknown functions
//! get the error code that the specification gives, at this one place.

use super::{Until, Vcpu, exit::Next};
use crate::vm::{
    Vm,
    shared::{HsmState, SharedVcpu, kick, request},
};
use addr::GuestPhysAddr;
use control::StopReason;
use device::GuestMemory as _;
use platform::pmu::{COUNTERS, FirmwareEvent, Pmu, PmuError, Set};
use rv::sbi as firmware;
use sbi_spec::{base, dbcn, hsm, pmu, rfnc, spi, srst, sta, time};

/// An SBI error code of the specification, or a value.
type Answer = Result<u64, Error>;

/// Error codes (SBI specification, "Binary Encoding").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Error {
    NotSupported = -2,
    InvalidParam = -3,
    InvalidAddress = -5,
    AlreadyAvailable = -6,
    AlreadyStarted = -7,
    AlreadyStopped = -8,
}

const A0: usize = 10;
const A1: usize = 11;
const A6: usize = 16;
const A7: usize = 17;
/// Bytes that one DBCN write moves at most: bounded work per exit; the guest asks again for the rest.
const CONSOLE_CHUNK: usize = 256;
/// "All vCPUs" as a hart mask base.
const ALL_HARTS: u64 = u64::MAX;

/// Handles an SBI call that reached the full exit.
pub fn handle(vcpu: &mut Vcpu) -> Next {
    let (eid, fid) = (vcpu.context.x[A7] as usize, vcpu.context.x[A6] as usize);
    vcpu.context.pc += 4;
    let mut next = Next::Resume;
    let answer = match eid {
        base::EID_BASE => base(fid, vcpu.context.x[A0]),
        time::EID_TIME | 0x0 => Err(Error::NotSupported),
        spi::EID_SPI => send_ipi(vcpu, fid),
        rfnc::EID_RFNC => remote_fence(vcpu, fid, &mut next),
        hsm::EID_HSM => return hart_state(vcpu, fid),
        srst::EID_SRST => return system_reset(vcpu, fid),
        dbcn::EID_DBCN => debug_console(vcpu, fid),
        pmu::EID_PMU => performance(vcpu, fid),
        sta::EID_STA => steal_time(vcpu, fid),
        _ => Err(Error::NotSupported),
    };
    finish(vcpu, answer, &mut next)
}

fn finish(vcpu: &mut Vcpu, answer: Answer, next: &mut Next) -> Next {
    let (error, value) = match answer {
        Ok(value) => (0, value),
        Err(error) => (error as i64 as u64, 0),
    };
    vcpu.context.x[A0] = error;
    vcpu.context.x[A1] = value;
    core::mem::replace(next, Next::Resume)
}

fn base(fid: usize, argument: u64) -> Answer {
    match fid {
        base::PROBE_EXTENSION => Ok(u64::from(is_offered(argument as usize))),
        base::GET_MVENDORID => Ok(firmware::machine_ids().0),
        base::GET_MARCHID => Ok(firmware::machine_ids().1),
        base::GET_MIMPID => Ok(firmware::machine_ids().2),
        _ => Err(Error::NotSupported),
    }
}

const fn is_offered(eid: usize) -> bool {
    matches!(
        eid,
        base::EID_BASE
            | time::EID_TIME
            | spi::EID_SPI
            | rfnc::EID_RFNC
            | hsm::EID_HSM
            | srst::EID_SRST
            | dbcn::EID_DBCN
            | pmu::EID_PMU
            | sta::EID_STA
    )
}

/// Calls `act` for each vCPU that (mask, base) names.
fn for_each_target(vm: &Vm, mask: u64, base: u64, mut act: impl FnMut(&SharedVcpu)) -> Answer {
    let vcpus = vm.vcpus();
    if base == ALL_HARTS {
        vcpus.iter().for_each(act);
        return Ok(0);
    }
    // Refuse the whole call before acting on any part of it.
    let highest = 63 - u64::from(mask.leading_zeros().min(63));
    if mask != 0 && base.checked_add(highest).is_none_or(|last| last >= vcpus.len() as u64) {
        return Err(Error::InvalidParam);
    }
    let mut rest = mask;
    while rest != 0 {
        let index = base + u64::from(rest.trailing_zeros());
        rest &= rest - 1;
        if let Some(target) = vcpus.get(index as usize) {
            act(target);
        }
    }
    Ok(0)
}

fn send_ipi(vcpu: &mut Vcpu, fid: usize) -> Answer {
    if fid != spi::SEND_IPI {
        return Err(Error::NotSupported);
    }
    let (mask, base) = (vcpu.context.x[A0], vcpu.context.x[A1]);
    vcpu.pmu.count(FirmwareEvent::IpiSent);
    for_each_target(&vcpu.vm, mask, base, |target| {
        target.request(request::SOFTWARE_INTERRUPT);
        kick(target);
    })
}

fn remote_fence(vcpu: &mut Vcpu, fid: usize, next: &mut Next) -> Answer {
    let (bit, event) = match fid {
        rfnc::REMOTE_FENCE_I => (request::FENCE_I, FirmwareEvent::FenceISent),
        rfnc::REMOTE_SFENCE_VMA => (request::FENCE_VVMA, FirmwareEvent::SfenceVmaSent),
        rfnc::REMOTE_SFENCE_VMA_ASID => (request::FENCE_VVMA, FirmwareEvent::SfenceVmaAsidSent),
        // The H-extension's remote fences have no meaning for a guest without H.
        _ => return Err(Error::NotSupported),
    };
    vcpu.pmu.count(event);
    let (mask, base) = (vcpu.context.x[A0], vcpu.context.x[A1]);
    // Those that are executing are waited for; the others fence before their next instruction.
    let mut awaited = 0;
    for_each_target(&vcpu.vm, mask, base, |target| {
        target.request(bit);
        if target.index != vcpu.index && target.is_loaded() {
            awaited |= 1 << target.index.0;
            kick(target);
        }
    })?;
    *next = vcpu.wait_until(Until::Fences { vcpus: awaited, fences: bit });
    Ok(0)
}

fn hart_state(vcpu: &mut Vcpu, fid: usize) -> Next {
    let mut next = Next::Resume;
    let [target, start, opaque] = [vcpu.context.x[A0], vcpu.context.x[A1], vcpu.context.x[12]];
    let answer = match fid {
        hsm::HART_START => hart_start(vcpu, target, start, opaque),
        hsm::HART_STOP => {
            vcpu.shared.set_hsm(HsmState::Stopped);
            return Next::Stopped;
        }
        hsm::HART_GET_STATUS => match vcpu.vm.vcpus().get(target as usize) {
            Some(shared) => Ok(shared.hsm() as u64),
            None => Err(Error::InvalidParam),
        },
        hsm::HART_SUSPEND => match target as u32 {
            // Default retentive suspend is a WFI; default non-retentive resumes at the given address.
            hsm::suspend_type::RETENTIVE => {
                next = Next::Wait;
                Ok(0)
            }
            hsm::suspend_type::NON_RETENTIVE => {
                vcpu.resume_at(start, opaque);
                return Next::Wait;
            }
            _ => Err(Error::InvalidParam),
        },
        _ => Err(Error::NotSupported),
    };
    finish(vcpu, answer, &mut next)
}

fn hart_start(vcpu: &Vcpu, target: u64, start: u64, opaque: u64) -> Answer {
    let Some(shared) = vcpu.vm.vcpus().get(target as usize) else { return Err(Error::InvalidParam) };
    if !vcpu.vm.memory().contains(GuestPhysAddr::new(start), 4) || start & 1 != 0 {
        return Err(Error::InvalidAddress);
    }
    shared.claim_start(start, opaque).map_err(|_| Error::AlreadyAvailable)?;
    shared.request(request::START);
    kick(shared);
    Ok(0)
}

fn system_reset(vcpu: &mut Vcpu, fid: usize) -> Next {
    let (kind, reason) = (vcpu.context.x[A0] as u32, vcpu.context.x[A1] as u32);
    let mut next = Next::Resume;
    if fid != srst::SYSTEM_RESET || reason > srst::RESET_REASON_SYSTEM_FAILURE {
        let error = if fid == srst::SYSTEM_RESET { Error::InvalidParam } else { Error::NotSupported };
        return finish(vcpu, Err(error), &mut next);
    }
    match kind {
        srst::RESET_TYPE_SHUTDOWN if reason == srst::RESET_REASON_SYSTEM_FAILURE => {
            vcpu.vm.request_stop(StopReason::GuestFailure { code: 0 });
            Next::VmStateChanged
        }
        srst::RESET_TYPE_SHUTDOWN => {
            vcpu.vm.request_stop(StopReason::PowerOff);
            Next::VmStateChanged
        }
        srst::RESET_TYPE_COLD_REBOOT | srst::RESET_TYPE_WARM_REBOOT => {
            vcpu.vm.request_reset();
            Next::VmStateChanged
        }
        _ => finish(vcpu, Err(Error::InvalidParam), &mut next),
    }
}

fn debug_console(vcpu: &mut Vcpu, fid: usize) -> Answer {
    let [count, low, high] = [vcpu.context.x[A0], vcpu.context.x[A1], vcpu.context.x[12]];
    match fid {
        dbcn::CONSOLE_WRITE => {
            if high != 0 || !vcpu.vm.memory().contains(GuestPhysAddr::new(low), count) {
                return Err(Error::InvalidParam);
            }
            let mut chunk = [0; CONSOLE_CHUNK];
            let len = usize::try_from(count).unwrap_or(CONSOLE_CHUNK).min(CONSOLE_CHUNK);
            vcpu.vm.memory().read(GuestPhysAddr::new(low), &mut chunk[..len]).map_err(|_| Error::InvalidParam)?;
            vcpu.vm.console_output(&chunk[..len]);
            Ok(len as u64)
        }
        dbcn::CONSOLE_READ => {
            if high != 0 || !vcpu.vm.memory().contains(GuestPhysAddr::new(low), count) {
                return Err(Error::InvalidParam);
            }
            // Console input belongs to the UART.
            Ok(0)
        }
        dbcn::CONSOLE_WRITE_BYTE => {
            vcpu.vm.console_output(&[count as u8]);
            Ok(0)
        }
        _ => Err(Error::NotSupported),
    }
}

/// Performance counters.
fn performance(vcpu: &mut Vcpu, fid: usize) -> Answer {
    let [a0, a1, a2, a3] = [A0, A1, 12, 13].map(|register| vcpu.context.x[register]);
    let (set, now) = (Set { base: a0, mask: a1 }, super::counters::hardware());
    let counters = &mut vcpu.pmu;
    let answer = match fid {
        pmu::NUM_COUNTERS => Ok(COUNTERS as u64),
        pmu::COUNTER_GET_INFO => Pmu::info(a0),
        pmu::COUNTER_CONFIG_MATCHING => counters.configure(set, a2, a3, now),
        pmu::COUNTER_START => counters.start(set, a2, a3, now).map(|()| 0),
        pmu::COUNTER_STOP => counters.stop(set, a2, now).map(|()| 0),
        pmu::COUNTER_FW_READ => counters.firmware_value(a0),
        pmu::COUNTER_FW_READ_HI => counters.firmware_value(a0).map(|_| 0),
        _ => Err(PmuError::NotSupported),
    };
    vcpu.open_counters();
    answer.map_err(|why| match why {
        PmuError::InvalidParam => Error::InvalidParam,
        PmuError::NotSupported => Error::NotSupported,
        PmuError::AlreadyStarted => Error::AlreadyStarted,
        PmuError::AlreadyStopped => Error::AlreadyStopped,
    })
}

/// Steal-time accounting: the guest names a 64-byte record that the monitor keeps up to date.
fn steal_time(vcpu: &mut Vcpu, fid: usize) -> Answer {
    const RECORD: u64 = 64;
    let [low, high, flags] = [vcpu.context.x[A0], vcpu.context.x[A1], vcpu.context.x[12]];
    if fid != sta::SET_SHMEM {
        return Err(Error::NotSupported);
    }
    if flags != 0 {
        return Err(Error::InvalidParam);
    }
    if (low, high) == (u64::MAX, u64::MAX) {
        vcpu.steal_record = None;
        return Ok(0);
    }
    if !low.is_multiple_of(RECORD) {
        return Err(Error::InvalidParam);
    }
    let record = GuestPhysAddr::new(low);
    if high != 0 || !vcpu.vm.memory().contains(record, RECORD) {
        return Err(Error::InvalidAddress);
    }
    vcpu.vm.memory().write(record, &[0; RECORD as usize]).map_err(|_| Error::InvalidAddress)?;
    vcpu.steal_record = Some(record);
    Ok(0)
}
