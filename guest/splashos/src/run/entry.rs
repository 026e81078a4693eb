//! From the monitor's hand-over to the program, and traps.
//
// UNSAFETY: entry points, stacks and trap vectors of a bare-metal program.
#![expect(unsafe_code)]

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use workloads::marks;

use super::console::die;
use super::{cpu, heap, paging, sbi, wait};
use crate::machine::{MAX_VCPUS, Machine};
use crate::threads;

/// Bytes of a thread's stack, at the beginning of its vCPU's own block.
pub const STACK: usize = 512 << 10;
const BOOT_STACK: usize = 16 << 10;
/// Boot lies between these marks, of a part that no program uses.
const BOOT_BEGINS: u16 = marks::part_begins(100);
const BOOT_ENDS: u16 = marks::part_ends(100);

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
1:  slti x0, x0, {begins}
    csrw sie, zero
    csrw satp, zero
    lla t0, __bss_start
    lla t1, __bss_end
2:  sd zero, 0(t0)
    addi t0, t0, 8
    bltu t0, t1, 2b
    li tp, 0
    lla t0, splash_trap
    csrw stvec, t0
    lla t0, splash_trap_stacks + 4096
    csrw sscratch, t0
    li t0, 0x6000
    csrs sstatus, t0
    lla sp, splash_boot_stack + {boot_stack}
    call {prepare}
    j 3f

    # a1: the vCPU's number
    .globl splash_secondary
splash_secondary:
    csrw sie, zero
    mv tp, a1
    lla t0, splash_trap
    csrw stvec, t0
    li t0, 0x6000
    csrs sstatus, t0
    lla t0, {satp}
    ld a0, 0(t0)
3:  csrw satp, a0
    sfence.vma
    lla t0, splash_trap_stacks + 4096
    slli t1, tp, 12
    add t0, t0, t1
    csrw sscratch, t0
    li sp, {own}
    slli t1, tp, {own_shift}
    add sp, sp, t1
    mv a0, tp
    call {run}
4:  wfi
    j 4b

    # Exceptions, on a stack of their own: the other one may be what faults. The handler has no floating point.
    .balign 4
splash_trap:
    csrrw sp, sscratch, sp
    addi sp, sp, -144
    "#,
    rv_frame::save_caller_saved!("sp"),
    r#"
    csrr a0, scause
    csrr a1, sepc
    csrr a2, stval
    call {trap}
    "#,
    rv_frame::restore_caller_saved!("sp"),
    r#"
    addi sp, sp, 144
    csrrw sp, sscratch, sp
    sret

    .section .bss.stacks, "aw", @nobits
    .balign 4096
splash_trap_stacks:
    .skip {trap_stacks}
splash_boot_stack:
    .skip {boot_stack}
    "#,
    begins = const BOOT_BEGINS,
    boot_stack = const BOOT_STACK,
    trap_stacks = const MAX_VCPUS * 4096,
    own = const paging::own_block(0) + STACK as u64,
    own_shift = const paging::OWN_DISTANCE.trailing_zeros(),
    satp = sym SATP,
    prepare = sym prepare,
    run = sym run,
    trap = sym trap,
);

unsafe extern "C" {
    fn splash_secondary();
}

unsafe extern "C" {
    /// What `program!`, or C's `MAIN_ENV`, makes of the program; 0 is success.
    safe fn splash_program() -> i32;
}

/// What the other vCPUs load.
static SATP: AtomicU64 = AtomicU64::new(0);

/// The machine, written once.
struct Described(UnsafeCell<Machine>);

// SAFETY: the first vCPU writes it while it is alone; `READ` is set after that.
unsafe impl Sync for Described {}

static MACHINE: Described = Described(UnsafeCell::new(Machine::new()));
static READ: AtomicBool = AtomicBool::new(false);

/// The machine, once it has been read.
pub fn machine() -> Option<&'static Machine> {
    // SAFETY: nobody writes it any more. Acquire pairs with `prepare`'s release.
    READ.load(Ordering::Acquire).then(|| unsafe { &*MACHINE.0.get() })
}

/// On the first vCPU, with translation off: reads the tree, makes the address space; gives the value of `satp`.
extern "C" fn prepare(hart: u64, tree: u64) -> u64 {
    // SAFETY: the boot protocol: a1 is the address of a flattened device tree, whose header tells its size; nobody writes there.
    let blob = unsafe {
        let header = core::slice::from_raw_parts(tree as *const u8, 8);
        let size = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        core::slice::from_raw_parts(tree as *const u8, size as usize)
    };
    // SAFETY: this vCPU is alone, and nobody has seen it yet.
    let described = unsafe { &mut *MACHINE.0.get() };
    if let Err(why) = described.read(blob, hart) {
        die(format_args!("{why}"));
    }
    READ.store(true, Ordering::Release);
    match paging::prepare(described, (tree, tree + blob.len() as u64)) {
        Ok((satp, blocks)) => {
            heap::prepare(blocks);
            wait::choose(described.has_imsic && sbi::is_mirrorball());
            SATP.store(satp, Ordering::Release);
            satp
        }
        Err(why) => die(format_args!("{why}")),
    }
}

/// On each vCPU, with its own stack.
extern "C" fn run(vcpu: usize) -> ! {
    heap::prepare_arena(vcpu);
    wait::prepare();
    if vcpu != 0 {
        loop {
            threads::serve(vcpu);
        }
    }
    for (number, other) in machine().map(Machine::vcpus).unwrap_or_default().iter().enumerate().skip(1) {
        if !sbi::hart_start(other.hart, splash_secondary as *const () as u64, number as u64) {
            die(format_args!("vCPU {number} does not start"));
        }
    }
    cpu::mark::<BOOT_ENDS>();
    match splash_program() {
        0 => sbi::shutdown(false),
        status => die(format_args!("the program failed with {status}")),
    }
}

extern "C" fn trap(scause: u64, sepc: u64, stval: u64) {
    const LOAD_PAGE_FAULT: u64 = 13;
    const STORE_PAGE_FAULT: u64 = 15;
    let vcpu = cpu::this_vcpu();
    if matches!(scause, LOAD_PAGE_FAULT | STORE_PAGE_FAULT) && paging::touch(stval, vcpu) {
        return;
    }
    let own = paging::own_block(vcpu);
    let what = match scause {
        _ if (own - crate::pools::BLOCK..own).contains(&stval) => "the stack is full",
        0 | 4 | 6 => "an address is not aligned",
        1 | 5 | 7 => "there is no memory",
        2 => "the instruction is illegal",
        3 => "a breakpoint",
        12 => "no code is there",
        LOAD_PAGE_FAULT | STORE_PAGE_FAULT if (paging::HEAP..paging::OWN).contains(&stval) => "this is not in the heap",
        LOAD_PAGE_FAULT | STORE_PAGE_FAULT => "the program may not access this",
        _ => "an exception",
    };
    die(format_args!("{what}: cause {scause} at {sepc:#x}, address {stval:#x}"))
}
