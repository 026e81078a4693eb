//! Random registers: no call panics, and no request names a vCPU or memory that does not exist.

use addr::VcpuIndex;
use proptest::prelude::*;
use vcpu::fwft::{Feature, Features, Support};
use vcpu::hsm::{Change, HartState};
use vcpu::sbi::{Call, decode};
use vcpu::sse::{Event, EventId, LocalEvents, Supervisor};
use vcpu::testing::{BYTES, EXTENSIONS, Known, RAM, is_sound};
use vcpu::trap::{CsrRequest, Privilege, Trapped, virtual_instruction};

/// A register: something that may mean something, or anything.
fn register() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..40_u64,
        any::<u64>(),
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..64_u32).prop_map(|bit| u64::MAX << bit),
        (0..BYTES + 64).prop_map(|offset| RAM - 32 + offset),
        prop::sample::select(vec![0xffff_0000, 0xffff_8000, 1, 0x8000_0000, 0x8020_0000]),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    use Change::{AskStop, AskSuspend, Begin, Resume, Sleep, Start, Stop, Wake};
    prop::sample::select(vec![Start, Begin, AskStop, Stop, AskSuspend, Sleep, Wake, Resume])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn requests_name_only_what_exists(
        extension in prop_oneof![prop::sample::select(EXTENSIONS.to_vec()), any::<u64>()],
        function in prop_oneof![0..12_u64, any::<u64>()],
        arguments in prop::array::uniform5(register()),
        vcpus in 1..=64_u16,
        has_double_trap: bool,
    ) {
        let guest = Known { vcpus, has_double_trap };
        if let Ok(request) = decode(&Call { extension, function, arguments }, &guest) {
            prop_assert!(is_sound(&guest, &request), "{request:?}");
        }
    }

    #[test]
    fn instructions_are_what_they_are(raw: u32, status: u64) {
        if let Trapped::Csr(access) = virtual_instruction(u64::from(raw))
            && let Some(CsrRequest::Counter(counter)) = CsrRequest::decode(access, Privilege::before_trap(status))
        {
            prop_assert!(counter < 32 && !access.is_write());
        }
    }

    #[test]
    fn features_keep_what_is_locked(calls in prop::collection::vec((0..6_u32, register(), 0..3_u64), 1..40)) {
        let support = Support { does_misaligned: true, double_trap: true, masks_7: true, masks_16: true };
        let mut features = Features::new(support);
        let mut locked = [None; 6];
        for (number, value, flags) in calls {
            let feature = Feature::decode(number).unwrap();
            let before = features.get(feature);
            match features.set(feature, value, flags) {
                Ok(()) => prop_assert_eq!(features.get(feature), Ok(value)),
                Err(_) => prop_assert_eq!(features.get(feature), before),
            }
            if flags == 1 && locked[number as usize].is_none() && features.get(feature) == Ok(value) {
                locked[number as usize] = Some(value);
            }
            if let Some(value) = locked[number as usize] {
                prop_assert_eq!(features.get(feature), Ok(value));
            }
        }
    }

    #[test]
    fn harts_start_only_when_stopped(changes in prop::collection::vec(change(), 1..60)) {
        let mut state = HartState::Stopped;
        for change in changes {
            let next = state.after(change);
            prop_assert_eq!(change == Change::Start && next.is_some(), state == HartState::Stopped && change == Change::Start);
            state = next.unwrap_or(state);
        }
    }

    #[test]
    fn handlers_nest_by_priority(
        priorities in prop::array::uniform3(0..4_u64),
        steps in prop::collection::vec(0..4_usize, 1..80),
    ) {
        const OWN: VcpuIndex = VcpuIndex(0);
        let ids = [EventId::DoubleTrap, EventId::LocalSoftware, EventId::GlobalSoftware];
        let (mut local, mut global) = (LocalEvents::new(OWN), Event::new(EventId::GlobalSoftware, OWN));
        local.unmask().unwrap();
        for (id, priority) in ids.into_iter().zip(priorities) {
            let event = local.get(id).unwrap_or(&mut global);
            event.write(1, &[priority], OWN, 1).unwrap();
            event.register(0x1000, 0).unwrap();
            event.enable().unwrap();
        }
        let start = Supervisor { pc: 0x42, sepc: 7, a6: 1, a7: 2, is_supervisor: false, sstatus: 0 };
        let (mut hart, mut stack) = (start, Vec::new());
        let rank = |id: EventId| (priorities[ids.iter().position(|other| *other == id).unwrap()], id.number());
        for step in steps {
            match ids.get(step) {
                Some(id) => local.get(*id).unwrap_or(&mut global).raise(),
                None => {
                    prop_assert_eq!(local.running(&global), stack.last().copied());
                    if let Some(id) = stack.pop() {
                        local.get(id).unwrap_or(&mut global).complete(&mut hart);
                    }
                }
            }
            while let Some(id) = local.next(&global) {
                prop_assert!(stack.last().is_none_or(|top| rank(id) < rank(*top)));
                local.get(id).unwrap_or(&mut global).begin(&mut hart);
                stack.push(id);
            }
        }
        while let Some(id) = stack.pop() {
            local.get(id).unwrap_or(&mut global).complete(&mut hart);
        }
        prop_assert_eq!(hart, start);
    }
}
