//! What the plugin API does not give: the virtual clock, and leave to stop a hart. These are functions that Debian's QEMU
//! exports by name, and two slots of the accelerator's table that TCG leaves empty. All of it is checked before it is
//! used: another QEMU is refused, with a reason.
//
// UNSAFETY: functions found by name are called by the signatures that QEMU 10.0 has for them.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use super::api;

/// QEMU's `QEMU_CLOCK_VIRTUAL`.
const VIRTUAL: c_int = 1;
/// All timers, also those that must not move a recorded machine.
const ALL_TIMERS: c_int = -1;
/// QEMU's `CF_PARALLEL`: with one thread for all harts, the inline counts go to the wrong hart without it.
const PARALLEL: u32 = 0x8000;
/// Words of the accelerator's table that are searched.
const TABLE_WORDS: usize = 40;

/// A timer that is further away than this is one that somebody set to the end of time: 34 years.
const NEVER_NS: u64 = 1 << 60;

/// A hart, as QEMU knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu(*mut c_void);

// SAFETY: an address that only QEMU follows, and QEMU's harts are never freed.
unsafe impl Send for Cpu {}
// SAFETY: as above.
unsafe impl Sync for Cpu {}

impl Cpu {
    /// As a number, to be kept in an atomic word.
    pub fn address(self) -> usize {
        self.0.addr()
    }
}

/// When the next timer is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// After so many nanoseconds.
    In(u64),
    /// There is none.
    Never,
}

type Work = extern "C" fn(*mut c_void, u64);

/// QEMU's insides, found and checked.
pub struct Inside {
    get_cpu: extern "C" fn(c_int) -> *mut c_void,
    cpu_exit: extern "C" fn(*mut c_void),
    set_flags: extern "C" fn(*mut c_void, u32),
    async_run: extern "C" fn(*mut c_void, Work, u64),
    deadline: extern "C" fn(c_int, c_int) -> i64,
    advance: extern "C" fn(i64) -> i64,
    all_idle: extern "C" fn() -> bool,
    bql_locked: extern "C" fn() -> bool,
    bql_lock: extern "C" fn(*const c_char, c_int),
    bql_unlock: extern "C" fn(),
    flush: extern "C" fn(*mut c_void),
    notify: extern "C" fn(),
    clock: extern "C" fn() -> i64,
    accelerator: extern "C" fn() -> *mut *mut c_void,
    handle_interrupt: *mut c_void,
}

// SAFETY: addresses of functions.
unsafe impl Send for Inside {}
// SAFETY: as above.
unsafe impl Sync for Inside {}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn find(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: a null handle is glibc's RTLD_DEFAULT; the name is a string.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    if found.is_null() {
        Err(format!("this QEMU has no {}{}", name.to_string_lossy(), crate::KNOWN))
    } else {
        Ok(found)
    }
}

impl Inside {
    /// Finds all that is needed, and takes control of the time.
    ///
    /// # Errors
    /// What this QEMU lacks.
    pub fn find() -> Result<Self, String> {
        // SAFETY: each name is that of a function of QEMU 10.0 with the type of its field; transmute only turns the
        // address into a function pointer.
        let inside = unsafe {
            Self {
                get_cpu: std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> *mut c_void>(find(
                    c"qemu_get_cpu",
                )?),
                cpu_exit: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(find(c"cpu_exit")?),
                set_flags: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void, u32)>(find(
                    c"tcg_cflags_set",
                )?),
                async_run: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void, Work, u64)>(find(
                    c"async_run_on_cpu",
                )?),
                deadline: std::mem::transmute::<*mut c_void, extern "C" fn(c_int, c_int) -> i64>(find(
                    c"qemu_clock_deadline_ns_all",
                )?),
                advance: std::mem::transmute::<*mut c_void, extern "C" fn(i64) -> i64>(find(
                    c"qemu_clock_advance_virtual_time",
                )?),
                all_idle: std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(find(c"all_cpu_threads_idle")?),
                bql_locked: std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(find(c"bql_locked")?),
                bql_lock: std::mem::transmute::<*mut c_void, extern "C" fn(*const c_char, c_int)>(find(
                    c"bql_lock_impl",
                )?),
                bql_unlock: std::mem::transmute::<*mut c_void, extern "C" fn()>(find(c"bql_unlock")?),
                flush: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(find(c"tb_flush")?),
                notify: std::mem::transmute::<*mut c_void, extern "C" fn()>(find(c"qemu_notify_event")?),
                clock: std::mem::transmute::<*mut c_void, extern "C" fn() -> i64>(find(c"cpu_get_clock")?),
                accelerator: std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut *mut c_void>(find(
                    c"cpus_get_accel",
                )?),
                handle_interrupt: find(c"tcg_handle_interrupt")?,
            }
        };
        find(c"current_cpu")?;
        if api::take_time_control() { Ok(inside) } else { Err("another plugin makes the time already".into()) }
    }

    /// Puts our clock in the place of QEMU's. Call once, on a hart's thread, before the machine runs.
    ///
    /// # Errors
    /// The table does not look as that of QEMU 10.0 with `-accel tcg,thread=single`, or the clock runs already.
    pub fn take_clock(
        &self,
        get: extern "C" fn() -> i64,
        set: extern "C" fn(i64),
        start_ns: i64,
    ) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{what}{}", crate::KNOWN));
        if (self.clock)() > start_ns {
            return wrong("the machine's clock was running before the model came");
        }
        let table = (self.accelerator)();
        if table.is_null() {
            return wrong("QEMU has no accelerator yet");
        }
        // SAFETY: the table of QEMU 10.0 is a QOM class of more words than are searched; it is never freed, and nobody
        // writes it but us. Between `handle_interrupt` and the two clock functions nothing else lies.
        unsafe {
            let Some(at) = (0..TABLE_WORDS).find(|at| *table.add(*at) == self.handle_interrupt) else {
                return wrong("QEMU's accelerator is not plain TCG (say -accel tcg,thread=single, without -icount)");
            };
            if !(*table.add(at + 1)).is_null() || !(*table.add(at + 2)).is_null() {
                return wrong("QEMU's accelerator makes the time itself");
            }
            *table.add(at + 2) = set as *mut c_void;
            *table.add(at + 1) = get as *mut c_void;
        }
        Ok(())
    }

    /// The hart of this number.
    pub fn cpu(&self, hart: usize) -> Cpu {
        Cpu((self.get_cpu)(hart as c_int))
    }

    /// The hart that this thread emulates at the moment.
    pub fn current(&self) -> Option<Cpu> {
        thread_local! {
            static PLACE: Cell<*const *mut c_void> = const { Cell::new(std::ptr::null()) };
        }
        let mut place = PLACE.get();
        if place.is_null() {
            place = find(c"current_cpu").ok()?.cast();
            PLACE.set(place);
        }
        // SAFETY: `current_cpu` is a thread's own variable of QEMU; its address in this thread stays.
        let cpu = unsafe { place.read_volatile() };
        (!cpu.is_null()).then_some(Cpu(cpu))
    }

    /// Inline counts of this hart's code go to the hart itself.
    pub fn count_by_hart(&self, cpu: Cpu) {
        (self.set_flags)(cpu.0, PARALLEL);
    }

    /// The hart leaves the code that it runs, so that others come first.
    pub fn stop(&self, cpu: Cpu) {
        (self.cpu_exit)(cpu.0);
    }

    /// Runs `work` on the hart's thread, outside of code and with QEMU's lock held.
    pub fn later(&self, cpu: Cpu, work: extern "C" fn(*mut c_void, u64), data: u64) {
        (self.async_run)(cpu.0, work, data);
    }

    /// When the next timer is due, from the clock's time.
    pub fn deadline(&self) -> Deadline {
        let due = u64::try_from((self.deadline)(VIRTUAL, ALL_TIMERS)).ok();
        due.filter(|due| *due < NEVER_NS).map_or(Deadline::Never, Deadline::In)
    }

    /// Moves the clock, running each timer at its time. QEMU's lock must be held.
    pub fn advance(&self, to_ns: u64) {
        (self.advance)(i64::try_from(to_ns).unwrap_or(i64::MAX));
    }

    /// Whether no hart has anything to do.
    pub fn all_idle(&self) -> bool {
        (self.all_idle)()
    }

    /// Whether this thread holds QEMU's lock.
    pub fn is_locked(&self) -> bool {
        (self.bql_locked)()
    }

    /// Lets go of QEMU's lock, which is held, for the time of `act`, and wakes QEMU's main loop.
    pub fn unlocked(&self, act: impl FnOnce()) {
        (self.bql_unlock)();
        (self.notify)();
        act();
        (self.bql_lock)(c"numa-model".as_ptr(), 0);
    }

    /// All code is translated anew.
    pub fn flush(&self, cpu: Cpu) {
        (self.flush)(cpu.0);
    }
}
