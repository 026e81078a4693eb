//! Requests to disks on which programs break, and work that takes long.

use super::{Attacker, queues};
use crate::{
    cpu,
    virtio::{NEXT, Queue, WRITE},
};

const READ: u64 = 0;
const OUT: u64 = 1;
const FLUSH: u64 = 4;
const GET_ID: u64 = 8;
const DISCARD: u64 = 11;
const WRITE_ZEROES: u64 = 13;
/// Sectors of the disk: 4 MiB.
const SECTORS: u64 = 8192;
/// Bytes of a range to discard or to zero.
const RANGE: u64 = 16;
/// Requests that a step describes anew.
const ANEW: u64 = 8;

/// A request: a header, data of so many bytes behind it in the same buffer, and a status.
fn request(attacker: &mut Attacker, rings: u64, first: u16, command: u64, sector: u64, bytes: u64) -> u64 {
    let at = queues::buffer(&mut attacker.dice, 0x1_1000);
    cpu::store(at, command);
    cpu::store(at + 8, sector);
    let data = if matches!(command, READ | GET_ID) { WRITE } else { 0 };
    Queue::describe(rings, first, at, 16, NEXT, first + 1);
    let behind = if bytes == 0 { first + 2 } else { first + 1 };
    if bytes == 0 {
        Queue::describe(rings, first, at, 16, NEXT, behind);
    } else {
        Queue::describe(rings, first + 1, at + 0x1000, bytes as u32, NEXT | data, first + 2);
    }
    Queue::describe(rings, first + 2, at + 16, 1, WRITE, 0);
    at + 0x1000
}

/// Describes some requests anew, and makes all available.
fn requests(attacker: &mut Attacker, mut describe: impl FnMut(&mut Attacker, u64, u16)) {
    queues::with(attacker, 0, |attacker, _, rings, size| {
        for _ in 0..ANEW {
            let first = attacker.dice.below(size / queues::APART) * queues::APART;
            describe(attacker, rings, first as u16);
        }
        queues::publish(rings, size);
    });
}

/// Sectors beyond the end, across it, and so far away that their bytes have no number; odd lengths.
pub fn sectors(attacker: &mut Attacker) {
    requests(attacker, |attacker, rings, first| {
        let far = [SECTORS - 1, SECTORS, u64::MAX, u64::MAX >> 9, 1 << 55, u64::MAX - 127, 1 << 63, SECTORS - 128];
        let sector = far[attacker.dice.below(8) as usize];
        let bytes = [512, 511, 513, 4096, 0x1_0000, 1, 1024, 0xfe00][attacker.dice.below(8) as usize];
        let command = attacker.dice.below(2);
        request(attacker, rings, first, command, sector, bytes);
    });
}

/// Ranges to discard or to zero: any number of them, over each other, across the end, with flags that nobody knows.
fn ranges(attacker: &mut Attacker, command: u64, is_wild: bool) {
    requests(attacker, |attacker, rings, first| {
        let count = [1, 2, 16, 64, 256, 1024][attacker.dice.below(6) as usize];
        let odd = if is_wild { attacker.dice.below(2) } else { 0 };
        let at = request(attacker, rings, first, command, 0, count * RANGE + odd);
        for range in 0..count {
            let ram = attacker.ram;
            let dice = &mut attacker.dice;
            let (sector, sectors, flags) = match is_wild {
                true => (dice.edge(ram), dice.edge(ram) & 0xffff_ffff, dice.below(4)),
                false => (0, SECTORS, dice.below(2)),
            };
            cpu::store(at + range * RANGE, sector);
            cpu::store(at + range * RANGE + 8, sectors | flags << 32);
        }
    });
}

/// Ranges to discard that make no sense.
pub fn discard(attacker: &mut Attacker) {
    ranges(attacker, DISCARD, true);
}

/// The same, to be zeroed.
pub fn zero(attacker: &mut Attacker) {
    ranges(attacker, WRITE_ZEROES, true);
}

/// The whole disk, discarded and zeroed over and over in one request.
pub fn wipe(attacker: &mut Attacker) {
    let command = [DISCARD, WRITE_ZEROES][attacker.dice.below(2) as usize];
    ranges(attacker, command, false);
}

/// The disk's name, into too little and too much room.
pub fn name(attacker: &mut Attacker) {
    requests(attacker, |attacker, rings, first| {
        let bytes = [1, 19, 20, 21, 4096, 0x1_0000, 0][attacker.dice.below(7) as usize];
        request(attacker, rings, first, GET_ID, 0, bytes);
    });
}

/// Commands that nobody knows, and known ones with data that is none of theirs.
pub fn commands(attacker: &mut Attacker) {
    requests(attacker, |attacker, rings, first| {
        let ram = attacker.ram;
        let (command, sector) = (attacker.dice.edge(ram), attacker.dice.edge(ram));
        let command = if attacker.dice.below(2) == 0 { command & 0xf } else { command };
        let bytes = attacker.dice.below(0x1_0000);
        request(attacker, rings, first, command, sector, bytes);
    });
}

/// Every block is written, so that it has a copy of its own; now and then all of them go again.
pub fn fill(attacker: &mut Attacker) {
    if attacker.round.is_multiple_of(64) {
        return wipe(attacker);
    }
    requests(attacker, |attacker, rings, first| {
        let sector = attacker.dice.below(SECTORS - 128);
        request(attacker, rings, first, OUT, sector, 0x1_0000);
    });
}

/// Reads of everything, as long as can be, with flushes in between.
pub fn read(attacker: &mut Attacker) {
    requests(attacker, |attacker, rings, first| {
        let (sector, bytes) = (attacker.dice.below(SECTORS - 128), 0x1_0000);
        match attacker.dice.below(4) {
            0 => request(attacker, rings, first, FLUSH, 0, 0),
            _ => request(attacker, rings, first, READ, sector, bytes),
        };
    });
}
