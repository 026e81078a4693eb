//! Virtqueues that no driver would build, filled by all vCPUs.

use super::{Attacker, Dice};
use crate::{
    cpu, layout, virtio,
    virtio::{NEXT, Queue, TABLE, WRITE, register},
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Queues that are driven; a device with fewer ignores the rest.
pub const QUEUES: u64 = 8;
/// Most descriptors of each.
pub const SIZE: u64 = 256;
/// Descriptors from one request to the next.
pub const APART: u64 = 4;

/// A queue as all vCPUs know it.
struct Shared {
    /// Its descriptors. 0: the device has no such queue.
    size: AtomicU64,
    /// Where its rings are.
    rings: AtomicU64,
    /// Somebody changes its rings: others notify the device meanwhile.
    is_taken: AtomicBool,
}

static SHARED: [Shared; QUEUES as usize] =
    [const { Shared { size: AtomicU64::new(0), rings: AtomicU64::new(HOME), is_taken: AtomicBool::new(false) } };
        QUEUES as usize];
/// Rings of a queue: descriptors, available, used, a page each.
const RINGS: u64 = 0x4000;
/// Where rings lie; there is a second place for those that move.
pub const HOME: u64 = layout::FREE;
const AWAY: u64 = layout::FREE + 0x2_0000;
/// A table of indirect descriptors for each queue.
const TABLES: u64 = layout::FREE + 0x4_0000;
/// Buffers, and how many bytes of them.
pub const BUFFERS: u64 = layout::FREE + 0x10_0000;
const BUFFER_BYTES: u64 = 1 << 20;
/// Pages that a balloon is given, of which nothing else is used.
const GIVEN: u64 = layout::FREE + 0x40_0000;

/// Takes the device into use, with rings that make sense.
pub fn begin(attacker: &mut Attacker) {
    set_up(attacker, u64::MAX, HOME);
}

pub fn set_up(attacker: &mut Attacker, features: u64, place: u64) {
    let device = attacker.device;
    let _ = device.negotiate(features);
    for queue in 0..QUEUES {
        put_rings(attacker, queue, place);
    }
    device.go();
}

fn put_rings(attacker: &mut Attacker, queue: u64, place: u64) {
    let device = attacker.device;
    device.write(register::QUEUE_SEL, queue);
    let size = device.read(register::QUEUE_NUM_MAX).min(SIZE);
    let rings = place + queue * RINGS;
    let shared = &SHARED[queue as usize];
    shared.size.store(size, Ordering::SeqCst);
    shared.rings.store(rings, Ordering::SeqCst);
    if size != 0 {
        cpu::store16(rings + 0x1002, 0);
        cpu::store16(rings + 0x2002, 0);
        fill(attacker, queue, rings, size);
        device.place(size, rings, rings + 0x1000, rings + 0x2000);
    }
}

/// Requests as a driver makes them, up to three descriptors each.
fn fill(attacker: &mut Attacker, queue: u64, rings: u64, size: u64) {
    for request in 0..size / APART {
        let at = buffer(&mut attacker.dice, 3 * 4096);
        describe(attacker, queue, rings, (request * APART) as u16, at);
        // The last is none of the request's: links that are drawn lead there.
        Queue::describe(rings, (request * APART + APART - 1) as u16, at, 64, direction(attacker, queue), 0);
    }
    for slot in 0..size {
        cpu::store16(rings + 0x1004 + slot * 2, slot % (size / APART) * APART);
    }
}

/// What a queue of a device expects: the flags and lengths of up to three parts.
fn describe(attacker: &mut Attacker, queue: u64, table: u64, first: u16, at: u64) {
    let parts: &[(u64, u16)] = match (attacker.id, queue) {
        (virtio::BLOCK, _) => {
            // Command, reserved, sector.
            let command = [0, 1, 4, 8, 11, 13][attacker.dice.below(6) as usize];
            cpu::store(at, command);
            cpu::store(at + 8, attacker.dice.below(4096));
            let data = if command == 0 || command == 8 { WRITE } else { 0 };
            if data == 0 { &[(16, 0), (4096, 0), (1, WRITE)] } else { &[(16, 0), (4096, WRITE), (1, WRITE)] }
        }
        (virtio::NET, 1) => {
            frame(attacker, at);
            &[(12, 0), (4096, 0), (4096, 0)]
        }
        (virtio::BALLOON, 0..3) => {
            (0..512).for_each(|place| cpu::store32(at + place * 4, (GIVEN >> 12) + attacker.dice.below(1024)));
            &[(2048, 0)]
        }
        (virtio::CONSOLE, queue) if queue % 2 == 1 => &[(64, 0), (4096, 0)],
        (virtio::BALLOON, _) => &[(4096, WRITE), (4096, WRITE), (4096, WRITE)],
        _ => &[(64, WRITE), (4096, WRITE)],
    };
    // Reported pages go, so they are none of the others' buffers.
    let at = if attacker.id == virtio::BALLOON && queue == 3 { GIVEN + attacker.dice.below(512) * 4096 } else { at };
    for (place, (bytes, flags)) in parts.iter().enumerate() {
        let index = first + place as u16;
        let more = if place + 1 < parts.len() { NEXT } else { 0 };
        Queue::describe(table, index, at + place as u64 * 4096, *bytes as u32, flags | more, index + 1);
    }
}

/// A header in front of a frame: what is left to do is drawn, and half of what it says of the frame's own headers is wrong.
fn frame(attacker: &mut Attacker, at: u64) {
    let dice = &mut attacker.dice;
    let (kind, size) = ([0, 1, 4, 5, 3][dice.below(5) as usize], [32, 536, 1448, 1, 65_535][dice.below(5) as usize]);
    let start = [14, 34, 54, 2048, 65_535][dice.below(5) as usize];
    cpu::store(at, 1 | kind << 8 | 66 << 16 | size << 32 | start << 48);
    cpu::store32(at + 8, [6, 16, 65_535][dice.below(3) as usize]);
    let body = at + 4096;
    // To everybody, from the address that the device has; IPv4 or IPv6.
    cpu::store(body, 0xffff_ffff_ffff);
    (0..6).for_each(|byte| cpu::store8(body + 6 + byte, cpu::load8(attacker.registers.0 + 0x100 + byte)));
    let (kind, version) = if attacker.dice.below(2) == 0 { (0x0008, 0x45) } else { (0xdd86, 0x60) };
    cpu::store16(body + 12, kind);
    cpu::store8(body + 14, version);
    cpu::store8(body + 23, [6, 17][attacker.dice.below(2) as usize]);
    cpu::store8(body + 46, 0x50);
}

pub fn buffer(dice: &mut Dice, bytes: u64) -> u64 {
    BUFFERS + (dice.below(BUFFER_BYTES - bytes) & !0xf)
}

/// Where the rings of a queue usually are.
pub const fn home(queue: u64) -> u64 {
    HOME + queue * RINGS
}

/// Changes any queue, unless another vCPU is at it, and tells the device in any case.
pub fn with_queue(attacker: &mut Attacker, change: impl FnOnce(&mut Attacker, u64, u64, u64)) {
    let queue = attacker.dice.below(QUEUES);
    with(attacker, queue, change);
}

/// The same with this queue; nothing, if the device has it not.
pub fn with(attacker: &mut Attacker, queue: u64, change: impl FnOnce(&mut Attacker, u64, u64, u64)) {
    let shared = &SHARED[queue as usize];
    let size = shared.size.load(Ordering::SeqCst);
    if size != 0 && !shared.is_taken.swap(true, Ordering::SeqCst) {
        change(attacker, queue, shared.rings.load(Ordering::SeqCst), size);
        shared.is_taken.store(false, Ordering::SeqCst);
    }
    attacker.device.notify(queue as u32);
}

/// Requests are available again, as many as there are places for.
pub fn publish(rings: u64, size: u64) {
    let used = cpu::load16(rings + 0x2002);
    cpu::store16(rings + 0x1002, used + size / APART);
    cpu::fence();
}

/// Publishes requests while others are served, again and again.
pub fn refill(attacker: &mut Attacker) {
    with_queue(attacker, |_, _, rings, size| publish(rings, size));
}

/// Changes descriptors while they are in use: anything, but in buffers.
pub fn rewrite(attacker: &mut Attacker) {
    with_queue(attacker, |attacker, queue, rings, size| {
        for _ in 0..2 {
            let dice = &mut attacker.dice;
            let (index, at) = (dice.below(size) as u16, buffer(dice, 0x1_0000));
            let (bytes, next) = (dice.below(0x1_0000) as u32 + 1, dice.below(size) as u16);
            let flags = direction(attacker, queue) | if attacker.dice.below(2) == 0 { NEXT } else { 0 };
            Queue::describe(rings, index, at, bytes, flags, next);
        }
        publish(rings, size);
    });
}

/// Descriptors that may name anything.
pub fn wild(attacker: &mut Attacker) {
    with_queue(attacker, |attacker, _, rings, size| {
        let ram = attacker.ram;
        let dice = &mut attacker.dice;
        let (index, at, bytes) = (dice.below(size) as u16, dice.edge(ram), dice.edge(ram) as u32);
        Queue::describe(rings, index, at, bytes, dice.next() as u16 & 7, dice.edge(ram) as u16);
        publish(rings, size);
    });
}

/// The direction that a queue's buffers mostly have.
pub const fn direction(attacker: &Attacker, queue: u64) -> u16 {
    match (attacker.id, queue) {
        (virtio::BLOCK, _) | (virtio::BALLOON, 0..3) => 0,
        (virtio::NET | virtio::CONSOLE, queue) if queue % 2 == 1 => 0,
        _ => WRITE,
    }
}

/// A chain of `size` descriptors from `table` on that all name one buffer of 64 KiB, as long as it is allowed to be.
fn chain_of_one(attacker: &mut Attacker, queue: u64, table: u64, size: u64, last: u16) {
    let (flags, at) = (direction(attacker, queue), buffer(&mut attacker.dice, 0x1_0000));
    for index in 0..size as u16 {
        let more = if u64::from(index) + 1 < size { NEXT } else { last };
        Queue::describe(table, index, at, 0x1_0000, flags | more, index + 1);
    }
}

/// Chains that go through all descriptors behind their head, all of which are one buffer.
pub fn alias(attacker: &mut Attacker) {
    with_queue(attacker, |attacker, queue, rings, size| {
        chain_of_one(attacker, queue, rings, size, 0);
        publish(rings, size);
    });
}

/// Every head names one table of such a chain.
pub fn indirect(attacker: &mut Attacker) {
    table(attacker, 0);
}

/// A table whose last descriptor names a table.
pub fn nested(attacker: &mut Attacker) {
    table(attacker, TABLE);
}

fn table(attacker: &mut Attacker, last: u16) {
    with_queue(attacker, |attacker, queue, rings, size| {
        let table = TABLES + queue * 0x1000;
        chain_of_one(attacker, queue, table, size, last);
        for index in 0..size as u16 {
            Queue::describe(rings, index, table, size as u32 * 16, TABLE, 0);
        }
        publish(rings, size);
    });
}

/// Buffers as long as can be: all of RAM where the device reads, some MiB where it writes.
pub fn long(attacker: &mut Attacker) {
    with_queue(attacker, |attacker, queue, rings, size| {
        let flags = direction(attacker, queue);
        let (at, bytes) = if flags == WRITE { (BUFFERS, 4 << 20) } else { attacker.ram };
        for index in 0..size as u16 {
            Queue::describe(rings, index, at, bytes as u32, flags, 0);
        }
        publish(rings, size);
    });
}

/// Available indices that jump.
pub fn index(attacker: &mut Attacker) {
    with_queue(attacker, |attacker, _, rings, _| {
        cpu::store16(rings + 0x1002, attacker.dice.next());
        cpu::fence();
    });
}

/// One vCPU resets the device and takes it into use again, while the others use it.
pub fn reset(attacker: &mut Attacker) {
    if attacker.is_first() && attacker.round.is_multiple_of(4) {
        attacker.device.reset();
        set_up(attacker, u64::MAX, HOME);
    }
    refill(attacker);
}

/// One vCPU moves the rings, while the others use them.
pub fn move_rings(attacker: &mut Attacker) {
    if attacker.is_first() && attacker.round.is_multiple_of(4) {
        let queue = attacker.dice.below(QUEUES);
        let place = if attacker.dice.below(2) == 0 { HOME } else { AWAY };
        attacker.device.write(register::QUEUE_SEL, queue);
        attacker.device.write(register::QUEUE_READY, 0);
        put_rings(attacker, queue, place);
    }
    refill(attacker);
}

/// One vCPU takes the device into use with other features each time.
pub fn features(attacker: &mut Attacker) {
    if attacker.is_first() && attacker.round.is_multiple_of(4) {
        let wanted = attacker.dice.next();
        set_up(attacker, wanted, HOME);
    }
    refill(attacker);
}
