//! Entry, copies, traps, and the way into a guest and back.
//
// UNSAFETY: entry points, stacks, trap vectors and copies of a bare-metal program.
#![expect(unsafe_code)]

use core::arch::{asm, global_asm};
use core::fmt::Write as _;

use super::machine::{self, MAX_HARTS, NodeMemory};
use super::{access, sbi, survivor, tables};

const STACK: usize = 16 << 10;

global_asm!(
    r#"
    .section .text.head, "ax"
    .globl _start
_start:
    csrw sie, zero
    lla t0, __bss_start
    lla t1, __bss_end
1:  bgeu t0, t1, 2f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 1b
2:  lla t0, probe_trap
    csrw stvec, t0
    lla sp, probe_stacks
    li t0, {stack}
    addi t1, a0, 1
    mul t0, t0, t1
    add sp, sp, t0
    mv tp, a0
    call {first}

    # Each hart begins in its node's copy, without translation: a1 = satp. It goes on at the linked address.
    .globl probe_hart
    .balign 4
probe_hart:
    csrw sie, zero
    sfence.vma
    csrw satp, a1
    sfence.vma
    li t0, {image}
    lla t1, 3f
    lla t2, _start
    sub t1, t1, t2
    add t0, t0, t1
    jr t0
3:  lla t0, probe_trap
    csrw stvec, t0
    lla sp, probe_stacks
    li t0, {stack}
    addi t1, a0, 1
    mul t0, t0, t1
    add sp, sp, t0
    mv tp, a0
    call {hart}

    # Traps of HS-mode: caller-saved registers, then Rust, which may change where the program goes on.
    .balign 4
probe_trap:
    addi sp, sp, -144
    "#,
    rv_frame::save_caller_saved!("sp"),
    r#"
    csrr a0, sepc
    ld a1, 0(sp)
    call {trap}
    csrw sepc, a0
    "#,
    rv_frame::restore_caller_saved!("sp"),
    r#"
    addi sp, sp, 144
    sret

    # run_guest(pc, a0, a1): until it traps for whatever reason. hstatus and sstatus are set.
    .globl run_guest
run_guest:
    addi sp, sp, -112
    sd tp, 0(sp)
    "#,
    rv_frame::save_callee_saved!("sp"),
    r#"
    csrw sscratch, sp
    lla t0, guest_exit
    csrw stvec, t0
    csrw sepc, a0
    mv a0, a1
    mv a1, a2
    sret
    .balign 4
guest_exit:
    csrr sp, sscratch
    lla t0, probe_trap
    csrw stvec, t0
    ld tp, 0(sp)
    "#,
    rv_frame::restore_callee_saved!("sp"),
    r#"
    addi sp, sp, 112
    ret

    # In a guest or in HS-mode: one access to a0; a1 is the value of a store. A guest ends with an ecall.
    .globl access_load, access_store, access_execute
access_load:
    ld a0, 0(a0)
    ret
access_store:
    sd a1, 0(a0)
    ret
access_execute:
    jr a0
    .globl guest_load, guest_store, guest_execute, guest_sweep
guest_load:
    ld a0, 0(a0)
    ecall
guest_store:
    sd a1, 0(a0)
    ecall
guest_execute:
    jalr a0
    ecall
    # A guest that reads and writes for long: a0 = addresses, ended by 0; a1 = rounds.
guest_sweep:
4:  mv t0, a0
5:  ld t1, 0(t0)
    beqz t1, 6f
    ld t2, 0(t1)
    sd t2, 0(t1)
    addi t0, t0, 8
    j 5b
6:  addi a1, a1, -1
    bnez a1, 4b
    ecall

    .section .bss.stacks, "aw", @nobits
    .balign 16
probe_stacks:
    .skip {stacks}
    "#,
    stack = const STACK,
    stacks = const STACK * (MAX_HARTS + 1),
    image = const tables::IMAGE,
    first = sym first,
    hart = sym hart,
    trap = sym access::trap,
);

unsafe extern "C" {
    static __image_start: u8;
    static __image_end: u8;
    fn probe_hart();
}

/// The first hart, without translation, in the image that was loaded: copies it into all nodes and starts all harts there.
extern "C" fn first(own: usize, tree: u64) -> ! {
    // SAFETY: the boot protocol: a1 is a device tree whose header tells its size.
    let tree = unsafe {
        let size = u32::from_be((tree as *const u32).add(1).read());
        core::slice::from_raw_parts(tree as *const u8, size as usize)
    };
    machine::read(tree);
    if !sbi::has_faults() {
        print_at(own, machine::get().nodes[0], format_args!("PROBE FAILED: the firmware has no faults"));
        sbi::shutdown();
    }
    let machine = machine::get();
    survivor::prepare(machine);
    survivor::check_firewall(own);
    let bytes = (&raw const __image_end) as usize - (&raw const __image_start) as usize;
    for memory in &machine.nodes {
        if memory.copy() != tables::IMAGE {
            // SAFETY: the copy's place is memory of its node, 2 MiB of it, that nobody uses; other harts do not run yet.
            unsafe { core::ptr::copy_nonoverlapping(&raw const __image_start, memory.copy() as *mut u8, bytes) };
        }
    }
    machine.nodes.iter().for_each(|memory| tables::build(*memory));
    for (hart, _) in machine.harts.iter().filter(|(hart, _)| *hart != own) {
        let memory = machine.home(*hart);
        let entry = tables::in_copy(probe_hart as *const u8, memory);
        let (error, _) = sbi::start(*hart, entry, tables::registers(memory).0);
        if error != 0 {
            print_at(own, machine.nodes[0], format_args!("PROBE FAILED: hart {hart} does not start: {error}"));
        }
    }
    let memory = machine.home(own);
    let entry = tables::in_copy(probe_hart as *const u8, memory);
    let satp = tables::registers(memory).0;
    // SAFETY: the entry is written for this state, and sets up everything anew.
    unsafe { asm!("jr {0}", in(reg) entry, in("a0") own, in("a1") satp, options(noreturn)) }
}

/// Each hart, in its node's copy.
extern "C" fn hart(own: usize) -> ! {
    survivor::run(own)
}

/// The hart that executes this.
pub fn this_hart() -> usize {
    let hart;
    // SAFETY: `tp` was set at entry and is kept by all code of this program.
    unsafe { asm!("mv {0}, tp", out(reg) hart, options(nomem, nostack)) };
    hart
}

/// A line of text in the making; what does not fit is left out.
struct Line {
    bytes: [u8; 240],
    len: usize,
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }
}

/// Prints a line in one call, so that those of several harts do not mix.
pub fn print_at(_own: usize, memory: NodeMemory, text: core::fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 240], len: 0 };
    let _ = line.write_fmt(text);
    line.bytes[line.len] = b'\n';
    // The line lies on a stack within the image, which is this node's copy once translation is on.
    let at = line.bytes.as_ptr();
    let is_translated = survivor::is_translated();
    let address = if is_translated { tables::in_copy(at, memory) } else { at as u64 };
    sbi::print(address, line.len + 1);
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let own = this_hart();
    print_at(own, machine::get().home(own), format_args!("PROBE FAILED: hart {own}: {info}"));
    loop {
        core::hint::spin_loop();
    }
}
