use std::vec::Vec;

use addr::GuestPhysAddr;
use device::{Device, GuestMemory, Width};
use proptest::prelude::*;

use super::*;
use crate::model::{Budget, read_config};
use crate::queue::Chain;
use crate::spec::{DeviceId, F_EVENT_IDX, F_VERSION_1};
use crate::testing::{Driver, RAM_BASE, TestEnv};

/// Gives every chain back at once.
struct Echo {
    chain: Chain,
    notified: Vec<u16>,
    stopped: u32,
    config: [u8; 8],
}

impl Echo {
    fn device(trigger: Trigger) -> VirtioMmio<Self> {
        let echo = Self { chain: Chain::new(), notified: Vec::new(), stopped: 0, config: [1, 2, 3, 4, 5, 6, 7, 8] };
        VirtioMmio::new(echo, IrqLine(3), trigger)
    }
}

impl VirtioModel for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }
    fn device_id(&self) -> DeviceId {
        DeviceId::Entropy
    }
    fn features(&self) -> u64 {
        5
    }
    fn queue_count(&self) -> u16 {
        2
    }
    fn queue_max_size(&self, _index: u16) -> u16 {
        16
    }
    fn config_read(&self, offset: u64, buf: &mut [u8]) {
        read_config(&self.config, offset, buf);
    }
    fn notify(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        self.notified.push(index);
        let memory = io.memory();
        let Some(queue) = io.queue(index) else { return Ok(()) };
        let mut budget = Budget::new(4, u64::MAX);
        while queue.next_or_arm(memory, &mut self.chain)? {
            queue.push(memory, self.chain.head(), self.chain.writable_len())?;
            if budget.charge(&self.chain, 0) {
                io.defer(index);
                break;
            }
        }
        Ok(())
    }
    fn queue_stopped(&mut self, _queue: u16) {
        self.stopped += 1;
    }
    fn reset(&mut self) {}
}

#[test]
fn a_driver_finds_negotiates_and_resets() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut driver = Driver::new(&env);
    assert_eq!(driver.start(&mut device, u64::MAX), 5 | crate::spec::TRANSPORT_FEATURES);
    assert_eq!(driver.get(&mut device, 0x08), 4);
    assert_eq!(driver.queue_size(1), 16);
    for shm in [0xb0, 0xb4, 0xb8, 0xbc] {
        assert_eq!(driver.get(&mut device, shm), u32::MAX);
    }
    driver.put(&mut device, 0x30, 77);
    assert_eq!(driver.get(&mut device, 0x34), 0, "no such queue");
    driver.put(&mut device, 0x70, 0);
    assert_eq!(driver.get(&mut device, 0x70), 0);
    driver.put(&mut device, 0x30, 0);
    assert_eq!(driver.get(&mut device, 0x44), 0, "a reset takes the queues away");
}

#[test]
fn features_need_version_1_and_an_offer() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let driver = Driver::new(&env);
    for (low, high) in [(5, 0), (2, 1), (0, 2)] {
        driver.put(&mut device, 0x70, 0);
        driver.put(&mut device, 0x24, 0);
        driver.put(&mut device, 0x20, low);
        driver.put(&mut device, 0x24, 1);
        driver.put(&mut device, 0x20, high);
        driver.put(&mut device, 0x70, 11);
        assert_eq!(driver.get(&mut device, 0x70), 3, "FEATURES_OK is refused");
        driver.put(&mut device, 0x70, 15);
        assert!(!device.is_live(), "and so is DRIVER_OK");
    }
}

#[test]
fn config_space_is_read_at_any_width_and_zero_beyond() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut at = |offset, width| device.read(offset, width, &env).unwrap();
    assert_eq!(at(0x100, Width::Byte), 1);
    assert_eq!(at(0x101, Width::Half), 0x0302);
    assert_eq!(at(0x104, Width::Word), 0x0807_0605);
    assert_eq!(at(0x104, Width::Double), 0x0807_0605);
    assert_eq!(at(u64::MAX, Width::Double), 0);
    assert_eq!(at(0x00, Width::Byte), 0, "registers are 32 bits wide");
}

#[test]
fn every_wanted_notification_is_an_edge_even_before_the_acknowledgement() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    for round in 1..=3 {
        let buffer = driver.writable(8);
        driver.add(0, &[buffer], false);
        driver.notify(&mut device, 0).unwrap();
        assert_eq!(env.pulses.get(), round);
    }
    assert_eq!(driver.get(&mut device, 0x60), 1);
    driver.put(&mut device, 0x64, 1);
    assert_eq!(driver.get(&mut device, 0x60), 0);
    env.memory.write_u16(driver.avail(0), 1).unwrap();
    let buffer = driver.writable(8);
    driver.add(0, &[buffer], false);
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(env.pulses.get(), 3, "NO_INTERRUPT is heeded");
    assert_eq!(driver.used(0).len(), 4);
}

#[test]
fn event_index_suppresses_both_ways() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, F_EVENT_IDX);
    driver.set_used_event(0, 1);
    let buffer = driver.writable(8);
    driver.add(0, &[buffer], false);
    assert!(driver.must_notify(0, 1));
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(env.take_pulses(), 0, "used index 1 does not pass used_event 1");
    driver.add(0, &[buffer], false);
    assert!(driver.must_notify(0, 1), "the device has armed itself for the next buffer");
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(env.take_pulses(), 1);
}

#[test]
fn a_level_follows_the_interrupt_status() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Level);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    env.levels.borrow_mut().clear();
    let buffer = driver.writable(8);
    driver.add(0, &[buffer], false);
    driver.notify(&mut device, 0).unwrap();
    device.update_config(&env, |model| model.config[0] = 9);
    driver.put(&mut device, 0x64, 1);
    assert!(env.levels.borrow().iter().all(|&(_, level)| level), "the configuration change is still pending");
    driver.put(&mut device, 0x64, 2);
    assert_eq!(env.levels.borrow().last(), Some(&(IrqLine(3), false)));
    assert_eq!(driver.get(&mut device, 0xfc), 1);
}

#[test]
fn a_spent_budget_leaves_a_backlog() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    for _ in 0..10 {
        let buffer = driver.writable(8);
        driver.add(1, &[buffer], false);
    }
    driver.notify(&mut device, 1).unwrap();
    assert_eq!(driver.used(1).len(), 4);
    let mut polls = 0;
    while device.has_backlog() {
        device.poll(&env).unwrap();
        polls += 1;
    }
    assert_eq!((driver.used(1).len(), polls), (6, 2));
}

#[test]
fn buffers_made_available_before_driver_ok_are_served_at_driver_ok() {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, 0);
    assert_eq!(device.model().notified, [0, 1]);
    driver.notify(&mut device, 9).unwrap();
    assert_eq!(device.model().notified, [0, 1], "no such queue");
    driver.put(&mut device, 0x30, 1);
    driver.put(&mut device, 0x44, 0);
    assert_eq!(device.model().stopped, 1);
    driver.notify(&mut device, 1).unwrap();
    assert_eq!(device.model().notified, [0, 1], "a stopped queue is not served");
}

fn refused_set_up(size: u32, desc: u64, avail: u64, used: u64) -> GuestFault {
    let env = TestEnv::new(2 << 20);
    let mut device = Echo::device(Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.negotiate(&mut device, 0);
    driver.put(&mut device, 0x30, 0);
    driver.put(&mut device, 0x38, size);
    for (low, addr) in [(0x80, desc), (0x90, avail), (0xa0, used)] {
        driver.put(&mut device, low, addr as u32);
        driver.put(&mut device, low + 4, (addr >> 32) as u32);
    }
    let fault = device.write(0x44, Width::Word, 1, &env).unwrap_err();
    assert_eq!(driver.get(&mut device, 0x44), 0);
    fault
}

#[test]
fn bad_rings_stop_the_guest() {
    let (desc, avail, used) = (RAM_BASE, RAM_BASE + 0x1000, RAM_BASE + 0x2000);
    for size in [0, 3, 17, 32, u32::MAX] {
        assert_eq!(refused_set_up(size, desc, avail, used).value, u64::from(size));
    }
    for (desc, avail, used) in [(desc + 8, avail, used), (desc, avail + 1, used), (desc, avail, used + 2)] {
        assert_eq!(refused_set_up(8, desc, avail, used).reason, "virtqueue ring is misaligned");
    }
    let end = RAM_BASE + (2 << 20);
    for bad in [0, end - 16, end, !15] {
        assert_eq!(refused_set_up(8, bad, avail, used).reason, "virtqueue ring lies outside RAM");
        assert_eq!(refused_set_up(8, desc, bad, used).value, bad);
        assert_eq!(refused_set_up(8, desc, avail, bad).value, bad);
    }
}

proptest! {
    #[test]
    fn random_register_traffic_never_panics(
        accesses in proptest::collection::vec((any::<bool>(), 0_u64..0x120, 0_u8..4, register_value()), 1..200),
    ) {
        let env = TestEnv::new(1 << 16);
        let mut device = Echo::device(Trigger::Level);
        for (is_write, offset, width, value) in accesses {
            let width = [Width::Word, Width::Word, Width::Byte, Width::Double][usize::from(width)];
            let before = device.model().notified.len();
            if is_write {
                let _ = device.write(offset & !3, width, value, &env);
            } else {
                let _ = device.read(offset, width, &env);
            }
            prop_assert!(device.model().notified.len() - before <= 2, "bounded work");
        }
    }

    #[test]
    fn random_rings_never_panic(
        content in proptest::collection::vec(any::<u8>(), 0x3000),
        small in any::<bool>(),
        indirect in any::<bool>(),
    ) {
        let env = TestEnv::new(2 << 20);
        let mut device = Echo::device(Trigger::Edge);
        let mut driver = Driver::new(&env);
        driver.start(&mut device, if indirect { u64::MAX } else { F_VERSION_1 });
        let mut content = content;
        if small {
            // Plausible rings: addresses in RAM, small indices, so that the walk gets further.
            for desc in content[..256].chunks_exact_mut(16) {
                desc[2..8].copy_from_slice(&[0, 0x80, 0, 0, 0, 0]);
                desc[10..12].fill(0);
                desc[12] &= 7;
                desc[13] = 0;
                desc[14] &= 15;
                desc[15] = 0;
            }
            for entry in content[0x1004..0x1024].chunks_exact_mut(2) {
                entry[0] &= 15;
                entry[1] = 0;
            }
            content[0x1002] &= 15;
            content[0x1003] = 0;
        }
        env.memory.write(GuestPhysAddr::new(RAM_BASE), &content).unwrap();
        let _ = env.memory.take_accesses();
        let _ = driver.notify(&mut device, 0);
        prop_assert!(env.memory.take_accesses() < 4 * (256 + 8) + 16, "bounded work");
    }
}

fn register_value() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..20, any::<u64>(), Just(RAM_BASE), Just(RAM_BASE + 0x100), Just(15), Just(11)]
}
