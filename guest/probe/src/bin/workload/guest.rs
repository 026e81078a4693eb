//! The program.
//
// UNSAFETY: system calls by hand, and the entry of a program without a C library.
#![expect(unsafe_code)]

use core::arch::{asm, global_asm};

global_asm!(
    ".globl _start",
    "_start: mv a0, sp",
    "andi sp, sp, -16",
    "call {main}",
    "ebreak",
    main = sym main,
);

/// Seconds after which the kernel has nothing more to do of its own.
const SETTLE_S: usize = 5;

/// Linux system calls for RISC-V.
mod number {
    pub const PIPE2: usize = 59;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const EXIT: usize = 93;
    pub const NANOSLEEP: usize = 101;
    pub const SCHED_YIELD: usize = 124;
    pub const REBOOT: usize = 142;
    pub const GETPPID: usize = 173;
    pub const MUNMAP: usize = 215;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const MMAP: usize = 222;
    pub const WAIT4: usize = 260;
}

fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the callers below pass memory of their own that lives during the call, or none.
    unsafe {
        asm!("ecall", inlateout("a0") a => result, in("a1") b, in("a2") c, in("a3") d, in("a4") e, in("a5") f,
            in("a7") number, options(nostack));
    }
    result
}

fn call1(number: usize, argument: usize) -> isize {
    call(number, [argument, 0, 0, 0, 0, 0])
}

macro_rules! mark {
    ($n:literal) => {
        // SAFETY: does nothing.
        unsafe { asm!(concat!("slti x0, x0, ", $n), options(nomem, nostack)) }
    };
}

extern "C" fn main(stack: *const usize) -> ! {
    // SAFETY: the kernel puts the number of arguments on top of the stack.
    if unsafe { *stack } > 1 {
        // Started again by the fork + exec workload.
        exit(0);
    }
    mark!(1);
    let scale = scale(stack).max(1);
    print(b"WORKLOAD begins\n");
    // What the kernel still does in the background would count for whoever runs then.
    sleep(SETTLE_S, 0);
    mark!(2);
    compute(40_000_000 / scale);
    mark!(3);
    mark!(4);
    repeat(20_000 / scale, || drop_result(call1(number::GETPPID, 0)));
    mark!(5);
    let pipe = pipe();
    mark!(6);
    repeat(10_000 / scale, || through(pipe));
    mark!(7);
    // Where the kernel puts a new program is random, and so is how many tables it needs: many, for a mean that repeats.
    repeat(20, || drop_result(wait_for(fork(exec_self))));
    mark!(8);
    repeat(1_000 / scale, || drop_result(wait_for(fork(|| exit(0)))));
    mark!(9);
    mark!(10);
    repeat(1_000 / scale, || drop_result(wait_for(fork(exec_self))));
    mark!(11);
    mark!(12);
    repeat(8, || touch(16 << 20));
    mark!(13);
    mark!(14);
    repeat(20_000 / scale, || drop_result(call1(number::SCHED_YIELD, 0)));
    mark!(15);
    mark!(16);
    repeat(1_000 / scale, || sleep(0, 50_000));
    mark!(17);
    mark!(18);
    let compiled = wait_for(fork(exec_compile));
    mark!(19);
    if compiled != 0 {
        print(b"WORKLOAD compile failed\n");
    }
    print(b"WORKLOAD done\n");
    power_off()
}

const fn drop_result(_: isize) {}

fn repeat(count: usize, act: impl Fn()) {
    for _ in 0..count {
        act();
    }
}

/// The value of `scale=` in the environment, which lies behind the arguments.
fn scale(stack: *const usize) -> usize {
    // SAFETY: argc, argv, 0, envp, 0, as the kernel lays them out; strings end with 0.
    unsafe {
        let mut at = stack.add(*stack + 2);
        while *at != 0 {
            let text = core::ffi::CStr::from_ptr(*at as *const _).to_bytes();
            if let Some(digits) = text.strip_prefix(b"scale=") {
                return digits.iter().fold(0, |value, digit| value * 10 + usize::from(digit.wrapping_sub(b'0')));
            }
            at = at.add(1);
        }
    }
    1
}

fn print(text: &[u8]) {
    call(number::WRITE, [1, text.as_ptr() as usize, text.len(), 0, 0, 0]);
}

/// About `count` instructions of arithmetic over 64 KiB.
fn compute(count: usize) {
    const WORDS: usize = 8192;
    let mut table = [0_u64; WORDS];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..count / 12 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let slot = &mut table[(state >> 20) as usize % WORDS];
        *slot = slot.wrapping_add(state);
    }
    core::hint::black_box(&table);
}

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    call(number::PIPE2, [ends.as_mut_ptr() as usize, 0, 0, 0, 0, 0]);
    ends
}

fn through([out, into]: [i32; 2]) {
    let mut byte = 7_u8;
    call(number::WRITE, [into as usize, &raw const byte as usize, 1, 0, 0, 0]);
    call(number::READ, [out as usize, &raw mut byte as usize, 1, 0, 0, 0]);
}

fn fork(child: fn() -> !) -> isize {
    const SIGCHLD: usize = 17;
    match call1(number::CLONE, SIGCHLD) {
        0 => child(),
        id => id,
    }
}

/// Waits for a child; its status.
fn wait_for(child: isize) -> isize {
    let mut status = 0_i32;
    call(number::WAIT4, [child.cast_unsigned(), &raw mut status as usize, 0, 0, 0, 0]);
    status as isize
}

fn exec(path: &core::ffi::CStr, arguments: &[*const core::ffi::c_char]) -> ! {
    let environment = [core::ptr::null::<core::ffi::c_char>()];
    let pointers = [path.as_ptr() as usize, arguments.as_ptr() as usize, environment.as_ptr() as usize];
    call(number::EXECVE, [pointers[0], pointers[1], pointers[2], 0, 0, 0]);
    exit(127)
}

fn exec_self() -> ! {
    exec(c"/init", &[c"/init".as_ptr(), c"again".as_ptr(), core::ptr::null()])
}

fn exec_compile() -> ! {
    let words = [c"/compile", c"-quiet", c"-fpreprocessed", c"-O2", c"/source.c", c"-o", c"/source.s"];
    let mut arguments = [core::ptr::null(); 8];
    for (slot, word) in arguments.iter_mut().zip(words) {
        *slot = word.as_ptr();
    }
    exec(c"/compile", &arguments)
}

fn touch(bytes: usize) {
    const READ_AND_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    let none = usize::MAX;
    let base = call(number::MMAP, [0, bytes, READ_AND_WRITE, PRIVATE_ANONYMOUS, none, 0]).cast_unsigned();
    for page in (base..base + bytes).step_by(4096) {
        // SAFETY: the mapping was just made; if it failed the program ends here, which the marks show.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
    call(number::MUNMAP, [base, bytes, 0, 0, 0, 0]);
}

fn sleep(seconds: usize, nanoseconds: usize) {
    let time = [seconds, nanoseconds];
    call(number::NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]);
}

fn exit(status: usize) -> ! {
    loop {
        call1(number::EXIT, status);
    }
}

fn power_off() -> ! {
    call(number::REBOOT, [0xfee1_dead, 672_274_793, 0x4321_fedc, 0, 0, 0]);
    exit(1)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    print(b"WORKLOAD panicked\n");
    power_off()
}
