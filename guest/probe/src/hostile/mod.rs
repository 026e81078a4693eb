//! Guests that use what they were given as no operating system would, on all vCPUs at the same time and for ever: somebody ends them.
//!
//! `attack=hostile-DEVICE-BEHAVIOUR`; the list that the host has is in `host/lab/src/attacks`. What each vCPU does is drawn from numbers that look random and are the same in every run; how the
//! vCPUs' steps mix is chance.

mod calls;
mod csrs;
mod disks;
mod frames;
mod interrupts;
mod pages;
mod ports;
mod queues;
mod registers;
mod rings;

use crate::{
    console::println,
    cpu,
    entry::{self, SEEN},
    tree::Machine,
    virtio::{self, Device},
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One step of a behaviour.
type Step = fn(&mut Attacker);

/// What is done to a virtio device.
const TO_VIRTIO: &[(&str, Step)] = &[
    ("refill", queues::refill),
    ("rewrite", queues::rewrite),
    ("wild", queues::wild),
    ("alias", queues::alias),
    ("indirect", queues::indirect),
    ("nested", queues::nested),
    ("long", queues::long),
    ("index", queues::index),
    ("reset", queues::reset),
    ("move", queues::move_rings),
    ("features", queues::features),
    ("registers", registers::step),
    ("unbacked", rings::unbacked),
    ("overlap", rings::overlap),
    ("itself", rings::itself),
    ("devices", rings::devices),
    ("notify", rings::notify),
    ("hot", rings::hot),
    ("status", rings::status),
    ("late", rings::late),
    ("events", rings::events),
    ("given", pages::given),
];

/// What is done to one of them, or to another device; these come before those of the same name above.
const TO_ONE: &[(&str, &str, Step)] = &[
    ("block", "sectors", disks::sectors),
    ("block", "discard", disks::discard),
    ("block", "zero", disks::zero),
    ("block", "wipe", disks::wipe),
    ("block", "name", disks::name),
    ("block", "commands", disks::commands),
    ("block", "fill", disks::fill),
    ("block", "read", disks::read),
    ("net", "segments", frames::segments),
    ("net", "extensions", frames::extensions),
    ("net", "checksums", frames::checksums),
    ("net", "flood", frames::flood),
    ("net", "addresses", frames::addresses),
    ("net", "tiny", frames::tiny),
    ("net", "control", frames::control),
    ("console", "control", ports::control),
    ("console", "opens", ports::opens),
    ("console", "flood", ports::flood),
    ("console", "emergency", ports::emergency),
    ("balloon", "given", pages::itself),
    ("balloon", "same", pages::same),
    ("balloon", "beyond", pages::beyond),
    ("balloon", "all", pages::all),
    ("balloon", "report", pages::report),
    ("uart", "registers", registers::step),
    ("uart", "print", ports::print),
    ("uart", "interrupts", ports::interrupts),
    ("rtc", "registers", registers::step),
    ("rtc", "alarms", registers::alarms),
    ("power", "registers", registers::step),
    ("nothing", "registers", registers::step),
    ("plic", "registers", registers::step),
    ("plic", "claims", interrupts::claims),
    ("plic", "enables", interrupts::enables),
    ("aplic", "registers", registers::step),
    ("aplic", "generated", interrupts::generated),
    ("aplic", "sources", interrupts::sources),
    ("aplic", "domain", interrupts::domain),
    ("imsic", "registers", registers::step),
    ("imsic", "own", interrupts::own),
    ("imsic", "others", interrupts::others),
    ("imsic", "offsets", interrupts::offsets),
    ("imsic", "files", interrupts::files),
    ("imsic", "wakes", interrupts::wakes),
    ("sbi", "calls", calls::step),
    ("sbi", "lives", calls::lives),
    ("sbi", "sleeps", calls::sleeps),
    ("sbi", "messages", calls::messages),
    ("sbi", "fences", calls::fences),
    ("sbi", "text", calls::text),
    ("sbi", "stolen", calls::stolen),
    ("sbi", "events", calls::events),
    ("sbi", "firmware", calls::firmware),
    ("sbi", "timers", calls::timers),
    ("csr", "all", csrs::all),
    ("csr", "waits", csrs::waits),
    ("memory", "ping-pong", pages::ping_pong),
    ("memory", "holes", pages::holes),
    ("memory", "outside", pages::outside),
    ("memory", "across", pages::across),
    ("memory", "atomics", pages::atomics),
    ("memory", "tables", pages::tables),
];

/// Virtio devices, with their ids.
const VIRTIO: &[(&str, u64)] = &[
    ("block", virtio::BLOCK),
    ("net", virtio::NET),
    ("console", virtio::CONSOLE),
    ("rng", virtio::ENTROPY),
    ("balloon", virtio::BALLOON),
];

/// Other devices: where their registers begin, and how many bytes of them there are on QEMU's `virt` machine.
const OTHERS: &[(&str, u64, u64)] = &[
    ("uart", 0x1000_0000, 0x100),
    ("rtc", 0x10_1000, 0x1000),
    ("power", 0x10_0000, 0x1000),
    ("plic", 0x0c00_0000, 0x40_0000),
    ("aplic", 0x0d00_0000, 0x8000),
    ("imsic", 0x2800_0000, 0x1_0000),
    ("nothing", 0x4000_0000, 0x1000_0000),
];

/// A vCPU at its work.
struct Attacker {
    dice: Dice,
    /// The device, if it is one of virtio.
    device: Device,
    /// Its id.
    id: u64,
    /// Its registers: the first address, and how many bytes.
    registers: (u64, u64),
    /// First byte of RAM, and how many.
    ram: (u64, u64),
    hart: u64,
    harts: u64,
    /// Steps so far.
    round: u64,
}

/// Numbers that look random and are the same in every run (Marsaglia, "Xorshift RNGs").
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, sides: u64) -> u64 {
        (self.next() >> 16) % sides.max(1)
    }

    /// One of the values on which programs break.
    fn edge(&mut self, ram: (u64, u64)) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => ram.0 + self.below(ram.1),
            4 => ram.0 + ram.1 - self.below(16),
            5 => self.below(256),
            6 => u64::from(u32::MAX) - self.below(16),
            _ => self.next(),
        }
    }
}

/// The attack, for the vCPUs that the first one starts: which step, of which device, with which registers, in which RAM.
static STEP: AtomicUsize = AtomicUsize::new(0);
static WHAT: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
/// Steps that all vCPUs have done.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// Begins attack `name` (`DEVICE-BEHAVIOUR`) on all vCPUs, and never ends it. Returns if there is no such attack or device.
pub fn run(name: &str, machine: &Machine) {
    let Some((step, id, registers)) = find(name) else { return println!("HOSTILE {name} unknown") };
    let ram = (machine.ram_start, machine.ram_bytes);
    STEP.store(step, Ordering::SeqCst);
    for (place, value) in WHAT.iter().zip([id, registers.0, registers.1, ram.0, ram.1, machine.harts]) {
        place.store(value, Ordering::SeqCst);
    }
    begin(id);
    println!("HOSTILE {name}");
    let this = cpu::this_hart() as u64;
    (0..machine.harts).filter(|hart| *hart != this).for_each(start);
    work()
}

/// Takes into use what the attack needs, before any vCPU begins with it.
fn begin(id: u64) {
    match id {
        0 => pages::begin(),
        virtio::BALLOON => {}
        _ => {
            pages::begin();
            frames::begin();
        }
    }
    if id != 0 {
        queues::begin(&mut Attacker::this());
    }
}

/// Starts another vCPU at its work, if it does not run.
fn start(hart: u64) {
    entry::start_hart(hart, work);
}

/// Where a vCPU begins that is started.
fn beginning() -> u64 {
    entry::secondary_address()
}

/// Index of the step, the virtio id (0: another device) and the registers of an attack.
fn find(name: &str) -> Option<(usize, u64, (u64, u64))> {
    let (device, behaviour) = name.split_once('-')?;
    let of_one = TO_ONE.iter().position(|(of, known, _)| *of == device && *known == behaviour);
    if let Some((_, id)) = VIRTIO.iter().find(|(known, _)| *known == device) {
        let of_all = || TO_VIRTIO.iter().position(|(known, _)| *known == behaviour);
        let step = of_one.map(|step| step + TO_VIRTIO.len()).or_else(of_all)?;
        return Some((step, *id, (Device::find(*id)?.address(0), 0x1000)));
    }
    let registers = OTHERS.iter().find(|(known, ..)| *known == device);
    Some((of_one? + TO_VIRTIO.len(), 0, registers.map_or((0, 0), |(_, base, bytes)| (*base, *bytes))))
}

/// The step of this index.
fn step_of(index: usize) -> Step {
    let of_one = || TO_ONE.get(index - TO_VIRTIO.len()).map_or(registers::step as Step, |(.., step)| *step);
    TO_VIRTIO.get(index).map_or_else(of_one, |(_, step)| *step)
}

extern "C" fn work() -> ! {
    // What the attack steps on may trap: that is skipped.
    SEEN[cpu::this_hart() % SEEN.len()].expect.store(1, Ordering::SeqCst);
    let mut attacker = Attacker::this();
    let step = step_of(STEP.load(Ordering::SeqCst));
    loop {
        step(&mut attacker);
        attacker.round += 1;
        let rounds = ROUNDS.fetch_add(1, Ordering::SeqCst) + 1;
        if rounds == 100 {
            println!("HOSTILE at work");
        }
    }
}

impl Attacker {
    fn this() -> Self {
        let [id, base, bytes, ram_start, ram_bytes, harts] = WHAT.each_ref().map(|word| word.load(Ordering::SeqCst));
        let hart = cpu::this_hart() as u64;
        Self {
            dice: Dice(0x9e37_79b9_7f4a_7c15 ^ (hart << 32 | id)),
            device: Device::at(base),
            id,
            registers: (base, bytes),
            ram: (ram_start, ram_bytes),
            hart,
            harts,
            round: 0,
        }
    }

    /// Whether this vCPU is the one that takes the device away while others use it.
    const fn is_first(&self) -> bool {
        self.hart == 0
    }
}
