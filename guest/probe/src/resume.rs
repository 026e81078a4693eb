//! Ways back into the program that are not returns: from a suspension that forgets registers, and handlers of software events.
//
// UNSAFETY: entry points in assembly.
#![expect(unsafe_code)]

use core::{arch::global_asm, mem::offset_of};

/// A handler of a software event, with a stack of its own. Its address is the event's argument.
#[repr(C)]
pub struct Handler {
    stack: u64,
    function: extern "C" fn(&Handler, hart: u64),
    interrupted_stack: u64,
    /// For the handler.
    pub data: u64,
}

impl Handler {
    /// A handler that runs `function` on the stack whose end is `stack`.
    pub const fn new(stack: u64, function: extern "C" fn(&Self, u64), data: u64) -> Self {
        Self { stack, function, interrupted_stack: 0, data }
    }
}

/// Word that [`forgetful`] returns when the hart has come back by its entry.
pub const RESUMED: u64 = 0x5253_4d44;

global_asm!(
    r#"
    .section .text
    # probe_forgetful(eid, fid, type): a call whose second argument is where the hart goes on, and whose third comes back in a1.
    .globl probe_forgetful
probe_forgetful:
    addi sp, sp, -112
    sd tp, 0(sp)
    "#,
    rv_frame::save_callee_saved!("sp"),
    r#"
    mv a7, a0
    mv a6, a1
    mv a0, a2
    lla a1, 1f
    mv a2, sp
    ecall
    "#,
    rv_frame::restore_callee_saved!("sp"),
    r#"
    addi sp, sp, 112
    ret
    .balign 4
1:  mv sp, a1
    mv a1, a0
    li a0, {resumed}
    "#,
    rv_frame::restore_callee_saved!("sp"),
    r#"
    ld tp, 0(sp)
    addi sp, sp, 112
    ret

    # probe_trap_in_trap(kind): traps, and traps again in the handler, by an illegal instruction (0) or a breakpoint (1).
    .globl probe_trap_in_trap
    .option push
    .option norvc
probe_trap_in_trap:
    csrr t1, stvec
    lla t0, 3f
    csrw stvec, t0
    beqz a0, 1f
    ebreak
    j 2f
1:  csrr t2, 0x300
2:  csrw stvec, t1
    ret
    .balign 4
3:  beqz a0, 4f
    ebreak
    j 5f
4:  csrr t2, 0x300
5:  csrr t0, sepc
    addi t0, t0, 4
    csrw sepc, t0
    sret
    .option pop

    # The entry of all software events: a6 = hart, a7 = its handler.
    .globl probe_event
    .balign 4
probe_event:
    sd sp, {interrupted_stack}(a7)
    ld sp, {stack}(a7)
    addi sp, sp, -144
    "#,
    rv_frame::save_caller_saved!("sp"),
    r#"
    mv a0, a7
    mv a1, a6
    ld t0, {function}(a7)
    jalr t0
    "#,
    rv_frame::restore_caller_saved!("sp"),
    r#"
    ld sp, {interrupted_stack}(a7)
    li a7, 0x535345
    li a6, 6
    ecall
2:  j 2b
    "#,
    resumed = const RESUMED,
    stack = const offset_of!(Handler, stack),
    function = const offset_of!(Handler, function),
    interrupted_stack = const offset_of!(Handler, interrupted_stack),
);

/// Two result registers.
#[repr(C)]
pub struct Pair(pub u64, pub u64);

unsafe extern "C" {
    fn probe_forgetful(extension: u64, function: u64, kind: u64) -> Pair;
    fn probe_event();
    fn probe_trap_in_trap(kind: u64);
}

/// Calls a function of the SBI that comes back by an entry. ([`RESUMED`], hart id) if it does, else (error, value).
pub fn forgetful(extension: u64, function: u64, kind: u64) -> Pair {
    // SAFETY: it keeps the C calling convention whichever way it comes back.
    unsafe { probe_forgetful(extension, function, kind) }
}

/// Traps in a trap handler: by an instruction that does not exist, or by a breakpoint. Whoever handles the inner trap skips it.
pub fn trap_in_trap(by_breakpoint: bool) {
    // SAFETY: it keeps the C calling convention, and the trap vector.
    unsafe { probe_trap_in_trap(u64::from(by_breakpoint)) };
}

/// Where handlers of software events begin.
pub fn event_entry() -> u64 {
    probe_event as *const () as u64
}
