//! What is put into translated code: time, counts, WFI, marks.

use std::ffi::{c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use model_file::hint;

use crate::machine::Machine;
use crate::qemu::{Block, Register};
use crate::time;

/// `wfi`.
const WFI: u32 = 0x1050_0073;

/// Called for each block of instructions.
pub fn translate(block: &Block) {
    let Some(machine) = Machine::get() else { return };
    let count = block.len() as u64;
    block.add_at_each_run(machine.board.instructions_entry(privilege()), count);
    block.add_at_each_run(machine.board.time_entry(), count * machine.cycle_ps);
    block.call_from(machine.board.time_entry(), crate::counts::LIMIT, time::come_back);
    for instruction in block.instructions() {
        let word = instruction.word();
        if word == WFI {
            instruction.call_at_each_run(time::wait, 0);
        } else if let Some(number) = hint::number(word) {
            instruction.call_at_each_run(at_hint, number.into());
        }
    }
}

/// The register `priv` of the hart that is translated for; its value is part of what a block is found by.
fn privilege() -> usize {
    static PRIV: OnceLock<Option<Register>> = OnceLock::new();
    static READER: Mutex<()> = Mutex::new(());
    let _one = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let register = PRIV.get_or_init(|| Register::find("priv"));
    register.as_ref().and_then(Register::read).map_or(3, |value| value as usize & 7)
}

extern "C" fn at_hint(hart: c_uint, number: *mut c_void) {
    let (Some(machine), number) = (Machine::get(), number.addr() as u16) else { return };
    match number {
        hint::ON => machine.switch(true),
        hint::OFF => machine.switch(false),
        mark => machine.mark(mark.into(), hart as usize),
    }
}
