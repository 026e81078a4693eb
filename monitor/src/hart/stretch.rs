//! How long the hart stays in the monitor at a time, with interrupts off: from a guest's exit, or the end of a sleep, to the next
//! entry or sleep. Each hart writes its own histogram.

use control::{STRETCH_CLASSES, STRETCH_LIMITS_US, StretchPlace, Stretches};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rv::csr;

/// A hart's histogram, written by itself only.
#[derive(Debug, Default)]
pub struct StretchCounters {
    counts: [AtomicU64; STRETCH_CLASSES],
    /// Ticks of the longest stretch, and what was done in it.
    worst: AtomicU64,
    worst_place: AtomicU64,
}

/// What was done in a stretch, as a number: `scause` of the exit that it began with, or one of these.
pub type Place = u64;

pub const DUTIES: Place = 0x100;
pub const PLACEMENT: Place = 0x101;
pub const MOVE: Place = 0x102;
pub const ZEROING: Place = 0x103;
pub const WAKEUP: Place = 0x104;
pub const CLIENTS: Place = 0x105;
pub const DISKS: Place = 0x106;
pub const NETWORK: Place = 0x107;
pub const MERGING: Place = 0x108;
pub const LOOKS: Place = 0x109;
pub const MEMORY: Place = 0x10a;
pub const BALANCE: Place = 0x10b;

/// The stretch under way.
#[derive(Debug)]
pub struct Stretch {
    since: u64,
    /// What was noted last, and the beginning of the stretch that it was noted of.
    noted: (Place, u64),
    /// The most ticks of each class but the last.
    limits: [u64; STRETCH_LIMITS_US.len()],
}

impl Stretch {
    /// Begins at `now`.
    pub fn new(now: u64, timebase_hz: u64) -> Self {
        let limits = STRETCH_LIMITS_US.map(|us| u64::from(us).saturating_mul(timebase_hz) / 1_000_000);
        Self { since: now, noted: (WAKEUP, now), limits }
    }

    /// The hart is in the monitor from `now` on.
    #[inline(always)]
    pub const fn begin(&mut self, now: u64) {
        self.since = now;
    }

    /// It does this in the present stretch, which may take long.
    pub const fn note(&mut self, place: Place) {
        self.noted = (place, self.since);
    }

    /// The hart leaves the monitor.
    #[inline(always)]
    pub fn end(&self, now: u64, counters: &StretchCounters) {
        let ticks = now.wrapping_sub(self.since);
        let [shortest, ..] = self.limits;
        // Most are of that.
        if ticks <= shortest {
            super::add(&counters.counts[0], 1);
        } else {
            self.end_long(ticks, counters);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_long(&self, ticks: u64, counters: &StretchCounters) {
        let class = self.limits.iter().take_while(|limit| ticks > **limit).count();
        if let Some(count) = counters.counts.get(class) {
            super::add(count, 1);
        }
        if ticks > counters.worst.load(Relaxed) {
            counters.worst.store(ticks, Relaxed);
            let (place, of) = self.noted;
            let place = if of == self.since { place } else { csr::scause::read() };
            counters.worst_place.store(place, Relaxed);
        }
    }
}

impl StretchCounters {
    /// Microseconds of all stretches, each taken for the most that its class allows, and how many there were.
    #[must_use]
    pub fn sums(&self) -> (u64, u64) {
        let limits = STRETCH_LIMITS_US.iter().chain(STRETCH_LIMITS_US.last());
        let classes = limits.zip(&self.counts).map(|(limit, count)| (u64::from(*limit), count.load(Relaxed)));
        classes.fold((0, 0), |(us, all), (limit, count)| (us + limit.saturating_mul(count), all + count))
    }

    /// For clients.
    #[must_use]
    pub fn read(&self) -> Stretches {
        let counts = core::array::from_fn(|class| self.counts[class].load(Relaxed));
        let worst_place = match self.worst_place.load(Relaxed) {
            _ if self.worst.load(Relaxed) == 0 => StretchPlace::None,
            DUTIES => StretchPlace::Duties,
            PLACEMENT => StretchPlace::Placement,
            MOVE => StretchPlace::Move,
            ZEROING => StretchPlace::Zeroing,
            WAKEUP => StretchPlace::Wakeup,
            CLIENTS => StretchPlace::Clients,
            DISKS => StretchPlace::Disks,
            NETWORK => StretchPlace::Network,
            MERGING => StretchPlace::Merging,
            LOOKS => StretchPlace::Looks,
            MEMORY => StretchPlace::Memory,
            BALANCE => StretchPlace::Balance,
            scause if scause >> 63 != 0 => StretchPlace::Interrupt(scause as u8),
            scause => StretchPlace::Exception(scause as u8),
        };
        Stretches { counts, worst_ticks: self.worst.load(Relaxed), worst_place }
    }
}
