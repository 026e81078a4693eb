//! Entry of all harts at reset, the trap vector, and the way up to the program above.
//!
//! QEMU's reset code jumps here on every hart at once: `a0` = hart id, `a1` = device tree, `a2` = the structure that tells
//! OpenSBI's "dynamic" firmware where the next program is.
//
// UNSAFETY: entry points, stacks and trap vectors of a bare-metal program.
#![expect(unsafe_code)]

use core::arch::{asm, global_asm};
use core::mem::offset_of;

use super::csr::{self, MEPC, MSTATUS, SATP, SIE, SSTATUS};
use super::{console, setup, trap};
use containment::MAX_HARTS;

/// Bytes of a hart's stack.
const STACK: usize = 24 << 10;
/// Bytes of a trap frame.
const FRAME: usize = size_of::<trap::Frame>();
const _: () =
    assert!(offset_of!(trap::Frame, saved) == 0, "the trap vector saves registers from the frame's beginning on");

global_asm!(
    r#"
    .section .text.head, "ax"
    .globl _start
_start:
    csrw mie, zero
    csrr s0, mhartid
    mv s1, a1
    mv s2, a2
    lla t0, machine_trap_vector
    csrw mtvec, t0
    csrw mscratch, zero
    li t0, {harts}
    bgeu s0, t0, 9f
    lla sp, machine_stacks
    addi t0, s0, 1
    li t1, {stack}
    mul t0, t0, t1
    add sp, sp, t0
    # The boot hart is the one that the emulator names; 0 if it names none.
    li t1, 0
    beqz s2, 1f
    ld t0, 0(s2)
    li t2, {magic}
    bne t0, t2, 1f
    ld t1, 40(s2)
    li t0, {harts}
    bltu t1, t0, 1f
    li t1, 0
1:  bne s0, t1, 3f
    lla t0, __bss_start
    lla t1, __bss_end
2:  bgeu t0, t1, 4f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 2b
4:  mv a0, s0
    mv a1, s1
    mv a2, s2
    call {boot}
    # All others wait at the gate, which is not in .bss.
3:  lla t0, gate
5:  lw t1, 0(t0)
    beqz t1, 5b
    fence rw, rw
    mv a0, s0
    call {secondary}
9:  wfi
    j 9b

    .balign 4
machine_trap_vector:
    csrrw sp, mscratch, sp
    beqz sp, 8f
    addi sp, sp, -{frame}
    "#,
    rv_frame::save_caller_saved!("sp"),
    r#"
    csrrw t0, mscratch, zero
    sd t0, {stack_pointer}(sp)
    csrr t0, mepc
    sd t0, {pc}(sp)
    mv a0, sp
    call {trap}
    ld t0, {pc}(sp)
    csrw mepc, t0
    addi t0, sp, {frame}
    csrw mscratch, t0
    "#,
    rv_frame::restore_caller_saved!("sp"),
    r#"
    ld sp, {stack_pointer}(sp)
    mret
    # A trap of M-mode itself: back on the interrupted stack, tell, and stop.
8:  csrr sp, mscratch
    andi sp, sp, -16
    call {bug}

    .section .data.gate, "aw"
    .balign 4
gate:
    .word 0

    .section .noinit, "aw", @nobits
    .balign 16
machine_stacks:
    .skip {stacks}
    "#,
    harts = const MAX_HARTS,
    stack = const STACK,
    stacks = const STACK * MAX_HARTS,
    magic = const INFO_MAGIC,
    frame = const FRAME,
    stack_pointer = const offset_of!(trap::Frame, sp),
    pc = const offset_of!(trap::Frame, pc),
    boot = sym boot,
    secondary = sym setup::secondary,
    trap = sym trap::machine_trap,
    bug = sym trap::machine_bug,
);

unsafe extern "C" {
    static gate: core::sync::atomic::AtomicU32;
    static machine_stacks: [u8; STACK * MAX_HARTS];
}

/// First word of the structure behind `a2`.
const INFO_MAGIC: u64 = 0x4942_534f;
/// Where QEMU puts the next program if it does not say.
const NEXT: u64 = 0x8020_0000;

extern "C" fn boot(hart: usize, tree: u64, info: *const u64) -> ! {
    // SAFETY: QEMU's reset code hands over a structure of six words, or none.
    let next = unsafe {
        let is_info = !info.is_null() && info.read() == INFO_MAGIC;
        if is_info { info.add(2).read() } else { NEXT }
    };
    setup::boot(hart, tree, if next == 0 { NEXT } else { next })
}

/// Lets the other harts in.
pub fn open_gate() {
    // SAFETY: the symbol is a word of .data that only harts at the gate read.
    unsafe { gate.store(1, core::sync::atomic::Ordering::SeqCst) };
}

/// Supervisor mode in `mstatus.mpp`, and its mask.
const PREVIOUS_SUPERVISOR: u64 = 1 << 11;
const PREVIOUS: u64 = 3 << 11;
/// `mstatus.mpv`: the previous mode was virtual.
const PREVIOUS_VIRTUAL: u64 = 1 << 39;
const SUPERVISOR_INTERRUPTS: u64 = 1 << 1;

/// Leaves M-mode for a program in HS-mode, as the SBI specification has it: translation and interrupts off, `a0` = hart,
/// `a1` = opaque. The hart's stack begins anew.
pub fn enter_supervisor(hart: usize, address: u64, opaque: u64) -> ! {
    csr::write::<SATP>(0);
    csr::write::<SIE>(0);
    csr::clear::<SSTATUS>(SUPERVISOR_INTERRUPTS);
    csr::clear::<MSTATUS>(PREVIOUS | PREVIOUS_VIRTUAL);
    csr::set::<MSTATUS>(PREVIOUS_SUPERVISOR);
    csr::write::<MEPC>(address);
    let stack = (&raw const machine_stacks) as usize + (hart + 1) * STACK;
    // SAFETY: (1) the stack is this hart's own and nothing on it is used again; (2) `mret` goes to where the caller said.
    unsafe {
        asm!(
            "csrw mscratch, {stack}",
            "sfence.vma",
            "fence.i",
            "mret",
            stack = in(reg) stack,
            in("a0") hart,
            in("a1") opaque,
            options(noreturn),
        );
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    console::print_last_words(format_args!("hart {}: {info}", csr::this_hart()));
    loop {
        csr::wait_for_interrupt();
    }
}
