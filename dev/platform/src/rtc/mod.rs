//! Goldfish real-time clock.
//!
//! The time of day is the guest's `time` counter plus an offset that the monitor gives. The model has no timer of its
//! own: the monitor asks for the next alarm ([`Rtc::alarm_ticks`]) and calls [`Rtc::poll`] then.

mod spec;
#[cfg(test)]
mod tests;

use device::{Device, Env, GuestFault, IrqLine, Width};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Ticks to nanoseconds by a multiplication: a 128-bit division takes 150 instructions, more than the rest of a read.
#[derive(Clone, Copy, Debug)]
struct Scale {
    timebase_hz: u64,
    /// Nanoseconds of a tick, in units of 2^-`shift`, rounded up.
    factor: u64,
    shift: u32,
}

impl Scale {
    const fn new(timebase_hz: u64) -> Self {
        let mut shift = 64;
        loop {
            let factor = ((NS_PER_SECOND as u128) << shift).div_ceil(timebase_hz as u128);
            // A billion at most, with shift 0: this ends.
            if factor <= u64::MAX as u128 {
                return Self { timebase_hz, factor: factor as u64, shift };
            }
            shift -= 1;
        }
    }

    /// Nanoseconds since the counter was 0, modulo 2^64.
    #[inline]
    const fn ns(self, ticks: u64) -> u64 {
        ((ticks as u128 * self.factor as u128) >> self.shift) as u64
    }

    /// Ticks that take at least `ns` nanoseconds.
    const fn ticks_in(self, ns: u64) -> u64 {
        let ticks = (ns as u128 * self.timebase_hz as u128).div_ceil(NS_PER_SECOND as u128);
        if ticks > u64::MAX as u128 { u64::MAX } else { ticks as u64 }
    }
}

/// The clock.
#[derive(Debug)]
pub struct Rtc {
    line: IrqLine,
    scale: Scale,
    /// Time of day in ns since 1970 when the counter was 0, modulo 2^64.
    epoch_ns: u64,
    latched_high: u32,
    alarm_ns: u64,
    is_armed: bool,
    is_irq_enabled: bool,
    is_irq_pending: bool,
}

impl Rtc {
    /// A clock for a counter of `timebase_hz` that was 0 at `epoch_ns` (ns since 1970). A timebase of 0 is taken as 1.
    #[must_use]
    pub const fn new(line: IrqLine, timebase_hz: u64, epoch_ns: u64) -> Self {
        Self {
            line,
            scale: Scale::new(if timebase_hz == 0 { 1 } else { timebase_hz }),
            epoch_ns,
            latched_high: 0,
            alarm_ns: 0,
            is_armed: false,
            is_irq_enabled: false,
            is_irq_pending: false,
        }
    }

    /// When the armed alarm is due, as a value of the guest's `time` counter. Always later than now, so whoever polls
    /// then and asks again makes progress, wherever the guest has set its clock.
    #[must_use]
    pub fn alarm_ticks(&self, env: &dyn Env) -> Option<u64> {
        if !self.is_armed {
            return None;
        }
        let now = env.now_ticks();
        let left = self.alarm_ns.saturating_sub(self.ns_at(now));
        Some(now.saturating_add(self.scale.ticks_in(left).max(1)))
    }

    /// Raises the interrupt if the alarm is due.
    pub fn poll(&mut self, env: &dyn Env) {
        if self.is_armed && self.now_ns(env) >= self.alarm_ns {
            self.is_armed = false;
            self.is_irq_pending = true;
            self.update_line(env);
        }
    }

    fn now_ns(&self, env: &dyn Env) -> u64 {
        self.ns_at(env.now_ticks())
    }

    fn ns_at(&self, ticks: u64) -> u64 {
        self.epoch_ns.wrapping_add(self.scale.ns(ticks))
    }

    /// The guest sets the clock.
    fn set_now(&mut self, now: u64, then: u64) {
        self.epoch_ns = self.epoch_ns.wrapping_add(then.wrapping_sub(now));
    }

    fn update_line(&self, env: &dyn Env) {
        env.set_irq(self.line, self.is_irq_pending && self.is_irq_enabled);
    }
}

const fn with_low(value: u64, low: u32) -> u64 {
    value & !0xffff_ffff | low as u64
}

const fn with_high(value: u64, high: u32) -> u64 {
    value & 0xffff_ffff | (high as u64) << 32
}

impl Device for Rtc {
    fn name(&self) -> &'static str {
        "rtc"
    }

    fn read(&mut self, offset: u64, width: Width, env: &dyn Env) -> Result<u64, GuestFault> {
        if width != Width::Word {
            return Ok(0);
        }
        let value = match offset {
            spec::TIME_LOW => {
                let now = self.now_ns(env);
                self.latched_high = (now >> 32) as u32;
                now as u32
            }
            spec::TIME_HIGH => self.latched_high,
            spec::ALARM_LOW => self.alarm_ns as u32,
            spec::ALARM_HIGH => (self.alarm_ns >> 32) as u32,
            spec::IRQ_ENABLED => u32::from(self.is_irq_enabled),
            spec::ALARM_STATUS => u32::from(self.is_armed),
            _ => 0,
        };
        Ok(u64::from(value))
    }

    fn write(&mut self, offset: u64, width: Width, value: u64, env: &dyn Env) -> Result<(), GuestFault> {
        if width != Width::Word {
            return Ok(());
        }
        let value = value as u32;
        let now = self.now_ns(env);
        match offset {
            spec::TIME_LOW => self.set_now(now, with_low(now, value)),
            spec::TIME_HIGH => self.set_now(now, with_high(now, value)),
            spec::ALARM_LOW => {
                self.alarm_ns = with_low(self.alarm_ns, value);
                self.is_armed = true;
                self.poll(env);
            }
            spec::ALARM_HIGH => self.alarm_ns = with_high(self.alarm_ns, value),
            spec::IRQ_ENABLED => {
                self.is_irq_enabled = value & 1 != 0;
                self.update_line(env);
            }
            spec::CLEAR_ALARM => self.is_armed = false,
            spec::CLEAR_INTERRUPT => {
                self.is_irq_pending = false;
                self.update_line(env);
            }
            _ => {}
        }
        Ok(())
    }

    /// The time of day goes on.
    fn reset(&mut self) {
        *self = Self::new(self.line, self.scale.timebase_hz, self.epoch_ns);
    }
}
