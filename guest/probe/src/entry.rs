//! Entry of the first hart and of those that it starts; traps.
//
// UNSAFETY: entry points, stacks and trap vectors of a bare-metal program.
#![expect(unsafe_code)]

use crate::{console::println, probes, sbi, tree::Machine};
use core::{
    arch::global_asm,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Harts that can be started.
pub const MAX_HARTS: usize = 32;
const STACK: usize = 16 << 10;

global_asm!(
    r#"
    .section .text.head, "ax"
    .globl _start
_start:
    j 1f
    .balign 8
    .dword 0x200000
    .dword __image_end - __image_start
    .dword 0
    .word 2
    .word 0
    .dword 0
    .ascii "RISCV\0\0\0"
    .ascii "RSC\x05"
    .word 0
1:  csrw sie, zero
    lla t0, __bss_start
    lla t1, __bss_end
2:  sd zero, 0(t0)
    addi t0, t0, 8
    bltu t0, t1, 2b
    lla t0, probe_trap
    csrw stvec, t0
    lla sp, probe_stacks
    li t0, {stack}
    addi t1, a0, 1
    mul t0, t0, t1
    add sp, sp, t0
    mv tp, a0
    call {main}
3:  j 3b

    .globl probe_secondary
probe_secondary:
    csrw sie, zero
    csrw sip, zero
    lla t0, probe_trap
    csrw stvec, t0
    lla sp, probe_stacks
    li t0, {stack}
    addi t1, a0, 1
    mul t0, t0, t1
    add sp, sp, t0
    mv tp, a0
    mv a1, a1
    jr a1

    # Traps: caller-saved registers, then Rust. It returns the pc to go on at.
    .balign 4
probe_trap:
    addi sp, sp, -144
    "#,
    rv_frame::save_caller_saved!("sp"),
    r#"
    csrr a0, scause
    csrr a1, sepc
    csrr a2, stval
    call {trap}
    csrw sepc, a0
    "#,
    rv_frame::restore_caller_saved!("sp"),
    r#"
    addi sp, sp, 144
    sret

    .section .bss.stacks, "aw", @nobits
    .balign 16
probe_stacks:
    .skip {stacks}
    "#,
    stack = const STACK,
    stacks = const STACK * (MAX_HARTS + 1),
    main = sym main,
    trap = sym trap,
);

unsafe extern "C" {
    fn probe_secondary();
}

extern "C" fn main(hart: u64, device_tree: u64) -> ! {
    let machine = Machine::read(device_tree).unwrap_or_else(|why| {
        println!("PROBE tree FAILED: {why}");
        sbi::shutdown(true)
    });
    probes::run(hart, &machine);
    sbi::shutdown(false)
}

/// Where a hart that runs a function `extern "C" fn() -> !` (its argument) begins.
pub fn secondary_address() -> u64 {
    probe_secondary as *const () as u64
}

/// Starts hart `hart` at `entry`; its SBI answer.
pub fn start_hart(hart: u64, entry: extern "C" fn() -> !) -> i64 {
    sbi::hart_start(hart, secondary_address(), entry as *const () as u64)
}

const HARTS: usize = MAX_HARTS;

/// What the trap handler saw, per hart: count and last cause of interrupts and of exceptions that were expected.
pub struct Seen {
    /// Interrupts by `scause` code 1 (software), 5 (timer), 9 (external).
    pub interrupts: [AtomicU64; 16],
    /// `scause` of the last expected exception; `u64::MAX` when none came.
    pub exception: AtomicU64,
    /// `stval` of it.
    pub value: AtomicU64,
    /// Set while an exception may happen: it is skipped.
    pub expect: AtomicUsize,
}

/// Per hart.
pub static SEEN: [Seen; HARTS] = [const {
    Seen {
        interrupts: [const { AtomicU64::new(0) }; 16],
        exception: AtomicU64::new(u64::MAX),
        value: AtomicU64::new(0),
        expect: AtomicUsize::new(0),
    }
}; HARTS];

extern "C" fn trap(scause: u64, sepc: u64, stval: u64) -> u64 {
    let seen = &SEEN[crate::cpu::this_hart() % HARTS];
    if scause >> 63 != 0 {
        let code = (scause & 15) as usize;
        crate::cpu::acknowledge(code);
        seen.interrupts[code].fetch_add(1, Ordering::SeqCst);
        return sepc;
    }
    if seen.expect.load(Ordering::SeqCst) == 0 {
        println!("PROBE trap FAILED: unexpected exception {scause} at {sepc:#x}, value {stval:#x}");
        sbi::shutdown(true);
    }
    seen.exception.store(scause, Ordering::SeqCst);
    seen.value.store(stval, Ordering::SeqCst);
    sepc + crate::cpu::instruction_length(sepc)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("PROBE panic FAILED: {info}");
    sbi::shutdown(true)
}
