use super::*;

const CYCLES: u64 = 1;
const INSTRUCTIONS: u64 = 2;
const IPI_SENT: u64 = 0xf << 16 | 6;
const ALL: Set = Set { base: 0, mask: (1 << COUNTERS) - 1 };

fn at(cycles: u64) -> HardwareCounts {
    HardwareCounts { cycles: Some(cycles), instructions: Some(cycles / 2) }
}

fn one(index: u64) -> Set {
    Set { base: index, mask: 1 }
}

#[test]
fn counters_are_described() {
    assert_eq!(Pmu::info(0, at(0)), Ok(63 << 12 | 0xc00));
    assert_eq!(Pmu::info(1, at(0)), Ok(63 << 12 | 0xc02));
    assert_eq!(Pmu::info(2, at(0)), Ok(1 << 63 | 63 << 12));
    for index in [COUNTERS as u64, u64::MAX] {
        assert_eq!(Pmu::info(index, at(0)), Err(PmuError::InvalidParam));
    }
}

#[test]
fn a_hardware_counter_runs_only_while_the_vcpu_has_a_hart() {
    let mut pmu = Pmu::new();
    pmu.load(at(1_000));
    assert!(!pmu.is_virtual());
    assert_eq!(pmu.configure(ALL, 0, INSTRUCTIONS, at(1_000)), Ok(1));
    assert!(pmu.is_virtual());
    assert_eq!(pmu.start(one(1), START_SET_INIT_VALUE, 7, at(1_100)), Ok(()));
    assert_eq!(pmu.read_csr(0xc02, at(1_300)), Some(7 + 100));
    pmu.unload(at(1_300));
    // Another hart, with other counts.
    pmu.load(at(90));
    assert_eq!(pmu.read_csr(0xc02, at(110)), Some(7 + 110));
    assert_eq!(pmu.stop(one(1), 0, at(110)), Ok(()));
    assert_eq!(pmu.read_csr(0xc02, at(5_000)), Some(7 + 110));
    // What is not set up shows the hart's own counter.
    assert_eq!(pmu.read_csr(0xc00, at(5_000)), Some(5_000));
    assert_eq!(pmu.read_csr(0xc01, at(5_000)), None);
    assert_eq!(pmu.stop(one(1), STOP_RESET, at(5_000)), Err(PmuError::AlreadyStopped));
    assert!(!pmu.is_virtual());
}

#[test]
fn values_wrap_as_linux_expects_of_a_period() {
    let mut pmu = Pmu::new();
    pmu.load(at(10));
    let index = pmu.configure(ALL, CONFIG_AUTO_START | CONFIG_CLEAR_VALUE, CYCLES, at(10)).unwrap();
    assert_eq!(index, 0);
    assert_eq!(pmu.start(one(0), 0, 0, at(11)), Err(PmuError::AlreadyStarted));
    assert_eq!(pmu.stop(one(0), 0, at(20)), Ok(()));
    assert_eq!(pmu.start(one(0), START_SET_INIT_VALUE, u64::MAX - 4, at(30)), Ok(()));
    assert_eq!(pmu.read_csr(0xc00, at(40)), Some(5));
}

#[test]
fn firmware_events_are_counted_by_their_counter() {
    let mut pmu = Pmu::new();
    let index = pmu.configure(ALL, CONFIG_AUTO_START, IPI_SENT, at(0)).unwrap();
    assert_eq!(index, HARDWARE as u64);
    pmu.count(FirmwareEvent::IpiSent);
    pmu.count(FirmwareEvent::FenceISent);
    pmu.count(FirmwareEvent::IpiSent);
    assert_eq!(pmu.firmware_value(index), Ok(2));
    assert_eq!(pmu.firmware_value(0), Err(PmuError::InvalidParam));
    assert_eq!(pmu.firmware_value(u64::MAX), Err(PmuError::InvalidParam));
    // Four of them, then no more.
    for _ in 1..FIRMWARE {
        assert!(pmu.configure(ALL, 0, IPI_SENT, at(0)).is_ok());
    }
    assert_eq!(pmu.configure(ALL, 0, IPI_SENT, at(0)), Err(PmuError::NotSupported));
}

#[test]
fn what_a_guest_must_not_ask_is_refused() {
    let mut pmu = Pmu::new();
    let bad = [
        Set { base: 0, mask: 0 },
        Set { base: 0, mask: 1 << COUNTERS },
        Set { base: COUNTERS as u64, mask: 1 },
        Set { base: u64::MAX, mask: u64::MAX },
        Set { base: 1, mask: 1 << (COUNTERS - 1) },
    ];
    for set in bad {
        assert_eq!(pmu.configure(set, 0, CYCLES, at(0)), Err(PmuError::InvalidParam), "{set:?}");
        assert_eq!(pmu.start(set, 0, 0, at(0)), Err(PmuError::InvalidParam), "{set:?}");
        assert_eq!(pmu.stop(set, 0, at(0)), Err(PmuError::InvalidParam), "{set:?}");
    }
    for event in [0, 3, 1 << 16, 2 << 16 | 5, 0xf << 16 | 5, 0xf << 16 | 0xffff, u64::MAX] {
        assert_eq!(pmu.configure(ALL, 0, event, at(0)), Err(PmuError::NotSupported), "{event:#x}");
    }
    // The counter for cycles does not count instructions.
    assert_eq!(pmu.configure(one(0), 0, INSTRUCTIONS, at(0)), Err(PmuError::NotSupported));
    assert_eq!(pmu.start(one(0), 0, 0, at(0)), Err(PmuError::InvalidParam), "not configured");
    assert_eq!(pmu.configure(one(0), CONFIG_SKIP_MATCH, CYCLES, at(0)), Err(PmuError::InvalidParam));
}

#[test]
fn a_counter_that_the_firmware_withholds_is_none() {
    let now = HardwareCounts { cycles: None, instructions: Some(9) };
    let mut pmu = Pmu::new();
    assert_eq!(Pmu::info(0, now), Err(PmuError::InvalidParam));
    assert_eq!(Pmu::info(1, now), Ok(63 << 12 | 0xc02));
    assert_eq!(pmu.configure(ALL, CONFIG_AUTO_START, CYCLES, now), Err(PmuError::NotSupported));
    assert_eq!(pmu.configure(ALL, CONFIG_AUTO_START | CONFIG_CLEAR_VALUE, INSTRUCTIONS, now), Ok(1));
    assert_eq!(pmu.read_csr(0xc00, now), None);
    assert_eq!(pmu.read_csr(0xc02, now), Some(0));
    // Firmware counters need no hardware.
    let none = HardwareCounts::default();
    let mut pmu = Pmu::new();
    let index = pmu.configure(ALL, CONFIG_AUTO_START, IPI_SENT, none).unwrap();
    pmu.count(FirmwareEvent::IpiSent);
    assert_eq!(pmu.firmware_value(index), Ok(1));
    assert_eq!(pmu.configure(ALL, 0, INSTRUCTIONS, none), Err(PmuError::NotSupported));
}
