//! Supervisor software events of a vCPU: calls about them, and their delivery before the vCPU's next instruction.
//!
//! A vCPU's own events need no lock. The VM's global event has one; under it nothing else is locked or kicked.

use super::{Next, Vcpu, registers, sbi::finish};
use crate::vm::shared::{kick, request};
use ::vcpu::{
    sbi::{Answer, Error},
    sse::{ATTRIBUTES, Call, Event, EventId, Range, Supervisor},
};
use addr::VcpuIndex;
use device::GuestMemory as _;
use rv::{csr, fields::sstatus};

const A6: usize = 16;
const A7: usize = 17;

impl Vcpu {
    /// A call about events. Loaded vCPUs only.
    #[cold]
    #[inline(never)]
    pub(super) fn event_call(&mut self, call: Call) -> Next {
        let answer = match call {
            Call::Complete => match self.running_event() {
                Some(event) => return self.complete_event(event),
                None => Ok(0),
            },
            Call::Read(range) => self.read_attributes(range),
            Call::Write(range) => self.write_attributes(range),
            Call::Register { event, entry, argument } => {
                self.with_event(event, |event| event.register(entry, argument))
            }
            Call::Unregister(event) => self.with_event(event, Event::unregister),
            Call::Enable(event) => self.with_event(event, Event::enable).inspect(|_| self.tell_global(event)),
            Call::Disable(event) => self.with_event(event, Event::disable),
            Call::Inject(event, target) => self.inject_event(event, target),
            Call::Unmask => self.events.unmask().map(|()| 0),
            Call::Mask => self.events.mask().map(|()| 0),
        };
        finish(self, answer);
        self.deliver_events();
        Next::Resume
    }

    fn with_event(&mut self, id: EventId, change: impl FnOnce(&mut Event) -> Result<(), Error>) -> Answer {
        match self.events.get(id) {
            Some(event) => change(event)?,
            None => change(&mut self.vm.global_event().lock())?,
        }
        Ok(0)
    }

    fn read_attributes(&mut self, range: Range) -> Answer {
        let mut values = [0; 8 * ATTRIBUTES.len()];
        let attributes = ATTRIBUTES.iter().skip(range.first).take(range.count);
        self.with_event(range.event, |event| {
            for (slot, attribute) in values.chunks_exact_mut(8).zip(attributes) {
                slot.copy_from_slice(&event.read(*attribute).to_le_bytes());
            }
            Ok(())
        })?;
        let bytes = &values[..8 * range.count.min(ATTRIBUTES.len())];
        self.vm.memory().write(range.at, bytes).map_err(|_| Error::InvalidAddress)?;
        Ok(0)
    }

    fn write_attributes(&mut self, range: Range) -> Answer {
        let mut values = [0; ATTRIBUTES.len()];
        let mut bytes = [0; 8 * ATTRIBUTES.len()];
        let count = range.count.min(ATTRIBUTES.len());
        self.vm.memory().read(range.at, &mut bytes[..8 * count]).map_err(|_| Error::InvalidAddress)?;
        for (value, raw) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = u64::from_le_bytes(*raw);
        }
        let (caller, vcpus) = (self.index, self.vm.vcpus().len() as u16);
        self.with_event(range.event, |event| event.write(range.first, &values[..count], caller, vcpus))
    }

    fn inject_event(&mut self, id: EventId, target: VcpuIndex) -> Answer {
        if id != EventId::GlobalSoftware && target != self.index {
            self.ask_for_events(target, request::INJECTED);
            return Ok(0);
        }
        self.with_event(id, |event| {
            event.raise();
            Ok(())
        })?;
        self.tell_global(id);
        Ok(0)
    }

    /// The global event may be due: the vCPU that it goes to looks.
    fn tell_global(&self, id: EventId) {
        if id == EventId::GlobalSoftware {
            let target = self.vm.global_event().lock().hart();
            self.ask_for_events(target, request::EVENTS);
        }
    }

    fn ask_for_events(&self, target: VcpuIndex, bit: u32) {
        if let Some(shared) = self.vm.vcpus().get(target.index()).filter(|_| target != self.index) {
            shared.request(bit);
            kick(shared);
        }
    }

    /// Others have asked to look at the events; `is_injected`: this vCPU's own software event has happened. Loaded vCPUs only.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_events(&mut self, is_injected: bool) {
        if is_injected && let Some(event) = self.events.get(EventId::LocalSoftware) {
            event.raise();
        }
        // One that is suspended wakes up first.
        if !self.waiting.is_asleep() {
            self.deliver_events();
        }
    }

    /// Whether an event is to be delivered.
    pub(super) fn has_event(&self) -> bool {
        self.events.next(&self.vm.global_event().lock()).is_some()
    }

    fn running_event(&self) -> Option<EventId> {
        self.events.running(&self.vm.global_event().lock())
    }

    /// Begins the handlers of events that are due; the most urgent one is executed first. Loaded vCPUs only.
    #[cold]
    pub(super) fn deliver_events(&mut self) {
        let vm = self.vm.clone();
        let mut global = vm.global_event().lock();
        // Each round is for another event, of which there are three.
        while let Some(id) = self.events.next(&global) {
            let mut registers = self.supervisor();
            self.events.get(id).unwrap_or(&mut global).begin(&mut registers);
            self.set_supervisor(&registers);
        }
    }

    fn complete_event(&mut self, id: EventId) -> Next {
        let mut registers = self.supervisor();
        let _ = self.with_event(id, |event| {
            event.complete(&mut registers);
            Ok(())
        });
        // The handler has put all other registers back.
        self.set_supervisor(&registers);
        self.deliver_events();
        Next::Resume
    }

    /// A trap while the guest's kernel could not take one: its event, or its end.
    #[cold]
    #[inline(never)]
    pub(super) fn double_trap(&mut self, cause: u64) -> Next {
        if let Some(event) = self.events.get(EventId::DoubleTrap) {
            event.raise();
        }
        if self.has_event() {
            self.deliver_events();
            return Next::Resume;
        }
        self.fail("hart", "double trap: an exception while the kernel could not take one", cause)
    }

    /// It stops: a handler of the global event that it ran is no more.
    pub(super) fn abandon_events(&mut self) {
        self.vm.global_event().lock().abandon(self.index);
    }

    fn supervisor(&self) -> Supervisor {
        Supervisor {
            pc: self.context.pc,
            is_supervisor: self.context.sstatus & sstatus::SPP != 0,
            a6: self.context.x[A6],
            a7: self.context.x[A7],
            sepc: csr::vsepc::read(),
            sstatus: csr::vsstatus::read(),
        }
    }

    fn set_supervisor(&mut self, registers: &Supervisor) {
        registers::write_supervisor(registers);
        self.context.pc = registers.pc;
        self.context.x[A6] = registers.a6;
        self.context.x[A7] = registers.a7;
        if registers.is_supervisor {
            self.context.sstatus |= sstatus::SPP;
        } else {
            self.context.sstatus &= !sstatus::SPP;
        }
    }
}
