//! From registers to requests.

use super::{
    CONSOLE_CHUNK, Call, CounterSet, Counters, Entry, Error, Guest, HartMask, MachineId, RemoteFence, Request, Reset,
    STEAL_RECORD,
};
use crate::{
    fwft::Feature,
    sse::{self, ATTRIBUTES, EventId, Range},
};
use addr::{GuestPhysAddr, VcpuIndex};
use sbi_spec::{base, dbcn, fwft, hsm, pmu, rfnc, spi, srst, sse as events, sta, susp, time};

/// Every extension that a guest has.
const OFFERED: [usize; 12] = [
    base::EID_BASE,
    time::EID_TIME,
    spi::EID_SPI,
    rfnc::EID_RFNC,
    hsm::EID_HSM,
    srst::EID_SRST,
    dbcn::EID_DBCN,
    pmu::EID_PMU,
    sta::EID_STA,
    susp::EID_SUSP,
    fwft::EID_FWFT,
    events::EID_SSE,
];

/// What `call` asks for. Set-timer and the constants of BASE are not here: they are finished before.
///
/// # Errors
/// The specification's, for whatever can be refused without the state of the guest.
#[inline]
pub fn decode(call: &Call, guest: &impl Guest) -> Result<Request, Error> {
    let (function, arguments) = (call.function as usize, &call.arguments);
    match call.extension as usize {
        spi::EID_SPI => send_ipi(function, arguments, guest.vcpus()),
        rfnc::EID_RFNC => remote_fence(function, arguments, guest.vcpus()),
        base::EID_BASE => base(function, arguments[0]),
        hsm::EID_HSM => hart_state(function, arguments, guest),
        srst::EID_SRST => reset(function, arguments),
        susp::EID_SUSP => system_suspend(function, arguments, guest),
        dbcn::EID_DBCN => console(function, arguments, guest),
        pmu::EID_PMU => counters(function, arguments).map(Request::Counters),
        sta::EID_STA => steal_time(function, arguments, guest),
        fwft::EID_FWFT => feature(function, arguments),
        events::EID_SSE => event(function, arguments, guest).map(Request::Event),
        _ => Err(Error::NotSupported),
    }
}

fn base(function: usize, argument: u64) -> Result<Request, Error> {
    match function {
        base::PROBE_EXTENSION => Ok(Request::Known(u64::from(OFFERED.contains(&(argument as usize))))),
        base::GET_MVENDORID => Ok(Request::MachineId(MachineId::Mvendorid)),
        base::GET_MARCHID => Ok(Request::MachineId(MachineId::Marchid)),
        base::GET_MIMPID => Ok(Request::MachineId(MachineId::Mimpid)),
        _ => Err(Error::NotSupported),
    }
}

#[inline]
fn send_ipi(function: usize, arguments: &[u64; 5], vcpus: u16) -> Result<Request, Error> {
    if function != spi::SEND_IPI {
        return Err(Error::NotSupported);
    }
    HartMask::decode(arguments[0], arguments[1], vcpus).map(Request::SendIpi)
}

#[inline]
fn remote_fence(function: usize, arguments: &[u64; 5], vcpus: u16) -> Result<Request, Error> {
    let fence = match function {
        rfnc::REMOTE_FENCE_I => RemoteFence::Instructions,
        rfnc::REMOTE_SFENCE_VMA => RemoteFence::Translations,
        rfnc::REMOTE_SFENCE_VMA_ASID => RemoteFence::TranslationsOfSpace,
        // The H extension's remote fences have no meaning for a guest without H.
        _ => return Err(Error::NotSupported),
    };
    HartMask::decode(arguments[0], arguments[1], vcpus).map(|harts| Request::Fence(fence, harts))
}

/// A vCPU by its number.
fn hart(number: u64, guest: &impl Guest) -> Result<VcpuIndex, Error> {
    let is_there = number < u64::from(guest.vcpus());
    is_there.then_some(VcpuIndex(number as u16)).ok_or(Error::InvalidParam)
}

/// A place to begin at.
fn entry(pc: u64, opaque: u64, guest: &impl Guest) -> Result<Entry, Error> {
    /// Bytes of an instruction.
    const INSTRUCTION: u64 = 4;
    let can_execute = pc & 1 == 0 && guest.is_ram(GuestPhysAddr::new(pc), INSTRUCTION);
    can_execute.then_some(Entry { pc, opaque }).ok_or(Error::InvalidAddress)
}

fn hart_state(function: usize, arguments: &[u64; 5], guest: &impl Guest) -> Result<Request, Error> {
    let [first, at, opaque, ..] = *arguments;
    match function {
        hsm::HART_START => Ok(Request::StartHart(hart(first, guest)?, entry(at, opaque, guest)?)),
        hsm::HART_STOP => Ok(Request::StopHart),
        hsm::HART_GET_STATUS => Ok(Request::HartStatus(hart(first, guest)?)),
        // The type has 32 bits. There are no suspend types of this platform.
        hsm::HART_SUSPEND => match first as u32 {
            hsm::suspend_type::RETENTIVE => Ok(Request::SuspendHart(None)),
            hsm::suspend_type::NON_RETENTIVE => Ok(Request::SuspendHart(Some(entry(at, opaque, guest)?))),
            _ => Err(Error::InvalidParam),
        },
        _ => Err(Error::NotSupported),
    }
}

fn system_suspend(function: usize, arguments: &[u64; 5], guest: &impl Guest) -> Result<Request, Error> {
    const TO_RAM: u32 = 0;
    let [kind, at, opaque, ..] = *arguments;
    match (function, kind as u32) {
        (susp::SUSPEND, TO_RAM) => entry(at, opaque, guest).map(Request::SuspendSystem),
        (susp::SUSPEND, _) => Err(Error::InvalidParam),
        _ => Err(Error::NotSupported),
    }
}

fn reset(function: usize, arguments: &[u64; 5]) -> Result<Request, Error> {
    if function != srst::SYSTEM_RESET {
        return Err(Error::NotSupported);
    }
    let (kind, reason) = (arguments[0] as u32, arguments[1] as u32);
    if reason > srst::RESET_REASON_SYSTEM_FAILURE {
        return Err(Error::InvalidParam);
    }
    match kind {
        srst::RESET_TYPE_SHUTDOWN if reason == srst::RESET_REASON_SYSTEM_FAILURE => Ok(Request::Reset(Reset::Failure)),
        srst::RESET_TYPE_SHUTDOWN => Ok(Request::Reset(Reset::PowerOff)),
        srst::RESET_TYPE_COLD_REBOOT | srst::RESET_TYPE_WARM_REBOOT => Ok(Request::Reset(Reset::Restart)),
        _ => Err(Error::InvalidParam),
    }
}

fn console(function: usize, arguments: &[u64; 5], guest: &impl Guest) -> Result<Request, Error> {
    let [bytes, low, high, ..] = *arguments;
    let at = GuestPhysAddr::new(low);
    let memory = || if high == 0 && guest.is_ram(at, bytes) { Ok(()) } else { Err(Error::InvalidParam) };
    match function {
        dbcn::CONSOLE_WRITE => memory().map(|()| Request::ConsoleWrite(at, bytes.min(CONSOLE_CHUNK) as usize)),
        // Console input belongs to the UART.
        dbcn::CONSOLE_READ => memory().map(|()| Request::Known(0)),
        dbcn::CONSOLE_WRITE_BYTE => Ok(Request::ConsoleWriteByte(bytes as u8)),
        _ => Err(Error::NotSupported),
    }
}

fn counters(function: usize, arguments: &[u64; 5]) -> Result<Counters, Error> {
    let [base, mask, flags, value, _] = *arguments;
    let set = CounterSet { base, mask };
    Ok(match function {
        pmu::NUM_COUNTERS => Counters::Number,
        pmu::COUNTER_GET_INFO => Counters::Info(base),
        pmu::COUNTER_CONFIG_MATCHING => Counters::Configure { set, flags, event: value },
        pmu::COUNTER_START => Counters::Start { set, flags, value },
        pmu::COUNTER_STOP => Counters::Stop { set, flags },
        pmu::COUNTER_FW_READ => Counters::Read(base),
        pmu::COUNTER_FW_READ_HI => Counters::ReadHigh(base),
        _ => return Err(Error::NotSupported),
    })
}

fn steal_time(function: usize, arguments: &[u64; 5], guest: &impl Guest) -> Result<Request, Error> {
    let [low, high, flags, ..] = *arguments;
    if function != sta::SET_SHMEM {
        return Err(Error::NotSupported);
    }
    if flags != 0 {
        return Err(Error::InvalidParam);
    }
    if (low, high) == (u64::MAX, u64::MAX) {
        return Ok(Request::StealRecord(None));
    }
    if !low.is_multiple_of(STEAL_RECORD) {
        return Err(Error::InvalidParam);
    }
    let at = GuestPhysAddr::new(low);
    let is_ram = high == 0 && guest.is_ram(at, STEAL_RECORD);
    is_ram.then_some(Request::StealRecord(Some(at))).ok_or(Error::InvalidAddress)
}

fn feature(function: usize, arguments: &[u64; 5]) -> Result<Request, Error> {
    let [number, value, flags, ..] = *arguments;
    match function {
        fwft::GET => Feature::decode(number as u32).map(Request::GetFeature),
        fwft::SET => Feature::decode(number as u32).map(|feature| Request::SetFeature { feature, value, flags }),
        _ => Err(Error::NotSupported),
    }
}

fn event(function: usize, arguments: &[u64; 5], guest: &impl Guest) -> Result<sse::Call, Error> {
    let [number, second, third, ..] = *arguments;
    let id = || EventId::decode(number as u32, guest.has_double_trap());
    Ok(match function {
        events::READ_ATTRS => sse::Call::Read(attributes(id()?, arguments, guest)?),
        events::WRITE_ATTRS => sse::Call::Write(attributes(id()?, arguments, guest)?),
        events::REGISTER => match (id()?, second & 1) {
            (event, 0) => sse::Call::Register { event, entry: second, argument: third },
            _ => return Err(Error::InvalidParam),
        },
        events::UNREGISTER => sse::Call::Unregister(id()?),
        events::ENABLE => sse::Call::Enable(id()?),
        events::DISABLE => sse::Call::Disable(id()?),
        events::COMPLETE => sse::Call::Complete,
        events::INJECT => inject(id()?, second, guest)?,
        events::HART_UNMASK => sse::Call::Unmask,
        events::HART_MASK => sse::Call::Mask,
        _ => return Err(Error::NotSupported),
    })
}

fn inject(id: EventId, number: u64, guest: &impl Guest) -> Result<sse::Call, Error> {
    // For the global event the hart does not count.
    let target = if id == EventId::GlobalSoftware { VcpuIndex(0) } else { hart(number, guest)? };
    if id.is_injectable() { Ok(sse::Call::Inject(id, target)) } else { Err(Error::Failed) }
}

/// A range of attributes. Numbers and count have 32 bits.
fn attributes(event: EventId, arguments: &[u64; 5], guest: &impl Guest) -> Result<Range, Error> {
    const WORD: u64 = 8;
    let [_, first, count, low, high] = *arguments;
    let (first, count) = (u64::from(first as u32), u64::from(count as u32));
    if count == 0 {
        return Err(Error::InvalidParam);
    }
    if first + count > ATTRIBUTES.len() as u64 {
        return Err(Error::BadRange);
    }
    let at = GuestPhysAddr::new(low);
    if high != 0 || !low.is_multiple_of(WORD) || !guest.is_ram(at, WORD * count) {
        return Err(Error::InvalidAddress);
    }
    Ok(Range { event, first: first as usize, count: count as usize, at })
}
