//! The first instructions: of the image on the boot hart, and of every other hart when the SBI starts it.
//!
//! Entry state (SBI specification, "HSM", and the RISC-V Linux boot protocol): S/HS-mode, translation off,
//! interrupts off, `a0` = hart id, `a1` = device tree (boot hart) or the opaque value of `hart_start`.
//!
//! A cell that another one starts enters its own copy of the image at `cell_start`, and goes the same way as the boot hart.
//
// UNSAFETY: nothing is set up yet; this can only be assembly.
#![expect(unsafe_code)]

use crate::machine::layout::{DIRECT_BASE, DIRECT_SIZE, IMAGE_BASE, IMAGE_MAX};
use core::arch::global_asm;

/// Bytes of the boot hart's first stack (it moves to one in its node's memory later).
const BOOT_STACK: usize = 64 << 10;

/// Said where the first instructions find a hart that cannot run the rest.
static NO_BITS: [u8; 98] =
    *b"monitor: the harts lack the Zba, Zbb or Zbs extension (bit manipulation): the machine powers off\r\n";

/// What `hart_start` hands to a hart: read with translation off, by machine address.
#[repr(C)]
pub struct StartBlock {
    /// `satp` of the hart's node.
    pub satp: u64,
    /// Top of the hart's stack (virtual).
    pub stack_top: u64,
    /// The hart's thread pointer (virtual).
    pub thread_pointer: u64,
    /// `extern "C" fn() -> !` to run.
    pub entry: u64,
}

global_asm!(
    r#"
    .section .text.head, "ax"
    .globl _start
_start:
    # RISC-V Linux Image header, so that any loader of kernels loads us (Linux, Documentation/arch/riscv/boot-image-header)
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
1:  li s2, 0
    j 8f

    .globl cell_start
    .balign 4
cell_start:
    # another cell's hart wrote this code
    fence.i
    li s2, 1
8:  csrw sie, zero
    csrw sip, zero
    # The compiler takes these extensions for granted from here on; a hart without them shall say so.
    lla t0, no_bits
    csrw stvec, t0
    .option push
    .option arch, +zba, +zbb, +zbs
    sh1add t1, zero, zero
    clz t1, zero
    bset t1, zero, zero
    .option pop
    mv s0, a0
    mv s1, a1
    lla t0, __bss_start
    lla t1, __bss_end
2:  sd zero, 0(t0)
    sd zero, 8(t0)
    sd zero, 16(t0)
    sd zero, 24(t0)
    addi t0, t0, 32
    bltu t0, t1, 2b
    # .data as it is before anything has run, for the cells that this one starts
    lla t0, __data_start
    lla t1, __bss_start
    lla t2, __pristine_start
9:  ld t3, 0(t0)
    sd t3, 0(t2)
    addi t0, t0, 8
    addi t2, t2, 8
    bltu t0, t1, 9b
    # direct map: gigapages V|R|W|A|D
    lla t0, boot_root
    li t1, {direct_index} * 8
    add t1, t1, t0
    li t2, 0xc7
    li t3, 1 << 28
    li t4, {direct_gigapages}
3:  sd t2, 0(t1)
    add t2, t2, t3
    addi t1, t1, 8
    addi t4, t4, -1
    bnez t4, 3b
    # the image: large pages V|R|W|X|A|D
    lla t1, boot_image
    srli t2, t1, 2
    ori t2, t2, 1
    li t3, {image_index} * 8
    add t3, t3, t0
    sd t2, 0(t3)
    lla t2, _start
    srli t2, t2, 2
    ori t2, t2, 0xcf
    li t3, 1 << 19
    li t4, {image_large}
4:  sd t2, 0(t1)
    add t2, t2, t3
    addi t1, t1, 8
    addi t4, t4, -1
    bnez t4, 4b
    # translation on; the fetch that follows faults to stvec, which is the next line at its linked address
    srli t0, t0, 12
    li t1, 8 << 60
    or t0, t0, t1
    lla t1, _start
    li t2, {image_base}
    lla t3, 5f
    sub t3, t3, t1
    add t3, t3, t2
    csrw stvec, t3
    sfence.vma
    csrw satp, t0
    .balign 4
5:  lla sp, boot_stack_top
    mv a0, s0
    mv a1, s1
    sub a2, t1, t2
    mv a3, s2
    mv tp, zero
    call {boot}
6:  wfi
    j 6b

    .globl secondary_start
    .balign 4
secondary_start:
    csrw sie, zero
    csrw sip, zero
    ld t0, 0(a1)
    ld t1, 8(a1)
    ld t2, 16(a1)
    ld t3, 24(a1)
    lla t4, _start
    li t5, {image_base}
    lla t6, 7f
    sub t6, t6, t4
    add t6, t6, t5
    csrw stvec, t6
    sfence.vma
    csrw satp, t0
    .balign 4
7:  sfence.vma
    mv sp, t1
    mv tp, t2
    jr t3

    # An illegal instruction among the three: debug console, then a system reset that names a failure (SBI).
    .balign 4
no_bits:
    li a0, {no_bits_bytes}
    lla a1, {no_bits_text}
    li a2, 0
    li a6, 0
    li a7, 0x4442434e
    ecall
    li a0, 0
    li a1, 1
    li a6, 0
    li a7, 0x53525354
    ecall
    j 6b

    # enter_start_block(block: *const StartBlock) -> !  for the boot hart, which is translated already
    .globl enter_start_block
enter_start_block:
    ld t0, 0(a0)
    ld t1, 8(a0)
    ld t2, 16(a0)
    ld t3, 24(a0)
    csrw satp, t0
    sfence.vma
    mv sp, t1
    mv tp, t2
    jr t3

    .section .bss.boot, "aw", @nobits
    .balign 4096
boot_root:
    .skip 4096
boot_image:
    .skip 4096
    .balign 16
    .skip {stack}
boot_stack_top:
    "#,
    direct_index = const (DIRECT_BASE >> 30 & 0x1ff),
    direct_gigapages = const (DIRECT_SIZE >> 30),
    image_index = const (IMAGE_BASE >> 30 & 0x1ff),
    image_large = const (IMAGE_MAX >> 21),
    image_base = const IMAGE_BASE,
    stack = const BOOT_STACK,
    boot = sym super::boot,
    no_bits_text = sym NO_BITS,
    no_bits_bytes = const NO_BITS.len(),
);

unsafe extern "C" {
    fn secondary_start();
    fn cell_start();
    fn enter_start_block(block: *const StartBlock) -> !;
}

/// The linked address of the entry for `hart_start`; the machine address is that of the running image.
#[must_use]
pub fn secondary_start_address() -> u64 {
    secondary_start as *const () as u64
}

/// The linked address of the entry for a cell that another one starts.
#[must_use]
pub fn cell_start_address() -> u64 {
    cell_start as *const () as u64
}

/// Continues on `block`'s stack, tables and entry.
///
/// # Safety
/// The block's tables map the image and the direct map; its stack is not in use; its entry accepts the hart's state.
pub unsafe fn enter(block: &StartBlock) -> ! {
    // SAFETY: the caller vouches for the block.
    unsafe { enter_start_block(block) }
}
