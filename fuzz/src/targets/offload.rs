//! Frames with work left undone: cut for the gateway, and given to a guest whose driver can do less than the sender's.

use device::{Device, IrqLine};
use virtio::net::{Net, NetBackend, NetConfig, NetHeader, Received, Transmit, TransmitFrame};
use virtio::offload::{NET_HEADER_BYTES, PlainFrames};
use virtio::testing::{Driver, TestEnv};
use virtio::{Trigger, VirtioMmio};

use crate::Input;

/// What comes out of a frame, over what went in: each segment's headers are at most four times its payload.
const MOST_TIMES: usize = 5;
/// Longest frame.
const MOST: usize = 65_550;
/// The guest's receive queue.
const RECEIVE: u16 = 0;

struct Nobody;

impl NetBackend for Nobody {
    fn transmit(&mut self, _header: &NetHeader, _frame: &TransmitFrame<'_>) -> Transmit {
        Transmit::Taken
    }
}

/// A header of 12 bytes, what the receiver is like, a length, and the frame's beginning, or what it is to be made of.
pub fn offload(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut raw = [0; NET_HEADER_BYTES];
    let taken = input.bytes(NET_HEADER_BYTES);
    raw[..taken.len()].copy_from_slice(taken);
    let (features, kind, room) = (input.u64(), input.byte(), u32::from(input.u16()));
    let (is_made, buffers) = (kind & 0x80 != 0, kind % 33);
    // Most frames are short: a long one costs what it is long.
    let length = input.u16();
    let length = if input.byte() < 32 { usize::from(length) } else { usize::from(length % 2048) };
    let mut frame = vec![0x5a; length.min(MOST)];
    if is_made {
        make(&mut input, &mut raw, &mut frame);
    }
    let head = input.bytes(frame.len());
    for (byte, change) in frame.iter_mut().zip(head) {
        // Nothing is changed by what is not there.
        *byte = if is_made { *byte ^ change } else { *change };
    }
    let Ok(header) = NetHeader::decode(&raw, length as u32) else { return };
    to_gateway(&header, &mut frame.clone());
    if length >= 14 {
        to_guest(&header, &frame, features, buffers, room);
    }
}

/// Headers that are what the header in front of the frame says of them: numbers that must meet in several places are seldom found by
/// chance.
fn make(input: &mut Input<'_>, raw: &mut [u8; NET_HEADER_BYTES], frame: &mut [u8]) {
    let (is_ipv6, is_tcp) = (input.flag(), input.flag());
    let mut head = vec![2; 12];
    (0..input.below(4)).for_each(|_| head.extend([0x81, 0, 0, 7]));
    let protocol = if is_tcp { 6 } else { 17 };
    if is_ipv6 {
        head.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0]);
        // Each names the kind of the next one, where the one before it left a place.
        let mut kind_at = head.len();
        head.extend([protocol, 64]);
        head.extend([1; 32]);
        for _ in 0..input.below(6) {
            let (kind, length) = (input.pick(&[0, 43, 60, 60, 44]), input.byte());
            head[kind_at] = kind;
            kind_at = head.len();
            head.extend([protocol, length]);
            head.resize(head.len() + 6 + 8 * usize::from(length), 0);
        }
    } else {
        let words = 5 + usize::from(input.below(11));
        let start = head.len() + 2;
        head.extend([8, 0, 0x40 | words as u8, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol]);
        head.resize(start + 4 * words, 1);
    }
    let start = head.len();
    let offset = if is_tcp { 16 } else { 6 };
    let words = if is_tcp { 5 + usize::from(input.below(11)) } else { 2 };
    head.resize(start + 4 * words, 0);
    if is_tcp {
        head[start + 12] = (words as u8) << 4;
    }
    raw[0] |= 1;
    raw[1] = match (is_tcp, is_ipv6) {
        (true, false) => 1,
        (true, true) => 4,
        (false, _) => 5,
    };
    // Small segments are what is dear.
    raw[5] &= 7;
    raw[6..8].copy_from_slice(&(start as u16).to_le_bytes());
    raw[8..10].copy_from_slice(&[offset, 0]);
    for (byte, value) in frame.iter_mut().zip(head) {
        *byte = value;
    }
}

fn to_gateway(header: &NetHeader, frame: &mut [u8]) {
    let Ok(mut parts) = PlainFrames::of(header, frame) else { return };
    // No part of a frame is longer than all of it.
    let mut segment = vec![0; frame.len()];
    let (mut bytes, mut count) = (0, 0);
    while let Ok(Some(part)) = parts.current(frame, &mut segment) {
        bytes += part.len();
        count += 1;
        parts.advance(frame);
    }
    assert!(bytes <= MOST_TIMES * frame.len(), "{bytes} bytes out of {}", frame.len());
    assert!(count <= 1 + frame.len() / 32, "{count} frames out of {} bytes", frame.len());
}

fn to_guest(header: &NetHeader, frame: &[u8], features: u64, buffers: u8, room: u32) {
    // Rings, and a page for each buffer of the largest kind that is posted.
    let env = TestEnv::new((256 << 10) + (64 << 10));
    let mut device =
        VirtioMmio::new(Net::new(Nobody, NetConfig { mac: [2; 6], mtu: 65_535 }), IrqLine(1), Trigger::Edge);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, features);
    let room = room.min(2000);
    for _ in 0..buffers {
        let buffer = driver.writable(room.max(1));
        driver.add(RECEIVE, &[buffer], false);
    }
    let received = device.receive(header, frame, &env);
    let used = driver.used(RECEIVE);
    let bytes: usize = used.iter().map(|used| used.len as usize).sum();
    // A header of 12 bytes in front of each buffer or frame; an error is a buffer without room for that.
    let most = MOST_TIMES * frame.len() + NET_HEADER_BYTES * used.len();
    assert!(bytes <= most, "{bytes} bytes of {} to the guest", frame.len());
    assert!(used.iter().all(|used| used.len <= room.max(1)), "more than there was room for");
    if received == Ok(Received::Delivered) {
        assert!(bytes > NET_HEADER_BYTES, "nothing came of a frame that was delivered");
    }
    device.reset();
}
