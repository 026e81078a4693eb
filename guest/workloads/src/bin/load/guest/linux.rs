//! Linux, as far as the workloads use it: system calls for RISC-V, the entry, processes and threads.
//
// UNSAFETY: system calls and the entry of a program are made by hand, because there is no C library here.
#![expect(unsafe_code)]

use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use workloads::web::Connection;

use super::output::print;

global_asm!(
    ".globl _start",
    "_start: mv a0, sp",
    "andi sp, sp, -16",
    "call {entry}",
    "ebreak",
    entry = sym entry,
);

/// System calls by number.
mod number {
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const PIPE2: usize = 59;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const FTRUNCATE: usize = 46;
    pub const EXIT: usize = 93;
    pub const EXIT_GROUP: usize = 94;
    pub const FUTEX: usize = 98;
    pub const NANOSLEEP: usize = 101;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_SETAFFINITY: usize = 122;
    pub const SCHED_YIELD: usize = 124;
    pub const GETPPID: usize = 173;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const MUNMAP: usize = 215;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MADVISE: usize = 233;
    pub const WAIT4: usize = 260;
}

const PAGE: usize = 4096;
const STACK: usize = 256 << 10;
const SIGCHLD: usize = 17;

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

fn call3(number: usize, [a, b, c]: [usize; 3]) -> isize {
    call(number, [a, b, c, 0, 0, 0])
}

/// Sets a mark for the emulator.
pub fn mark<const N: u16>() {
    // SAFETY: writes to x0, which does nothing. The clobbered memory keeps work from being moved across it.
    unsafe { asm!("slti x0, x0, {n}", n = const N, options(nostack)) }
}

/// Tells a machine model that the kernel takes and waits for its locks from one address up to another.
pub fn mark_lock_code(from: usize, to: usize) {
    // SAFETY: as above; the model reads the two registers.
    unsafe { asm!("slti x0, x0, {n}", n = const model_file::hint::LOCKS, in("a0") from, in("a1") to, options(nostack)) }
}

/// What the program was started with.
pub struct Arguments {
    stack: *const usize,
}

impl Arguments {
    /// The words, the program's name first. Those that are not UTF-8 are empty.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        // SAFETY: the kernel puts the number of arguments on top of the stack.
        let count = unsafe { *self.stack };
        (0..count).map(|index| {
            // SAFETY: their addresses follow; strings end with 0 and stay for as long as the program.
            let word = unsafe { CStr::from_ptr(*self.stack.add(1 + index) as *const c_char) };
            word.to_str().unwrap_or_default()
        })
    }

    /// Becomes the program named by word `from`, with that and the words behind it, found in `/bin` if it has no folder.
    /// Returns if that cannot be.
    pub fn execute(&self, from: usize) {
        let Some(word) = self.words().nth(from) else { return };
        let mut path = [0_u8; 256];
        let folder = if word.contains('/') { "" } else { "/bin/" };
        if folder.len() + word.len() >= path.len() {
            return;
        }
        for (to, byte) in path.iter_mut().zip(folder.bytes().chain(word.bytes())) {
            *to = byte;
        }
        // SAFETY: within what `words` may look at; behind the arguments there is a 0 and then the environment.
        let (arguments, environment) = unsafe { (self.stack.add(1 + from), self.stack.add(1 + *self.stack + 1)) };
        call3(number::EXECVE, [path.as_ptr() as usize, arguments as usize, environment as usize]);
    }

    /// Becomes a program: its path and one word. Returns if that cannot be.
    pub fn execute_words(words: &[&CStr; 2]) {
        let pointers = [words[0].as_ptr() as usize, words[1].as_ptr() as usize, 0];
        // An empty environment is the list's last entry alone.
        call3(number::EXECVE, [pointers[0], pointers.as_ptr() as usize, (&raw const pointers[2]) as usize]);
    }
}

extern "C" fn entry(stack: *const usize) -> ! {
    exit(super::main(Arguments { stack }))
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    loop {
        call3(number::EXIT_GROUP, [status as usize, 0, 0]);
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    print!("load: {info}\n");
    exit(101)
}

/// Writes bytes; what cannot be written is lost.
pub fn write(file: usize, bytes: &[u8]) -> bool {
    call3(number::WRITE, [file, bytes.as_ptr() as usize, bytes.len()]) == bytes.len() as isize
}

/// Reads as much as fits.
pub fn read(file: usize, bytes: &mut [u8]) -> bool {
    call3(number::READ, [file, bytes.as_mut_ptr() as usize, bytes.len()]) == bytes.len() as isize
}

/// Reads as much as there is, up to the buffer's length; 0 at the end, and if it cannot be read.
pub fn read_some(file: usize, bytes: &mut [u8]) -> usize {
    let count = call3(number::READ, [file, bytes.as_mut_ptr() as usize, bytes.len()]);
    usize::try_from(count).map_or(0, |count| count.min(bytes.len()))
}

/// Time since the guest was started.
pub fn nanoseconds() -> u64 {
    let mut time = [0_u64; 2];
    const MONOTONIC: usize = 1;
    call3(number::CLOCK_GETTIME, [MONOTONIC, time.as_mut_ptr() as usize, 0]);
    time[0] * 1_000_000_000 + time[1]
}

/// The machine's clock: the same in all guests of a machine.
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter that Linux lets programs read.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) }
    ticks
}

/// The parent's number.
pub fn parent() -> isize {
    call3(number::GETPPID, [0; 3])
}

/// The calling thread stays on CPU `cpu`. Where there is no such CPU it stays where it is.
pub fn pin(cpu: usize) {
    let mut mask = [0_u64; 8];
    if let Some(word) = mask.get_mut(cpu / 64) {
        *word = 1 << (cpu % 64);
        call3(number::SCHED_SETAFFINITY, [0, size_of_val(&mask), mask.as_ptr() as usize]);
    }
}

/// Lets others run.
pub fn give_way() {
    call3(number::SCHED_YIELD, [0; 3]);
}

/// Sleeps.
pub fn sleep(nanoseconds: usize) {
    let time = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    call3(number::NANOSLEEP, [time.as_ptr() as usize, 0, 0]);
}

/// Opens a file to read and write; `flags` are Linux's further ones.
pub fn open(path: &CStr, flags: usize) -> Option<usize> {
    const HERE: isize = -100;
    const READ_WRITE: usize = 2;
    let file = call(number::OPENAT, [HERE as usize, path.as_ptr() as usize, READ_WRITE | flags, 0o600, 0, 0]);
    usize::try_from(file).ok()
}

/// Opens a file to read.
pub fn open_to_read(path: &CStr) -> Option<usize> {
    const HERE: isize = -100;
    let file = call(number::OPENAT, [HERE as usize, path.as_ptr() as usize, 0, 0, 0, 0]);
    usize::try_from(file).ok()
}

/// [`open`]'s flag for a file that need not exist.
pub const CREATE: usize = 0o100;

/// Closes a file.
pub fn close(file: usize) {
    call3(number::CLOSE, [file, 0, 0]);
}

/// Makes a file so long.
pub fn resize(file: usize, bytes: usize) -> bool {
    call3(number::FTRUNCATE, [file, bytes, 0]) == 0
}

/// A pipe: where to read, where to write.
pub fn pipe() -> Option<(usize, usize)> {
    let mut files = [0_i32; 2];
    let status = call3(number::PIPE2, [files.as_mut_ptr() as usize, 0, 0]);
    (status == 0).then_some((files[0] as usize, files[1] as usize))
}

/// A connection to the server at port 80 of 127.0.0.1.
pub struct Socket {
    file: usize,
}

/// Connects to the server.
pub fn connect() -> Option<Socket> {
    const INTERNET: usize = 2;
    const STREAM: usize = 1;
    let file = usize::try_from(call3(number::SOCKET, [INTERNET, STREAM, 0])).ok()?;
    // Family in the machine's order, port and address in the network's.
    let address: [u8; 16] = [INTERNET as u8, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let socket = Socket { file };
    (call3(number::CONNECT, [file, address.as_ptr() as usize, address.len()]) == 0).then_some(socket)
}

impl Connection for Socket {
    fn send(&mut self, bytes: &[u8]) -> bool {
        write(self.file, bytes)
    }

    fn receive(&mut self, to: &mut [u8]) -> usize {
        let count = call3(number::READ, [self.file, to.as_mut_ptr() as usize, to.len()]);
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        close(self.file);
    }
}

const READ_AND_WRITE: usize = 3;

fn map_with(bytes: usize, flags: usize, file: usize) -> Option<usize> {
    let address = call(number::MMAP, [0, bytes, READ_AND_WRITE, flags, file, 0]);
    // Errors are small negative numbers.
    (address > 0).then_some(address as usize)
}

/// Fresh memory, zero, at the beginning of a page.
pub fn map(bytes: usize) -> Option<usize> {
    const PRIVATE_ANONYMOUS: usize = 0x22;
    map_with(bytes, PRIVATE_ANONYMOUS, usize::MAX)
}

/// A file's beginning as memory.
pub fn map_file(file: usize, bytes: usize) -> Option<usize> {
    const SHARED: usize = 1;
    map_with(bytes, SHARED, file)
}

/// Takes memory back. Nobody may use it any more.
pub fn unmap(address: usize, bytes: usize) -> bool {
    call3(number::MUNMAP, [address, bytes, 0]) == 0
}

/// Takes the right to write away, or gives it back.
pub fn protect(address: usize, bytes: usize, writable: bool) -> bool {
    call3(number::MPROTECT, [address, bytes, if writable { READ_AND_WRITE } else { 1 }]) == 0
}

/// Asks for huge pages in a mapping, or for none.
pub fn advise_huge(address: usize, bytes: usize, huge: bool) -> bool {
    const HUGE: usize = 14;
    const NO_HUGE: usize = 15;
    call3(number::MADVISE, [address, bytes, if huge { HUGE } else { NO_HUGE }]) == 0
}

/// Writes one word into each page of a mapping of this process.
pub fn touch(address: usize, bytes: usize, value: u64) {
    for place in (address..address + bytes).step_by(PAGE) {
        // SAFETY: the caller mapped this range to read and write, and no Rust object lies in it.
        unsafe { (place as *mut u64).write_volatile(value) };
    }
}

/// The sum of the first words of all pages of a mapping of this process.
pub fn sum(address: usize, bytes: usize) -> u64 {
    let places = (address..address + bytes).step_by(PAGE);
    // SAFETY: as in `touch`.
    places.fold(0, |sum: u64, place| sum.wrapping_add(unsafe { (place as *const u64).read_volatile() }))
}

/// A word that this process shares with those that it forks; 0 at first.
pub fn shared_word() -> Option<&'static AtomicU64> {
    const SHARED_ANONYMOUS: usize = 0x21;
    let address = map_with(PAGE, SHARED_ANONYMOUS, usize::MAX)?;
    // SAFETY: fresh memory, aligned, never taken back, and only ever used as this type.
    Some(unsafe { &*(address as *const AtomicU64) })
}

/// A process that this one forked.
pub struct Child {
    number: isize,
}

/// Runs `work` in a copy of this process; what it gives is the copy's exit status.
pub fn fork(work: impl FnOnce() -> i32) -> Result<Child, &'static str> {
    match call(number::CLONE, [SIGCHLD, 0, 0, 0, 0, 0]) {
        0 => exit(work()),
        number if number > 0 => Ok(Child { number }),
        _ => Err("no process can be made"),
    }
}

impl Child {
    /// Waits for its end; gives its exit status, or 255 if it died.
    pub fn wait(self) -> i32 {
        let mut status = 0_i32;
        let ended = call(number::WAIT4, [self.number as usize, (&raw mut status) as usize, 0, 0, 0, 0]);
        if ended == self.number && status & 0x7f == 0 { status >> 8 & 0xff } else { 255 }
    }
}

/// Sleeps while `word` has this value; may return early.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    call(number::FUTEX, [core::ptr::from_ref(word) as usize, 0, value as usize, 0, 0, 0]);
}

/// Wakes as many as `count` of those who sleep on `word`.
pub fn futex_wake(word: &AtomicU32, count: usize) {
    call3(number::FUTEX, [core::ptr::from_ref(word) as usize, 1, count]);
}

/// A thread; dropped, it is waited for.
pub struct Thread<'a> {
    /// Beginning of its stack: first of all the word that the kernel clears at its end.
    stack: usize,
    work: PhantomData<&'a ()>,
}

/// Starts a thread.
///
/// # Panics
/// There is no memory, or too many threads: the workload cannot go on.
pub fn spawn<'a, F: Fn() + Sync>(work: &'a F) -> Thread<'a> {
    extern "C" fn run<F: Fn()>(work: *const F) {
        // SAFETY: `spawn` borrows the work for as long as the `Thread` lives, and dropping that waits for the thread.
        unsafe { (*work)() }
    }
    let stack = map(STACK).expect("memory for a thread's stack");
    // SAFETY: the beginning of a fresh mapping.
    unsafe { alive(stack) }.store(1, Ordering::Relaxed);
    // VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, and clear the word `alive` and wake its futex at the end.
    const FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;
    let result: isize;
    // SAFETY: the new thread begins behind the `ecall` with a stack of its own, calls `run`, and ends without coming
    // back; this thread goes on as after any system call. `s` registers hold what the new one needs.
    unsafe {
        asm!(
            "ecall",
            "bnez a0, 2f",
            "mv a0, {work}",
            "jalr {run}",
            "li a0, 0",
            "li a7, {exit}",
            "ecall",
            "2:",
            work = in(reg) core::ptr::from_ref(work),
            run = in(reg) run::<F> as extern "C" fn(*const F),
            exit = const number::EXIT,
            inlateout("a0") FLAGS => result,
            in("a1") stack + STACK,
            in("a2") 0,
            in("a3") 0,
            in("a4") stack,
            in("a7") number::CLONE,
        );
    }
    assert!(result > 0, "no thread can be made");
    Thread { stack, work: PhantomData }
}

/// The word that is 1 while a thread runs.
///
/// # Safety
/// `stack` is the beginning of a mapping that [`spawn`] made and that lives for `'a`.
unsafe fn alive<'a>(stack: usize) -> &'a AtomicU32 {
    // SAFETY: mapped and aligned, and used as nothing else: the stack grows down towards it but never so far.
    unsafe { &*(stack as *const AtomicU32) }
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        // SAFETY: the mapping lives until the end of this function.
        let alive = unsafe { alive(self.stack) };
        // Acquire pairs with the kernel's clearing of the word: all that the thread wrote is seen.
        while alive.load(Ordering::Acquire) != 0 {
            futex_wait(alive, 1);
        }
        unmap(self.stack, STACK);
    }
}
