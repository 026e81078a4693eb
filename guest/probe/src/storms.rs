//! Guests that keep every hart busy with what others have to wait for, for ever: they end when somebody ends them.

use crate::{
    console::println,
    cpu, entry, layout, sbi,
    tree::Machine,
    virtio,
    virtio::{Buffer, Device, Queue},
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Rounds of all harts together.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
/// Harts that have done one.
static AT_WORK: AtomicU64 = AtomicU64::new(0);

/// Pages that each hart touches, and the first of them: after the probe's buffers, a MiB for each hart.
const PAGES: u64 = 32;
const REGION: u64 = 1 << 20;
/// Harts that have a region below the 32 MiB that each VM has.
const REGIONS: u64 = 12;
/// Page numbers for the balloon: those of one region.
const LIST: u64 = layout::BUFFERS;

/// Every hart fences all of them, by turns in each of the ways that there are.
pub fn fences(machine: &Machine) {
    storm(machine, fence_for_ever, fence);
}

/// Every hart takes pages, fences all harts and takes them again, while the first one gives everybody's pages away through the
/// balloon.
pub fn remaps(machine: &Machine) {
    let Some(mut balloon) = Balloon::open() else { return println!("STORM impossible: no balloon") };
    let mut region = 0;
    storm(machine, remap_for_ever, |round| {
        remap(round);
        region = (region + 1) % machine.harts.min(REGIONS);
        balloon.give(region);
    });
}

/// Starts `other` on all harts but this one, which does `own`, and tells when all are at work, and that the storm goes on.
fn storm(machine: &Machine, other: extern "C" fn() -> !, mut own: impl FnMut(u64)) {
    let this = cpu::this_hart() as u64;
    for hart in (0..machine.harts).filter(|hart| *hart != this) {
        entry::start_hart(hart, other);
    }
    let mut told = 0;
    for round in 0.. {
        own(round);
        note(round);
        let is_full = AT_WORK.load(Ordering::SeqCst) == machine.harts;
        if is_full && ROUNDS.load(Ordering::SeqCst) >= (told + 1) * 100 * machine.harts {
            told += 1;
            println!("STORM {told}");
        }
    }
}

fn note(round: u64) {
    AT_WORK.fetch_add(u64::from(round == 0), Ordering::SeqCst);
    ROUNDS.fetch_add(1, Ordering::SeqCst);
}

fn fence(round: u64) {
    // A mask base of -1: all harts.
    sbi::remote_fence((round % 3) as usize, 0, u64::MAX);
}

extern "C" fn fence_for_ever() -> ! {
    let mut round = 0;
    loop {
        fence(round);
        note(round);
        round += 1;
    }
}

fn remap(round: u64) {
    let region = region_of(cpu::this_hart() as u64);
    for page in 0..PAGES {
        cpu::store(region + page * 4096, round);
    }
    cpu::fence_translations();
    fence(round);
}

extern "C" fn remap_for_ever() -> ! {
    let mut round = 0;
    loop {
        remap(round);
        note(round);
        round += 1;
    }
}

const fn region_of(hart: u64) -> u64 {
    layout::FREE + hart % REGIONS * REGION
}

/// The way to give pages away.
struct Balloon {
    device: Device,
    queue: Queue,
    given: u64,
}

impl Balloon {
    fn open() -> Option<Self> {
        let device = Device::find(virtio::BALLOON)?;
        let mut queue = Queue::new(layout::RINGS);
        device.negotiate(0)?;
        if !device.enable(0, &mut queue) {
            return None;
        }
        device.go();
        Some(Self { device, queue, given: 0 })
    }

    /// Gives a hart's pages away, once the balloon has taken those before.
    fn give(&mut self, hart: u64) {
        if self.queue.used_index() != self.given & 0xffff {
            return;
        }
        let first = region_of(hart) / 4096;
        for page in 0..PAGES {
            cpu::store32(LIST + 4 * page, first + page);
        }
        self.queue.push(0, &[Buffer { address: LIST, bytes: 4 * PAGES as u32, writable: false }]);
        self.given += 1;
        self.device.notify(0);
    }
}
