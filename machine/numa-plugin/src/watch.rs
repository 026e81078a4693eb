//! What harts do with memory: accesses, fetches, fences.

use std::ffi::{c_uint, c_void};

use machine_model::{Fence, Root};
use model_file::Mode;

use crate::gates;
use crate::state::{Model, model};
use crate::time::look_at_next_block;
use qemu_plugin::AccessCallback;

/// Memory of PCI devices, whose work the host does. Interrupt controllers, timers and the console are elsewhere.
const PCI: [std::ops::Range<u64>; 2] = [0x4000_0000..0x8000_0000, 0x4_0000_0000..0x8_0000_0000];

/// The callbacks for loads and stores in a mode. Specialized, since nothing in the plugin runs as often.
pub fn accesses(mode: Mode, is_lock: bool) -> (AccessCallback, AccessCallback) {
    match mode {
        Mode::S if is_lock => (lock_load::<1>, lock_store::<1>),
        Mode::VS if is_lock => (lock_load::<4>, lock_store::<4>),
        Mode::U => (load::<0>, store::<0>),
        Mode::S => (load::<1>, store::<1>),
        Mode::M | Mode::Idle => (load::<2>, store::<2>),
        Mode::VU => (load::<3>, store::<3>),
        Mode::VS => (load::<4>, store::<4>),
    }
}

/// The same in the code of locks, whose stalls are counted apart.
extern "C" fn lock_load<const MODE: usize>(index: c_uint, information: u32, virt: u64, data: *mut c_void) {
    let before = model().spent(index as usize);
    load::<MODE>(index, information, virt, data);
    count_lock_stall(index as usize, MODE, before);
}

extern "C" fn lock_store<const MODE: usize>(index: c_uint, information: u32, virt: u64, data: *mut c_void) {
    let before = model().spent(index as usize);
    store::<MODE>(index, information, virt, data);
    count_lock_stall(index as usize, MODE, before);
}

fn count_lock_stall(hart: usize, mode: usize, before: u64) {
    let model = model();
    // A store to a device moves the mark that time is counted from; no lock is in one.
    let stall_ps = model.spent(hart).saturating_sub(before);
    model.harts[hart].locks[mode].stall_ps += stall_ps;
}

extern "C" fn load<const MODE: usize>(index: c_uint, _: u32, virt: u64, _: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    let Model { machine, view, .. } = model;
    match machine.load(hart, Mode::ALL[MODE], virt, view) {
        Ok(0) | Err(_) => {}
        Ok(stall_ps) => model.stall(hart, stall_ps),
    }
}

extern "C" fn store<const MODE: usize>(index: c_uint, _: u32, virt: u64, _: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    let Model { machine, view, .. } = model;
    match machine.store(hart, Mode::ALL[MODE], virt, view) {
        Ok(0) => {}
        Ok(stall_ps) => model.stall(hart, stall_ps),
        Err(addr) => device_store(model, hart, addr),
    }
}

/// Somebody may have been woken, a timer may have been set, or the host has been given work.
#[cold]
fn device_store(model: &mut Model, hart: usize, addr: u64) {
    let now_ps = model.now(hart);
    if PCI.iter().any(|memory| memory.contains(&addr)) {
        model.io_is_due = true;
        gates::ring(model.machine.shared(), now_ps);
    }
    model.clocks.stir(now_ps);
    look_at_next_block(model, hart);
}

/// A hart runs a block that has instructions of a line that is not the last of its set.
pub extern "C" fn fetch(index: c_uint, site: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    let Some(site) = model.sites.get(site.addr()).copied() else { return };
    let Model { machine, view, .. } = model;
    let stall_ps = machine.fetch(hart, &site, view);
    if stall_ps > 0 {
        model.stall(hart, stall_ps);
    }
}

/// A hart is about to write a register that says how it translates.
pub extern "C" fn root_written(index: c_uint, root: *mut c_void) {
    let root = [Root::Satp, Root::Vsatp, Root::Hgatp][root.addr() % 3];
    model().machine.root_written(index as usize, root);
}

/// A hart is about to execute a fence: the data are its instruction, and its mode above.
pub extern "C" fn fence(index: c_uint, data: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    let (word, mode) = (data.addr() as u32, Mode::ALL[(data.addr() >> 32) % Mode::ALL.len()]);
    let Some(registers) = &model.view.registers else { return };
    let operand = |shift: u32| match word >> shift & 31 {
        0 => None,
        number => Some(registers.general(number as usize)),
    };
    let (addr, id) = (operand(15), operand(20));
    let is_virtual = matches!(mode, Mode::VS | Mode::VU);
    let vmid = || (registers.root(Root::Hgatp, is_virtual) >> 44 & 0x3fff) as u16;
    let asid = id.map(|id| id as u16);
    let fence = match word >> 25 {
        // HFENCE.GVMA, HINVAL.GVMA.
        0x31 | 0x33 => {
            let vmids = match id {
                Some(id) => vec![id as u16],
                None => model.machine.vmids(hart),
            };
            let gvma = |vmid| Fence { vmid: Some(vmid), asid: None, addr: None, is_guest_stage: true };
            vmids.into_iter().for_each(|vmid| model.machine.fence(hart, &gvma(vmid)));
            return;
        }
        // HFENCE.VVMA, HINVAL.VVMA.
        0x11 | 0x13 => Fence { vmid: Some(vmid()), asid, addr, is_guest_stage: false },
        _ => Fence { vmid: is_virtual.then(vmid), asid, addr, is_guest_stage: false },
    };
    model.machine.fence(hart, &fence);
}
