//! The devices of the board that are not virtio, and the interrupt controllers.

use device::{Device, IrqLine, Width};
use platform::{
    Aplic, Delivery, FilePlace, ImsicFile, InterruptController, MAX_IDS, MAX_VCPUS, Plic, Register, Rtc, Syscon, Uart,
    decode_msi,
};
use virtio::testing::TestEnv;

use crate::Input;

/// Most deliveries after one access: one of each source, and one more.
const MOST_DELIVERIES: usize = 130;
/// Steps of one run.
const MOST_STEPS: usize = 400;

/// What is tried, then accesses to it.
pub fn platform(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let env = TestEnv::new(0x1000);
    match input.below(6) {
        0 => use_device(&mut input, &env, Uart::new(IrqLine(1)), |uart, env, input| {
            let mut out = [0; 64];
            let room = uart.input_room();
            let count = usize::from(input.byte());
            assert!(uart.push_input(input.bytes(count), env) <= room);
            assert!(uart.take_output(&mut out, env) <= out.len());
        }),
        1 => {
            let rtc = Rtc::new(IrqLine(2), input.register(), input.u64());
            use_device(&mut input, &env, rtc, |rtc, env, input| {
                env.ticks.set(env.ticks.get().wrapping_add(input.register()));
                if let Some(due) = rtc.alarm_ticks(env) {
                    assert!(due > env.ticks.get() || due == u64::MAX, "an alarm in the past");
                }
                rtc.poll(env);
            });
        }
        2 => use_device(&mut input, &env, Syscon::new(), |syscon, _, _| {
            let _ = syscon.take_event();
        }),
        3 => {
            let vcpus = u16::from(input.below(32)) + 1;
            use_controller(&mut input, vcpus, InterruptController::Plic(Plic::new(vcpus)));
        }
        4 => {
            let vcpus = u16::from(input.below(32)) + 1;
            use_controller(&mut input, vcpus, InterruptController::Aplic(Aplic::new(vcpus)));
        }
        _ => use_file(&mut input),
    }
}

fn use_device<D: Device>(
    input: &mut Input<'_>,
    env: &TestEnv,
    mut device: D,
    mut host: impl FnMut(&mut D, &TestEnv, &mut Input<'_>),
) {
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            return;
        }
        let (offset, width) = (u64::from(input.u16() % 0x120), Width::from_log2(input.byte()));
        match input.below(4) {
            0 => {
                let value = device.read(offset, width, env).expect("no access stops the guest");
                assert_eq!(value, width.truncate(value));
            }
            1 | 2 => device.write(offset, width, input.register(), env).expect("no access stops the guest"),
            _ => host(&mut device, env, input),
        }
        env.levels.borrow_mut().clear();
    }
    device.reset();
}

fn use_controller(input: &mut Input<'_>, vcpus: u16, mut controller: InterruptController) {
    let check = |delivery: Delivery| match delivery {
        Delivery::Msi(msi) => assert!(msi.vcpu.0 < vcpus && (1..=2047).contains(&msi.eiid), "{msi:?}"),
        Delivery::Levels(levels) => {
            let exist = u32::MAX >> (MAX_VCPUS - vcpus);
            assert_eq!((levels.changed | levels.asserted) & !exist, 0, "{levels:?}");
        }
    };
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            return;
        }
        let offset = u64::from(input.u32() % 0x40_0000);
        let width = Width::from_log2(input.byte());
        match input.below(8) {
            0 => {
                let value = controller.read(offset, width);
                assert_eq!(value, width.truncate(value));
            }
            1..=4 => controller.write(offset, width, input.register()),
            5 => {
                let (line, is_high) = (IrqLine(u16::from(input.byte())), input.flag());
                controller.set_line(line, is_high).into_iter().for_each(check);
            }
            6 => controller.pulse(IrqLine(input.u16())).into_iter().for_each(check),
            _ => controller.reset(),
        }
        let delivered =
            core::iter::from_fn(|| controller.next_delivery()).take(MOST_DELIVERIES).inspect(|one| check(*one));
        assert!(delivered.count() < MOST_DELIVERIES, "deliveries without end");
    }
}

fn use_file(input: &mut Input<'_>) {
    let ids = u16::from(input.byte());
    let mut file = ImsicFile::new(ids);
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            return;
        }
        match input.below(6) {
            0 | 1 => {
                if let Ok(register) = Register::decode(input.register()) {
                    file.write(register, input.register());
                }
            }
            2 => {
                if let Ok(register) = Register::decode(input.register()) {
                    let _ = file.read(register);
                }
            }
            3 => {
                let top = file.topei();
                assert_eq!(file.claim(), top);
                assert_eq!(top >> 16, top & 0xffff);
                assert!(top & 0xffff <= u64::from(MAX_IDS));
            }
            4 => file.raise(input.u16()),
            _ => {
                let width = Width::from_log2(input.byte());
                if let Some(eiid) = decode_msi(u64::from(input.u16()), width, input.register()) {
                    file.raise(eiid);
                }
            }
        }
        let place = FilePlace::Software { is_asserted: file.is_asserted() };
        let _ = platform::ExternalLine::of(place, input.flag());
        // Its contents go to a hart's registers and come back.
        assert_eq!(ImsicFile::from_state(ids, *file.state()).state(), file.state());
    }
}
