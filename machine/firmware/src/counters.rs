//! The counters of a hart as the SBI's PMU extension offers them (SBI specification 2.0, "Performance Monitoring Unit").
//!
//! Counter 0 counts cycles, 2 instructions, 3 to 31 are programmable as far as the machine has them, and from
//! [`FIRST_FIRMWARE`] on are those that count what the firmware does. Which events a programmable counter can count is in
//! the device tree; the selector of an event is its number, as in QEMU.

use arrayvec::ArrayVec;
use dtoolkit::fdt::Fdt;

use crate::hardware::{live_part, property};

/// Index of the first firmware counter.
pub const FIRST_FIRMWARE: usize = 32;
const FIRMWARE: usize = 16;
/// All counters.
pub const COUNTERS: usize = FIRST_FIRMWARE + FIRMWARE;

const FIRMWARE_TYPE: u64 = 15;
/// Firmware events that the specification names, but for the platform's own.
const FIRMWARE_EVENTS: u64 = 22;

const SKIP_MATCH: u64 = 1 << 0;
const CLEAR_VALUE: u64 = 1 << 1;
const AUTO_START: u64 = 1 << 2;
/// Do not count in VU, VS, U, S and M mode: bits 3 to 7 of the call.
const INHIBIT_SHIFT: u32 = 3;
const SET_INITIAL: u64 = 1 << 0;
const RESET: u64 = 1 << 0;

/// Of an event selector (Sscofpmf): overflown, so no interrupt; and the mode bits from M (62) down to VU (58).
const OVERFLOW: u64 = 1 << 63;
const MACHINE_INHIBIT: u64 = 1 << 62;

/// What the counters are, below the SBI.
pub trait Registers {
    /// Sets the value of hardware counter `index`.
    fn set_value(&mut self, index: usize, value: u64);
    /// Sets the event selector of programmable counter `index`.
    fn select(&mut self, index: usize, selector: u64);
    /// Lets hardware counter `index` run, or stops it.
    fn run(&mut self, index: usize, runs: bool);
}

/// Events that programmable counters can count: first and last event, counters as a mask.
#[derive(Clone, Debug, Default)]
pub struct EventMap {
    entries: ArrayVec<(u32, u32, u32), 32>,
}

impl EventMap {
    /// The map of the device tree at the beginning of `blob`; empty where it says nothing.
    #[must_use]
    pub fn read(blob: &[u8]) -> Self {
        let Some(tree) = live_part(blob).and_then(|blob| Fdt::new(blob).ok()) else { return Self::default() };
        let list = tree.find_node("/pmu").and_then(|pmu| property(&pmu, "riscv,event-to-mhpmcounters"));
        let cell = |entry: &[u8], index: usize| {
            let bytes = entry.get(4 * index..)?.get(..4)?.try_into().ok()?;
            Some(u32::from_be_bytes(bytes))
        };
        let read = |entry: &[u8]| Some((cell(entry, 0)?, cell(entry, 1)?, cell(entry, 2)?));
        Self { entries: list.unwrap_or_default().chunks_exact(12).filter_map(read).take(32).collect() }
    }

    fn counters_for(&self, event: u64) -> u64 {
        let covers = |(first, last, _): &&(u32, u32, u32)| (u64::from(*first)..=u64::from(*last)).contains(&event);
        self.entries.iter().filter(covers).fold(0, |all, (_, _, counters)| all | u64::from(*counters))
    }

    fn programmable(&self) -> u64 {
        self.entries.iter().fold(0, |all, (_, _, counters)| all | u64::from(*counters)) & !7
    }
}

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// A counter that does not exist, or is not set up.
    InvalidParam,
    /// No counter of the mask can count this.
    NotSupported,
    /// One runs already; the others were started.
    AlreadyStarted,
    /// One does not run; the others were stopped.
    AlreadyStopped,
}

/// The counters of a hart.
#[derive(Clone, Debug)]
pub struct Counters {
    /// The event of each counter that is set up.
    events: [Option<u64>; COUNTERS],
    running: u64,
    firmware: [u64; FIRMWARE],
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Counters {
    /// Counters as after reset: cycles and instructions run.
    #[must_use]
    pub const fn new() -> Self {
        Self { events: [None; COUNTERS], running: 0, firmware: [0; FIRMWARE] }
    }

    /// What `counter_get_info` tells of a counter.
    ///
    /// # Errors
    /// It does not exist.
    pub fn info(map: &EventMap, index: usize) -> Result<u64, CounterError> {
        const WIDTH_64: u64 = 63 << 12;
        match index {
            FIRST_FIRMWARE..COUNTERS => Ok(1 << 63),
            _ if exists(map, index) => Ok((0xc00 + index as u64) | WIDTH_64),
            _ => Err(CounterError::InvalidParam),
        }
    }

    /// Chooses a counter of the mask for an event and sets it up.
    ///
    /// # Errors
    /// [`CounterError::InvalidParam`] or [`CounterError::NotSupported`].
    pub fn configure(
        &mut self,
        map: &EventMap,
        registers: &mut impl Registers,
        [base, mask, flags, event]: [u64; 4],
    ) -> Result<usize, CounterError> {
        let mask = indices(base, mask)?;
        let index = if flags & SKIP_MATCH != 0 {
            let index = mask.trailing_zeros() as usize;
            self.events[index].map(|_| index).ok_or(CounterError::InvalidParam)?
        } else {
            let index = self.choose(map, mask, event).ok_or(CounterError::NotSupported)?;
            self.events[index] = Some(event);
            if (3..FIRST_FIRMWARE).contains(&index) {
                // The call's bits 3 to 7 are VU, VS, U, S, M; the selector's 58 to 62 the same.
                let modes = flags >> INHIBIT_SHIFT & 0x1f;
                registers.select(index, event | OVERFLOW | MACHINE_INHIBIT | modes << 58);
            }
            index
        };
        if flags & CLEAR_VALUE != 0 {
            self.set_value(registers, index, 0);
        }
        if flags & AUTO_START != 0 {
            self.running |= 1 << index;
            run(registers, index, true);
        }
        Ok(index)
    }

    fn choose(&self, map: &EventMap, mask: u64, event: u64) -> Option<usize> {
        let free = (0..COUNTERS).filter(|index| mask >> index & 1 != 0 && self.events[*index].is_none());
        if event >> 16 == FIRMWARE_TYPE {
            let is_known = event & 0xffff < FIRMWARE_EVENTS;
            return free.filter(|_| is_known).find(|index| *index >= FIRST_FIRMWARE);
        }
        let able = map.counters_for(event) & map.programmable();
        let fixed = match event {
            1 => Some(0),
            2 => Some(2),
            _ => None,
        };
        // Programmable ones first: only they can leave modes out and interrupt.
        let mut programmable = free.clone().filter(|index| *index < FIRST_FIRMWARE && able >> index & 1 != 0);
        let mut fixed_free = free.filter(|index| Some(*index) == fixed);
        programmable.next().or_else(|| fixed_free.next())
    }

    /// Starts counters.
    ///
    /// # Errors
    /// [`CounterError::InvalidParam`] or [`CounterError::AlreadyStarted`].
    pub fn start(
        &mut self,
        registers: &mut impl Registers,
        [base, mask, flags, value]: [u64; 4],
    ) -> Result<(), CounterError> {
        let mut result = Ok(());
        for index in self.set_up(base, mask)? {
            if self.running >> index & 1 != 0 {
                result = Err(CounterError::AlreadyStarted);
                continue;
            }
            if flags & SET_INITIAL != 0 {
                self.set_value(registers, index, value);
            }
            self.running |= 1 << index;
            run(registers, index, true);
        }
        result
    }

    /// Stops counters, and with the flag gives them back.
    ///
    /// # Errors
    /// [`CounterError::InvalidParam`] or [`CounterError::AlreadyStopped`].
    pub fn stop(&mut self, registers: &mut impl Registers, [base, mask, flags]: [u64; 3]) -> Result<(), CounterError> {
        let mut result = Ok(());
        for index in self.set_up(base, mask)? {
            if self.running >> index & 1 == 0 {
                result = Err(CounterError::AlreadyStopped);
            } else {
                self.running &= !(1 << index);
                run(registers, index, false);
            }
            if flags & RESET != 0 {
                self.events[index] = None;
                if (3..FIRST_FIRMWARE).contains(&index) {
                    registers.select(index, 0);
                }
            }
        }
        result
    }

    /// The value of a firmware counter.
    ///
    /// # Errors
    /// It is none.
    pub fn firmware_value(&self, index: usize) -> Result<u64, CounterError> {
        let number = index.checked_sub(FIRST_FIRMWARE).ok_or(CounterError::InvalidParam)?;
        self.firmware.get(number).copied().ok_or(CounterError::InvalidParam)
    }

    /// The firmware has done something that may be counted.
    pub fn count(&mut self, event: u64) {
        if self.running >> FIRST_FIRMWARE == 0 {
            return;
        }
        for (number, value) in self.firmware.iter_mut().enumerate() {
            let index = FIRST_FIRMWARE + number;
            if self.running >> index & 1 != 0 && self.events[index] == Some(FIRMWARE_TYPE << 16 | event) {
                *value += 1;
            }
        }
    }

    fn set_value(&mut self, registers: &mut impl Registers, index: usize, value: u64) {
        match index.checked_sub(FIRST_FIRMWARE) {
            Some(number) => self.firmware[number] = value,
            None => registers.set_value(index, value),
        }
    }

    /// The indices that a call names, all of which are set up.
    fn set_up(&self, base: u64, mask: u64) -> Result<impl Iterator<Item = usize> + use<>, CounterError> {
        let mask = indices(base, mask)?;
        let named = (0..COUNTERS).filter(move |index| mask >> index & 1 != 0);
        if named.clone().all(|index| self.events[index].is_some()) {
            Ok(named)
        } else {
            Err(CounterError::InvalidParam)
        }
    }
}

fn run(registers: &mut impl Registers, index: usize, runs: bool) {
    if index < FIRST_FIRMWARE {
        registers.run(index, runs);
    }
}

fn exists(map: &EventMap, index: usize) -> bool {
    index == 0 || index == 2 || (index < FIRST_FIRMWARE && map.programmable() >> index & 1 != 0)
}

/// The counters as a mask from 0 on.
fn indices(base: u64, mask: u64) -> Result<u64, CounterError> {
    let all = (1_u64 << COUNTERS) - 1;
    let fits = mask != 0 && base < COUNTERS as u64 && mask <= all >> base;
    if fits { Ok(mask << base) } else { Err(CounterError::InvalidParam) }
}

#[cfg(test)]
mod tests;
