//! One event: its state, its attributes, its handler.

use super::{EventId, Interrupted, Supervisor};
use crate::sbi::Error;
use addr::VcpuIndex;

/// Where an event stands, by the numbers of its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It has no handler.
    Unused,
    /// It has one.
    Registered,
    /// It may be delivered.
    Enabled,
    /// Its handler runs.
    Running,
}

/// An attribute, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's names, in its order")]
pub enum Attribute {
    Status,
    Priority,
    Config,
    PreferredHart,
    EntryPc,
    EntryArgument,
    InterruptedSepc,
    InterruptedFlags,
    InterruptedA6,
    InterruptedA7,
}

/// All attributes, by number.
pub const ATTRIBUTES: [Attribute; 10] = [
    Attribute::Status,
    Attribute::Priority,
    Attribute::Config,
    Attribute::PreferredHart,
    Attribute::EntryPc,
    Attribute::EntryArgument,
    Attribute::InterruptedSepc,
    Attribute::InterruptedFlags,
    Attribute::InterruptedA6,
    Attribute::InterruptedA7,
];

/// In the status: it has happened and was not delivered yet.
const PENDING: u64 = 1 << 2;
/// In the status: guests may inject it.
const INJECTABLE: u64 = 1 << 3;
/// In the configuration: it is disabled when its handler completes.
const ONE_SHOT: u64 = 1;

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    id: EventId,
    state: State,
    is_pending: bool,
    is_one_shot: bool,
    priority: u32,
    hart: VcpuIndex,
    entry: u64,
    argument: u64,
    interrupted: Interrupted,
}

impl Event {
    /// An event that nobody uses yet. It happens to `hart`.
    #[must_use]
    pub const fn new(id: EventId, hart: VcpuIndex) -> Self {
        Self {
            id,
            state: State::Unused,
            is_pending: false,
            is_one_shot: false,
            priority: 0,
            hart,
            entry: 0,
            argument: 0,
            interrupted: Interrupted::NONE,
        }
    }

    /// Which event it is.
    #[must_use]
    pub const fn id(&self) -> EventId {
        self.id
    }

    /// The vCPU that it happens to.
    #[must_use]
    pub const fn hart(&self) -> VcpuIndex {
        self.hart
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How urgent it is: the lower, the more.
    pub(super) const fn rank(&self) -> (u32, u32) {
        (self.priority, self.id.number())
    }

    /// Whether it is to be delivered to `hart`, if nothing more urgent is there.
    pub(super) fn is_due(&self, hart: VcpuIndex) -> bool {
        self.is_pending && self.state == State::Enabled && self.hart == hart
    }

    /// Whether its handler runs on `hart`.
    pub(super) fn runs_on(&self, hart: VcpuIndex) -> bool {
        self.state == State::Running && self.hart == hart
    }

    /// It gets a handler.
    ///
    /// # Errors
    /// `InvalidState` if it has one.
    pub const fn register(&mut self, entry: u64, argument: u64) -> Result<(), Error> {
        (self.entry, self.argument) = match self.state {
            State::Unused => (entry, argument),
            _ => return Err(Error::InvalidState),
        };
        self.state = State::Registered;
        Ok(())
    }

    /// It loses its handler, and what has happened is forgotten.
    ///
    /// # Errors
    /// `InvalidState` if it has none, or is enabled.
    pub fn unregister(&mut self) -> Result<(), Error> {
        self.change(State::Registered, State::Unused)?;
        self.is_pending = false;
        Ok(())
    }

    /// It may be delivered.
    ///
    /// # Errors
    /// `InvalidState` if it is not registered, or is enabled.
    pub fn enable(&mut self) -> Result<(), Error> {
        self.change(State::Registered, State::Enabled)
    }

    /// It may not.
    ///
    /// # Errors
    /// `InvalidState` if it is not enabled, or its handler runs.
    pub fn disable(&mut self) -> Result<(), Error> {
        self.change(State::Enabled, State::Registered)
    }

    fn change(&mut self, from: State, to: State) -> Result<(), Error> {
        if self.state != from {
            return Err(Error::InvalidState);
        }
        self.state = to;
        Ok(())
    }

    /// It has happened.
    pub const fn raise(&mut self) {
        self.is_pending = true;
    }

    /// Its handler begins in `hart`.
    pub const fn begin(&mut self, hart: &mut Supervisor) {
        self.is_pending = false;
        self.state = State::Running;
        self.interrupted = hart.enter(self.entry, self.hart, self.argument);
    }

    /// Its handler has done its work: `hart` goes on where it was, or where the handler wants it to.
    pub const fn complete(&mut self, hart: &mut Supervisor) {
        self.end();
        hart.leave(&self.interrupted);
    }

    /// Its handler is no more: the vCPU that ran it has stopped.
    pub(super) const fn end(&mut self) {
        self.state = if self.is_one_shot { State::Registered } else { State::Enabled };
    }

    /// The global event's handler is no more, if it ran on `hart`: that vCPU has stopped.
    pub fn abandon(&mut self, hart: VcpuIndex) {
        if self.runs_on(hart) {
            self.end();
        }
    }

    /// An attribute's value.
    #[must_use]
    pub const fn read(&self, attribute: Attribute) -> u64 {
        match attribute {
            Attribute::Status => self.status(),
            Attribute::Priority => self.priority as u64,
            Attribute::Config => self.is_one_shot as u64,
            Attribute::PreferredHart => self.hart.0 as u64,
            Attribute::EntryPc => self.entry,
            Attribute::EntryArgument => self.argument,
            Attribute::InterruptedSepc => self.interrupted.sepc,
            Attribute::InterruptedFlags => self.interrupted.flags,
            Attribute::InterruptedA6 => self.interrupted.a6,
            Attribute::InterruptedA7 => self.interrupted.a7,
        }
    }

    const fn status(&self) -> u64 {
        let pending = if self.is_pending { PENDING } else { 0 };
        let injectable = if self.id.is_injectable() { INJECTABLE } else { 0 };
        self.state as u64 | pending | injectable
    }

    /// Changes the attributes from number `first` on, all or none. `caller` is the vCPU that asks, one of `vcpus`.
    ///
    /// # Errors
    /// Those of the first attribute that cannot be changed so: `Denied` if it is read-only, `InvalidState` if not now,
    /// `InvalidParam` for the value.
    pub fn write(&mut self, first: usize, values: &[u64], caller: VcpuIndex, vcpus: u16) -> Result<(), Error> {
        let attributes = ATTRIBUTES.get(first..).ok_or(Error::BadRange)?;
        if values.len() > attributes.len() {
            return Err(Error::BadRange);
        }
        let changes = || attributes.iter().copied().zip(values.iter().copied());
        changes().try_for_each(|(attribute, value)| self.check(attribute, value, caller, vcpus))?;
        changes().for_each(|(attribute, value)| self.set(attribute, value));
        Ok(())
    }

    fn check(&self, attribute: Attribute, value: u64, caller: VcpuIndex, vcpus: u16) -> Result<(), Error> {
        let is_idle = matches!(self.state, State::Unused | State::Registered);
        let (is_now, is_legal) = match attribute {
            Attribute::Status | Attribute::EntryPc | Attribute::EntryArgument => return Err(Error::Denied),
            Attribute::PreferredHart if self.id != EventId::GlobalSoftware => return Err(Error::Denied),
            Attribute::Priority => (is_idle, u32::try_from(value).is_ok()),
            Attribute::Config => (is_idle, value & !ONE_SHOT == 0),
            Attribute::PreferredHart => (is_idle, value < u64::from(vcpus)),
            Attribute::InterruptedFlags => (self.runs_on(caller), value & !Interrupted::FLAGS == 0),
            Attribute::InterruptedSepc | Attribute::InterruptedA6 | Attribute::InterruptedA7 => {
                (self.runs_on(caller), true)
            }
        };
        match (is_now, is_legal) {
            (false, _) => Err(Error::InvalidState),
            (true, false) => Err(Error::InvalidParam),
            (true, true) => Ok(()),
        }
    }

    const fn set(&mut self, attribute: Attribute, value: u64) {
        match attribute {
            Attribute::Status | Attribute::EntryPc | Attribute::EntryArgument => {}
            Attribute::Priority => self.priority = value as u32,
            Attribute::Config => self.is_one_shot = value & ONE_SHOT != 0,
            Attribute::PreferredHart => self.hart = VcpuIndex(value as u16),
            Attribute::InterruptedSepc => self.interrupted.sepc = value,
            Attribute::InterruptedFlags => self.interrupted.flags = value,
            Attribute::InterruptedA6 => self.interrupted.a6 = value,
            Attribute::InterruptedA7 => self.interrupted.a7 = value,
        }
    }
}
