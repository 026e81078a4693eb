//! Consoles: messages of the control queue on which programs break, and output without end.

use super::{Attacker, queues};
use crate::{cpu, virtio::Queue};

/// To the device.
const CONTROL: u64 = 3;
/// A message to say that a port is open, or no longer.
const OPEN: u64 = 6;
const READY: u64 = 3;
const DEVICE_READY: u64 = 0;
/// Messages that a step describes anew.
const ANEW: u64 = 8;

/// Sends messages: port, event and value of each, in so many bytes.
fn send(attacker: &mut Attacker, mut message: impl FnMut(&mut Attacker) -> (u64, u64, u64, u64)) {
    queues::with(attacker, CONTROL, |attacker, _, rings, size| {
        for _ in 0..ANEW {
            let first = (attacker.dice.below(size / queues::APART) * queues::APART) as u16;
            let at = queues::buffer(&mut attacker.dice, 0x1000);
            let (port, event, value, bytes) = message(attacker);
            cpu::store(at, port & 0xffff_ffff | event << 32 | value << 48);
            Queue::describe(rings, first, at, bytes as u32, 0, 0);
        }
        queues::publish(rings, size);
    });
    // What it answers with is read, so that there is always room for more.
    queues::with(attacker, CONTROL - 1, |_, _, rings, size| queues::publish(rings, size));
}

/// Messages of any kind and length to any port.
pub fn control(attacker: &mut Attacker) {
    send(attacker, |attacker| {
        let ram = attacker.ram;
        let dice = &mut attacker.dice;
        let bytes = [8, 7, 9, 1, 4096][dice.below(5) as usize];
        (dice.edge(ram), dice.below(10), dice.next() & 0xffff, bytes)
    });
}

/// Ports that there are are opened and closed, and all of them told again.
pub fn opens(attacker: &mut Attacker) {
    send(attacker, |attacker| {
        let event = [OPEN, OPEN, READY, DEVICE_READY][attacker.dice.below(4) as usize];
        (attacker.dice.below(4), event, attacker.dice.below(2), 8)
    });
    queues::refill(attacker);
}

/// Output of all ports at once: 64 KiB in each request.
pub fn flood(attacker: &mut Attacker) {
    for queue in [1, 5, 7] {
        queues::with(attacker, queue, |attacker, _, rings, size| {
            let index = attacker.dice.below(size) as u16;
            let at = queues::buffer(&mut attacker.dice, 0x1_0000);
            Queue::describe(rings, index, at, 0x1_0000, 0, 0);
            queues::publish(rings, size);
        });
    }
}

/// Characters for emergencies, which need no queue.
pub fn emergency(attacker: &mut Attacker) {
    (0..16).for_each(|_| attacker.device.write(0x108, attacker.dice.next()));
}

/// Characters of the UART without end, and reads of what nobody typed.
pub fn print(attacker: &mut Attacker) {
    let base = attacker.registers.0;
    (0..64).for_each(|character| cpu::store8(base, 0x20 + character));
    cpu::load8(base);
    cpu::load8(base + 5);
}

/// The UART's interrupts, its queues and its loop, on and off, while characters are sent.
pub fn interrupts(attacker: &mut Attacker) {
    let base = attacker.registers.0;
    let values = [(1, 15), (2, 0xc7), (4, 0x1f), (3, 0x9b), (0, 0xff)];
    let (register, mask) = values[attacker.dice.below(5) as usize];
    cpu::store8(base + register, attacker.dice.next() & mask);
    cpu::load8(base + 2);
}
