//! PMU: performance counters.

use containment::{COUNTERS, CounterError, Counters as Logic, EventMap, MAX_HARTS, Registers};
use rustsbi::SbiRet;
use spin::{Mutex, Once};

use crate::bare::csr::{self, MCOUNTINHIBIT, MCYCLE, MINSTRET};

/// Events that the firmware counts, by their code in the specification.
pub mod event {
    pub const SET_TIMER: u64 = 5;
    pub const IPI_SENT: u64 = 6;
    pub const IPI_RECEIVED: u64 = 7;
    pub const FENCE_I_SENT: u64 = 8;
    /// Kind K of a fence has code `FENCE_I_SENT + 2 * K`, one more where it is received.
    pub const FENCE_RECEIVED: u64 = 1;
}

static MAP: Once<EventMap> = Once::new();
/// Each hart locks only its own.
static HARTS: [Mutex<Logic>; MAX_HARTS] = [const { Mutex::new(Logic::new()) }; MAX_HARTS];

/// Reads which events the machine can count.
pub fn init(tree: &[u8]) {
    MAP.call_once(|| EventMap::read(tree));
}

/// Counts an event of the executing hart.
pub fn count(event: u64) {
    HARTS[csr::this_hart()].lock().count(event);
}

struct Csrs;

macro_rules! on_counter {
    ($base:literal, $index:expr, $value:expr; $($number:literal)*) => {
        match $index {
            $($number => csr::write::<{ $base + $number }>($value),)*
            _ => {}
        }
    };
}

impl Registers for Csrs {
    fn set_value(&mut self, index: usize, value: u64) {
        match index {
            0 => csr::write::<MCYCLE>(value),
            2 => csr::write::<MINSTRET>(value),
            _ => {
                on_counter!(0xb00, index, value; 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28
                29 30 31)
            }
        }
    }

    fn select(&mut self, index: usize, selector: u64) {
        on_counter!(0x320, index, selector; 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
            31);
    }

    fn run(&mut self, index: usize, runs: bool) {
        if runs { csr::clear::<MCOUNTINHIBIT>(1 << index) } else { csr::set::<MCOUNTINHIBIT>(1 << index) }
    }
}

fn answer(result: Result<u64, CounterError>) -> SbiRet {
    match result {
        Ok(value) => SbiRet::success(value as usize),
        Err(CounterError::InvalidParam) => SbiRet::invalid_param(),
        Err(CounterError::NotSupported) => SbiRet::not_supported(),
        Err(CounterError::AlreadyStarted) => SbiRet::already_started(),
        Err(CounterError::AlreadyStopped) => SbiRet::already_stopped(),
    }
}

/// The extension.
pub struct Counters;

impl Counters {
    fn with(&self, act: impl FnOnce(&mut Logic, &EventMap) -> Result<u64, CounterError>) -> SbiRet {
        let map = MAP.call_once(EventMap::default);
        answer(act(&mut HARTS[csr::this_hart()].lock(), map))
    }
}

impl rustsbi::Pmu for Counters {
    fn num_counters(&self) -> usize {
        COUNTERS
    }

    fn counter_get_info(&self, index: usize) -> SbiRet {
        self.with(|_, map| Logic::info(map, index))
    }

    fn counter_config_matching(&self, base: usize, mask: usize, flags: usize, event: usize, _data: u64) -> SbiRet {
        let words = [base, mask, flags, event].map(|word| word as u64);
        self.with(|counters, map| counters.configure(map, &mut Csrs, words).map(|index| index as u64))
    }

    fn counter_start(&self, base: usize, mask: usize, flags: usize, value: u64) -> SbiRet {
        let words = [base as u64, mask as u64, flags as u64, value];
        self.with(|counters, _| counters.start(&mut Csrs, words).map(|()| 0))
    }

    fn counter_stop(&self, base: usize, mask: usize, flags: usize) -> SbiRet {
        let words = [base, mask, flags].map(|word| word as u64);
        self.with(|counters, _| counters.stop(&mut Csrs, words).map(|()| 0))
    }

    fn counter_fw_read(&self, index: usize) -> SbiRet {
        self.with(|counters, _| counters.firmware_value(index))
    }
}
