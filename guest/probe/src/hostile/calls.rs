//! Calls of the SBI with arguments on which programs break.

use super::Attacker;
use crate::{cpu, layout, sbi};

const TIME: usize = 0x5449_4d45;
const RFENCE: usize = 0x5246_4e43;
const PMU: usize = 0x50_4d55;
const DBCN: usize = 0x4442_434e;
const SSE: usize = 0x53_5345;
const FWFT: usize = 0x4657_4654;
const STA: usize = 0x53_5441;
/// Memory that nothing uses.
const FREE: u64 = layout::FREE + 0x80_0000;

/// Extensions: BASE, TIME, IPI, RFENCE, HSM, PMU, DBCN, SUSP, SSE, FWFT, CPPC, NACL, and one that does not exist.
const EXTENSIONS: [usize; 13] =
    [0x10, TIME, 0x73_5049, RFENCE, HSM, PMU, DBCN, 0x5355_5350, SSE, FWFT, 0x4350_5043, 0x4e41_434c, 0x1234_5678];
const HSM: usize = 0x48_534d;
/// Functions of HSM that end or suspend the vCPU that calls.
const STOP: usize = 1;
const SUSPEND: usize = 3;

/// One call.
pub fn step(attacker: &mut Attacker) {
    let (ram, harts) = (attacker.ram, attacker.harts);
    let dice = &mut attacker.dice;
    let extension = EXTENSIONS[dice.below(EXTENSIONS.len() as u64) as usize];
    let function = dice.below(10) as usize;
    if extension == HSM && matches!(function, STOP | SUSPEND) {
        return;
    }
    let mut arguments = [0; 5].map(|_| dice.edge(ram));
    if dice.below(2) == 0 {
        arguments[0] = dice.below(harts);
    }
    let _ = sbi::call(extension, function, arguments);
}

/// vCPUs are started and stop themselves, as fast as they can; others are started where nothing is, or that run already.
pub fn lives(attacker: &mut Attacker) {
    if !attacker.is_first() {
        if attacker.round.is_multiple_of(4) {
            sbi::hart_stop();
        }
        return;
    }
    let ram = attacker.ram;
    for hart in 1..attacker.harts {
        super::start(hart);
        let _ = sbi::hart_status(hart);
    }
    let (nobody, nowhere) = (attacker.dice.edge(ram), attacker.dice.edge(ram));
    if nobody >= attacker.harts {
        let _ = sbi::hart_start(nobody, nowhere, 0);
    }
}

/// vCPUs sleep by call, to go on or to begin anew, and are woken by the first one; ways to sleep that there are not.
pub fn sleeps(attacker: &mut Attacker) {
    const KINDS: [u64; 5] = [0, 0x8000_0000, 1, 0xffff_ffff, 0x1000_0000];
    cpu::set_sie(cpu::SOFTWARE | cpu::TIMER);
    if attacker.is_first() {
        let _ = sbi::send_ipi(u64::MAX, 0);
    }
    cpu::set_stimecmp(cpu::time() + attacker.dice.below(2_000));
    let kind = KINDS[attacker.dice.below(KINDS.len() as u64) as usize];
    let _ = sbi::hart_suspend(kind, super::beginning(), super::work as *const () as u64);
    cpu::set_sie(0);
    cpu::acknowledge(1);
}

/// Messages to all, to some, and to those that there are not.
pub fn messages(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let base =
        [0, u64::MAX, attacker.dice.below(attacker.harts), attacker.dice.edge(ram)][attacker.dice.below(4) as usize];
    let mask = [u64::MAX, 1, attacker.dice.next()][attacker.dice.below(3) as usize];
    let _ = sbi::send_ipi(mask, base);
}

/// Fences of all kinds, of any range, for all vCPUs and for some.
pub fn fences(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let dice = &mut attacker.dice;
    let base = [0, u64::MAX, u64::MAX][dice.below(3) as usize];
    let (start, bytes) = (dice.edge(ram), dice.edge(ram));
    let _ = sbi::call(RFENCE, dice.below(9) as usize, [u64::MAX, base, start, bytes, dice.edge(ram)]);
}

/// Text from anywhere, of any length.
pub fn text(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let dice = &mut attacker.dice;
    let bytes = [1, 4096, 1 << 20, ram.1, u64::MAX, 0][dice.below(6) as usize];
    let at = [ram.0, ram.0 + ram.1 - 1, dice.edge(ram), 0x1000_0000][dice.below(4) as usize];
    let function = dice.below(3) as usize;
    // What is read goes where nothing is.
    let at = if function == 1 { FREE } else { at };
    let _ = sbi::call(DBCN, function, [bytes, at, [0, 0, 1, u64::MAX][dice.below(4) as usize], 0, 0]);
}

/// Where stolen time is written: in memory that has gone, in devices, across the end, and elsewhere each time.
pub fn stolen(attacker: &mut Attacker) {
    let (ram, hart) = (attacker.ram, attacker.hart);
    let dice = &mut attacker.dice;
    let at = [
        FREE + hart * 64,
        FREE + (1 + dice.below(4096)) * 4096,
        ram.0 + ram.1 - 64,
        0x1000_0000,
        dice.edge(ram),
        u64::MAX,
    ];
    let low = at[dice.below(6) as usize];
    // Its own image is not meant.
    if low < ram.0 || low >= FREE {
        let high = if low == u64::MAX { u64::MAX } else { dice.below(2) };
        let _ = sbi::call(STA, 0, [low, high, dice.below(2), 0, 0]);
    }
}

/// Software events: registered nowhere, enabled, injected into everybody, and answered when there is none.
pub fn events(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let dice = &mut attacker.dice;
    let event = [0xffff_0000, 0x8000, 0, 0xffff_ffff, 0x0000_8000][dice.below(5) as usize];
    let function = [0, 1, 3, 4, 7, 8, 9][dice.below(7) as usize];
    let second = if function == 7 { dice.below(attacker.harts + 1) } else { dice.edge(ram) };
    let _ = sbi::call(SSE, function, [event, second, dice.below(16), FREE, 0]);
}

/// Features of the firmware, counters and their events, with any value.
pub fn firmware(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let dice = &mut attacker.dice;
    let extension = [FWFT, PMU][dice.below(2) as usize];
    let arguments = [dice.below(64), dice.edge(ram), dice.below(64), dice.edge(ram), dice.below(1 << 20)];
    // What would turn the guest's own traps into its end is left as it is.
    if extension != FWFT || arguments[0] != 2 {
        let _ = sbi::call(extension, dice.below(10) as usize, arguments);
    }
}

/// Timers that are over, that will never be, and that are set by call and by register in turn, with interrupts on.
pub fn timers(attacker: &mut Attacker) {
    let ram = attacker.ram;
    cpu::set_sie(cpu::TIMER);
    cpu::interrupts(true);
    let when = [0, cpu::time(), cpu::time() + 10, u64::MAX, attacker.dice.edge(ram)][attacker.dice.below(5) as usize];
    if attacker.dice.below(2) == 0 {
        cpu::set_stimecmp(when);
    } else {
        let _ = sbi::call(TIME, 0, [when, 0, 0, 0, 0]);
    }
    cpu::interrupts(false);
}
