//! What is added to a block of instructions when QEMU translates it.
//
// UNSAFETY: the block is a pointer.
#![expect(unsafe_code)]

use std::ffi::c_void;

use machine_model::{FetchSite, Fidelity, Root};
use model_file::{Mode, hint};

use crate::ram::Ram;
use crate::state::{LOOK_UP, Model, model, words};
use crate::{give_up, hooks, time, watch};
use qemu_plugin::{Block, Id, Instruction};

const PAGE: u64 = 4096;
const WFI: u32 = 0x1050_0073;
const WRS_NTO: u32 = 0x00d0_0073;
const WRS_STO: u32 = 0x01d0_0073;
const SYSTEM: u32 = 0x73;

/// What an instruction means to the model.
enum Meaning {
    Plain,
    Mark(u16),
    Wait,
    Stall,
    /// Writes a timer of the hart.
    Timer,
    Root(Root),
    Fence,
    /// Accesses a guest's memory from outside.
    GuestAccess,
}

/// Called for each block.
pub extern "C" fn translate(_: Id, block: *mut c_void) {
    // SAFETY: QEMU's pointer, used during this call.
    let block = unsafe { Block::new(block) };
    let model = model();
    let Some(mode) = model.view.registers.as_ref().map(crate::registers::Registers::mode) else { return };
    block.call_from(model.entry(words::TIME), LOOK_UP, time::look_up);
    if model.is_on && model.view.ram.is_none() {
        model.view.ram = Some(Ram::find(hooks(), &model.config).unwrap_or_else(|problem| give_up(&problem)));
    }
    let count = block.len();
    block.add(model.entry(words::TIME), count as u64 * model.config.cycle_ps);
    let mut is_lock = false;
    if model.is_on {
        block.add(model.entry(words::COUNTS + mode as usize), count as u64);
        is_lock = model.is_lock_code(mode, block.instruction(0).virt());
    }
    if is_lock {
        block.add(model.entry(words::LOCKS + mode as usize), count as u64);
    }
    if model.is_on && model.fidelity == Fidelity::Reference {
        add_fetches(model, &block, mode);
    }
    for (index, word) in block.words().enumerate() {
        let meaning = meaning(word, mode);
        // Most mean nothing while the model is off, and QEMU need not be asked for them.
        if model.is_on || !matches!(meaning, Meaning::Plain) {
            add_instruction(model, &block.instruction(index), word, (mode, is_lock), meaning);
        }
    }
}

/// Called when all translated blocks go.
pub extern "C" fn flush(_: Id) {
    model().sites.clear();
}

fn add_fetches(model: &mut Model, block: &Block, mode: Mode) {
    let (first, last) = (block.instruction(0), block.instruction(block.len() - 1));
    let ram = model.view.ram.as_ref();
    // Code outside of RAM is in a ROM that no cache holds.
    let Some(start) = ram.and_then(|ram| ram.machine_addr(first.host())) else { return };
    let virt = first.virt();
    let end = (virt + last.virt().wrapping_sub(virt) + last.size() as u64).min((virt | (PAGE - 1)) + 1);
    let line_bytes = model.config.line_bytes;
    let sets = model.config.l1i.sets(line_bytes);
    let mut at = virt;
    while at < end {
        let addr = start + (at - virt);
        if let Some(line) = model.machine.line_of(addr) {
            let entry = model.entry(words::FETCHED + (u64::from(line) % sets) as usize);
            block.call_unless(entry, u64::from(line) + 1, watch::fetch, model.sites.len());
            model.sites.push(FetchSite { virt: at, addr, mode });
        }
        at = (at & !(line_bytes - 1)) + line_bytes;
    }
}

fn add_instruction(
    model: &Model,
    instruction: &Instruction,
    word: u32,
    (mode, is_lock): (Mode, bool),
    meaning: Meaning,
) {
    let mut accesses_as = mode;
    match meaning {
        Meaning::Plain => {}
        Meaning::Mark(hint::LOCKS) => instruction.call(time::lock_code, 0, true),
        Meaning::Mark(number) => instruction.call(time::mark, number.into(), false),
        Meaning::Wait => instruction.call(time::wait, mode as usize, false),
        Meaning::Stall => instruction.call(time::stall, mode as usize, false),
        Meaning::Timer => instruction.call(time::look_soon, 0, false),
        Meaning::Root(root) if model.is_on => instruction.call(watch::root_written, root as usize, false),
        Meaning::Fence if model.is_on => instruction.call(watch::fence, word as usize | (mode as usize) << 32, true),
        Meaning::Root(_) | Meaning::Fence => {}
        Meaning::GuestAccess => accesses_as = Mode::VS,
    }
    if model.is_on {
        let (load, store) = watch::accesses(accesses_as, is_lock);
        instruction.call_at_accesses(load, store);
    }
}

fn meaning(word: u32, mode: Mode) -> Meaning {
    if let Some(number) = hint::number(word) {
        return Meaning::Mark(number);
    }
    if word & 0x7f != SYSTEM {
        return Meaning::Plain;
    }
    match (word >> 12 & 7, word) {
        (0, WFI) => Meaning::Wait,
        (0, WRS_NTO | WRS_STO) => Meaning::Stall,
        // SFENCE.VMA, SINVAL.VMA, HFENCE.VVMA, HINVAL.VVMA, HFENCE.GVMA, HINVAL.GVMA.
        (0, _) if matches!(word >> 25, 0x09 | 0x0b | 0x11 | 0x13 | 0x31 | 0x33) => Meaning::Fence,
        (0, _) => Meaning::Plain,
        (4, _) => Meaning::GuestAccess,
        // CSRRS and CSRRC of x0 only read.
        (2 | 3 | 6 | 7, _) if word >> 15 & 31 == 0 => Meaning::Plain,
        _ => register(word >> 20, mode),
    }
}

/// What a write to a register means.
fn register(number: u32, mode: Mode) -> Meaning {
    match number {
        0x180 if mode == Mode::VS => Meaning::Root(Root::Vsatp),
        0x180 => Meaning::Root(Root::Satp),
        0x280 => Meaning::Root(Root::Vsatp),
        0x680 => Meaning::Root(Root::Hgatp),
        // stimecmp, vstimecmp.
        0x14d | 0x24d => Meaning::Timer,
        _ => Meaning::Plain,
    }
}
