//! Calls of the SBI with arguments on which programs break.

use super::Attacker;
use crate::sbi;

/// Extensions: BASE, TIME, IPI, RFENCE, HSM, PMU, DBCN, SUSP, SSE, FWFT, CPPC, NACL, and one that does not exist.
const EXTENSIONS: [usize; 13] = [
    0x10,
    0x5449_4d45,
    0x73_5049,
    0x5246_4e43,
    0x48_534d,
    0x50_4d55,
    0x4442_434e,
    0x5355_5350,
    0x53_5345,
    0x4657_4654,
    0x4350_5043,
    0x4e41_434c,
    0x1234_5678,
];
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
