//! Interrupt controllers, driven as no kernel would: claims of what belongs to others, messages to anybody, sources that go nowhere.

use super::Attacker;
use crate::{cpu, imsic};

/// The PLIC of QEMU's `virt` machine.
mod plic {
    pub const PRIORITIES: u64 = 0x0c00_0000;
    pub const PENDING: u64 = PRIORITIES + 0x1000;
    pub const ENABLES: u64 = PRIORITIES + 0x2000;
    pub const THRESHOLDS: u64 = PRIORITIES + 0x20_0000;
    /// From one context to the next: enables, thresholds. The claim is behind the threshold.
    pub const NEXT_ENABLES: u64 = 0x80;
    pub const NEXT: u64 = 0x1000;
}

/// The S-level APLIC of QEMU's `virt` machine.
mod aplic {
    pub const DOMAIN: u64 = 0x0d00_0000;
    pub const SOURCES: u64 = DOMAIN + 4;
    pub const ADDRESSES: u64 = DOMAIN + 0x1bc8;
    pub const SET_PENDING: u64 = DOMAIN + 0x1c00;
    pub const SET_PENDING_NUMBER: u64 = DOMAIN + 0x1cdc;
    pub const CLEAR_NUMBER: u64 = DOMAIN + 0x1ddc;
    pub const SET_ENABLED: u64 = DOMAIN + 0x1e00;
    pub const SET_ENABLED_NUMBER: u64 = DOMAIN + 0x1edc;
    pub const CLEAR_ENABLED_NUMBER: u64 = DOMAIN + 0x1fdc;
    pub const BY_MESSAGE: u64 = DOMAIN + 0x2000;
    pub const MESSAGE: u64 = DOMAIN + 0x3000;
    pub const TARGETS: u64 = DOMAIN + 0x3004;
}

/// Sources that there may be.
const SOURCES: u64 = 128;
/// Contexts of a PLIC that there may be, and a few more.
const CONTEXTS: u64 = 24;

/// Makes the UART interrupt, for which its register of enables is enough.
fn interrupt() {
    cpu::store8(0x1000_0001, 0);
    cpu::store8(0x1000_0001, 2);
}

/// Claims and completions of every context, own or not, while sources interrupt.
pub fn claims(attacker: &mut Attacker) {
    let claim = plic::THRESHOLDS + attacker.dice.below(CONTEXTS) * plic::NEXT + 4;
    let claimed = cpu::load32(claim);
    let wrong = [claimed, attacker.dice.below(SOURCES), 0, u64::MAX][attacker.dice.below(4) as usize];
    cpu::store32(claim, wrong);
    interrupt();
}

/// Priorities, enables and thresholds of every context change while sources interrupt.
pub fn enables(attacker: &mut Attacker) {
    let (context, value) = (attacker.dice.below(CONTEXTS), attacker.dice.next());
    match attacker.dice.below(4) {
        0 => cpu::store32(plic::PRIORITIES + attacker.dice.below(SOURCES) * 4, value),
        1 => cpu::store32(plic::ENABLES + context * plic::NEXT_ENABLES + attacker.dice.below(32) * 4, value),
        2 => cpu::store32(plic::THRESHOLDS + context * plic::NEXT, value & 7),
        _ => cpu::store32(plic::PENDING + attacker.dice.below(4) * 4, value),
    }
    interrupt();
}

/// Messages that the APLIC is told to send: to any hart, guest index and identity.
pub fn generated(attacker: &mut Attacker) {
    let ram = attacker.ram;
    cpu::store32(aplic::DOMAIN, 0x104);
    for _ in 0..8 {
        let wild = attacker.dice.edge(ram);
        let known = attacker.dice.below(attacker.harts) << 18 | attacker.dice.below(256);
        cpu::store32(aplic::MESSAGE, if attacker.dice.below(2) == 0 { wild } else { known });
    }
}

/// Sources of any mode that send to any hart, all pending and enabled, by bit and by number.
pub fn sources(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let source = 1 + attacker.dice.below(SOURCES - 1);
    let target = attacker.dice.below(8) << 18 | attacker.dice.below(8) << 12 | attacker.dice.below(256);
    cpu::store32(aplic::SOURCES + (source - 1) * 4, attacker.dice.below(8));
    cpu::store32(
        aplic::TARGETS + (source - 1) * 4,
        if attacker.dice.below(4) == 0 { attacker.dice.edge(ram) } else { target },
    );
    let number = [
        aplic::SET_PENDING_NUMBER,
        aplic::SET_ENABLED_NUMBER,
        aplic::BY_MESSAGE,
        aplic::CLEAR_NUMBER,
        aplic::CLEAR_ENABLED_NUMBER,
    ][attacker.dice.below(5) as usize];
    cpu::store32(number, source);
    cpu::store32([aplic::SET_PENDING, aplic::SET_ENABLED][attacker.dice.below(2) as usize] + source / 32 * 4, u64::MAX);
    interrupt();
}

/// The domain is switched on and off, and its addresses are rewritten, while sources interrupt.
pub fn domain(attacker: &mut Attacker) {
    if attacker.is_first() {
        cpu::store32(aplic::DOMAIN, [0, 0x100, 0x104, 0x105, 0xffff_ffff][attacker.dice.below(5) as usize]);
        cpu::store32(aplic::ADDRESSES + attacker.dice.below(2) * 4, attacker.dice.next());
    }
    sources(attacker);
}

/// Messages of any identity to the vCPU's own file, as many as there is time for.
pub fn own(attacker: &mut Attacker) {
    (0..32).for_each(|_| imsic::send(attacker.hart, attacker.dice.below(260) as u32));
}

/// Messages to every vCPU's file, and to those that there are not.
pub fn others(attacker: &mut Attacker) {
    for _ in 0..32 {
        let hart = attacker.dice.below(attacker.harts + 2);
        imsic::send(hart, attacker.dice.below(256) as u32);
    }
}

/// Messages of all widths to all offsets of files: most are none.
pub fn offsets(attacker: &mut Attacker) {
    let at = imsic::BASE + attacker.dice.below(attacker.harts + 2) * 0x1000 + attacker.dice.below(4096);
    let value = attacker.dice.next();
    match attacker.dice.below(6) {
        0 => cpu::store8(at, value),
        1 => cpu::store16(at & !1, value),
        2 => cpu::store32(at & !3, value),
        3 => cpu::store(at & !7, value),
        4 => drop(cpu::load32(at & !3)),
        _ => cpu::add_atomically(at & !7),
    }
}

/// Files whose delivery, threshold and enables change while messages come, and are taken.
pub fn files(attacker: &mut Attacker) {
    let register = [0x70, 0x72, 0x80, 0x82, 0xc0, 0xc2, 0x71, 0x81, 0xff, 0x30][attacker.dice.below(10) as usize];
    cpu::set_siselect(register);
    cpu::set_sireg(attacker.dice.next() & [1, 0xff, u64::MAX][attacker.dice.below(3) as usize]);
    let _ = if attacker.dice.below(2) == 0 { imsic::claim() } else { imsic::top() };
    others(attacker);
}

/// Everybody sleeps until messages come, and sends the next ones: each wakes somebody.
pub fn wakes(attacker: &mut Attacker) {
    imsic::enable_all(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let next = (attacker.hart + 1) % attacker.harts;
    imsic::send(next, 1 + attacker.dice.below(8) as u32);
    cpu::set_sie(cpu::EXTERNAL | cpu::TIMER);
    cpu::set_stimecmp(cpu::time() + 1_000);
    cpu::wfi();
    cpu::set_sie(0);
    imsic::claim();
}
