//! Traps of the monitor itself: guarded accesses go on, anything else ends the hart, whose registers are kept.
//
// UNSAFETY: reads registers, and what the trap vector has left on the emergency stack.
#![expect(unsafe_code)]

use crate::{csr, world::TRAP_OFFSET};
use core::arch::{asm, global_asm};
use rv_frame::{CalleeSaved, CallerSaved};

global_asm!(
    r#"
    .section .text.world, "ax"
    # world_callee_saved(to: *mut CalleeSaved): as they are in whoever calls, the stack pointer in the first word
    .globl world_callee_saved
world_callee_saved:
    "#,
    rv_frame::save_callee_saved!("a0"),
    r#"
    sd sp, 0(a0)
    ret
    "#,
);

unsafe extern "C" {
    fn world_callee_saved(to: *mut CalleeSaved);
}

/// A trap taken by the monitor itself: where to resume behind a guarded access, or 0.
pub(crate) extern "C" fn resume_at(sepc: u64) -> u64 {
    crate::guarded::fixup(sepc).unwrap_or(0)
}

/// What the vector leaves on the emergency stack.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    callee_saved: CalleeSaved,
    caller_saved: CallerSaved,
    sp: u64,
}

/// The registers of a hart; of a trap all that the vector keeps, otherwise those that a call leaves alone.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// `sp`.
    pub sp: u64,
    /// `ra`.
    pub ra: u64,
    /// `s0` to `s11`.
    pub s: [u64; 12],
    /// The others, where they are known.
    pub caller_saved: Option<CallerSaved>,
}

/// A trap in the monitor that was no guarded access: the hart dies telling what happened.
pub(crate) extern "C" fn died(frame: *const Frame) -> ! {
    // SAFETY: `tp` is 0, or points to two words of this hart's own (see `world`); nobody else writes the second.
    unsafe {
        asm!("beqz tp, 2f", "sd {frame}, {at}(tp)", "2:", at = const TRAP_OFFSET, frame = in(reg) frame, options(nostack));
    }
    let (scause, sepc, stval) = (csr::scause::read(), csr::sepc::read(), csr::stval::read());
    panic!("trap in the monitor: scause {scause:#x}, sepc {sepc:#x}, stval {stval:#x}")
}

/// The registers of this hart: as they were at the trap that it dies of, and whether there was one.
#[must_use]
pub fn registers() -> (Registers, bool) {
    let frame: *const Frame;
    // SAFETY: as in `died`.
    unsafe {
        asm!("mv {frame}, tp", "beqz {frame}, 2f", "ld {frame}, {at}(tp)", "2:", at = const TRAP_OFFSET, frame = out(reg) frame, options(nostack, readonly));
    }
    // SAFETY: not null, it was stored by `died`, which never returns: the frame stays where it is.
    if let Some(Frame { callee_saved, caller_saved, sp }) = unsafe { frame.as_ref() } {
        let (ra, s) = (caller_saved.ra, callee_saved.s);
        return (Registers { sp: *sp, ra, s, caller_saved: Some(*caller_saved) }, true);
    }
    let mut own = CalleeSaved::default();
    // SAFETY: it stores what `CalleeSaved` has room for, the stack pointer in its first word, and changes no register.
    unsafe { world_callee_saved(&raw mut own) };
    (Registers { sp: own.own, ra: own.ra, s: own.s, caller_saved: None }, false)
}
