//! Each call with right and with every kind of wrong arguments.

use addr::{GuestPhysAddr, VcpuIndex};
use sbi_spec::{base, dbcn, fwft, hsm, pmu, rfnc, spi, srst, sse as events, sta, susp};
use vcpu::fwft::Feature;
use vcpu::sbi::{Call, Entry, Error, Request, Reset, decode, encode};
use vcpu::sse::{self, EventId};
use vcpu::testing::{BYTES, Known, RAM};

const AT: u64 = RAM + 0x20_0000;
const ENTRY: Entry = Entry { pc: AT, opaque: 7 };
/// Addresses where nothing can be executed.
const NOWHERE: [u64; 7] = [0, 0x1000_0000, AT + 1, RAM + BYTES, RAM + BYTES - 2, u64::MAX - 1, u64::MAX];

/// A call of a guest with four vCPUs.
fn ask(extension: usize, function: u64, arguments: [u64; 5]) -> Result<Request, Error> {
    let call = Call { extension: extension as u64, function, arguments };
    decode(&call, &Known { vcpus: 4, has_double_trap: false })
}

#[test]
fn answers_are_two_registers() {
    assert_eq!(encode(Ok(5)), (0, 5));
    assert_eq!(encode(Err(Error::DeniedLocked)), (-14_i64 as u64, 0));
}

#[test]
fn unknown_extensions_and_functions() {
    assert_eq!(ask(0x1234_5678, 0, [0; 5]), Err(Error::NotSupported));
    let extensions = [
        base::EID_BASE,
        spi::EID_SPI,
        rfnc::EID_RFNC,
        hsm::EID_HSM,
        srst::EID_SRST,
        susp::EID_SUSP,
        dbcn::EID_DBCN,
        pmu::EID_PMU,
        sta::EID_STA,
        fwft::EID_FWFT,
        events::EID_SSE,
    ];
    for extension in extensions {
        assert_eq!(ask(extension, 99, [0; 5]), Err(Error::NotSupported), "{extension:#x}");
        let probed = ask(base::EID_BASE, 3, [extension as u64, 0, 0, 0, 0]);
        assert_eq!(probed, Ok(Request::Known(1)), "{extension:#x}");
    }
    for missing in [0, 0x4442_5452, 0x4D50_5859, u64::MAX] {
        assert_eq!(ask(base::EID_BASE, 3, [missing, 0, 0, 0, 0]), Ok(Request::Known(0)), "{missing:#x}");
    }
}

#[test]
fn starting_a_hart() {
    let start = |hart, pc| ask(hsm::EID_HSM, 0, [hart, pc, 7, 0, 0]);
    assert_eq!(start(3, AT), Ok(Request::StartHart(VcpuIndex(3), ENTRY)));
    for hart in [4, 1 << 16, 1 << 32, u64::MAX] {
        assert_eq!(start(hart, AT), Err(Error::InvalidParam), "{hart:#x}");
    }
    for pc in NOWHERE {
        assert_eq!(start(1, pc), Err(Error::InvalidAddress), "{pc:#x}");
    }
    assert_eq!(ask(hsm::EID_HSM, 2, [4, 0, 0, 0, 0]), Err(Error::InvalidParam));
}

#[test]
fn suspending_a_hart() {
    let suspend = |kind, pc| ask(hsm::EID_HSM, 3, [kind, pc, 7, 0, 0]);
    assert_eq!(suspend(0, 0), Ok(Request::SuspendHart(None)), "no address is looked at");
    assert_eq!(suspend(1 << 63, 0), Ok(Request::SuspendHart(None)), "a type has 32 bits");
    assert_eq!(suspend(0x8000_0000, AT), Ok(Request::SuspendHart(Some(ENTRY))));
    for pc in NOWHERE {
        assert_eq!(suspend(0x8000_0000, pc), Err(Error::InvalidAddress), "{pc:#x}");
    }
    for kind in [1, 0x0fff_ffff, 0x1000_0000, 0x7fff_ffff, 0x8000_0001, 0x9000_0000, 0xffff_ffff] {
        assert_eq!(suspend(kind, AT), Err(Error::InvalidParam), "{kind:#x}");
    }
}

#[test]
fn suspending_the_machine() {
    let suspend = |kind, pc| ask(susp::EID_SUSP, 0, [kind, pc, 7, 0, 0]);
    assert_eq!(suspend(0, AT), Ok(Request::SuspendSystem(ENTRY)));
    assert_eq!(suspend(1 << 32, AT), Ok(Request::SuspendSystem(ENTRY)), "a type has 32 bits");
    for kind in [1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        assert_eq!(suspend(kind, AT), Err(Error::InvalidParam), "{kind:#x}");
    }
    for pc in NOWHERE {
        assert_eq!(suspend(0, pc), Err(Error::InvalidAddress), "{pc:#x}");
    }
}

#[test]
fn resets() {
    let reset = |kind, reason| ask(srst::EID_SRST, 0, [kind, reason, 0, 0, 0]);
    assert_eq!(reset(0, 0), Ok(Request::Reset(Reset::PowerOff)));
    assert_eq!(reset(0, 1), Ok(Request::Reset(Reset::Failure)));
    assert_eq!(reset(1, 0), Ok(Request::Reset(Reset::Restart)));
    assert_eq!(reset(2, 1), Ok(Request::Reset(Reset::Restart)));
    for (kind, reason) in [(3, 0), (0xf000_0000, 0), (0, 2), (1, 0xe000_0000)] {
        assert_eq!(reset(kind, reason), Err(Error::InvalidParam), "{kind:#x} because of {reason:#x}");
    }
}

#[test]
fn text_comes_from_ram() {
    let write = |bytes, low, high| ask(dbcn::EID_DBCN, 0, [bytes, low, high, 0, 0]);
    let at = GuestPhysAddr::new(AT);
    assert_eq!(write(5, AT, 0), Ok(Request::ConsoleWrite(at, 5)));
    assert_eq!(write(1 << 20, AT, 0), Ok(Request::ConsoleWrite(at, 256)), "only so much at a time");
    for (bytes, low, high) in
        [(8, 0x1000, 0), (16, RAM + BYTES - 8, 0), (8, AT, 1), (16, u64::MAX - 4, 0), (u64::MAX, AT, 0)]
    {
        assert_eq!(write(bytes, low, high), Err(Error::InvalidParam), "{bytes} at {high:#x}:{low:#x}");
    }
    assert_eq!(ask(dbcn::EID_DBCN, 2, [0x6261, 0, 0, 0, 0]), Ok(Request::ConsoleWriteByte(b'a')));
}

#[test]
fn records_of_steal_time() {
    let set = |low, high, flags| ask(sta::EID_STA, 0, [low, high, flags, 0, 0]);
    assert_eq!(set(AT, 0, 0), Ok(Request::StealRecord(Some(GuestPhysAddr::new(AT)))));
    assert_eq!(set(u64::MAX, u64::MAX, 0), Ok(Request::StealRecord(None)));
    assert_eq!(set(AT, 0, 1), Err(Error::InvalidParam));
    assert_eq!(set(AT + 8, 0, 0), Err(Error::InvalidParam));
    assert_eq!(set(RAM + BYTES, 0, 0), Err(Error::InvalidAddress));
    assert_eq!(set(AT, 1, 0), Err(Error::InvalidAddress));
}

#[test]
fn features() {
    let get = |number| ask(fwft::EID_FWFT, 1, [number, 0, 0, 0, 0]);
    assert_eq!(get(3), Ok(Request::GetFeature(Feature::DoubleTrap)));
    assert_eq!(get(3 | 1 << 32), Ok(Request::GetFeature(Feature::DoubleTrap)), "a number has 32 bits");
    for number in [6, 0x3fff_ffff, 0x4000_0000, 0x8000_0000, 0xffff_ffff] {
        assert_eq!(get(number), Err(Error::Denied), "{number:#x}");
        assert_eq!(ask(fwft::EID_FWFT, 0, [number, 1, 0, 0, 0]), Err(Error::Denied), "{number:#x}");
    }
}

const SOFTWARE: u64 = 0xffff_0000;
const GLOBAL: u64 = 0xffff_8000;

#[test]
fn event_numbers() {
    let enable = |number| ask(events::EID_SSE, 4, [number, 0, 0, 0, 0]);
    assert_eq!(enable(SOFTWARE), Ok(Request::Event(sse::Call::Enable(EventId::LocalSoftware))));
    assert_eq!(enable(GLOBAL | 1 << 32), Ok(Request::Event(sse::Call::Enable(EventId::GlobalSoftware))));
    for number in [0, 1, 0x8000, 0x1_0000, 0x10_0000, 0x10_8000] {
        assert_eq!(enable(number), Err(Error::NotSupported), "{number:#x}");
    }
    for number in [2, 0x3fff, 0x4000, 0x8001, 0xc000, 0x1_0001, 0xffff_0001, 0xffff_4000, 0xffff_8001, 0xffff_ffff] {
        for function in [0, 1, 2, 3, 4, 5, 7] {
            let refused = ask(events::EID_SSE, function, [number, 0, 1, AT, 0]);
            assert_eq!(refused, Err(Error::InvalidParam), "{number:#x}, function {function}");
        }
    }
}

#[test]
fn event_attributes() {
    let read = |first, count, low, high| ask(events::EID_SSE, 0, [SOFTWARE, first, count, low, high]);
    for function in [0, 1] {
        assert!(ask(events::EID_SSE, function, [SOFTWARE, 0, 10, AT, 0]).is_ok());
    }
    assert_eq!(read(9, 1, AT, 0), read(9 | 1 << 32, 1 | 1 << 40, AT, 0), "numbers have 32 bits");
    for count in [0, 1 << 32] {
        assert_eq!(read(0, count, AT, 0), Err(Error::InvalidParam));
    }
    for (first, count) in [(10, 1), (9, 2), (0, 11), (u64::MAX, 1), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        assert_eq!(read(first, count, AT, 0), Err(Error::BadRange), "{count} from {first}");
    }
    for (low, high) in
        [(AT + 1, 0), (AT + 4, 0), (AT, 1), (0, 0), (RAM + BYTES, 0), (RAM + BYTES - 8, 0), (u64::MAX - 7, 0)]
    {
        assert_eq!(read(0, 2, low, high), Err(Error::InvalidAddress), "{high:#x}:{low:#x}");
    }
}

#[test]
fn event_handlers_and_injection() {
    assert_eq!(ask(events::EID_SSE, 2, [SOFTWARE, 1, 0, 0, 0]), Err(Error::InvalidParam), "an odd entry");
    let entry = 0xffff_ffff_8000_0000;
    let registered = sse::Call::Register { event: EventId::LocalSoftware, entry, argument: 5 };
    assert_eq!(ask(events::EID_SSE, 2, [SOFTWARE, entry, 5, 0, 0]), Ok(Request::Event(registered)), "it is virtual");
    let inject = |event, hart| ask(events::EID_SSE, 7, [event, hart, 0, 0, 0]);
    assert_eq!(inject(SOFTWARE, 3), Ok(Request::Event(sse::Call::Inject(EventId::LocalSoftware, VcpuIndex(3)))));
    assert!(inject(GLOBAL, 4_000).is_ok(), "the hart is not looked at");
    for hart in [4, 1 << 16, 1 << 32, u64::MAX] {
        assert_eq!(inject(SOFTWARE, hart), Err(Error::InvalidParam), "{hart:#x}");
    }
}
