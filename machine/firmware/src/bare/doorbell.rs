//! Interrupting other harts' M-mode, by `msip` registers or by machine-level interrupt files.

use containment::Doorbell;

use super::csr::{self, MIE, MIREG, MISELECT, MTOPEI};
use super::harts::hardware;
use super::memory::write_register32;

/// Machine software and external interrupts in `mie` and `mip`.
const SOFTWARE: u64 = 1 << 3;
const EXTERNAL: u64 = 1 << 11;

/// The identity that the firmware uses in interrupt files.
const IDENTITY: u32 = 1;
/// Indirect registers of an interrupt file.
const DELIVERY: u64 = 0x70;
const THRESHOLD: u64 = 0x72;
const ENABLE_0: u64 = 0xc0;

fn doorbell(hart: usize) -> Option<Doorbell> {
    hardware().harts.get(hart)?.as_ref()?.doorbell
}

/// Opens the executing hart for rings.
pub fn open(hart: usize) {
    match doorbell(hart) {
        Some(Doorbell::Register(register)) => {
            write_register32(register, 0);
            csr::set::<MIE>(SOFTWARE);
        }
        Some(Doorbell::File(_)) => {
            for (register, value) in [(DELIVERY, 1), (THRESHOLD, 0), (ENABLE_0, 1 << IDENTITY)] {
                csr::write::<MISELECT>(register);
                csr::write::<MIREG>(value);
            }
            csr::set::<MIE>(EXTERNAL);
        }
        None => {}
    }
}

/// Interrupts another hart.
pub fn ring(hart: usize) {
    match doorbell(hart) {
        Some(Doorbell::Register(register)) => write_register32(register, 1),
        Some(Doorbell::File(file)) => write_register32(file, IDENTITY),
        None => {}
    }
}

/// Takes the executing hart's ring back; what it was rung for is to be looked at after this.
pub fn answer(hart: usize) {
    match doorbell(hart) {
        Some(Doorbell::Register(register)) => write_register32(register, 0),
        Some(Doorbell::File(_)) => {
            csr::claim::<MTOPEI>();
        }
        None => {}
    }
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
