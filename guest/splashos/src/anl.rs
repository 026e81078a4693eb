//! The C interface: what `anl.h` makes the macros of SPLASH-2 programs (the PARMACS of Argonne National Laboratory) into.
//
// UNSAFETY: functions that C calls, with addresses that C gives.
#![expect(unsafe_code)]

use core::alloc::Layout;
use core::ffi::c_char;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use workloads::Barrier;

use crate::{Mutex, StartError, Vcpus, join, platform, start};

extern crate alloc;

/// Bytes in front of what C allocates, for its size. Keeps the alignment that C expects.
const HEAD: usize = 16;

// `anl.h` says the same.
const _: () = assert!(size_of::<Mutex<()>>() == 4 && size_of::<Barrier>() == 8);

extern "C" fn run(function: usize) {
    // SAFETY: `splash_create` got a function of this type from C.
    let function = unsafe { core::mem::transmute::<usize, extern "C" fn()>(function) };
    function();
}

/// Starts a function as a thread, on the next vCPU that has none; -1 if all have one.
#[unsafe(no_mangle)]
pub extern "C" fn splash_create(function: extern "C" fn()) -> i32 {
    for vcpu in 1..platform::vcpus() {
        match start(vcpu, run, function as usize) {
            Ok(()) => return 0,
            Err(StartError::Busy | StartError::NoVcpu) => {}
        }
    }
    -1
}

/// Waits until all threads are done.
#[unsafe(no_mangle)]
pub extern "C" fn splash_wait_for_end() {
    (1..platform::vcpus()).for_each(join);
}

/// Takes a lock, which begins as zero.
///
/// # Safety
/// `lock` points to a lock that outlives all who use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_lock(lock: *const Mutex<()>) {
    // SAFETY: the caller's promise.
    unsafe { &*lock }.acquire();
}

/// Lets a lock go.
///
/// # Safety
/// As for [`splash_lock`], and the caller holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_unlock(lock: *const Mutex<()>) {
    // SAFETY: the caller's promise.
    unsafe { &*lock }.release();
}

/// Waits until `threads` threads have come to a barrier, which begins as zero.
///
/// # Safety
/// `barrier` points to a barrier that outlives all who use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_barrier(barrier: *const Barrier, threads: usize) {
    // SAFETY: the caller's promise.
    unsafe { &*barrier }.wait(&Vcpus::party(threads));
}

/// Sets a flag, and wakes who waits for it; or clears it.
///
/// # Safety
/// `flag` points to a word that outlives all who use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_flag_set(flag: *const AtomicU32, value: u32) {
    // SAFETY: the caller's promise.
    let flag = unsafe { &*flag };
    flag.store(value, Ordering::Release);
    platform::wake_all(flag);
}

/// Waits until a flag is set.
///
/// # Safety
/// As for [`splash_flag_set`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_flag_wait(flag: *const AtomicU32) {
    // SAFETY: the caller's promise.
    let flag = unsafe { &*flag };
    while flag.load(Ordering::Acquire) == 0 {
        platform::sleep_while(flag, 0);
    }
}

/// The next number of a counter, from 0 up to `last`; -1 behind it.
///
/// # Safety
/// `counter` points to a word, 0 at first, that outlives all who use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_next(counter: *const AtomicUsize, last: usize) -> isize {
    // SAFETY: the caller's promise. Relaxed: nothing but numbers is shared.
    let number = unsafe { &*counter }.fetch_add(1, Ordering::Relaxed);
    if number <= last { number as isize } else { -1 }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(HEAD)?, HEAD).ok()
}

/// Memory, zero, shared by all threads; null if there is none. It gets its node by the first touch.
#[unsafe(no_mangle)]
pub extern "C" fn splash_alloc(bytes: usize) -> *mut u8 {
    let Some(layout) = layout(bytes) else { return core::ptr::null_mut() };
    // SAFETY: the layout has a size; its beginning holds a number.
    unsafe {
        let place = alloc::alloc::alloc_zeroed(layout);
        if place.is_null() {
            return place;
        }
        place.cast::<usize>().write(bytes);
        place.add(HEAD)
    }
}

/// Gives memory back.
///
/// # Safety
/// `place` is null or comes from [`splash_alloc`], and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_free(place: *mut u8) {
    if place.is_null() {
        return;
    }
    // SAFETY: what `splash_alloc` wrote is in front of it.
    unsafe {
        let place = place.sub(HEAD);
        if let Some(layout) = layout(place.cast::<usize>().read()) {
            alloc::alloc::dealloc(place, layout);
        }
    }
}

/// Nanoseconds of the clock.
#[unsafe(no_mangle)]
pub extern "C" fn splash_now_ns() -> u64 {
    platform::now_ns()
}

/// How many threads there can be, the first among them.
#[unsafe(no_mangle)]
pub extern "C" fn splash_threads() -> usize {
    platform::vcpus()
}

/// Writes to the console; what is not UTF-8 becomes question marks.
///
/// # Safety
/// `text` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splash_write(text: *const c_char, bytes: usize) {
    // SAFETY: the caller's promise.
    let text = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    match core::str::from_utf8(text) {
        Ok(text) => platform::write_fmt(format_args!("{text}")),
        Err(_) => text.iter().for_each(|byte| {
            let shown = if byte.is_ascii() { char::from(*byte) } else { '?' };
            platform::write_fmt(format_args!("{shown}"));
        }),
    }
}
