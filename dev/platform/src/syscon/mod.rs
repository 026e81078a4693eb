//! Power-off and reset device (`sifive,test1`).

mod spec;

use device::{Device, Env, GuestFault, Width};

/// What the guest asks of its power supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// Power off.
    PowerOff,
    /// Start again.
    Reset,
    /// Power off: the guest has failed.
    Fail {
        /// Its own code.
        code: u16,
    },
}

/// The device. After a write the monitor looks for an event.
#[derive(Debug, Default)]
pub struct Syscon {
    event: Option<PowerEvent>,
}

impl Syscon {
    /// A device at power-on.
    #[must_use]
    pub const fn new() -> Self {
        Self { event: None }
    }

    /// What the guest has asked for since the last call.
    pub const fn take_event(&mut self) -> Option<PowerEvent> {
        self.event.take()
    }
}

impl Device for Syscon {
    fn name(&self) -> &'static str {
        "syscon"
    }

    fn read(&mut self, _: u64, _: Width, _: &dyn Env) -> Result<u64, GuestFault> {
        Ok(0)
    }

    fn write(&mut self, offset: u64, width: Width, value: u64, _: &dyn Env) -> Result<(), GuestFault> {
        if offset != spec::FINISH || !matches!(width, Width::Half | Width::Word) {
            return Ok(());
        }
        let value = width.truncate(value);
        match value as u16 {
            spec::PASS => self.event = Some(PowerEvent::PowerOff),
            spec::RESET => self.event = Some(PowerEvent::Reset),
            spec::FAIL => self.event = Some(PowerEvent::Fail { code: (value >> 16) as u16 }),
            _ => {}
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.event = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestEnv, accesses};
    use proptest::prelude::*;

    fn event(width: Width, value: u64) -> Option<PowerEvent> {
        let mut syscon = Syscon::new();
        syscon.write(0, width, value, &TestEnv::default()).unwrap();
        let event = syscon.take_event();
        assert_eq!(syscon.take_event(), None);
        event
    }

    #[test]
    fn commands_become_events() {
        assert_eq!(event(Width::Word, 0x5555), Some(PowerEvent::PowerOff));
        assert_eq!(event(Width::Word, 0x7777), Some(PowerEvent::Reset));
        assert_eq!(event(Width::Word, 0x002a_3333), Some(PowerEvent::Fail { code: 42 }));
        assert_eq!(event(Width::Half, 0x7777), Some(PowerEvent::Reset));
        assert_eq!(event(Width::Word, 0x1234), None);
        assert_eq!(event(Width::Byte, 0x5555), None);
        assert_eq!(event(Width::Double, 0x5555), None);
    }

    proptest! {
        #[test]
        fn random_accesses_do_not_panic(steps in accesses(0x1000)) {
            let (mut syscon, env) = (Syscon::new(), TestEnv::default());
            for (is_write, offset, width, value) in steps {
                if is_write {
                    syscon.write(offset, width, value, &env).unwrap();
                } else {
                    prop_assert_eq!(syscon.read(offset, width, &env).unwrap(), 0);
                }
            }
        }
    }
}
