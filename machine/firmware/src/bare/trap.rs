//! Traps into M-mode.

use rv_frame::CallerSaved;

use super::csr::{self, MCAUSE, MEPC, MIP, MTVAL};
use super::{doorbell, injection, sbi, timer};

/// The registers that a Rust function may change, and where the program goes on. The trap vector writes it.
#[repr(C, align(16))]
pub struct Frame {
    /// All but the stack pointer.
    pub saved: CallerSaved,
    /// The stack pointer of the program above.
    pub sp: u64,
    /// Where the program goes on.
    pub pc: u64,
}

const CALL_FROM_SUPERVISOR: u64 = 9;
const INTERRUPT: u64 = 1 << 63;
const TIMER: u64 = 7;
const SOFTWARE: u64 = 3;
const EXTERNAL: u64 = 11;

/// A trap of a program above.
pub extern "C" fn machine_trap(frame: &mut Frame) {
    match csr::read::<MCAUSE>() {
        CALL_FROM_SUPERVISOR => {
            frame.pc += 4;
            sbi::call(frame);
        }
        cause if cause & INTERRUPT != 0 => attend(csr::this_hart()),
        cause => panic!("trap {cause} at {:#x}, value {:#x}", frame.pc, csr::read::<MTVAL>()),
    }
}

/// A trap of M-mode itself, which does not trap.
pub extern "C" fn machine_bug() -> ! {
    let (cause, pc, value) = (csr::read::<MCAUSE>(), csr::read::<MEPC>(), csr::read::<MTVAL>());
    panic!("trap {cause} of M-mode at {pc:#x}, value {value:#x}");
}

/// Serves whatever is pending for the executing hart. It may not come back: a fault may have taken the hart.
pub fn attend(hart: usize) {
    let pending = csr::read::<MIP>();
    if pending & (1 << SOFTWARE | 1 << EXTERNAL) != 0 {
        doorbell::answer(hart);
        sbi::fence::serve(hart);
        sbi::ipi::serve(hart);
        injection::adopt(hart);
    }
    if pending & 1 << TIMER != 0 {
        timer::expired(hart);
    }
}
