//! What the model needs of QEMU beyond the plugin API: the virtual clock, the big lock, leaving a hart, RAM.
//!
//! QEMU exports these functions for its own modules. They are looked up by name, and the two slots of the clock are
//! found beside a function that is known; whatever looks otherwise than in the QEMU that the model knows is refused.
//
// UNSAFETY: C functions by name, with the types that QEMU 10.0 declares them with.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `QEMU_CLOCK_VIRTUAL`.
const VIRTUAL: c_int = 1;
/// `QEMU_TIMER_ATTR_ALL`.
const ALL_TIMERS: c_int = -1;
/// `CF_PARALLEL` (`exec/translation-block.h`). Without it QEMU 10.0 takes every hart for the first one when it
/// translates counts for one thread.
const CF_PARALLEL: u32 = 0x8000;
/// How many words of the accelerator's table are looked through for its clock.
const SLOTS: usize = 40;

/// `VersionInfo` of QEMU's machine protocol.
#[repr(C)]
struct Version {
    numbers: *const [i64; 3],
    package: *const c_char,
}

/// A hart, as QEMU knows it (`CPUState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu(*mut c_void);

/// Called with a hart and a number, outside of translated code and with the big lock held.
pub type Work = extern "C" fn(*mut c_void, usize);

macro_rules! hooks {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions.
        #[derive(Clone, Copy)]
        pub struct Hooks {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Hooks {
            /// Looks all of them up.
            ///
            /// # Errors
            /// The name of the first one that is missing.
            pub fn find() -> Result<Self, &'static str> {
                $(let $name = {
                    let name = concat!(stringify!($name), "\0");
                    let found = symbol(name).ok_or(stringify!($name))?;
                    // SAFETY: QEMU 10.0 has a function of this name and type; `find` is called for that one only.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                };)*
                Ok(Self { $($name,)* })
            }
        }
    };
}

hooks! {
    qmp_query_version: fn(*mut *mut c_void) -> *mut Version;
    qemu_get_cpu: fn(c_int) -> *mut c_void;
    tcg_cflags_set: fn(*mut c_void, u32);
    cpu_exit: fn(*mut c_void);
    cpu_loop_exit: fn(*mut c_void);
    async_run_on_cpu: fn(*mut c_void, Work, usize);
    tb_flush: fn(*mut c_void);
    all_cpu_threads_idle: fn() -> bool;
    bql_locked: fn() -> bool;
    bql_lock_impl: fn(*const c_char, c_int);
    bql_unlock: fn();
    qemu_notify_event: fn();
    qemu_clock_deadline_ns_all: fn(c_int, c_int) -> i64;
    qemu_clock_advance_virtual_time: fn(i64) -> i64;
    cpus_get_accel: fn() -> *mut *mut c_void;
    tcg_handle_interrupt: fn(*mut c_void, c_int);
    cpu_physical_memory_map: fn(u64, *mut u64, bool) -> *mut c_void;
}

impl Hooks {
    /// The emulator's version, and whose build it is.
    pub fn version(&self) -> ([i64; 3], String) {
        // SAFETY: QEMU makes a record of this shape, which is never freed here.
        unsafe {
            let version = &*(self.qmp_query_version)(std::ptr::null_mut());
            (*version.numbers, CStr::from_ptr(version.package).to_string_lossy().into_owned())
        }
    }

    /// The hart of this index.
    pub fn cpu(&self, index: usize) -> Cpu {
        // SAFETY: QEMU gives null for one that does not exist.
        Cpu(unsafe { (self.qemu_get_cpu)(index as c_int) })
    }

    /// Has the hart's code translated as if harts ran in parallel: see [`CF_PARALLEL`]. A single hart is faster without.
    pub fn translate_in_parallel(&self, cpu: Cpu) {
        // SAFETY: called when the hart begins, before it translates anything.
        unsafe { (self.tcg_cflags_set)(cpu.0, CF_PARALLEL) };
    }

    /// Leaves the hart's turn before the block that is about to run: does not return.
    pub fn leave(&self, cpu: Cpu) {
        // SAFETY: called by this hart, at the start of a block, where its registers are all in memory: QEMU does the
        // same when a helper raises an exception. No frame that is jumped over has anything to drop.
        unsafe {
            (self.cpu_exit)(cpu.0);
            (self.cpu_loop_exit)(cpu.0);
        }
    }

    /// Calls `work` soon, see [`Work`].
    pub fn later(&self, cpu: Cpu, work: Work, data: usize) {
        // SAFETY: the function lives as long as the plugin; the data is a number that fits QEMU's union.
        unsafe { (self.async_run_on_cpu)(cpu.0, work, data) };
    }

    /// Has everything translated anew.
    pub fn flush(&self, cpu: Cpu) {
        // SAFETY: as QEMU's own callers: from a hart's thread.
        unsafe { (self.tb_flush)(cpu.0) };
    }

    /// Whether no hart has anything to do. The big lock is held.
    pub fn all_idle(&self) -> bool {
        // SAFETY: as said.
        unsafe { (self.all_cpu_threads_idle)() }
    }

    /// Whether this thread has the big lock.
    pub fn is_locked(&self) -> bool {
        // SAFETY: asks a variable of the thread.
        unsafe { (self.bql_locked)() }
    }

    /// Runs `act` with the big lock, which this thread does not have.
    pub fn locked<R>(&self, act: impl FnOnce() -> R) -> R {
        // SAFETY: harts take the lock in the same way for each access to a device.
        unsafe { (self.bql_lock_impl)(c"numa-plugin".as_ptr(), 0) };
        let result = act();
        // SAFETY: taken above.
        unsafe { (self.bql_unlock)() };
        result
    }

    /// Lets others have the big lock while `act` runs; called outside of translated code only.
    pub fn unlocked(&self, act: impl FnOnce()) {
        // SAFETY: the lock is held, as in every work item.
        unsafe { (self.bql_unlock)() };
        act();
        // SAFETY: released above.
        unsafe { (self.bql_lock_impl)(c"numa-plugin".as_ptr(), 0) };
    }

    /// Has the main loop look for input.
    pub fn wake_main_loop(&self) {
        // SAFETY: may be called from everywhere.
        unsafe { (self.qemu_notify_event)() };
    }

    /// Nanoseconds to the next timer of the virtual clock.
    pub fn next_timer_ns(&self) -> Option<u64> {
        // SAFETY: takes the locks that it needs.
        u64::try_from(unsafe { (self.qemu_clock_deadline_ns_all)(VIRTUAL, ALL_TIMERS) }).ok()
    }

    /// Moves the virtual clock and runs the timers that are due on the way, each at its time. The big lock is held.
    pub fn run_timers(&self, to_ns: i64) {
        // SAFETY: as said.
        unsafe { (self.qemu_clock_advance_virtual_time)(to_ns) };
    }

    /// Where in this process `bytes` of the machine's RAM are.
    pub fn ram(&self, addr: u64, bytes: u64) -> Option<Range<usize>> {
        let mut len = bytes;
        // SAFETY: a direct mapping of RAM stays for as long as the machine; nothing is written through it.
        let start = unsafe { (self.cpu_physical_memory_map)(addr, &raw mut len, false) };
        (!start.is_null() && len == bytes).then(|| start.addr()..start.addr() + bytes as usize)
    }

    /// Puts our functions in the place of the virtual clock.
    ///
    /// # Errors
    /// What does not look as it should.
    pub fn take_clock(&self, get: extern "C" fn() -> i64, set: extern "C" fn(i64)) -> Result<(), &'static str> {
        // SAFETY: a getter.
        let table = unsafe { (self.cpus_get_accel)() };
        if table.is_null() {
            return Err("there is no accelerator");
        }
        let known = self.tcg_handle_interrupt as *mut c_void;
        // SAFETY: the table has some 25 words, and what follows it in the same allocation or page is readable; only
        // words up to the known one, which is in it, are looked at if it is there. The two after it are the clock's.
        unsafe {
            let at = (0..SLOTS).find(|at| *table.add(*at) == known);
            let at = at.ok_or("the accelerator is not TCG without -icount")?;
            let (get_slot, set_slot) = (table.add(at + 1), table.add(at + 2));
            if !(*get_slot).is_null() || !(*set_slot).is_null() {
                return Err("the virtual clock is already somebody else's");
            }
            // The clock may be read at any moment by the main loop: the setter is of no use to it alone.
            AtomicPtr::from_ptr(set_slot).store(set as *mut c_void, Ordering::Release);
            AtomicPtr::from_ptr(get_slot).store(get as *mut c_void, Ordering::Release);
        }
        Ok(())
    }
}

/// Reads a word of RAM that the machine may be writing.
pub fn read_ram(at: usize) -> u64 {
    // SAFETY: the caller has checked that `at` is a multiple of 8 in a range that `Hooks::ram` gave.
    unsafe { std::ptr::with_exposed_provenance::<u64>(at).read_volatile() }
}

fn symbol(name: &str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: a lookup by name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
