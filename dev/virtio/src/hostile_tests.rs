//! One harness that drives any device model through [`Device`] as a hostile guest would: plausible and wild rings,
//! registers and configuration writes in any order. Asserts only what must hold for all of them: no panic, no access
//! outside RAM (the test memory refuses those, and a device may not trip over it silently), bounded work per call.

use std::boxed::Box;
use std::vec::Vec;

use addr::{BASE_PAGE, GuestPhysAddr};
use device::{Device, GuestMemory, IrqLine, Width};
use proptest::prelude::*;

use crate::balloon::{Balloon, BalloonBackend, Release};
use crate::block::{Block, BlockBackend, BlockRequest, BlockStatus, BlockTag, Outcome};
use crate::console::{Console, ConsoleBackend, PortConfig};
use crate::net::{Net, NetBackend, NetConfig, NetHeader, Transmit, TransmitFrame};
use crate::rng::{EntropySource, Rng};
use crate::testing::{Driver, RAM_BASE, TestEnv};
use crate::transport::{Trigger, VirtioMmio};

const RAM: usize = 2 << 20;
/// Budget of the dearest call: 64 chains of 256 segments, each read with its descriptor.
const MAX_ACCESSES: u64 = 64 * 600;

struct Fickle(u8);

impl Fickle {
    fn flip(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(5).wrapping_add(3);
        self.0 & 4 != 0
    }
}

impl BlockBackend for Fickle {
    fn capacity_sectors(&self) -> u64 {
        1 << 20
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn can_discard(&self) -> bool {
        true
    }
    fn id(&self) -> [u8; 20] {
        [b'x'; 20]
    }
    fn submit(&mut self, _tag: BlockTag, request: BlockRequest<'_>, memory: &dyn GuestMemory) -> Outcome {
        for segment in request.segments {
            assert!(segment.len > 0 && memory.contains(segment.addr, u64::from(segment.len)));
        }
        if self.flip() { Outcome::Pending } else { Outcome::Done(BlockStatus::Ok) }
    }
    fn cancel_all(&mut self) {}
}

impl NetBackend for Fickle {
    fn transmit(&mut self, _header: &NetHeader, frame: &TransmitFrame<'_>) -> Transmit {
        let mut bytes = std::vec![0; frame.len()];
        assert_eq!(frame.copy_to(&mut bytes), Ok(frame.len()));
        if self.flip() { Transmit::Busy } else { Transmit::Taken }
    }
}

impl ConsoleBackend for Fickle {
    fn output(&mut self, _port: u32, data: &[u8]) -> usize {
        if self.flip() { data.len() / 2 } else { data.len() }
    }
}

impl BalloonBackend for Fickle {
    fn release(&mut self, start: GuestPhysAddr, len: u64) -> Release {
        assert!(start.raw() >= RAM_BASE && start.raw() + len <= RAM_BASE + RAM as u64);
        let bytes = if self.flip() { len } else { (len / 2).next_multiple_of(BASE_PAGE).min(len) };
        Release { bytes, pages: bytes / BASE_PAGE }
    }
}

impl EntropySource for Fickle {
    fn fill(&mut self, buf: &mut [u8]) {
        buf.fill(self.0);
    }
}

/// A device and what its host side does now and then.
trait Target: Device {
    fn host_side(&mut self, env: &TestEnv, number: u16);
}

impl Target for VirtioMmio<Block<Fickle>> {
    fn host_side(&mut self, env: &TestEnv, number: u16) {
        let _ = self.complete(BlockTag::from_raw(1 << 16 | u64::from(number % 300)), BlockStatus::Ok, env);
        let _ = self.poll(env);
    }
}

impl Target for VirtioMmio<Net<Fickle>> {
    fn host_side(&mut self, env: &TestEnv, number: u16) {
        let frame = std::vec![8; usize::from(number)];
        let _ = self.receive(&NetHeader::default(), &frame, env);
        let _ = self.kick(number % 4, env);
        let _ = self.poll(env);
    }
}

impl Target for VirtioMmio<Console<Fickle>> {
    fn host_side(&mut self, env: &TestEnv, number: u16) {
        let _ = self.input(u32::from(number % 3), b"some input", env);
        let _ = self.set_host_open(u32::from(number % 3), number & 8 != 0, env);
        let _ = self.kick(number % 8, env);
        let _ = self.poll(env);
    }
}

impl Target for VirtioMmio<Balloon<Fickle>> {
    fn host_side(&mut self, env: &TestEnv, number: u16) {
        self.set_target_pages(u32::from(number), env);
        let _ = self.poll(env);
    }
}

impl Target for VirtioMmio<Rng<Fickle>> {
    fn host_side(&mut self, env: &TestEnv, _number: u16) {
        let _ = self.poll(env);
    }
}

fn target(kind: u8) -> Box<dyn Target> {
    let (line, trigger) = (IrqLine(1), if kind & 8 == 0 { Trigger::Edge } else { Trigger::Level });
    let host = Fickle(kind);
    match kind % 5 {
        0 => Box::new(VirtioMmio::new(Block::new(host), line, trigger)),
        1 => Box::new(VirtioMmio::new(Net::new(host, NetConfig { mac: [2; 6], mtu: 1500 }), line, trigger)),
        2 => {
            let console = PortConfig { name: None, is_console: true, is_open: true };
            let stream = PortConfig { name: Some("stream"), is_console: false, is_open: true };
            Box::new(VirtioMmio::new(Console::new(host, &[console, stream]), line, trigger))
        }
        3 => Box::new(VirtioMmio::new(Balloon::new(host), line, trigger)),
        _ => Box::new(VirtioMmio::new(Rng::new(host), line, trigger)),
    }
}

/// One thing that the guest or the host does.
#[derive(Clone, Debug)]
enum Step {
    Descriptor { queue: u16, index: u16, addr: u64, len: u32, flags: u16, next: u16 },
    Offer { queue: u16, head: u16 },
    AvailIndex { queue: u16, value: u16 },
    Data { offset: u32, bytes: Vec<u8> },
    Notify { queue: u16 },
    Register { offset: u64, width: u8, value: u64 },
    Read { offset: u64 },
    Host { number: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let addr = prop_oneof![
        9 => (0_u64..RAM as u64).prop_map(|offset| RAM_BASE + offset),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![4 => 1_u32..64, 2 => 1_u32..5000, 1 => any::<u32>(), 1 => (0_u32..9).prop_map(|n| n * 16)];
    let flags = prop_oneof![Just(0_u16), Just(1), Just(2), Just(3), Just(4), 0_u16..8];
    let index = || 0_u16..6;
    let queue = || 0_u16..6;
    prop_oneof![
        6 => (queue(), index(), addr, len, flags, index())
            .prop_map(|(queue, index, addr, len, flags, next)| Step::Descriptor { queue, index, addr, len, flags, next }),
        6 => (queue(), 0_u16..7).prop_map(|(queue, head)| Step::Offer { queue, head }),
        1 => (queue(), any::<u16>()).prop_map(|(queue, value)| Step::AvailIndex { queue, value }),
        2 => (0_u32..RAM as u32 - 64, proptest::collection::vec(0_u8..16, 1..64))
            .prop_map(|(offset, bytes)| Step::Data { offset, bytes }),
        6 => queue().prop_map(|queue| Step::Notify { queue }),
        1 => (0_u64..0x140, 0_u8..4, any::<u64>())
            .prop_map(|(offset, width, value)| Step::Register { offset, width, value }),
        1 => (0_u64..0x140).prop_map(|offset| Step::Read { offset }),
        2 => (0_u16..3000).prop_map(|number| Step::Host { number }),
    ]
}

fn perform(step: Step, target: &mut dyn Target, driver: &mut Driver<'_>, env: &TestEnv) {
    let queues = driver.queue_count();
    match step {
        Step::Descriptor { queue, index, addr, len, flags, next } => {
            driver.write_desc(driver.desc(queue % queues), index, addr, len, flags, next);
        }
        Step::Offer { queue, head } => driver.offer(queue % queues, head),
        Step::AvailIndex { queue, value } => {
            let at = GuestPhysAddr::new(driver.avail(queue % queues).raw() + 2);
            env.memory.write_u16(at, value).unwrap();
        }
        Step::Data { offset, bytes } => {
            env.memory.write(GuestPhysAddr::new(RAM_BASE + u64::from(offset)), &bytes).unwrap();
        }
        Step::Notify { queue } => {
            let _ = driver.notify(target, queue);
        }
        Step::Register { offset, width, value } => {
            let width = [Width::Byte, Width::Half, Width::Word, Width::Double][usize::from(width)];
            let _ = target.write(offset, width, value, env);
        }
        Step::Read { offset } => {
            let _ = target.read(offset & !3, Width::Word, env);
        }
        Step::Host { number } => target.host_side(env, number),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_guest_gets_the_better_of_any_device(
        kind in 0_u8..16,
        features in prop_oneof![Just(u64::MAX), any::<u64>()],
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let env = TestEnv::new(RAM);
        let mut target = target(kind);
        let mut driver = Driver::new(&env);
        driver.start(&mut *target, features);
        for step in steps {
            let shown = std::format!("{step:?}");
            env.memory.take_accesses();
            perform(step, &mut *target, &mut driver, &env);
            let accesses = env.memory.take_accesses();
            prop_assert!(accesses <= MAX_ACCESSES, "{accesses} accesses in {shown}");
        }
        driver.start(&mut *target, features);
    }
}
