use std::vec::Vec;

use device::{Device, IrqLine};
use proptest::prelude::*;

use super::*;
use crate::spec::F_VERSION_1;
use crate::testing::{Buffer, Driver, TestEnv};
use crate::transport::{Trigger, VirtioMmio};

#[derive(Default)]
struct Wire {
    sent: Vec<(NetHeader, Vec<u8>)>,
    is_busy: bool,
    ready: u32,
}

impl NetBackend for Wire {
    fn transmit(&mut self, header: &NetHeader, frame: &TransmitFrame<'_>) -> Transmit {
        if self.is_busy {
            return Transmit::Busy;
        }
        let mut bytes = std::vec![0; frame.len()];
        assert_eq!(frame.copy_to(&mut bytes), Ok(frame.len()));
        self.sent.push((*header, bytes));
        Transmit::Taken
    }
    fn receive_ready(&mut self) {
        self.ready += 1;
    }
}

type Card = VirtioMmio<Net<Wire>>;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn card() -> Card {
    VirtioMmio::new(Net::new(Wire::default(), NetConfig { mac: MAC, mtu: 65_535 }), IrqLine(2), Trigger::Edge)
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 3) as u8).collect()
}

fn tso(len: u16) -> NetHeader {
    let checksum = Some(PartialChecksum { start: 34, offset: 16 });
    NetHeader { checksum, gso: Gso::TcpV4, gso_size: len, hdr_len: 54 }
}

/// An IPv4 TCP frame whose headers are good enough to be cut.
fn tcp_frame(payload: usize) -> Vec<u8> {
    let mut raw = frame(54 + payload);
    raw[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    raw[23] = 6;
    raw[46] = 0x50;
    raw
}

fn send(driver: &mut Driver<'_>, device: &mut Card, header: &[u8; 12], frame: &[u8]) {
    let (header, frame) = (driver.readable(header), driver.readable(frame));
    driver.add(TRANSMIT_QUEUE, &[header, frame], false);
    driver.notify(device, TRANSMIT_QUEUE).unwrap();
}

fn post(driver: &mut Driver<'_>, device: &mut Card, count: usize, len: u32) -> Vec<Buffer> {
    let buffers: Vec<Buffer> = (0..count).map(|_| driver.writable(len)).collect();
    for buffer in &buffers {
        driver.add(RECEIVE_QUEUE, &[*buffer], false);
    }
    driver.notify(device, RECEIVE_QUEUE).unwrap();
    buffers
}

#[test]
fn the_configuration_names_address_mtu_and_link() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let config = |device: &mut Card| (driver.get(device, 0x104) >> 16, driver.get(device, 0x108) >> 16);
    assert_eq!(driver.get(&mut device, 0x100), 2);
    assert_eq!(config(&mut device), (1, 65_535));
    device.set_link(false, &env);
    assert_eq!(config(&mut device), (0, 65_535));
    assert_eq!((driver.get(&mut device, 0x60), env.take_pulses()), (2, 1));
    assert_eq!(device.receive(&NetHeader::default(), &frame(60), &env), Ok(Received::Dropped));
}

#[test]
fn frames_and_large_segments_are_sent_with_their_header() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    send(&mut driver, &mut device, &[0; 12], &frame(60));
    send(&mut driver, &mut device, &tso(1448).encode(), &tcp_frame(65_000));
    let sent = &device.model().backend().sent;
    assert_eq!(sent[0], (NetHeader::default(), frame(60)));
    assert_eq!(sent[1], (tso(1448), tcp_frame(65_000)));
    assert_eq!(driver.used(TRANSMIT_QUEUE).len(), 2);
}

/// A copy of 64 KiB is long enough: a call has one, or small ones that are a quarter of it together.
#[test]
fn a_call_sends_one_long_frame_or_a_few_short_ones() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let lengths = [15_000, 65_000, 65_000, 1_000, 1_000, 16_000, 14, 65_000, 9_000, 9_000];
    for len in lengths {
        let (header, frame) = (driver.readable(&[0; 12]), driver.readable(&frame(len)));
        driver.add(TRANSMIT_QUEUE, &[header, frame], false);
    }
    driver.notify(&mut device, TRANSMIT_QUEUE).unwrap();
    let mut sent = Vec::new();
    loop {
        let call: Vec<_> = device.model_mut().backend_mut().sent.drain(..).map(|(_, frame)| frame.len()).collect();
        assert!(call.len() == 1 || call.iter().sum::<usize>() <= 16 << 10, "{call:?}");
        sent.extend(call);
        if !device.has_backlog() {
            break;
        }
        device.poll(&env).unwrap();
    }
    assert_eq!(sent, lengths);
    assert_eq!(driver.used(TRANSMIT_QUEUE).len(), lengths.len());
}

#[test]
fn senseless_frames_are_dropped_and_their_buffers_returned() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, F_VERSION_1 | spec::F_CSUM);
    send(&mut driver, &mut device, &[0; 12], &frame(13));
    send(&mut driver, &mut device, &[0; 12], &frame(MAX_FRAME as usize + 1));
    send(&mut driver, &mut device, &tso(1448).encode(), &tcp_frame(3000));
    let outside = NetHeader { checksum: Some(PartialChecksum { start: 50, offset: 9 }), ..NetHeader::default() };
    send(&mut driver, &mut device, &outside.encode(), &frame(60));
    assert!(device.model().backend().sent.is_empty());
    assert_eq!(device.model().metrics().transmit_refused, 4);
    assert_eq!(driver.used(TRANSMIT_QUEUE).len(), 4);
}

#[test]
fn a_busy_network_leaves_frames_in_the_ring() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    device.model_mut().backend_mut().is_busy = true;
    send(&mut driver, &mut device, &[0; 12], &frame(60));
    send(&mut driver, &mut device, &[0; 12], &frame(61));
    assert!(driver.used(TRANSMIT_QUEUE).is_empty());
    device.model_mut().backend_mut().is_busy = false;
    device.kick(TRANSMIT_QUEUE, &env).unwrap();
    assert_eq!(driver.used(TRANSMIT_QUEUE).len(), 2);
    let lengths: Vec<usize> = device.model().backend().sent.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [60, 61]);
}

#[test]
fn receive_buffers_are_merged() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let buffers = post(&mut driver, &mut device, 4, 1000);
    let large = tcp_frame(2500);
    assert_eq!(device.receive(&tso(1448), &large, &env), Ok(Received::Delivered));
    assert_eq!(driver.used(RECEIVE_QUEUE).iter().map(|used| used.len).collect::<Vec<_>>(), [1000, 1000, 566]);
    let all: Vec<u8> = buffers.iter().flat_map(|buffer| driver.bytes(buffer)).collect();
    let mut header = tso(1448).encode();
    header[10] = 3;
    assert_eq!(all[..12], header);
    assert_eq!(all[12..12 + large.len()], large);
    assert_eq!(env.take_pulses(), 1);
}

#[test]
fn a_frame_without_enough_buffers_waits_and_takes_none() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    assert_eq!(device.receive(&NetHeader::default(), &frame(2000), &env), Ok(Received::Full));
    post(&mut driver, &mut device, 2, 1000);
    assert_eq!(device.model().backend().ready, 1);
    assert_eq!(device.receive(&NetHeader::default(), &frame(2000), &env), Ok(Received::Full));
    assert!(driver.used(RECEIVE_QUEUE).is_empty());
    post(&mut driver, &mut device, 1, 1000);
    assert_eq!(device.model().backend().ready, 2);
    assert_eq!(device.receive(&NetHeader::default(), &frame(2000), &env), Ok(Received::Delivered));
    assert_eq!(driver.used(RECEIVE_QUEUE).len(), 3);
}

#[test]
fn a_frame_that_can_never_fit_is_dropped() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, !spec::F_MRG_RXBUF);
    post(&mut driver, &mut device, 1, 1000);
    assert_eq!(device.receive(&NetHeader::default(), &frame(1000), &env), Ok(Received::Dropped));
    assert_eq!(device.receive(&NetHeader::default(), &frame(988), &env), Ok(Received::Delivered));
    driver.start(&mut device, u64::MAX);
    // More buffers than one frame may take.
    post(&mut driver, &mut device, 256, 20);
    assert_eq!(device.receive(&NetHeader::default(), &frame(2600), &env), Ok(Received::Dropped));
    assert_eq!(device.receive(&NetHeader::default(), &frame(2500), &env), Ok(Received::Delivered));
}

#[test]
fn a_driver_without_offloads_gets_plain_frames() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, F_VERSION_1);
    let buffers = post(&mut driver, &mut device, 4, 1526);
    assert_eq!(device.receive(&tso(1448), &tcp_frame(3000), &env), Ok(Received::Delivered));
    let used: Vec<u32> = driver.used(RECEIVE_QUEUE).iter().map(|used| used.len).collect();
    assert_eq!(used, [12 + 54 + 1448, 12 + 54 + 1448, 12 + 54 + 104]);
    assert_eq!(driver.bytes(&buffers[0])[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(device.model().metrics().software_offloads, 1);
    assert_eq!(device.receive(&tso(1448), &frame(3000), &env), Ok(Received::Dropped), "not TCP at all");
    assert_eq!(device.receive(&NetHeader::default(), &frame(60), &env), Ok(Received::Delivered));
    assert_eq!(device.receive(&tso(1448), &tcp_frame(3000), &env), Ok(Received::Full));
}

/// A frame that becomes many is given in several calls, each of them bounded; the guest sees what it would of one call.
#[test]
fn a_frame_is_cut_as_far_as_the_budget_goes() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, F_VERSION_1);
    post(&mut driver, &mut device, 128, 1526);
    let mut calls = 0;
    let mut give = |device: &mut Card| {
        let mut budget = Budget::new(64, 4 << 10);
        calls += 1;
        let given = device.with_model(&env, |net, io| net.deliver(&tso(500), &tcp_frame(20_000), io, &mut budget));
        given.unwrap().unwrap()
    };
    let mut before = 0;
    loop {
        let received = give(&mut device);
        let metrics = device.model().metrics();
        assert!(metrics.received - before <= 8, "4 KiB of them and one more");
        before = metrics.received;
        if received != Received::Partly {
            assert_eq!(received, Received::Delivered);
            break;
        }
    }
    assert!(calls > 4, "{calls} calls");
    let used: Vec<u32> = driver.used(RECEIVE_QUEUE).iter().map(|used| used.len).collect();
    assert_eq!(used, [12 + 54 + 500; 40]);
    // One that is given up does not go on in the next.
    let mut budget = Budget::new(64, 300);
    let given = device.with_model(&env, |net, io| net.deliver(&tso(500), &tcp_frame(2_000), io, &mut budget));
    assert_eq!(given.unwrap(), Some(Received::Partly));
    device.model_mut().forget_begun();
    assert_eq!(device.receive(&tso(500), &tcp_frame(2_000), &env), Ok(Received::Delivered));
    assert_eq!(driver.used(RECEIVE_QUEUE).len(), 1 + 4);
}

/// Frames that turn out to be nonsense once they are copied cost the same as others.
#[test]
fn a_call_copies_one_long_frame_to_cut_it() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, F_VERSION_1);
    post(&mut driver, &mut device, 100, 4096);
    // No TCP.
    let nonsense = frame(60_000);
    let deliver = |device: &mut Card, frame: &[u8]| {
        let mut budget = Budget::new(16, 4 << 10);
        let received = device.with_model(&env, |net, io| net.deliver(&tso(1_000), frame, io, &mut budget));
        (received.unwrap().unwrap(), budget.is_spent())
    };
    assert_eq!(deliver(&mut device, &nonsense), (Received::Dropped, true));
    // What makes sense is cut in the next call, from the copy.
    let good = tcp_frame(60_000);
    assert_eq!(deliver(&mut device, &good), (Received::Partly, true));
    assert_eq!(device.model().metrics().received, 0);
    let mut calls = 0;
    while deliver(&mut device, &good).0 == Received::Partly {
        calls += 1;
    }
    assert!((10..60).contains(&calls), "{calls} calls");
    assert_eq!(device.model().metrics().received, 60);
}

#[test]
fn control_commands_are_answered() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let mut ask = |command: &[u8]| {
        let (command, answer) = (driver.readable(command), driver.writable(1));
        driver.add(CONTROL_QUEUE, &[command, answer], false);
        driver.notify(&mut device, CONTROL_QUEUE).unwrap();
        assert_eq!(driver.used(CONTROL_QUEUE)[0].len, 1);
        driver.bytes(&answer)[0]
    };
    assert_eq!(ask(&[0, 0, 1]), 0, "promiscuous");
    assert_eq!(ask(&[0, 1, 1]), 0, "all multicast");
    assert_eq!(ask(&[0, 2, 1]), 1, "extra modes were not offered");
    let mut table = std::vec![1, 0, 1, 0, 0, 0];
    table.extend(MAC);
    table.extend([0; 4]);
    assert_eq!(ask(&table), 0);
    assert_eq!(ask(&table[..table.len() - 1]), 1);
    assert_eq!(ask(&[1, 0, 0xff, 0xff, 0xff, 0xff]), 1);
    assert_eq!(ask(&[1, 1, 2, 2, 2, 2, 2, 2]), 1, "the address is ours");
    assert_eq!(ask(&[4, 0, 2, 0]), 1, "one pair of queues");
}

#[test]
fn a_transmit_chain_without_header_asks_for_a_reset() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let short = driver.readable(&[0; 11]);
    driver.add(TRANSMIT_QUEUE, &[short], false);
    driver.notify(&mut device, TRANSMIT_QUEUE).unwrap();
    assert!(!device.is_live());
}

#[test]
fn sending_a_small_frame_makes_few_memory_accesses() {
    let env = TestEnv::new(4 << 20);
    let mut device = card();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let (header, data) = (driver.readable(&[0; 12]), driver.readable(&frame(60)));
    driver.add(TRANSMIT_QUEUE, &[header, data], true);
    env.memory.take_accesses();
    driver.notify(&mut device, TRANSMIT_QUEUE).unwrap();
    assert_eq!(env.memory.take_accesses(), 11, "data included");
}

proptest! {
    #[test]
    fn random_traffic_never_panics(
        steps in proptest::collection::vec(
            (0_u8..4, any::<[u8; 12]>(), 0_usize..3000, 0_u32..700, any::<bool>()),
            1..40,
        ),
        features in any::<u64>(),
    ) {
        let env = TestEnv::new(8 << 20);
        let mut device = card();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, features);
        for (step, mut header, len, buffer, is_tcp) in steps {
            header[0] &= 1;
            header[1] &= 5;
            let bytes = if is_tcp { tcp_frame(len) } else { frame(len) };
            match step {
                0 if len > 0 => send(&mut driver, &mut device, &header, &bytes),
                1 if buffer > 0 => { post(&mut driver, &mut device, 2, buffer); }
                2 => {
                    if let Ok(header) = NetHeader::decode(&header, bytes.len() as u32) {
                        device.receive(&header, &bytes, &env).unwrap();
                    }
                }
                _ => {
                    let (command, answer) = (driver.readable(&header), driver.writable(1));
                    driver.add(CONTROL_QUEUE, &[command, answer], false);
                    driver.notify(&mut device, CONTROL_QUEUE).unwrap();
                }
            }
            for queue in 0..3 {
                driver.used(queue);
            }
        }
        prop_assert!(device.is_live());
        let _ = device.read(0x60, device::Width::Word, &env);
    }
}
