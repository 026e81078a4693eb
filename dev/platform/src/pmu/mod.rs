//! The counters of a virtual hart as the SBI's PMU extension offers them (SBI specification 2.0, chapter 11).
//!
//! Two *hardware* counters, cycles and retired instructions, run while the vCPU has a hart: the guest sees what it and
//! the monitor did on its behalf, not what its neighbours did. Four *firmware* counters count events that the monitor
//! itself handles. There is no overflow interrupt, so a guest counts but does not sample.
//!
//! Until a guest configures a hardware counter it reads the hart's own through `rdcycle` and `rdinstret`; from then on
//! those reads trap ([`Pmu::is_virtual`]) and [`Pmu::read_csr`] answers them.

#[cfg(test)]
mod tests;

/// Hardware counters.
const HARDWARE: usize = 2;
/// Firmware counters.
const FIRMWARE: usize = 4;
/// Counters in all.
pub const COUNTERS: usize = HARDWARE + FIRMWARE;

/// `cycle` and `instret`, in the order of the hardware counters.
const CSRS: [u16; HARDWARE] = [0xc00, 0xc02];
/// Width of every counter, less one, as `counter_get_info` tells it.
const WIDTH_FIELD: u64 = 63 << 12;
const IS_FIRMWARE: u64 = 1 << 63;

/// `counter_config_matching`: the mask names one counter that is configured already.
const CONFIG_SKIP_MATCH: u64 = 1 << 0;
const CONFIG_CLEAR_VALUE: u64 = 1 << 1;
const CONFIG_AUTO_START: u64 = 1 << 2;
/// `counter_start`: begin at the given value.
const START_SET_INIT_VALUE: u64 = 1 << 0;
/// `counter_stop`: the counter is free for another event.
const STOP_RESET: u64 = 1 << 0;

/// What the hart's own counters show; `None` for one that the firmware keeps from the monitor. Guests do not have that one either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareCounts {
    /// `cycle`.
    pub cycles: Option<u64>,
    /// `instret`.
    pub instructions: Option<u64>,
}

impl HardwareCounts {
    const fn of(self, counter: usize) -> Option<u64> {
        if counter == 0 { self.cycles } else { self.instructions }
    }
}

/// Events that the monitor counts, by their code in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FirmwareEvent {
    /// A load that reached nothing.
    AccessLoad = 2,
    /// A store that reached nothing.
    AccessStore = 3,
    /// An illegal instruction, handed back to the guest.
    IllegalInstruction = 4,
    /// A call that sends IPIs.
    IpiSent = 6,
    /// A call for a remote `fence.i`.
    FenceISent = 8,
    /// A call for a remote `sfence.vma`.
    SfenceVmaSent = 10,
    /// The same for one address space.
    SfenceVmaAsidSent = 12,
}

impl FirmwareEvent {
    const fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            2 => Self::AccessLoad,
            3 => Self::AccessStore,
            4 => Self::IllegalInstruction,
            6 => Self::IpiSent,
            8 => Self::FenceISent,
            10 => Self::SfenceVmaSent,
            12 => Self::SfenceVmaAsidSent,
            _ => return None,
        })
    }
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmuError {
    /// The counters named do not exist, or are not configured.
    InvalidParam,
    /// No counter of the mask can count this.
    NotSupported,
    /// One of the counters runs already; the others are started.
    AlreadyStarted,
    /// One of the counters does not run; the others are stopped.
    AlreadyStopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Hardware,
    Firmware(FirmwareEvent),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    event: Option<Event>,
    is_running: bool,
    /// Hardware counters that count: the value when the hart showed 0 (wraps); others: the value.
    value: u64,
}

/// The counters of one virtual hart. While the vCPU is off its hart, from [`Pmu::unload`] to [`Pmu::load`], values of
/// hardware counters mean nothing.
#[derive(Clone, Debug, Default)]
pub struct Pmu {
    counters: [Counter; COUNTERS],
    /// Whether a hardware counter is set up. Kept beside, because every switch asks.
    is_virtual: bool,
}

/// Counters that a call names: a mask, and the index of its lowest bit.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// Index of bit 0.
    pub base: u64,
    /// The counters, from `base` on.
    pub mask: u64,
}

impl Set {
    /// The indices. Refuses a set that is empty or names a counter that does not exist.
    fn indices(self) -> Result<impl Iterator<Item = usize> + Clone, PmuError> {
        let all = (1 << COUNTERS) - 1_u64;
        let fits = self.mask != 0 && self.base < COUNTERS as u64 && self.mask <= all >> self.base;
        let mask = if fits { self.mask << self.base } else { return Err(PmuError::InvalidParam) };
        Ok((0..COUNTERS).filter(move |index| mask & 1 << index != 0))
    }
}

impl Pmu {
    /// Counters that count nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What `counter_get_info` says of counter `index`.
    ///
    /// # Errors
    /// [`PmuError::InvalidParam`]: no such counter.
    pub fn info(index: u64, now: HardwareCounts) -> Result<u64, PmuError> {
        match usize::try_from(index) {
            Ok(index) if index < HARDWARE && now.of(index).is_none() => Err(PmuError::InvalidParam),
            Ok(index) if index < HARDWARE => Ok(WIDTH_FIELD | u64::from(CSRS[index])),
            Ok(index) if index < COUNTERS => Ok(WIDTH_FIELD | IS_FIRMWARE),
            _ => Err(PmuError::InvalidParam),
        }
    }

    /// Finds a counter of `set` for `event` and sets it up; its index.
    ///
    /// # Errors
    /// [`PmuError::InvalidParam`], [`PmuError::NotSupported`].
    pub fn configure(&mut self, set: Set, flags: u64, event: u64, now: HardwareCounts) -> Result<u64, PmuError> {
        let mut indices = set.indices()?;
        let index = if flags & CONFIG_SKIP_MATCH != 0 {
            let index = indices.next().ok_or(PmuError::InvalidParam)?;
            self.counters[index].event.ok_or(PmuError::InvalidParam)?;
            index
        } else {
            let (kind, code) = (event >> 16, event & 0xffff);
            let wanted = match (kind, code) {
                (0, 1 | 2) => Event::Hardware,
                (0xf, code) => Event::Firmware(FirmwareEvent::from_code(code).ok_or(PmuError::NotSupported)?),
                _ => return Err(PmuError::NotSupported),
            };
            let is_fit = |index: &usize| match wanted {
                Event::Hardware => *index as u64 + 1 == code && now.of(*index).is_some(),
                Event::Firmware(_) => *index >= HARDWARE,
            };
            let is_free = |index: &usize| self.counters[*index].event.is_none();
            let index = indices.find(|index| is_fit(index) && is_free(index)).ok_or(PmuError::NotSupported)?;
            self.counters[index] = Counter { event: Some(wanted), ..Counter::default() };
            self.note_set_up();
            index
        };
        if flags & CONFIG_CLEAR_VALUE != 0 {
            self.set_value(index, 0, now);
        }
        if flags & CONFIG_AUTO_START != 0 {
            self.set_running(index, true, now);
        }
        Ok(index as u64)
    }

    /// Starts counters, with [`START_SET_INIT_VALUE`] at `initial`.
    ///
    /// # Errors
    /// [`PmuError::InvalidParam`], [`PmuError::AlreadyStarted`].
    pub fn start(&mut self, set: Set, flags: u64, initial: u64, now: HardwareCounts) -> Result<(), PmuError> {
        let indices = set.indices()?;
        if indices.clone().any(|index| self.counters[index].event.is_none()) {
            return Err(PmuError::InvalidParam);
        }
        let mut outcome = Ok(());
        for index in indices {
            if self.counters[index].is_running {
                outcome = Err(PmuError::AlreadyStarted);
                continue;
            }
            if flags & START_SET_INIT_VALUE != 0 {
                self.set_value(index, initial, now);
            }
            self.set_running(index, true, now);
        }
        outcome
    }

    /// Stops counters, with [`STOP_RESET`] for good.
    ///
    /// # Errors
    /// [`PmuError::InvalidParam`], [`PmuError::AlreadyStopped`].
    pub fn stop(&mut self, set: Set, flags: u64, now: HardwareCounts) -> Result<(), PmuError> {
        let mut outcome = Ok(());
        for index in set.indices()? {
            if self.counters[index].is_running {
                self.set_running(index, false, now);
            } else {
                outcome = Err(PmuError::AlreadyStopped);
            }
            if flags & STOP_RESET != 0 {
                self.counters[index].event = None;
            }
        }
        self.note_set_up();
        outcome
    }

    /// The value of firmware counter `index`.
    ///
    /// # Errors
    /// [`PmuError::InvalidParam`]: it is no firmware counter, or not configured.
    pub fn firmware_value(&self, index: u64) -> Result<u64, PmuError> {
        let counter = usize::try_from(index).ok().and_then(|index| self.counters.get(index));
        match counter {
            Some(Counter { event: Some(Event::Firmware(_)), value, .. }) => Ok(*value),
            _ => Err(PmuError::InvalidParam),
        }
    }

    /// Counts a firmware event.
    #[inline]
    pub fn count(&mut self, event: FirmwareEvent) {
        for counter in &mut self.counters[HARDWARE..] {
            if counter.is_running && counter.event == Some(Event::Firmware(event)) {
                counter.value = counter.value.wrapping_add(1);
            }
        }
    }

    /// Whether a hardware counter is set up, so that reads of `cycle` and `instret` have to trap.
    #[inline]
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    fn note_set_up(&mut self) {
        self.is_virtual = self.counters[..HARDWARE].iter().any(|counter| counter.event.is_some());
    }

    /// What the guest reads from `csr`; `None` if that is no counter, or one that the hart does not show. A counter that is not set up
    /// shows the hart's.
    #[must_use]
    pub fn read_csr(&self, csr: u16, now: HardwareCounts) -> Option<u64> {
        let index = CSRS.iter().position(|known| *known == csr)?;
        if self.counters[index].event.is_some() { Some(self.value(index, now)) } else { now.of(index) }
    }

    /// The vCPU is put onto a hart whose counters show `now`. Not needed unless [`Pmu::is_virtual`].
    pub fn load(&mut self, now: HardwareCounts) {
        self.shift_running(now, u64::wrapping_sub);
    }

    /// The vCPU is taken off the hart whose counters show `now`. Not needed unless [`Pmu::is_virtual`].
    pub fn unload(&mut self, now: HardwareCounts) {
        self.shift_running(now, u64::wrapping_add);
    }

    fn shift_running(&mut self, now: HardwareCounts, shift: fn(u64, u64) -> u64) {
        for (index, counter) in self.counters[..HARDWARE].iter_mut().enumerate() {
            if counter.is_running {
                counter.value = shift(counter.value, now.of(index).unwrap_or(0));
            }
        }
    }

    /// What the hart adds to the value of a counter at this moment: what it shows, if that one counts there.
    fn shown(&self, index: usize, now: HardwareCounts) -> u64 {
        let counts = index < HARDWARE && self.counters[index].is_running;
        if counts { now.of(index).unwrap_or(0) } else { 0 }
    }

    fn value(&self, index: usize, now: HardwareCounts) -> u64 {
        self.counters[index].value.wrapping_add(self.shown(index, now))
    }

    fn set_value(&mut self, index: usize, value: u64, now: HardwareCounts) {
        self.counters[index].value = value.wrapping_sub(self.shown(index, now));
    }

    fn set_running(&mut self, index: usize, is_running: bool, now: HardwareCounts) {
        let value = self.value(index, now);
        self.counters[index].is_running = is_running;
        self.set_value(index, value, now);
    }
}
