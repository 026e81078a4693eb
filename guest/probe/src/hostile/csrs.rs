//! Control registers by number: those that there are, those of others, and those that nobody has.
//
// UNSAFETY: instructions that are made while the program runs.
#![expect(unsafe_code)]

use super::Attacker;
use crate::{cpu, layout, sbi};
use core::arch::asm;

/// Where each vCPU makes its instructions.
const CODE: u64 = layout::FREE + 0x70_0000;
const CODE_BYTES: u64 = 64;
/// `csrrw a0, 0, a0`, and its kin with other functions.
const ACCESS: u64 = 0x0005_0573;
const WRITE: u64 = 1;
const FUNCTIONS: [u64; 3] = [WRITE, 2, 3];
const RETURN: u64 = 0x0000_8067;
/// Registers that the program cannot do without: where its traps go, and its translation.
const NEEDED: [u64; 2] = [0x105, 0x180];

/// Any access to any register.
pub fn all(attacker: &mut Attacker) {
    let ram = attacker.ram;
    let number = attacker.dice.below(4096);
    if NEEDED.contains(&number) {
        return;
    }
    let function = FUNCTIONS[attacker.dice.below(3) as usize];
    let code = CODE + attacker.hart * CODE_BYTES;
    cpu::store32(code, ACCESS | function << 12 | number << 20);
    cpu::store32(code + 4, RETURN);
    let value = attacker.dice.edge(ram);
    // SAFETY: two instructions that were just written: an access to a register that the program does not depend on, which may trap and
    // is skipped then, and a return. No other vCPU writes there.
    unsafe { asm!("fence.i", "jalr ra, 0({0})", in(reg) code, inout("a0") value => _, out("ra") _, options(nostack)) };
    cpu::interrupts(false);
}

/// Sleeps that end at once, waits for locks, and messages between them: as many changes of who runs as can be.
pub fn waits(attacker: &mut Attacker) {
    let _ = sbi::send_ipi(1, (attacker.hart + 1) % attacker.harts);
    cpu::set_sie(cpu::SOFTWARE | cpu::TIMER);
    cpu::set_stimecmp(cpu::time() + attacker.dice.below(20));
    cpu::wfi();
    cpu::wait_for_lock();
    cpu::set_sie(0);
    cpu::acknowledge(1);
}
