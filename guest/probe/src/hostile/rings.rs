//! Rings where no driver would put them, and devices that are told of them at the wrong time.

use super::{Attacker, queues};
use crate::{
    cpu, layout,
    virtio::{Queue, register},
};

/// Memory that nobody has touched, as long as it lasts: after all that is in use.
const UNTOUCHED: u64 = layout::FREE + 0x80_0000;
/// Features that are taken: all of them.
const ALL: u64 = u64::MAX;
/// Bits of the status register.
const STATUS: [u64; 8] = [0, 1, 2, 4, 8, 15, 64, 128];

/// One vCPU puts the rings and the buffers into memory that has never been touched, again and again: the device touches it first.
pub fn unbacked(attacker: &mut Attacker) {
    if attacker.is_first() && attacker.round.is_multiple_of(4) {
        // Until the end of RAM, and then once more: that is touched by then.
        let room = attacker.ram.0 + attacker.ram.1 - UNTOUCHED - 0x10_0000;
        let place = UNTOUCHED + (attacker.round * 0x1_0000) % room;
        let queue = attacker.dice.below(queues::QUEUES);
        attacker.device.write(register::QUEUE_SEL, queue);
        attacker.device.write(register::QUEUE_READY, 0);
        let size = attacker.device.read(register::QUEUE_NUM_MAX).min(queues::SIZE);
        attacker.device.place(size, place & !0xf, place + 0x3000, place + 0x7000);
    }
    queues::refill(attacker);
}

/// Descriptors, available and used ring are the same memory: what the device says becomes what it is told.
pub fn overlap(attacker: &mut Attacker) {
    if attacker.is_first() && attacker.round.is_multiple_of(8) {
        let queue = attacker.dice.below(queues::QUEUES);
        let rings = queues::home(queue);
        attacker.device.write(register::QUEUE_SEL, queue);
        attacker.device.write(register::QUEUE_READY, 0);
        let size = attacker.device.read(register::QUEUE_NUM_MAX).min(queues::SIZE);
        let [available, used] = [0, 0x1000].map(|away| rings + attacker.dice.below(2) * away);
        attacker.device.place(size, rings, available, used);
    }
    queues::refill(attacker);
}

/// Buffers are the rings themselves.
pub fn itself(attacker: &mut Attacker) {
    queues::with_queue(attacker, |attacker, queue, rings, size| {
        let index = attacker.dice.below(size) as u16;
        let at = rings + attacker.dice.below(0x3000);
        Queue::describe(rings, index, at, 512, queues::direction(attacker, queue), 0);
        queues::publish(rings, size);
    });
}

/// Buffers are registers of devices, files of interrupts, and what lies across the ends of RAM.
pub fn devices(attacker: &mut Attacker) {
    queues::with_queue(attacker, |attacker, queue, rings, size| {
        let end = attacker.ram.0 + attacker.ram.1;
        let places =
            [0x1000_0000, 0x1000_1000, 0x0c00_0000, 0x0d00_0000, 0x2800_0000, 0x10_0000, end - 8, attacker.ram.0 - 8];
        let (index, place) = (attacker.dice.below(size) as u16, attacker.dice.below(places.len() as u64) as usize);
        Queue::describe(rings, index, places[place], 64, queues::direction(attacker, queue), 0);
        queues::publish(rings, size);
    });
}

/// Nothing but notifications, of queues that there are and that there are not.
pub fn notify(attacker: &mut Attacker) {
    for _ in 0..16 {
        let queue = attacker.dice.below(queues::QUEUES) as u32;
        attacker.device.notify(queue);
    }
    let wrong = [queues::QUEUES, 0xffff, 0x1_0000, 0xffff_ffff][attacker.dice.below(4) as usize];
    attacker.device.notify(wrong as u32);
}

/// The registers of the fast path, at all offsets and widths, while the queues are filled.
pub fn hot(attacker: &mut Attacker) {
    let register =
        [register::QUEUE_NOTIFY, register::INTERRUPT_STATUS, 0x64, 0xfc, 0x100][attacker.dice.below(5) as usize];
    let at = attacker.registers.0 + register + attacker.dice.below(8);
    let value = attacker.dice.below(8);
    match attacker.dice.below(8) {
        0 => drop(cpu::load8(at)),
        1 => drop(cpu::load16(at & !1)),
        2 => drop(cpu::load32(at & !3)),
        3 => drop(cpu::load(at & !7)),
        4 => cpu::store8(at, value),
        5 => cpu::store16(at & !1, value),
        6 => cpu::store32(at & !3, value),
        _ => cpu::store(at & !7, value),
    }
    queues::refill(attacker);
}

/// One vCPU writes the status register as it likes, and takes the device into use again; the others notify in any state of it.
pub fn status(attacker: &mut Attacker) {
    if attacker.is_first() {
        let status = STATUS[attacker.dice.below(STATUS.len() as u64) as usize];
        attacker.device.write(register::STATUS, status);
        if attacker.round.is_multiple_of(16) {
            queues::set_up(attacker, ALL, queues::HOME);
        }
    }
    queues::refill(attacker);
}

/// Queues are made ready, or no longer, with the device in no fit state: nothing negotiated, sizes and addresses rewritten while ready.
pub fn late(attacker: &mut Attacker) {
    let device = attacker.device;
    if attacker.is_first() && attacker.round.is_multiple_of(32) {
        queues::set_up(attacker, ALL, queues::HOME);
    }
    if attacker.is_first() {
        let ram = attacker.ram;
        let register = [
            register::QUEUE_SEL,
            register::QUEUE_NUM,
            register::QUEUE_READY,
            register::QUEUE_DESC,
            register::QUEUE_DRIVER,
            register::QUEUE_DEVICE,
            register::DRIVER_FEATURES,
            register::DRIVER_FEATURES_SEL,
        ][attacker.dice.below(8) as usize];
        let value = if register == register::QUEUE_READY { attacker.dice.below(2) } else { attacker.dice.edge(ram) };
        device.write(register, value);
    }
    queues::refill(attacker);
}

/// What tells the device when to interrupt, and the driver when to notify, changes all the time.
pub fn events(attacker: &mut Attacker) {
    queues::with_queue(attacker, |attacker, _, rings, size| {
        // Flags, and the event index behind the ring.
        cpu::store16(rings + 0x1000, attacker.dice.below(2));
        cpu::store16(rings + 0x1004 + size * 2, attacker.dice.next());
        cpu::store16(rings + 0x2000, attacker.dice.below(2));
        cpu::store16(rings + 0x2004 + size * 8, attacker.dice.next());
        queues::publish(rings, size);
    });
    // Whatever interrupts there are: gone.
    attacker.device.write(0x64, 3);
}
