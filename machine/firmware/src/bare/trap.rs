//! Traps into M-mode.

use rv_frame::CallerSaved;

use super::csr::{self, HSTATUS, HTINST, HTVAL, MCAUSE, MEPC, MIP, MSTATUS, MTVAL, MTVAL2, SCAUSE, SEPC, STVAL, STVEC};
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
const DOUBLE_TRAP: u64 = 16;
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
        DOUBLE_TRAP if csr::read::<MSTATUS>() & status::MPV != 0 => hand_on_double_trap(frame),
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

/// Bits of `mstatus`.
mod status {
    pub const SIE: u64 = 1 << 1;
    pub const SPIE: u64 = 1 << 5;
    pub const SPP: u64 = 1 << 8;
    pub const MPP: u64 = 3 << 11;
    pub const MPP_SUPERVISOR: u64 = 1 << 11;
    pub const SDT: u64 = 1 << 24;
    pub const MPV: u64 = 1 << 39;
}

/// Bits of `hstatus`.
mod hypervisor_status {
    pub const GVA: u64 = 1 << 6;
    pub const SPV: u64 = 1 << 7;
    pub const SPVP: u64 = 1 << 8;
}

/// A double trap of a guest is its hypervisor's business: that takes the trap as if the hart had delivered it there.
fn hand_on_double_trap(frame: &mut Frame) {
    let old = csr::read::<MSTATUS>();
    let was_supervisor = old & status::MPP != 0;
    csr::clear::<HSTATUS>(hypervisor_status::GVA | hypervisor_status::SPVP);
    csr::set::<HSTATUS>(hypervisor_status::SPV | if was_supervisor { hypervisor_status::SPVP } else { 0 });
    csr::write::<SCAUSE>(DOUBLE_TRAP);
    csr::write::<SEPC>(frame.pc);
    csr::write::<STVAL>(csr::read::<MTVAL>());
    csr::write::<HTVAL>(csr::read::<MTVAL2>());
    csr::write::<HTINST>(0);
    let spp = if was_supervisor { status::SPP } else { 0 };
    let spie = if old & status::SIE != 0 { status::SPIE } else { 0 };
    csr::clear::<MSTATUS>(status::SPP | status::SPIE | status::SIE | status::MPP | status::MPV);
    csr::set::<MSTATUS>(spp | spie | status::MPP_SUPERVISOR | status::SDT);
    frame.pc = csr::read::<STVEC>() & !3;
}
