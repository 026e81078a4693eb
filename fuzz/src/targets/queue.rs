//! A hostile guest's driver: it begins as a good one and then does anything to rings, buffers and registers.

use addr::GuestPhysAddr;
use device::{Device, GuestMemory, Width};
use virtio::testing::{Driver, RAM_BASE, TestEnv};

use crate::Input;

/// Memory of the guest: the rings of six queues, and some for buffers.
pub const RAM: usize = 7 * 0x4000;
/// The dearest call: a budget of 64 chains with 256 segments each, each segment read with its descriptor.
const MOST_ACCESSES: u64 = 64 * 600;
/// Steps of one run.
const MOST_STEPS: usize = 100;

/// Lets a hostile guest use `device`; `host` is what the device's host side does now and then.
pub fn drive<D: Device>(bytes: &[u8], mut device: D, mut host: impl FnMut(&mut D, &TestEnv, &mut Input<'_>)) {
    let mut input = Input::new(bytes);
    let env = TestEnv::new(RAM);
    let mut driver = Driver::new(&env);
    let features = if input.flag() { u64::MAX } else { input.u64() };
    driver.start(&mut device, features);
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        env.memory.take_accesses();
        let has_fault = step(&mut input, &mut device, &mut driver, &env, &mut host);
        let accesses = env.memory.take_accesses();
        assert!(accesses <= MOST_ACCESSES, "{accesses} accesses in one call");
        if has_fault {
            // The guest has been stopped, and can be reset.
            device.reset();
        }
    }
    // Whatever was done to it: after a reset it is as new. Setting queues up is dear, so seldom.
    if features & 3 == 0 {
        driver.start(&mut device, u64::MAX);
    }
}

/// One thing that the guest or the host does; whether the guest was stopped for it.
fn step<D: Device>(
    input: &mut Input<'_>,
    device: &mut D,
    driver: &mut Driver<'_>,
    env: &TestEnv,
    host: &mut impl FnMut(&mut D, &TestEnv, &mut Input<'_>),
) -> bool {
    let queues = u8::try_from(driver.queue_count()).unwrap_or(u8::MAX);
    match input.below(16) {
        0..=2 => {
            let queue = u16::from(input.below(queues));
            let (index, address, length) = (input.below(8), address(input), length(input));
            let (flags, next) = (u16::from(input.byte()), u16::from(input.byte()));
            driver.write_desc(driver.desc(queue), u16::from(index), address, length, flags, next);
            false
        }
        3 | 4 => {
            let queue = u16::from(input.below(queues));
            let head = u16::from(input.byte());
            driver.offer(queue, head);
            false
        }
        5 => {
            let at = driver.avail(u16::from(input.below(queues))).raw() + u64::from(input.byte());
            env.memory.write_u16(GuestPhysAddr::new(at & !1), input.u16()).expect("rings lie in RAM");
            false
        }
        6 | 7 => {
            let at = RAM_BASE + u64::from(input.u16()) * 2 % (RAM as u64 - 256);
            let count = usize::from(input.byte());
            env.memory.write(GuestPhysAddr::new(at), input.bytes(count)).expect("it is in RAM");
            false
        }
        8..=11 => driver.notify(device, u16::from(input.below(queues))).is_err(),
        12 => {
            let (offset, width) = (u64::from(input.u16() % 0x200), Width::from_log2(input.byte()));
            device.write(offset, width, input.register(), env).is_err()
        }
        13 => {
            let (offset, width) = (u64::from(input.u16() % 0x200), Width::from_log2(input.byte()));
            device.read(offset, width, env).is_err()
        }
        _ => {
            host(device, env, input);
            false
        }
    }
}

/// In RAM most of the time.
fn address(input: &mut Input<'_>) -> u64 {
    match input.byte() {
        0 => input.u64(),
        _ => RAM_BASE + u64::from(input.u16()) * 2 % RAM as u64,
    }
}

fn length(input: &mut Input<'_>) -> u32 {
    match input.byte() {
        short @ 0..=199 => u32::from(short),
        tables @ 200..=229 => u32::from(tables - 199) * 16,
        230..=252 => u32::from(input.u16() % 6000),
        253 => u32::from(input.u16()),
        _ => input.u32(),
    }
}
