//! What a driver sees of a disk in trouble, and drivers that abuse their requests: `disk=OP,OP` on the command line.
//!
//! Each operation prints `DISK op ...`; none is expected to hurt anybody but this guest.
//!
//! - `rN`, `wN`, `f`: reads or writes block N (4 KiB), makes all durable. `status` as the device gave it; for a read the first
//!   word, and whether all words are the same.
//! - `sN`, `eN`: writes N blocks that lie 64 MiB apart, or makes them zero, until one is refused; how many it did.
//! - `aN`: writes N blocks, from the first on, until one is refused; how many it did.
//! - `mN`: uses N MiB of memory that it has not touched before; a sum over what it finds there afterwards.
//! - `k`: waits for a key.
//! - `xN`: reads block N and scribbles over descriptors and header while the read is under way.
//! - `bN`: reads block N and gives the page that it goes to back through the balloon meanwhile.
//! - `zN`: reads block N and resets the device meanwhile.
//! - `tN`: offers a read of block N twice: a head that is in flight.

use crate::{
    console::println,
    cpu, layout,
    virtio::{self, Buffer, Device, Queue},
};

const FLUSH: u64 = 1 << 9;
const WRITE_ZEROES: u64 = 1 << 14;
const BLOCK_BYTES: u32 = 4096;
const HEADER: u64 = layout::BUFFERS;
const STATUS: u64 = layout::BUFFERS + 0x100;
/// Where reads go to, and writes come from.
const DATA: u64 = layout::BUFFERS + 0x1000;
/// Where nothing may ever be written.
const OTHER: u64 = layout::BUFFERS + 0x3000;
const BALLOON_RINGS: u64 = layout::RINGS + 0x4000;
/// What buffers hold before.
const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Read = 0,
    Write = 1,
    Flush = 4,
    Zero = 13,
}

/// Runs a script.
pub fn run(script: &str) {
    let Some(mut disk) = Disk::open() else { return println!("DISK impossible: no disk takes the driver") };
    for op in script.split(',') {
        let block = op.get(1..).and_then(|number| number.parse().ok()).unwrap_or(0);
        match op.as_bytes().first() {
            Some(b'r') => disk.read(op, block),
            Some(b'w') => disk.write(op, block),
            Some(b's') => disk.scatter(op, Command::Write, block),
            Some(b'e') => disk.scatter(op, Command::Zero, block),
            Some(b'a') => disk.fill_up(op, block),
            Some(b'm') => use_memory(op, block),
            Some(b'f') => println!("DISK f status={}", disk.request(Command::Flush, 0)),
            Some(b'k') => {
                println!("DISK k");
                wait_for_key();
            }
            Some(b'x') => disk.scribble(op, block),
            Some(b'b') => disk.give_back(op, block),
            Some(b'z') => disk.reset(op, block),
            Some(b't') => disk.offer_twice(op, block),
            _ => println!("DISK {op} unknown"),
        }
    }
    println!("DISK end");
}

fn wait_for_key() {
    const UART: u64 = 0x1000_0000;
    while cpu::load8(UART + 5) & 1 == 0 {
        core::hint::spin_loop();
    }
    cpu::load8(UART);
}

/// A word of each page.
fn use_memory(op: &str, mib: u64) {
    let pages = || (layout::FREE..layout::FREE + (mib << 20)).step_by(4096);
    pages().for_each(|at| cpu::store(at, at));
    let sum = pages().fold(0_u64, |sum, at| sum.rotate_left(5) ^ cpu::load(at));
    println!("DISK {op} sum={sum:#x}");
}

fn fill(at: u64, value: u64) {
    (at..at + u64::from(BLOCK_BYTES)).step_by(8).for_each(|at| cpu::store(at, value));
}

fn is_filled(at: u64, value: u64) -> bool {
    (at..at + u64::from(BLOCK_BYTES)).step_by(8).all(|at| cpu::load(at) == value)
}

struct Disk {
    device: Device,
    queue: Queue,
    /// Requests since the device was reset.
    requests: u64,
}

impl Disk {
    fn open() -> Option<Self> {
        let device = Device::find(virtio::BLOCK)?;
        let mut queue = Queue::new(layout::RINGS);
        device.negotiate(FLUSH | WRITE_ZEROES)?;
        if !device.enable(0, &mut queue) {
            return None;
        }
        device.go();
        Some(Self { device, queue, requests: 0 })
    }

    /// Makes a request available; the device does not hear of it yet.
    fn offer(&mut self, command: Command, block: u64) {
        cpu::store(HEADER, command as u64);
        cpu::store(HEADER + 8, block * u64::from(BLOCK_BYTES) / 512);
        cpu::store8(STATUS, 0xff);
        let header = Buffer { address: HEADER, bytes: 16, writable: false };
        let data = Buffer { address: DATA, bytes: BLOCK_BYTES, writable: command == Command::Read };
        let status = Buffer { address: STATUS, bytes: 1, writable: true };
        match command {
            Command::Flush => self.queue.push(0, &[header, status]),
            Command::Read | Command::Write => self.queue.push(0, &[header, data, status]),
            Command::Zero => {
                let range = Buffer { bytes: 16, ..data };
                cpu::store(DATA, cpu::load(HEADER + 8));
                cpu::store(DATA + 8, 8);
                self.queue.push(0, &[header, range, status]);
            }
        }
        self.requests += 1;
    }

    fn finish(&self) -> u64 {
        if !self.queue.wait(self.requests & 0xffff) {
            println!("DISK never answers");
        }
        cpu::load8(STATUS)
    }

    fn request(&mut self, command: Command, block: u64) -> u64 {
        self.offer(command, block);
        self.device.notify(0);
        self.finish()
    }

    fn read(&mut self, op: &str, block: u64) {
        fill(DATA, UNTOUCHED);
        let status = self.request(Command::Read, block);
        let word = cpu::load(DATA);
        println!("DISK {op} status={status} word={word:#x} uniform={}", is_filled(DATA, word));
    }

    fn write(&mut self, op: &str, block: u64) {
        fill(DATA, 0x7700_0000_0000 | block);
        println!("DISK {op} status={}", self.request(Command::Write, block));
    }

    fn fill_up(&mut self, op: &str, count: u64) {
        fill(DATA, 0x7700_0000_0000);
        let refused = (0..count).find(|block| self.request(Command::Write, *block) != 0);
        println!("DISK {op} done={}", refused.unwrap_or(count));
    }

    /// Each block needs much of what finds it.
    fn scatter(&mut self, op: &str, command: Command, count: u64) {
        const APART: u64 = (64 << 20) / BLOCK_BYTES as u64;
        let refused = (1..count).find(|step| self.request(command, step * APART) != 0);
        println!("DISK {op} done={}", refused.unwrap_or(count));
    }

    /// The device took what it needs when it was told of the request: the data goes where it was to go.
    fn scribble(&mut self, op: &str, block: u64) {
        fill(DATA, UNTOUCHED);
        fill(OTHER, UNTOUCHED);
        self.offer(Command::Read, block);
        self.device.notify(0);
        let is_pending = self.queue.used_index() != self.requests & 0xffff;
        let table = self.queue.descriptors();
        for index in 0..3 {
            Queue::describe(table, index, OTHER, u32::MAX, virtio::WRITE | virtio::NEXT, index);
        }
        cpu::store(HEADER, Command::Write as u64);
        cpu::store(HEADER + 8, 0);
        let status = self.finish();
        let (word, is_clean) = (cpu::load(DATA), is_filled(OTHER, UNTOUCHED));
        let is_whole = is_filled(DATA, word);
        println!("DISK {op} status={status} word={word:#x} uniform={is_whole} pending={is_pending} clean={is_clean}");
    }

    /// The page is gone when the data comes: it goes to the one that takes its place, or nowhere.
    fn give_back(&mut self, op: &str, block: u64) {
        let Some(balloon) = Device::find(virtio::BALLOON) else { return println!("DISK {op} impossible: no balloon") };
        let mut inflate = Queue::new(BALLOON_RINGS);
        if balloon.negotiate(0).is_none() || !balloon.enable(0, &mut inflate) {
            return println!("DISK {op} impossible: the balloon refuses the driver");
        }
        balloon.go();
        cpu::store(OTHER, DATA >> 12);
        fill(DATA, UNTOUCHED);
        self.offer(Command::Read, block);
        self.device.notify(0);
        let is_pending = self.queue.used_index() != self.requests & 0xffff;
        inflate.push(0, &[Buffer { address: OTHER, bytes: 4, writable: false }]);
        balloon.notify(0);
        let is_given = inflate.wait(1);
        let status = self.finish();
        let word = cpu::load(DATA);
        println!("DISK {op} status={status} word={word:#x} pending={is_pending} given={is_given}");
        balloon.reset();
    }

    /// After the reset nothing of the request reaches memory.
    fn reset(&mut self, op: &str, block: u64) {
        self.offer(Command::Read, block);
        self.device.notify(0);
        let is_pending = self.queue.used_index() != self.requests & 0xffff;
        self.device.reset();
        fill(DATA, UNTOUCHED);
        cpu::store8(STATUS, 0xff);
        // Half a second: long enough for any disk to answer.
        let begin = cpu::time();
        while cpu::time() - begin < 5_000_000 {
            core::hint::spin_loop();
        }
        let is_clean = is_filled(DATA, UNTOUCHED) && cpu::load8(STATUS) == 0xff;
        println!("DISK {op} pending={is_pending} clean={is_clean}");
        match Self::open() {
            Some(disk) => *self = disk,
            None => println!("DISK {op} impossible: the disk refuses the driver after a reset"),
        }
    }

    fn offer_twice(&mut self, op: &str, block: u64) {
        self.offer(Command::Read, block);
        self.queue.offer(0);
        self.device.notify(0);
        self.finish();
        println!("DISK {op} survived");
    }
}
