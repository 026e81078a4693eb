//! Frames on which switches break, from one interface of the guest to its other one.

use super::{Attacker, queues};
use crate::{
    cpu, layout, virtio,
    virtio::{Device, NEXT, Queue, WRITE, register},
};
use core::sync::atomic::{AtomicU64, Ordering};

const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const CONTROL: u64 = 2;
/// Bytes in front of a frame.
const HEADER: u64 = 12;
/// The checksum is left to do.
const NEEDS_CHECKSUM: u64 = 1;
/// Segments are left to make: of TCP over IPv4, and over IPv6.
const OVER_4: u64 = 1;
const OVER_6: u64 = 4;
/// Frames that a step describes anew.
const ANEW: u64 = 4;

/// Registers of the interface that receives; 0: there is none.
static RECEIVER: AtomicU64 = AtomicU64::new(0);
/// Its rings, and its buffers, a page each.
const RINGS: u64 = layout::FREE + 0x8_0000;
const BUFFERS: u64 = layout::FREE + 0x20_0000;
const BUFFER: u64 = 4096;
const SIZE: u64 = 256;

/// Takes the guest's other interface into use.
pub fn begin() {
    let interface = |device: &Device| device.read(register::DEVICE_ID) == virtio::NET;
    let Some(device) = Device::all().filter(interface).nth(1) else { return };
    RECEIVER.store(device.address(0), Ordering::SeqCst);
    take(device, u64::MAX, BUFFER);
}

fn take(device: Device, features: u64, bytes: u64) {
    let _ = device.negotiate(features);
    device.write(register::QUEUE_SEL, RECEIVE);
    let size = device.read(register::QUEUE_NUM_MAX).min(SIZE);
    cpu::store16(RINGS + 0x1002, 0);
    cpu::store16(RINGS + 0x2002, 0);
    for index in 0..size {
        Queue::describe(RINGS, index as u16, BUFFERS + index * BUFFER, bytes as u32, WRITE, 0);
        cpu::store16(RINGS + 0x1004 + index * 2, index);
    }
    device.place(size, RINGS, RINGS + 0x1000, RINGS + 0x2000);
    device.go();
    cpu::store16(RINGS + 0x1002, size);
    cpu::fence();
    device.notify(RECEIVE as u32);
}

/// All that the other interface has received may be written again.
fn recycle() {
    let base = RECEIVER.load(Ordering::SeqCst);
    if base != 0 {
        let used = cpu::load16(RINGS + 0x2002);
        cpu::store16(RINGS + 0x1002, used + SIZE);
        cpu::fence();
        Device::at(base).notify(RECEIVE as u32);
    }
}

/// Sends frames: each is written behind its header, and its length given.
fn send(attacker: &mut Attacker, mut write: impl FnMut(&mut Attacker, u64, u64) -> u64) {
    queues::with(attacker, SEND, |attacker, _, rings, size| {
        for _ in 0..ANEW {
            let first = (attacker.dice.below(size / queues::APART) * queues::APART) as u16;
            let at = queues::buffer(&mut attacker.dice, 0x1_1000);
            let bytes = write(attacker, at, at + 0x1000);
            Queue::describe(rings, first, at, HEADER as u32, NEXT, first + 1);
            Queue::describe(rings, first + 1, at + 0x1000, bytes as u32, 0, 0);
        }
        queues::publish(rings, size);
    });
    recycle();
}

/// What is left to do with a frame: flags, kind of segments, bytes of headers, of a segment, and where the checksum is.
fn left(at: u64, flags: u64, kind: u64, headers: u64, segment: u64, [start, offset]: [u64; 2]) {
    cpu::store(at, flags | kind << 8 | headers << 16 | segment << 32 | start << 48);
    cpu::store32(at + 8, offset);
}

/// To everybody, from the address that the interface has.
fn ethernet(attacker: &Attacker, at: u64, kind: u64) {
    cpu::store(at, 0xffff_ffff_ffff);
    (0..6).for_each(|byte| cpu::store8(at + 6 + byte, cpu::load8(attacker.registers.0 + 0x100 + byte)));
    cpu::store16(at + 12, kind);
}

/// The fixed headers of TCP over IPv4 or IPv6, right for so many bytes in all; where TCP's begins.
fn tcp(attacker: &Attacker, at: u64, is_4: bool, bytes: u64) -> u64 {
    let swapped = |value: u64| (value as u16).swap_bytes().into();
    ethernet(attacker, at, if is_4 { 0x0008 } else { 0xdd86 });
    let transport = if is_4 { 34 } else { 54 };
    if is_4 {
        cpu::store16(at + 14, 0x45);
        cpu::store16(at + 16, swapped(bytes - 14));
        cpu::store16(at + 20, 0);
        cpu::store16(at + 22, 0x0640);
    } else {
        cpu::store32(at + 14, 0x60);
        cpu::store16(at + 18, swapped(bytes - 54));
        cpu::store16(at + 20, 0x4006);
    }
    cpu::store8(at + transport + 12, 0x50);
    transport
}

/// Large frames to be cut into the smallest pieces, whose headers are right.
pub fn segments(attacker: &mut Attacker) {
    send(attacker, |attacker, header, frame| {
        let (is_4, bytes) =
            (attacker.dice.below(2) == 0, [60_000, 1_500, 65_535, 9_000][attacker.dice.below(4) as usize]);
        let segment = [1, 8, 88, 536, 1448, 65_535][attacker.dice.below(6) as usize];
        let transport = tcp(attacker, frame, is_4, bytes);
        let kind = if is_4 { OVER_4 } else { OVER_6 };
        left(header, NEEDS_CHECKSUM, kind, transport + 20, segment, [transport, 16]);
        bytes
    });
}

/// Headers of IPv6 one behind the other, as many as fit, and none that ends them.
pub fn extensions(attacker: &mut Attacker) {
    send(attacker, |attacker, header, frame| {
        let bytes = 60_000;
        tcp(attacker, frame, false, bytes);
        let count = [1, 2, 16, 1000, 7_400][attacker.dice.below(5) as usize];
        let kind = [0, 43, 44, 60, 135][attacker.dice.below(5) as usize];
        cpu::store8(frame + 20, kind);
        for place in 0..count {
            let next = if place + 1 == count { [6, 59][attacker.dice.below(2) as usize] } else { kind };
            cpu::store16(frame + 54 + place * 8, next);
        }
        let start = [54, 54 + count * 8, 0x7fff][attacker.dice.below(3) as usize];
        left(header, NEEDS_CHECKSUM, OVER_6, start + 20, 8, [start, 16]);
        bytes
    });
}

/// Checksums to be made anywhere, of frames of any length.
pub fn checksums(attacker: &mut Attacker) {
    send(attacker, |attacker, header, frame| {
        ethernet(attacker, frame, 0x0008);
        let ram = attacker.ram;
        let bytes = [14, 15, 60, 1_514, 65_535, 1, 13, 65_549][attacker.dice.below(8) as usize];
        let where_to = [attacker.dice.below(2 * bytes), attacker.dice.edge(ram) & 0xffff];
        left(header, NEEDS_CHECKSUM, 0, 0, 0, where_to);
        bytes
    });
}

/// The smallest frames to everybody, as many as there is time for.
pub fn flood(attacker: &mut Attacker) {
    if attacker.round.is_multiple_of(64) {
        return send(attacker, |attacker, header, frame| {
            ethernet(attacker, frame, 0x0008);
            left(header, 0, 0, 0, 0, [0, 0]);
            14
        });
    }
    queues::with(attacker, SEND, |_, _, rings, size| queues::publish(rings, size));
    recycle();
}

/// Frames from addresses that nobody has, each from another one, to another one.
pub fn addresses(attacker: &mut Attacker) {
    send(attacker, |attacker, header, frame| {
        (0..2).for_each(|word| cpu::store(frame + word * 6, attacker.dice.next() & !1));
        cpu::store16(frame + 12, 0x0008);
        left(header, 0, 0, 0, 0, [0, 0]);
        60
    });
}

/// The receiver has buffers of a few bytes only, and is taken into use with other features now and then.
pub fn tiny(attacker: &mut Attacker) {
    let base = RECEIVER.load(Ordering::SeqCst);
    if attacker.is_first() && attacker.round.is_multiple_of(32) && base != 0 {
        let bytes = [1, 12, 13, 26, 64, 4096][attacker.dice.below(6) as usize];
        take(Device::at(base), attacker.dice.next(), bytes);
    }
    segments(attacker);
}

/// Commands for filters: tables longer than the request, any class, no room for the answer.
pub fn control(attacker: &mut Attacker) {
    queues::with(attacker, CONTROL, |attacker, _, rings, size| {
        for _ in 0..ANEW {
            let first = (attacker.dice.below(size / queues::APART) * queues::APART) as u16;
            let at = queues::buffer(&mut attacker.dice, 0x2000);
            let ram = attacker.ram;
            cpu::store16(at, attacker.dice.below(3) | attacker.dice.below(4) << 8);
            cpu::store32(
                at + 2,
                [0, 1, 100, u64::MAX, 1 << 31, attacker.dice.edge(ram)][attacker.dice.below(6) as usize],
            );
            let bytes = [2, 3, 6, 10, 602, 8192][attacker.dice.below(6) as usize];
            Queue::describe(rings, first, at, bytes, NEXT, first + 1);
            Queue::describe(rings, first + 1, at, 1, WRITE, 0);
        }
        queues::publish(rings, size);
    });
}
