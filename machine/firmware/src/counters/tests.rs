use super::*;
use std::vec::Vec;

#[derive(Default)]
struct Log(Vec<(&'static str, usize, u64)>);

impl Registers for Log {
    fn set_value(&mut self, index: usize, value: u64) {
        self.0.push(("value", index, value));
    }
    fn select(&mut self, index: usize, selector: u64) {
        self.0.push(("select", index, selector));
    }
    fn run(&mut self, index: usize, runs: bool) {
        self.0.push(("run", index, u64::from(runs)));
    }
}

fn map() -> EventMap {
    EventMap { entries: [(1, 1, 0b1_1001), (2, 2, 0b1_1100)].into_iter().collect() }
}

const ALL: u64 = (1 << COUNTERS) - 1;

#[test]
fn programmable_counters_come_first_then_the_fixed_one() {
    let (mut counters, mut log, map) = (Counters::new(), Log::default(), map());
    let mut take = || counters.configure(&map, &mut log, [0, ALL, AUTO_START | CLEAR_VALUE, 1]);
    assert_eq!([take(), take(), take()], [Ok(3), Ok(4), Ok(0)]);
    assert_eq!(take(), Err(CounterError::NotSupported));
    assert_eq!(log.0[0], ("select", 3, 1 | OVERFLOW | MACHINE_INHIBIT));
    assert!(log.0.contains(&("run", 0, 1)));
}

#[test]
fn firmware_counters_count_while_they_run() {
    let (mut counters, mut log, map) = (Counters::new(), Log::default(), map());
    let event = FIRMWARE_TYPE << 16 | 6;
    assert_eq!(counters.configure(&map, &mut log, [0, ALL, 0, event]), Ok(FIRST_FIRMWARE));
    counters.count(6);
    assert_eq!(counters.start(&mut log, [32, 1, SET_INITIAL, 10]), Ok(()));
    counters.count(6);
    counters.count(7);
    assert_eq!(counters.firmware_value(32), Ok(11));
    assert_eq!(counters.start(&mut log, [32, 1, 0, 0]), Err(CounterError::AlreadyStarted));
    assert_eq!(counters.stop(&mut log, [32, 1, RESET]), Ok(()));
    assert_eq!(counters.stop(&mut log, [32, 1, 0]), Err(CounterError::InvalidParam));
    assert!(log.0.is_empty(), "no register is touched for a firmware counter");
}

#[test]
fn masks_and_indices_are_checked() {
    let (mut counters, mut log, map) = (Counters::new(), Log::default(), map());
    for [base, mask] in [[0, 0], [48, 1], [1, ALL], [u64::MAX, 1], [0, u64::MAX]] {
        let answer = counters.configure(&map, &mut log, [base, mask, 0, 1]);
        assert_eq!(answer, Err(CounterError::InvalidParam), "{base} {mask:#x}");
        assert_eq!(counters.start(&mut log, [base, mask, 0, 0]), Err(CounterError::InvalidParam));
    }
    assert_eq!(Counters::info(&map, 1), Err(CounterError::InvalidParam));
    assert_eq!(Counters::info(&map, 5), Err(CounterError::InvalidParam));
    assert_eq!(Counters::info(&map, 3), Ok(0xc03 | 63 << 12));
    assert_eq!(counters.firmware_value(31), Err(CounterError::InvalidParam));
    assert_eq!(counters.firmware_value(usize::MAX), Err(CounterError::InvalidParam));
}
