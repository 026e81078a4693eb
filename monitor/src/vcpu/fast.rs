//! The short exit: what is finished without leaving the guest's register context.
//!
//! Runs with only the caller-saved registers stored (see `rv::world`). It may touch the context and CSRs, takes no
//! lock and allocates nothing.

use rv::{
    csr,
    world::{FULL_EXIT, GuestContext, RESUME},
};

const A0: usize = 10;
const A1: usize = 11;
const A6: usize = 16;
const A7: usize = 17;

const EID_BASE: u64 = 0x10;
const EID_TIME: u64 = 0x5449_4D45;

/// Implementation id that guests see. Not registered with RISC-V International; reads as a number nobody has.
pub const SBI_IMPLEMENTATION: u64 = 0x4d42;

/// See `rv::world::FastExit`.
pub extern "C" fn fast_exit(context: &mut GuestContext) -> usize {
    let value = match (context.x[A7], context.x[A6]) {
        (EID_BASE, function) => match base(function, context.x[A0]) {
            Some(value) => value,
            None => return FULL_EXIT,
        },
        (EID_TIME, 0) => {
            set_guest_timer(context.x[A0]);
            0
        }
        _ => return FULL_EXIT,
    };
    context.x[A0] = 0;
    context.x[A1] = value;
    context.fast_exits += 1;
    skip_ecall();
    RESUME
}

/// The BASE functions that are constants; the rest takes the full path.
#[inline(always)]
const fn base(function: u64, _argument: u64) -> Option<u64> {
    match function {
        0 => Some(::vcpu::sbi::VERSION),
        1 => Some(SBI_IMPLEMENTATION),
        2 => Some(1),
        _ => None,
    }
}

#[inline(always)]
#[expect(unsafe_code)]
fn set_guest_timer(deadline: u64) {
    // UNSAFETY and SAFETY: vstimecmp acts on the guest that is loaded, whose wish this is. The monitor requires Sstc.
    unsafe { csr::vstimecmp::write(deadline) };
}

#[inline(always)]
#[expect(unsafe_code)]
fn skip_ecall() {
    // UNSAFETY and SAFETY: sepc is the guest's own program counter; an ecall is 4 bytes long.
    unsafe { csr::sepc::write(csr::sepc::read() + 4) };
}
