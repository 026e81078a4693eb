//! Events of a vCPU: their states, which comes first, and what nests.

use addr::VcpuIndex;
use vcpu::sbi::Error;
use vcpu::sse::{Attribute, Event, EventId, LocalEvents, State, Supervisor};

const OWN: VcpuIndex = VcpuIndex(1);
const OTHER: VcpuIndex = VcpuIndex(2);
const VCPUS: u16 = 4;
const ALL: [EventId; 3] = [EventId::DoubleTrap, EventId::LocalSoftware, EventId::GlobalSoftware];

/// A vCPU with its events and registers.
struct Hart {
    local: LocalEvents,
    global: Event,
    registers: Supervisor,
}

impl Hart {
    fn new() -> Self {
        let registers = Supervisor { pc: 0x1000, is_supervisor: true, ..Supervisor::default() };
        Self { local: LocalEvents::new(OWN), global: Event::new(EventId::GlobalSoftware, OWN), registers }
    }

    /// All events enabled, with these priorities, and not masked.
    fn ready(priorities: [u64; 3]) -> Self {
        let mut hart = Self::new();
        for (id, priority) in ALL.into_iter().zip(priorities) {
            let event = hart.event(id);
            event.write(Attribute::Priority as usize, &[priority], OWN, VCPUS).unwrap();
            event.register(handler(id), 0).unwrap();
            event.enable().unwrap();
        }
        hart.local.unmask().unwrap();
        hart
    }

    fn event(&mut self, id: EventId) -> &mut Event {
        match self.local.get(id) {
            Some(event) => event,
            None => &mut self.global,
        }
    }

    /// Delivers until nothing is due; what ran last.
    fn deliver(&mut self) -> Option<EventId> {
        while let Some(id) = self.local.next(&self.global) {
            let mut registers = self.registers;
            self.event(id).begin(&mut registers);
            self.registers = registers;
        }
        self.local.running(&self.global)
    }

    fn complete(&mut self) -> Option<EventId> {
        let id = self.local.running(&self.global)?;
        let mut registers = self.registers;
        self.event(id).complete(&mut registers);
        self.registers = registers;
        Some(id)
    }
}

fn handler(id: EventId) -> u64 {
    0x8000_0000 | u64::from(id.number())
}

#[test]
fn states_follow_each_other() {
    let mut hart = Hart::new();
    let event = hart.event(EventId::LocalSoftware);
    assert_eq!(event.unregister(), Err(Error::InvalidState));
    assert_eq!(event.enable(), Err(Error::InvalidState));
    assert_eq!(event.register(0x2000, 3), Ok(()));
    assert_eq!(event.register(0x3000, 4), Err(Error::InvalidState));
    assert_eq!((event.read(Attribute::EntryPc), event.read(Attribute::EntryArgument)), (0x2000, 3));
    assert_eq!(event.disable(), Err(Error::InvalidState));
    assert_eq!(event.enable(), Ok(()));
    assert_eq!(event.unregister(), Err(Error::InvalidState));
    assert_eq!(event.disable(), Ok(()));
    event.raise();
    assert_eq!(event.read(Attribute::Status), State::Registered as u64 | 4 | 8);
    assert_eq!(event.unregister(), Ok(()));
    assert_eq!(event.read(Attribute::Status), 8, "what had happened is forgotten");
}

#[test]
fn masks_hold_events_back() {
    let mut hart = Hart::ready([0, 0, 0]);
    assert_eq!(hart.local.unmask(), Err(Error::AlreadyStarted));
    assert_eq!(hart.local.mask(), Ok(()));
    assert_eq!(hart.local.mask(), Err(Error::AlreadyStopped));
    hart.event(EventId::LocalSoftware).raise();
    assert_eq!(hart.deliver(), None);
    assert_eq!(hart.local.unmask(), Ok(()));
    assert_eq!(hart.deliver(), Some(EventId::LocalSoftware));
    assert_eq!(hart.registers.pc, handler(EventId::LocalSoftware));
}

#[test]
fn more_urgent_events_interrupt_handlers() {
    let mut hart = Hart::ready([1, 3, 2]);
    hart.event(EventId::LocalSoftware).raise();
    assert_eq!(hart.deliver(), Some(EventId::LocalSoftware));
    hart.event(EventId::GlobalSoftware).raise();
    assert_eq!(hart.deliver(), Some(EventId::GlobalSoftware));
    hart.event(EventId::LocalSoftware).raise();
    assert_eq!(hart.deliver(), Some(EventId::GlobalSoftware), "the less urgent one waits");
    hart.event(EventId::DoubleTrap).raise();
    assert_eq!(hart.deliver(), Some(EventId::DoubleTrap));
    assert_eq!(hart.complete(), Some(EventId::DoubleTrap));
    assert_eq!(hart.registers.pc, handler(EventId::GlobalSoftware));
    assert_eq!(hart.complete(), Some(EventId::GlobalSoftware));
    assert_eq!(hart.deliver(), Some(EventId::LocalSoftware));
    assert_eq!(hart.complete(), Some(EventId::LocalSoftware));
    assert_eq!(hart.deliver(), Some(EventId::LocalSoftware), "it happened again while its handler ran");
    assert_eq!(hart.complete(), Some(EventId::LocalSoftware));
    assert_eq!((hart.registers.pc, hart.complete()), (0x1000, None));
}

#[test]
fn of_equal_priorities_the_lower_number_comes_first() {
    let mut hart = Hart::ready([9, 9, 9]);
    for id in ALL {
        hart.event(id).raise();
    }
    for id in ALL {
        assert_eq!(hart.local.next(&hart.global), Some(id));
        assert_eq!(hart.deliver(), Some(id));
        assert_eq!(hart.complete(), Some(id));
    }
}

#[test]
fn one_shot_events_are_disabled_when_they_complete() {
    let mut hart = Hart::new();
    let event = hart.event(EventId::LocalSoftware);
    event.write(Attribute::Config as usize, &[1], OWN, VCPUS).unwrap();
    event.register(0x2000, 0).unwrap();
    event.enable().unwrap();
    event.raise();
    hart.local.unmask().unwrap();
    assert_eq!(hart.deliver(), Some(EventId::LocalSoftware));
    hart.complete();
    assert_eq!(hart.event(EventId::LocalSoftware).state(), State::Registered);
}

#[test]
fn the_global_event_goes_to_the_vcpu_of_choice() {
    let mut hart = Hart::new();
    let preferred = Attribute::PreferredHart as usize;
    hart.local.unmask().unwrap();
    let global = hart.event(EventId::GlobalSoftware);
    assert_eq!(global.write(preferred, &[u64::from(VCPUS)], OWN, VCPUS), Err(Error::InvalidParam));
    assert_eq!(global.write(preferred, &[u64::from(OTHER.0)], OWN, VCPUS), Ok(()));
    global.register(0x2000, 0).unwrap();
    global.enable().unwrap();
    global.raise();
    assert_eq!(global.write(preferred, &[0], OWN, VCPUS), Err(Error::InvalidState), "not while it is enabled");
    assert_eq!(hart.deliver(), None, "it is another one's");
    hart.local = LocalEvents::new(OTHER);
    hart.local.unmask().unwrap();
    assert_eq!(hart.deliver(), Some(EventId::GlobalSoftware));
    let flags = Attribute::InterruptedFlags as usize;
    assert_eq!(hart.global.write(flags, &[1], OWN, VCPUS), Err(Error::InvalidState), "only who handles it changes it");
    assert_eq!(hart.global.write(flags, &[1], OTHER, VCPUS), Ok(()));
    hart.global.abandon(OWN);
    assert_eq!(hart.global.state(), State::Running);
    hart.global.abandon(OTHER);
    assert_eq!(hart.global.state(), State::Enabled);
}

#[test]
fn attributes_that_cannot_be_written() {
    let mut hart = Hart::new();
    let event = hart.event(EventId::LocalSoftware);
    let mut write = |attribute: Attribute, value| event.write(attribute as usize, &[value], OWN, VCPUS);
    for attribute in [Attribute::Status, Attribute::EntryPc, Attribute::EntryArgument, Attribute::PreferredHart] {
        assert_eq!(write(attribute, 0), Err(Error::Denied), "{attribute:?}");
    }
    for attribute in [Attribute::InterruptedSepc, Attribute::InterruptedFlags, Attribute::InterruptedA6] {
        assert_eq!(write(attribute, 0), Err(Error::InvalidState), "{attribute:?}");
    }
    assert_eq!(write(Attribute::Priority, 1 << 32), Err(Error::InvalidParam));
    assert_eq!(write(Attribute::Config, 2), Err(Error::InvalidParam));
    let both = [5, 2];
    assert_eq!(event.write(Attribute::Priority as usize, &both, OWN, VCPUS), Err(Error::InvalidParam));
    assert_eq!(event.read(Attribute::Priority), 0, "all or none");
    assert_eq!(event.write(9, &both, OWN, VCPUS), Err(Error::BadRange));
    assert_eq!(event.write(11, &both, OWN, VCPUS), Err(Error::BadRange));
}

#[test]
fn a_handler_sees_and_changes_what_it_interrupted() {
    let mut hart = Hart::ready([0, 0, 0]);
    hart.registers.a6 = 0x66;
    hart.registers.a7 = 0x77;
    hart.event(EventId::LocalSoftware).raise();
    hart.deliver();
    assert_eq!((hart.registers.a6, hart.registers.sepc), (1, 0x1000));
    let event = hart.event(EventId::LocalSoftware);
    assert_eq!((event.read(Attribute::InterruptedA6), event.read(Attribute::InterruptedA7)), (0x66, 0x77));
    let first = Attribute::InterruptedSepc as usize;
    for flag in (0..6).map(|bit| 1 << bit) {
        assert_eq!(event.write(first + 1, &[flag], OWN, VCPUS), Ok(()));
        assert_eq!(event.read(Attribute::InterruptedFlags), flag);
    }
    assert_eq!(event.write(first + 1, &[1 << 6], OWN, VCPUS), Err(Error::InvalidParam));
    assert_eq!(event.write(first, &[0x40, 1, 0x60, 0x70], OWN, VCPUS), Ok(()));
    hart.complete();
    assert_eq!((hart.registers.sepc, hart.registers.a6, hart.registers.a7), (0x40, 0x60, 0x70));
}
