//! The events of one vCPU, and which one comes next.

use super::{Event, EventId};
use crate::sbi::Error;
use addr::VcpuIndex;

/// A vCPU's own events.
#[derive(Clone, Debug)]
pub struct LocalEvents {
    hart: VcpuIndex,
    is_masked: bool,
    software: Event,
    double_trap: Event,
}

impl LocalEvents {
    /// Of a vCPU after reset: all unused, and masked.
    #[must_use]
    pub const fn new(hart: VcpuIndex) -> Self {
        let software = Event::new(EventId::LocalSoftware, hart);
        let double_trap = Event::new(EventId::DoubleTrap, hart);
        Self { hart, is_masked: true, software, double_trap }
    }

    /// One of them; `None` for the global event.
    pub const fn get(&mut self, id: EventId) -> Option<&mut Event> {
        match id {
            EventId::LocalSoftware => Some(&mut self.software),
            EventId::DoubleTrap => Some(&mut self.double_trap),
            EventId::GlobalSoftware => None,
        }
    }

    /// Keeps events back.
    ///
    /// # Errors
    /// `AlreadyStopped`.
    pub const fn mask(&mut self) -> Result<(), Error> {
        if self.is_masked {
            return Err(Error::AlreadyStopped);
        }
        self.is_masked = true;
        Ok(())
    }

    /// Lets events come.
    ///
    /// # Errors
    /// `AlreadyStarted`.
    pub const fn unmask(&mut self) -> Result<(), Error> {
        if !self.is_masked {
            return Err(Error::AlreadyStarted);
        }
        self.is_masked = false;
        Ok(())
    }

    /// The event whose handler is to begin: the most urgent one that is due, if it is more urgent than every handler that runs.
    #[must_use]
    pub fn next(&self, global: &Event) -> Option<EventId> {
        if self.is_masked {
            return None;
        }
        let due = self.all(global).filter(|event| event.is_due(self.hart)).min_by_key(|event| event.rank())?;
        let runs_more_urgent = |event: &Event| event.runs_on(self.hart) && event.rank() < due.rank();
        (!self.all(global).any(runs_more_urgent)).then_some(due.id())
    }

    /// The event whose handler runs, of several the most urgent one.
    #[must_use]
    pub fn running(&self, global: &Event) -> Option<EventId> {
        let running = self.all(global).filter(|event| event.runs_on(self.hart));
        running.min_by_key(|event| event.rank()).map(Event::id)
    }

    fn all<'a>(&'a self, global: &'a Event) -> impl Iterator<Item = &'a Event> {
        [&self.software, &self.double_trap, global].into_iter()
    }
}
