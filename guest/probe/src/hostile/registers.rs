//! Accesses of any width to any register.

use super::Attacker;
use crate::cpu;

/// What ends the guest in order when it is written to the power switch: it is to go on.
const ORDERLY: [u64; 2] = [0x5555, 0x7777];

/// A load or a store of 1 to 8 bytes, aligned or not, at the beginning of the registers or anywhere.
pub fn step(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let (base, bytes) = attacker.registers;
    let dice = &mut attacker.dice;
    let span = if dice.below(2) == 0 { bytes.min(0x110) } else { bytes };
    let at = base + dice.below(span);
    let value = dice.edge(ram);
    let at = if dice.below(8) == 0 { at } else { at & !7 };
    match dice.below(8) {
        0 => drop(cpu::load8(at)),
        1 => drop(cpu::load16(at & !1)),
        2 => drop(cpu::load32(at & !3)),
        3 => drop(cpu::load(at)),
        // A store to the power switch may be an orderly end.
        _ if ORDERLY.contains(&(value & 0xffff)) => {}
        4 => cpu::store8(at, value),
        5 => cpu::store16(at & !1, value),
        6 => cpu::store32(at & !3, value),
        _ => cpu::store(at, value),
    }
}

/// Alarms of the clock that are over, or will be in a moment.
pub fn alarms(attacker: &mut Attacker) {
    let base = attacker.registers.0;
    let now = cpu::load32(base) | cpu::load32(base + 4) << 32;
    let when = now.wrapping_add([0, 1, 1_000, u64::MAX, 1 << 40][attacker.dice.below(5) as usize]);
    cpu::store32(base + 0xc, when >> 32);
    cpu::store32(base + 8, when & 0xffff_ffff);
    cpu::store32(base + 0x10, attacker.dice.below(2));
    cpu::store32(base + [0x14, 0x1c][attacker.dice.below(2) as usize], 1);
}
