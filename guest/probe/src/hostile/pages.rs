//! Memory that is given away and taken again, by those who use it and while devices do.

use super::{Attacker, queues};
use crate::{
    cpu, layout, virtio,
    virtio::{Device, Queue, WRITE, register},
};
use core::sync::atomic::{AtomicU64, Ordering};

const INFLATE: u64 = 0;
const DEFLATE: u64 = 1;
/// Page numbers in a request.
const NUMBERS: u64 = 512;
/// Memory that nothing else uses.
const FREE: u64 = layout::FREE + 0x80_0000;
const FREE_PAGES: u64 = 6 << 10;

/// A balloon beside another device: its registers (0: none), its rings, and a list of page numbers.
static BALLOON: AtomicU64 = AtomicU64::new(0);
const RINGS: u64 = layout::FREE + 0x6_0000;
const LIST: u64 = RINGS + 0x3000;
const LIST_PAGES: u64 = 256;

/// Takes the balloon into use, beside the device that is attacked.
pub fn begin() {
    let Some(device) = Device::find(virtio::BALLOON) else { return };
    let mut queue = Queue::new(RINGS);
    if device.negotiate(0).is_some() && device.enable(INFLATE as u32, &mut queue) {
        device.go();
        BALLOON.store(device.address(0), Ordering::SeqCst);
    }
}

/// Gives pages away from `first` on, unless the balloon is still at those before.
fn give(first: u64, pages: u64) {
    let base = BALLOON.load(Ordering::SeqCst);
    let (offered, used) = (cpu::load16(RINGS + 0x1002), cpu::load16(RINGS + 0x2002));
    if base == 0 || offered != used {
        return;
    }
    (0..pages.min(LIST_PAGES)).for_each(|page| cpu::store32(LIST + page * 4, (first >> 12) + page));
    Queue::describe(RINGS, 0, LIST, (pages.min(LIST_PAGES) * 4) as u32, 0, 0);
    cpu::store16(RINGS + 0x1004 + offered % 16 * 2, 0);
    cpu::fence();
    cpu::store16(RINGS + 0x1002, offered + 1);
    cpu::fence();
    Device::at(base).notify(INFLATE as u32);
}

/// The rings and the buffers of a device are given away while it uses them.
pub fn given(attacker: &mut Attacker) {
    if attacker.is_first() {
        let first = [queues::HOME, queues::BUFFERS, queues::BUFFERS + 0x8_0000][attacker.dice.below(3) as usize];
        give(first, [1, 16, 32][attacker.dice.below(3) as usize]);
    }
    if attacker.round.is_multiple_of(64) {
        queues::set_up(attacker, u64::MAX, queues::HOME);
    }
    queues::refill(attacker);
}

/// Pages are taken by all vCPUs and given away by one.
pub fn ping_pong(attacker: &mut Attacker) {
    let chunk = FREE_PAGES / LIST_PAGES;
    let first = FREE + attacker.dice.below(chunk) * LIST_PAGES * 4096;
    if attacker.is_first() && attacker.round.is_multiple_of(2) {
        give(first, LIST_PAGES);
    } else {
        (0..LIST_PAGES).for_each(|page| cpu::store(first + page * 4096, page));
    }
}

/// A page out of each large one is given away, so that none of them stays whole, and taken again.
pub fn holes(attacker: &mut Attacker) {
    const LARGE: u64 = 2 << 20;
    let large = FREE.next_multiple_of(LARGE) + attacker.dice.below(8) * LARGE;
    let page = large + attacker.dice.below(512) * 4096;
    if attacker.is_first() {
        give(page, 1);
    }
    cpu::store(page, attacker.round);
}

/// Loads and stores all over the physical addresses.
pub fn outside(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let at = attacker.dice.edge(ram) >> attacker.dice.below(16);
    // The probe's own image is not meant.
    if at < ram.0 || at >= ram.0 + ram.1 {
        match attacker.dice.below(4) {
            0 => drop(cpu::load(at)),
            1 => cpu::store(at, at),
            2 => drop(cpu::load8(at)),
            _ => cpu::store16(at, at),
        }
    }
}

/// Accesses across the border of two pages of which one or both have gone.
pub fn across(attacker: &mut Attacker) {
    let page = FREE + (1 + attacker.dice.below(FREE_PAGES - 2)) * 4096;
    if attacker.is_first() && attacker.round.is_multiple_of(8) {
        give(page - 4096, 2);
    }
    let at = page - 1 - attacker.dice.below(7);
    match attacker.dice.below(4) {
        0 => drop(cpu::load(at)),
        1 => cpu::store(at, at),
        2 => drop(cpu::load32(page - 2)),
        _ => cpu::store16(page - 1, at),
    }
}

/// Atomic accesses to devices, to nothing, and to pages that have gone.
pub fn atomics(attacker: &mut Attacker) {
    let page = FREE + attacker.dice.below(FREE_PAGES) * 4096;
    if attacker.is_first() && attacker.round.is_multiple_of(8) {
        give(page, 1);
    }
    let beyond = attacker.ram.0 + attacker.ram.1;
    let at =
        [page, page, 0x1000_0000, 0x1000_1050, 0x0c00_0000, 0x2800_0000, beyond, 0x8][attacker.dice.below(8) as usize];
    match attacker.dice.below(3) {
        0 => cpu::add_atomically(at),
        1 => cpu::load_reserved(at),
        _ => cpu::store_conditional(at),
    }
}

/// Page tables that lie in memory which has gone, outside RAM, in devices, or are their own leaves.
pub fn tables(attacker: &mut Attacker) {
    const GIGABYTE: u64 = 1 << 30;
    const LEAF: u64 = 0xcf;
    const SV39: u64 = 8 << 60;
    let root = FREE + attacker.hart * 4096;
    // Devices, and RAM: the probe runs on.
    cpu::store(root, LEAF);
    cpu::store(root + 16, (GIGABYTE * 2) >> 2 | LEAF);
    let gone = FREE + (64 + attacker.dice.below(1024)) * 4096;
    if attacker.is_first() {
        give(gone, 1);
    }
    let ram = attacker.ram;
    let beyond = ram.0 + ram.1;
    let table = [gone, root, beyond, 0x1000_0000, 0x2800_0000, attacker.dice.edge(ram), 0, gone]
        [attacker.dice.below(8) as usize];
    cpu::store(root + 8, table >> 12 << 10 & ((1 << 54) - 1) | 1);
    cpu::fence();
    cpu::set_satp(SV39 | root >> 12);
    cpu::fence_translations();
    let at = (GIGABYTE + attacker.dice.below(GIGABYTE)) & !7;
    match attacker.dice.below(2) {
        0 => drop(cpu::load(at)),
        _ => cpu::store(at, at),
    }
    cpu::set_satp(0);
    cpu::fence_translations();
}

/// Page numbers of a balloon's request, each as `number` says.
fn numbers(attacker: &mut Attacker, queue: u64, mut number: impl FnMut(&mut Attacker, u64) -> u64) {
    queues::with(attacker, queue, |attacker, _, rings, size| {
        let index = attacker.dice.below(size) as u16;
        let at = queues::buffer(&mut attacker.dice, NUMBERS * 4);
        for place in 0..NUMBERS {
            let number = number(attacker, place);
            cpu::store32(at + place * 4, number);
        }
        Queue::describe(rings, index, at, NUMBERS as u32 * 4, 0, 0);
        queues::publish(rings, size);
    });
}

/// A balloon is given the pages of its own rings and buffers.
pub fn itself(attacker: &mut Attacker) {
    let first = if attacker.dice.below(2) == 0 { queues::HOME } else { queues::BUFFERS };
    numbers(attacker, INFLATE, |_, place| (first >> 12) + place % 64);
}

/// A balloon is given one page over and over.
pub fn same(attacker: &mut Attacker) {
    let page = FREE + attacker.dice.below(FREE_PAGES) * 4096;
    cpu::store(page, page);
    numbers(attacker, INFLATE, |_, _| page >> 12);
}

/// A balloon is given pages that there are not, and takes back those that it never had.
pub fn beyond(attacker: &mut Attacker) {
    let queue = attacker.dice.below(2);
    numbers(attacker, queue, |attacker, _| {
        let ram = attacker.ram;
        let at = attacker.dice.edge(ram);
        // Its own image is not meant.
        if at >= ram.0 && at < FREE { at | 1 << 50 } else { at >> attacker.dice.below(13) }
    });
}

/// All of memory is given to a balloon, page by page from one end or the other, taken back, and touched.
pub fn all(attacker: &mut Attacker) {
    let queue = [INFLATE, INFLATE, DEFLATE][attacker.dice.below(3) as usize];
    let first = (FREE >> 12) + attacker.round * 64 % (FREE_PAGES - NUMBERS);
    numbers(attacker, queue, |_, place| first + place);
    cpu::store((first + attacker.dice.below(NUMBERS)) << 12, first);
}

/// Pages are reported as free that are being written.
pub fn report(attacker: &mut Attacker) {
    let reporting = if attacker.device.read(register::DEVICE_FEATURES) & 2 != 0 { 4 } else { 3 };
    for queue in [2, reporting] {
        queues::with(attacker, queue, |attacker, _, rings, size| {
            let (index, page) = (attacker.dice.below(size) as u16, FREE + attacker.dice.below(FREE_PAGES - 64) * 4096);
            let bytes = [4096, 0x1_0000, 1, 4097, 0x4_0000][attacker.dice.below(5) as usize];
            cpu::store(page, page);
            Queue::describe(rings, index, page, bytes, WRITE, 0);
            queues::publish(rings, size);
            cpu::store(page, page);
        });
    }
}
