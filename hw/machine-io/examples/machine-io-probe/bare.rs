//! The bare machine: entry, SBI, a heap that only grows, identity mapping.
//
// UNSAFETY: start-up code and calls into the firmware exist only as assembly; the heap is a static block of memory.
#![expect(unsafe_code)]

use core::{
    alloc::{GlobalAlloc, Layout},
    arch::{asm, global_asm},
    cell::UnsafeCell,
    fmt::{self, Write},
    panic::PanicInfo,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

use addr::MachineAddr;
use machine_io::Platform;
use machine_tree::AddressRange;

global_asm!(
    ".section .text.entry",
    ".globl entry",
    "entry:",
    "csrw satp, zero",
    "la t0, trapped",
    "csrw stvec, t0",
    "la sp, stack_top",
    "la t0, bss_start",
    "la t1, bss_end",
    "1: sd zero, 0(t0)",
    "addi t0, t0, 8",
    "bltu t0, t1, 1b",
    "call main_on_hart",
    ".balign 4",
    "trapped:",
    "csrr a0, scause",
    "csrr a1, sepc",
    "csrr a2, stval",
    "call trapped_on_hart",
);

#[unsafe(no_mangle)]
extern "C" fn main_on_hart(hart: u64, tree: *const u8) -> ! {
    // SAFETY: the firmware passes the address of a flattened device tree; its header says how long it is, and nobody
    // writes it.
    let blob = unsafe {
        let bytes = u32::from_be_bytes(tree.add(4).cast::<[u8; 4]>().read());
        core::slice::from_raw_parts(tree, bytes as usize)
    };
    let passed = crate::checks::run(hart, blob);
    print(format_args!("{}\n", if passed { "probe passed" } else { "probe FAILED" }));
    shut_down()
}

#[unsafe(no_mangle)]
extern "C" fn trapped_on_hart(cause: u64, at: u64, value: u64) -> ! {
    print(format_args!("trap: cause {cause:#x} at {at:#x}, value {value:#x}\nprobe FAILED\n"));
    shut_down()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    print(format_args!("{info}\nprobe FAILED\n"));
    shut_down()
}

fn sbi(extension: usize, function: usize, arguments: [usize; 3]) {
    // SAFETY: calls of the console and reset extensions read memory at most; the firmware keeps all registers but the
    // two results.
    unsafe {
        asm!("ecall", inlateout("a0") arguments[0] => _, inlateout("a1") arguments[1] => _, in("a2") arguments[2],
            in("a6") function, in("a7") extension);
    }
}

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        sbi(0x4442_434e, 0, [text.len(), text.as_ptr() as usize, 0]);
        Ok(())
    }
}

/// Prints through the firmware.
pub fn print(what: fmt::Arguments<'_>) {
    let _ = Console.write_fmt(what);
}

fn shut_down() -> ! {
    sbi(0x5352_5354, 0, [0, 0, 0]);
    loop {
        core::hint::spin_loop();
    }
}

/// Ticks since some moment.
pub fn now() -> u64 {
    let time;
    // SAFETY: reads a counter.
    unsafe { asm!("rdtime {}", out(reg) time) }
    time
}

/// Whether the supervisor external interrupt is pending.
pub fn external_pending() -> bool {
    let pending: u64;
    // SAFETY: reads a register.
    unsafe { asm!("csrr {}, sip", out(reg) pending) }
    pending & 1 << 9 != 0
}

/// Waits for an interrupt that is enabled in `sie`; none is taken because `sstatus.SIE` is off.
pub fn enable_external() {
    // SAFETY: with `sstatus.SIE` off this only says what is worth waking up for.
    unsafe { asm!("csrc sstatus, {}", "csrs sie, {}", in(reg) 2_u64, in(reg) 1_u64 << 9) }
}

const HEAP_BYTES: usize = 16 << 20;

#[repr(C, align(4096))]
struct Heap {
    memory: UnsafeCell<[u8; HEAP_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: every byte is handed out once, by an atomic counter.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap { memory: UnsafeCell::new([0; HEAP_BYTES]), used: AtomicUsize::new(0) };

// SAFETY: the block is aligned to a page, positions are rounded up to the layout's alignment, and nothing is given
// out twice or beyond the end.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let take = |used: usize| {
            let end = used.checked_next_multiple_of(layout.align())?.checked_add(layout.size())?;
            (end <= HEAP_BYTES && layout.align() <= 4096).then_some(end)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            // SAFETY: inside the block.
            Ok(used) => unsafe { self.memory.get().cast::<u8>().add(used.next_multiple_of(layout.align())) },
            Err(_) => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}

/// Identity mapping: machine addresses are addresses.
pub struct Identity;

// SAFETY: 1. fresh zeroed pages of the heap, never given out again. 2. translation is off, so every device is where it
// is. 3. the emulated machine has coherent DMA and no IOMMU in front of its devices.
unsafe impl Platform for Identity {
    fn allocate(pages: usize) -> Option<(MachineAddr, NonNull<u8>)> {
        let layout = Layout::from_size_align(pages * 4096, 4096).ok()?;
        // SAFETY: the layout is not empty; the heap was zeroed and never reuses memory.
        let memory = NonNull::new(unsafe { HEAP.alloc(layout) })?;
        Some((MachineAddr::new(memory.as_ptr().expose_provenance() as u64), memory))
    }

    fn map_device(range: AddressRange) -> Option<NonNull<u8>> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(range.start().raw() as usize))
    }
}
