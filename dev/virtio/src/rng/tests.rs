use std::vec::Vec;

use device::IrqLine;

use super::*;
use crate::testing::{Driver, TestEnv};
use crate::transport::{Trigger, VirtioMmio};

struct Counter(u8);

impl EntropySource for Counter {
    fn fill(&mut self, buf: &mut [u8]) {
        for byte in buf {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
    }
}

#[test]
fn requests_are_filled_over_their_segments() {
    let env = TestEnv::new(2 << 20);
    let mut device = VirtioMmio::new(Rng::new(Counter(0)), IrqLine(1), Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    let (a, b) = (driver.writable(3), driver.writable(500));
    driver.add(0, &[a, b], false);
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(driver.used(0)[0].len, 503);
    let expected: Vec<u8> = (1..=503_u32).map(|n| n as u8).collect();
    assert_eq!([driver.bytes(&a), driver.bytes(&b)].concat(), expected);
    assert_eq!(env.take_pulses(), 1);
}

#[test]
fn a_large_request_is_answered_in_part() {
    let env = TestEnv::new(4 << 20);
    let mut device = VirtioMmio::new(Rng::new(Counter(0)), IrqLine(1), Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    let big = driver.writable(1 << 20);
    driver.add(0, &[big], false);
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(driver.used(0)[0].len, MAX_REQUEST);
}

#[test]
fn a_request_without_room_asks_for_a_reset() {
    let env = TestEnv::new(2 << 20);
    let mut device = VirtioMmio::new(Rng::new(Counter(0)), IrqLine(1), Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    let readable = driver.readable(&[0; 8]);
    driver.add(0, &[readable], false);
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(device.last_error(), Some(ProtocolError::NoRoomForAnswer));
    assert_eq!(driver.get(&mut device, 0x70) & 64, 64);
    assert_eq!(driver.get(&mut device, 0x60), 2, "a configuration interrupt tells the driver");
    driver.start(&mut device, 0);
    assert!(device.is_live(), "a reset helps");
}

/// Chains of many descriptors are work, however few bytes they have.
#[test]
fn long_chains_are_walked_in_bounded_steps() {
    let env = TestEnv::new(4 << 20);
    let mut device = VirtioMmio::new(Rng::new(Counter(0)), IrqLine(1), Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let segments: Vec<_> = (0..128).map(|_| driver.writable(1)).collect();
    (0..8).for_each(|_| _ = driver.add(0, &segments, true));
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(driver.used(0).len(), 2);
    let mut calls = 1;
    while device.has_backlog() {
        device.poll(&env).unwrap();
        calls += 1;
    }
    assert_eq!(driver.used(0).len(), 6, "the others");
    assert!(calls >= 4);
}
