//! SBI calls, and the state machines that they drive.

use addr::VcpuIndex;
use vcpu::fwft::{Feature, Features, Support};
use vcpu::hsm::{Change, HartState};
use vcpu::sbi::{Call, Request, decode};
use vcpu::sse::{self, ATTRIBUTES, Event, EventId, LocalEvents, Supervisor};
use vcpu::testing::{BYTES, EXTENSIONS, Known, RAM, is_sound};

use crate::Input;

/// Calls of one guest, one after the other.
pub fn sbi(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let guest = Known { vcpus: u16::from(input.below(64)) + 1, has_double_trap: input.flag() };
    let support = Support {
        does_misaligned: input.flag(),
        double_trap: guest.has_double_trap,
        masks_7: input.flag(),
        masks_16: input.flag(),
    };
    let mut state = State {
        features: Features::new(support),
        hart: HartState::Stopped,
        local: LocalEvents::new(VcpuIndex(0)),
        global: Event::new(EventId::GlobalSoftware, VcpuIndex(0)),
        supervisor: Supervisor { pc: 0x42, sepc: 7, a6: 1, a7: 2, is_supervisor: false, sstatus: 0 },
    };
    while !input.is_empty() {
        let extension = if input.flag() { input.pick(&EXTENSIONS) } else { input.register() };
        let function = input.register();
        let arguments = [(); 5].map(|()| argument(&mut input));
        if let Ok(request) = decode(&Call { extension, function, arguments }, &guest) {
            assert!(is_sound(&guest, &request), "{request:?}");
            state.perform(&request, &guest, &mut input);
        }
        state.go_on(&mut input);
    }
}

/// A register, which often points into RAM.
fn argument(input: &mut Input<'_>) -> u64 {
    if input.byte() < 96 {
        RAM.wrapping_add(u64::from(input.u32() % (BYTES as u32 + 64))).wrapping_sub(32)
    } else {
        input.register()
    }
}

struct State {
    features: Features,
    hart: HartState,
    local: LocalEvents,
    global: Event,
    supervisor: Supervisor,
}

impl State {
    fn perform(&mut self, request: &Request, guest: &Known, input: &mut Input<'_>) {
        let Request::Event(call) = *request else { return };
        let (own, vcpus) = (VcpuIndex(0), guest.vcpus);
        let _ = match call {
            sse::Call::Read(range) => {
                let event = self.event(range.event);
                let all = &ATTRIBUTES[range.first..range.first + range.count];
                all.iter().for_each(|attribute| assert_eq!(event.read(*attribute), event.read(*attribute)));
                Ok(())
            }
            sse::Call::Write(range) => {
                let values = [(); ATTRIBUTES.len()].map(|()| input.register());
                self.event(range.event).write(range.first, &values[..range.count], own, vcpus)
            }
            sse::Call::Register { event, entry, argument } => self.event(event).register(entry, argument),
            sse::Call::Unregister(event) => self.event(event).unregister(),
            sse::Call::Enable(event) => self.event(event).enable(),
            sse::Call::Disable(event) => self.event(event).disable(),
            sse::Call::Complete => {
                if let Some(id) = self.local.running(&self.global) {
                    let mut hart = self.supervisor;
                    self.event(id).complete(&mut hart);
                    self.supervisor = hart;
                }
                Ok(())
            }
            sse::Call::Inject(id, _) => {
                self.event(id).raise();
                Ok(())
            }
            sse::Call::Unmask => self.local.unmask(),
            sse::Call::Mask => self.local.mask(),
        };
    }

    fn event(&mut self, id: EventId) -> &mut Event {
        match self.local.get(id) {
            Some(event) => event,
            None => &mut self.global,
        }
    }

    /// What comes by itself: deliveries, and changes of the hart.
    fn go_on(&mut self, input: &mut Input<'_>) {
        // Each delivery is of another event: there are three.
        for left in (0..4).rev() {
            let Some(id) = self.local.next(&self.global) else { break };
            assert!(left > 0, "deliveries without end");
            let mut hart = self.supervisor;
            self.event(id).begin(&mut hart);
            self.supervisor = hart;
        }
        use Change::{AskStop, AskSuspend, Begin, Resume, Sleep, Start, Stop, Wake};
        let change = input.pick(&[Start, Begin, AskStop, Stop, AskSuspend, Sleep, Wake, Resume]);
        let next = self.hart.after(change);
        assert_eq!(change == Start && next.is_some(), self.hart == HartState::Stopped && change == Start);
        self.hart = next.unwrap_or(self.hart);
        if let Ok(feature) = Feature::decode(u32::from(input.below(8))) {
            let before = self.features.get(feature);
            let value = input.register();
            match self.features.set(feature, value, u64::from(input.below(3))) {
                Ok(()) => assert_eq!(self.features.get(feature), Ok(value)),
                Err(_) => assert_eq!(self.features.get(feature), before),
            }
        }
    }
}
