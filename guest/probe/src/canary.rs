//! A guest that hides secrets wherever a guest can hold any, and one that looks for them wherever a guest can look: `attack=canary-hide`
//! and `attack=canary-seek`. Both go on for ever, each beside the other.
//!
//! Secrets are words with the same upper half. The one that hides them counts what it finds of its own, so that a search that
//! finds nothing says something. The one that seeks wants more than that none is there: memory that is new is zero, registers are what it
//! loaded, its disk shows what it always did, and nothing is typed or sent to its console. Memory goes back through the balloon and in
//! reports of free pages, by turns.

use crate::{
    console::{self, println},
    cpu, entry,
    figures::block::{BLOCK_BYTES, Direction, Disk, SECTOR_BYTES},
    fpu, layout, sbi,
    tree::Machine,
    virtio::{self, Buffer, Device, Queue},
};
use core::sync::atomic::{AtomicBool, Ordering};

/// The upper half of each secret.
const MARK: u64 = 0x5ec2_e75e;
/// What the disk holds below.
const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Memory that is filled, given back and looked at in a round, and how many such areas there are.
const AREA: u64 = 512 << 10;
const AREAS: u64 = 16;
/// Blocks of the disk that hold secrets, or show what they always did. As many behind these are written in part.
const BLOCKS: u64 = 64;
/// What the seeker writes.
const OWN: u64 = 1;
/// Ticks to let others run.
const PAUSE: u64 = 2_000;
/// Rounds between two lines.
const SAY: u64 = 4;

/// What other harts need of the machine.
static HAS_DOUBLE: AtomicBool = AtomicBool::new(false);
static HAS_VECTOR: AtomicBool = AtomicBool::new(false);

/// Runs one of the two; returns if it is neither.
pub fn run(name: &str, machine: &Machine) {
    HAS_DOUBLE.store(machine.isa.has_double, Ordering::SeqCst);
    HAS_VECTOR.store(machine.isa.has_vector, Ordering::SeqCst);
    let others: extern "C" fn() -> ! = if name == "hide" { hide_in_registers } else { seek_in_registers };
    let this = cpu::this_hart() as u64;
    // New memory first: nothing has been there yet.
    if name == "seek" {
        seek_in_all_memory(machine);
    }
    for hart in (0..machine.harts).filter(|hart| *hart != this) {
        entry::start_hart(hart, others);
    }
    match name {
        "hide" => hide(),
        "seek" => seek(machine),
        _ => println!("CANARY {name} unknown"),
    }
}

const fn secret(number: u64) -> u64 {
    MARK << 32 | number & 0xffff_ffff
}

const fn is_secret(word: u64) -> bool {
    word >> 32 == MARK
}

fn words(start: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (start..start + bytes).step_by(8)
}

const fn area(round: u64) -> u64 {
    layout::FREE + round % AREAS * AREA
}

/// Something that is not its own.
fn found(what: &str, at: u64, word: u64) {
    println!("FOUND {word:#x} in {what} at {at:#x}");
}

/// Lets the monitor and others run.
fn rest() {
    sbi::spec_version();
    let until = cpu::time() + PAUSE;
    while cpu::time() < until {
        core::hint::spin_loop();
    }
    cpu::set_sie(cpu::TIMER);
    cpu::set_stimecmp(cpu::time() + PAUSE);
    cpu::wfi();
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
}

fn hide() {
    let mut devices = Devices::open();
    for round in 0.. {
        let start = area(round);
        words(start, AREA).for_each(|at| cpu::store(at, secret(at)));
        let mut own = words(start, AREA).filter(|at| is_secret(cpu::load(*at))).count();
        if let Some(disk) = &mut devices.disk {
            words(Disk::data(), BLOCK_BYTES.into()).for_each(|at| cpu::store(at, secret(at)));
            disk.transfer(Direction::Write, round % BLOCKS);
            words(Disk::data(), BLOCK_BYTES.into()).for_each(|at| cpu::store(at, 0));
            disk.transfer(Direction::Read, round % BLOCKS);
            own += words(Disk::data(), BLOCK_BYTES.into()).filter(|at| is_secret(cpu::load(*at))).count();
        }
        own += Registers::enable().keep(secret(round), |word| is_secret(*word));
        devices.give_back(start);
        devices.heard += console::typed().count() as u64;
        if let Some(console) = &mut devices.console {
            console.whisper(round);
        }
        if round % SAY == 0 {
            println!("HIDES {own} secret words, round {round}");
            println!("WHISPERS {:#x}, heard {}", secret(round), devices.heard);
        }
    }
}

fn seek(machine: &Machine) {
    let mut devices = Devices::open();
    if devices.disk.is_none() {
        println!("CANARY seek: no disk");
    }
    for round in 0.. {
        let start = area(round);
        // Its own words, which nobody sees but itself, go back to the machine; what comes is new.
        words(start, AREA).for_each(|at| cpu::store(at, OWN));
        if devices.give_back(start) {
            seek_zeroes(machine, start, AREA);
        }
        seek_on_disk(&mut devices, round);
        seek_in_own_registers();
        seek_on_console(&mut devices);
        if round % SAY == 0 {
            println!("SEEKS round {round}");
        }
    }
}

fn seek_in_all_memory(machine: &Machine) {
    let end = machine.ram_start + machine.ram_bytes;
    seek_zeroes(machine, layout::FREE, end - layout::FREE);
    println!("SEEKS in {} KiB of new memory", (end - layout::FREE) >> 10);
}

fn seek_zeroes(machine: &Machine, start: u64, bytes: u64) {
    let is_new = |at: &u64| cpu::load(*at) != 0 && !machine.is_tree(*at, 8);
    words(start, bytes).filter(is_new).take(4).for_each(|at| found("new memory", at, cpu::load(at)));
}

fn seek_on_disk(devices: &mut Devices, round: u64) {
    let Some(disk) = &mut devices.disk else { return };
    disk.transfer(Direction::Read, round % BLOCKS);
    let wrong = words(Disk::data(), BLOCK_BYTES.into()).filter(|at| cpu::load(*at) != PATTERN);
    wrong.take(4).for_each(|at| found("a block", round % BLOCKS, cpu::load(at)));
    // A block of which a part is its own: the rest is what it was, not what was there before.
    let (block, end) = (BLOCKS + round % BLOCKS, Disk::data() + u64::from(SECTOR_BYTES));
    words(Disk::data(), BLOCK_BYTES.into()).for_each(|at| cpu::store(at, OWN));
    disk.write_sector(block);
    disk.transfer(Direction::Read, block);
    let expected = |at: u64| if at < end { OWN } else { PATTERN };
    let wrong = words(Disk::data(), BLOCK_BYTES.into()).filter(|at| cpu::load(*at) != expected(*at));
    wrong.take(4).for_each(|at| found("a part of a block", block, cpu::load(at)));
}

/// Nobody types to it.
fn seek_on_console(devices: &mut Devices) {
    console::typed().take(4).for_each(|byte| found("what was typed", 0, byte.into()));
    let (error, bytes) = sbi::call(DEBUG_CONSOLE, READ, [BLOCK_BYTES.into(), Console::HEARD, 0, 0, 0]);
    if error == 0 && bytes > 0 {
        found("the debug console", 0, cpu::load(Console::HEARD));
    }
    if let Some(console) = &devices.console {
        console.seek();
    }
}

/// The SBI extension, and its function that reads.
const DEBUG_CONSOLE: usize = 0x4442_434e;
const READ: usize = 1;

/// The virtio console.
struct Console {
    device: Device,
    send: Queue,
    receive: Queue,
    sent: u64,
}

impl Console {
    /// Where it is given what is sent to it, which nothing is.
    const HEARD: u64 = layout::BUFFERS + 0x1_0000;
    const SAID: u64 = Self::HEARD + 0x1000;
    const SEND: u32 = 1;

    fn open() -> Option<Self> {
        let device = Device::find(virtio::CONSOLE)?;
        let (mut receive, mut send) = (Queue::new(layout::RINGS + 0xc000), Queue::new(layout::RINGS + 0x1_0000));
        device.negotiate(0)?;
        if !device.enable(0, &mut receive) || !device.enable(Self::SEND, &mut send) {
            return None;
        }
        device.go();
        words(Self::HEARD, BLOCK_BYTES.into()).for_each(|at| cpu::store(at, PATTERN));
        receive.push(0, &[Buffer { address: Self::HEARD, bytes: BLOCK_BYTES, writable: true }]);
        device.notify(0);
        Some(Self { device, send, receive, sent: 0 })
    }

    /// Says a secret, as digits.
    fn whisper(&mut self, round: u64) {
        const DIGITS: u64 = 16;
        for digit in 0..DIGITS {
            let value = secret(round) >> (4 * (DIGITS - 1 - digit)) & 15;
            cpu::store8(Self::SAID + digit, b"0123456789abcdef"[value as usize].into());
        }
        cpu::store8(Self::SAID + DIGITS, b'\n'.into());
        self.send.push(0, &[Buffer { address: Self::SAID, bytes: DIGITS as u32 + 1, writable: false }]);
        self.sent += 1;
        self.device.notify(Self::SEND);
        self.send.wait(self.sent & 0xffff);
    }

    fn seek(&self) {
        if self.receive.used_index() != 0 {
            found("what was sent", 0, cpu::load(Self::HEARD));
        }
        let wrong = words(Self::HEARD, BLOCK_BYTES.into()).filter(|at| cpu::load(*at) != PATTERN);
        wrong.take(4).for_each(|at| found("a buffer of the console", at, cpu::load(at)));
    }
}

/// First as they come, then as they were loaded.
fn seek_in_own_registers() {
    let mut registers = Registers::enable();
    registers.store();
    registers.all().filter(|word| is_secret(*word)).take(4).for_each(|word| found("a register", 0, word));
    let strange = registers.keep(0, |word| *word != 0);
    if strange > 0 {
        println!("FOUND {strange} registers that are not as they were loaded");
    }
}

extern "C" fn hide_in_registers() -> ! {
    for round in 0.. {
        Registers::enable().keep(secret(round), |word| is_secret(*word));
    }
    sbi::shutdown(true)
}

extern "C" fn seek_in_registers() -> ! {
    loop {
        seek_in_own_registers();
    }
}

/// FP and vector registers, those that there are.
struct Registers {
    fp: [u64; 32],
    has_fp: bool,
    vector: Option<fpu::VectorImage>,
}

impl Registers {
    fn enable() -> Self {
        let has_fp = HAS_DOUBLE.load(Ordering::SeqCst);
        if has_fp {
            fpu::enable_fp();
        }
        let mut vector = None;
        if HAS_VECTOR.load(Ordering::SeqCst) {
            fpu::enable_vector();
            vector = fpu::VectorImage::new();
        }
        Self { fp: [0; 32], has_fp, vector }
    }

    /// From the registers to here.
    fn store(&mut self) {
        if self.has_fp {
            fpu::store_fp(&mut self.fp);
        }
        if let Some(vector) = &mut self.vector {
            vector.store();
        }
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.fp.into_iter().chain(self.vector.iter().flat_map(fpu::VectorImage::words))
    }

    /// Loads `word` into all of them and lets others run; how many then are such as `is_counted` says.
    fn keep(&mut self, word: u64, is_counted: impl Fn(&u64) -> bool) -> usize {
        if self.has_fp {
            fpu::load_fp(&[word; 32]);
        }
        if let Some(vector) = &mut self.vector {
            vector.set(word);
            vector.load();
        }
        rest();
        self.store();
        self.all().filter(is_counted).count()
    }
}

/// The balloon: how memory goes back to the machine.
struct Balloon {
    device: Device,
    inflate: Queue,
    report: Queue,
    /// How often it went either way.
    inflated: u64,
    reported: u64,
}

/// The disk, the balloon and the console, if there are any.
struct Devices {
    disk: Option<Disk>,
    balloon: Option<Balloon>,
    console: Option<Console>,
    /// What was typed to it.
    heard: u64,
}

impl Devices {
    fn open() -> Self {
        Self { disk: Disk::open().ok(), balloon: Balloon::open(), console: Console::open(), heard: 0 }
    }

    /// Gives an area back to the machine; whether it was taken.
    fn give_back(&mut self, start: u64) -> bool {
        self.balloon.as_mut().is_some_and(|balloon| balloon.give_back(start))
    }
}

impl Balloon {
    const REPORTING: u64 = 1 << 5;
    /// The queue of reports, where there are no statistics.
    const REPORT: u32 = 2;

    fn open() -> Option<Self> {
        let device = Device::find(virtio::BALLOON)?;
        // Behind the disk's.
        let (mut inflate, mut report) = (Queue::new(layout::RINGS + 0x4000), Queue::new(layout::RINGS + 0x8000));
        let features = device.negotiate(Self::REPORTING)?;
        if features & Self::REPORTING == 0
            || !device.enable(0, &mut inflate)
            || !device.enable(Self::REPORT, &mut report)
        {
            return None;
        }
        device.go();
        Some(Self { device, inflate, report, inflated: 0, reported: 0 })
    }

    /// By turns as pages of a balloon and as a report of free pages.
    fn give_back(&mut self, start: u64) -> bool {
        if self.inflated > self.reported {
            self.report.push(0, &[Buffer { address: start, bytes: AREA as u32, writable: true }]);
            self.reported += 1;
            self.device.notify(Self::REPORT);
            return self.report.wait(self.reported & 0xffff);
        }
        const LIST: u64 = layout::BUFFERS + 0x8000;
        let pages = AREA / 4096;
        (0..pages).for_each(|page| cpu::store32(LIST + 4 * page, start / 4096 + page));
        self.inflate.push(0, &[Buffer { address: LIST, bytes: 4 * pages as u32, writable: false }]);
        self.inflated += 1;
        self.device.notify(0);
        self.inflate.wait(self.inflated & 0xffff)
    }
}
