//! QEMU's plugin API, version 4 (`include/qemu/qemu-plugin.h` of 10.0), as far as it is used.
//
// UNSAFETY: the API is C. Everything else in this crate is safe code over the types here and in `inside`.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The version of the plugin API that this is written for; QEMU 10.0 has no later one, 10.1 has.
const API_VERSION: c_int = 4;

/// What QEMU asks the plugin for.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = API_VERSION;

/// The plugin, as QEMU names it.
pub type Id = u64;

/// Number of values of the register `priv`: privilege in bits 0 and 1, virtualization in bit 2.
pub const MODES_OF_PRIV: usize = 8;

const ADD_U64: c_int = 0;
const NO_REGISTERS: c_int = 0;
const GREATER_OR_EQUAL: c_int = 7;

#[repr(C)]
struct RawInfo {
    target: *const c_char,
    version_min: c_int,
    version: c_int,
    is_system: bool,
    harts: c_int,
    max_harts: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawEntry {
    scoreboard: *mut c_void,
    offset: usize,
}

#[repr(C)]
struct RawDescriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
}

/// GLib's `GArray` and `GByteArray`.
#[repr(C)]
struct RawArray {
    data: *mut u8,
    len: c_uint,
}

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: extern "C" fn(Id, c_uint));
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, *mut c_void));
    fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(Id, *mut c_void), data: *mut c_void);
    fn qemu_plugin_request_time_control() -> *const c_void;
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_data(instruction: *const c_void, to: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_scoreboard_new(element: usize) -> *mut c_void;
    fn qemu_plugin_scoreboard_find(scoreboard: *mut c_void, hart: c_uint) -> *mut c_void;
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block: *mut c_void, op: c_int, entry: RawEntry, value: u64);
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        block: *mut c_void,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        condition: c_int,
        entry: RawEntry,
        value: u64,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_get_registers() -> *mut RawArray;
    fn qemu_plugin_read_register(handle: *mut c_void, buf: *mut RawArray) -> c_int;
    // GLib, which QEMU is linked with.
    fn g_byte_array_new() -> *mut RawArray;
    fn g_byte_array_free(array: *mut RawArray, free_segment: c_int) -> *mut u8;
    fn g_array_free(array: *mut RawArray, free_segment: c_int) -> *mut c_char;
}

/// Called by QEMU.
///
/// # Safety
/// `info` is QEMU's description of itself, `arguments` are `count` strings; all live as long as the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU gives its description, whose strings live.
    let (info, target) = unsafe {
        let info = &*info.cast::<RawInfo>();
        (info, CStr::from_ptr(info.target).to_string_lossy())
    };
    let mut words = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: QEMU gives `count` pointers to strings.
        let word = unsafe { CStr::from_ptr(*arguments.add(index)) };
        words.push(word.to_string_lossy().into_owned());
    }
    let known = info.is_system && target == "riscv64" && info.version == API_VERSION;
    let harts = usize::try_from(info.max_harts).unwrap_or(0);
    let installed = if known {
        crate::install(id, harts, &words)
    } else {
        Err(format!("this QEMU emulates {target} with plugin API {}", info.version) + crate::KNOWN)
    };
    installed.map_or_else(
        |why| {
            eprintln!("numa-model: {why}");
            -1
        },
        |()| 0,
    )
}

static ON_HART: OnceLock<fn(usize)> = OnceLock::new();
static ON_TRANSLATION: OnceLock<fn(&Block)> = OnceLock::new();
static ON_EXIT: OnceLock<fn()> = OnceLock::new();

/// Calls `act` on a hart's thread when the hart is made. One function per plugin.
pub fn on_hart(id: Id, act: fn(usize)) {
    extern "C" fn call(_: Id, hart: c_uint) {
        if let Some(act) = ON_HART.get() {
            act(hart as usize);
        }
    }
    let _ = ON_HART.set(act);
    // SAFETY: the callback lives as long as the plugin.
    unsafe { qemu_plugin_register_vcpu_init_cb(id, call) };
}

/// Calls `act` for every block of instructions that QEMU translates. One function per plugin.
pub fn on_translation(id: Id, act: fn(&Block)) {
    extern "C" fn call(_: Id, block: *mut c_void) {
        if let Some(act) = ON_TRANSLATION.get() {
            act(&Block(block, PhantomData));
        }
    }
    let _ = ON_TRANSLATION.set(act);
    // SAFETY: the callback lives as long as the plugin.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, call) };
}

/// Calls `act` when QEMU ends. One function per plugin.
pub fn on_exit(id: Id, act: fn()) {
    extern "C" fn call(_: Id, _: *mut c_void) {
        if let Some(act) = ON_EXIT.get() {
            act();
        }
    }
    let _ = ON_EXIT.set(act);
    // SAFETY: the callback lives as long as the plugin.
    unsafe { qemu_plugin_register_atexit_cb(id, call, std::ptr::null_mut()) };
}

/// Tells QEMU that the plugin makes the time. Only one plugin may.
pub fn take_time_control() -> bool {
    // SAFETY: no precondition.
    !unsafe { qemu_plugin_request_time_control() }.is_null()
}

/// A function that QEMU calls with the hart and a number.
pub type Callback = extern "C" fn(c_uint, *mut c_void);

/// A block that is being translated. Exists only during the callback.
pub struct Block<'a>(*mut c_void, PhantomData<&'a ()>);

impl Block<'_> {
    /// Its number of instructions.
    pub fn len(&self) -> usize {
        // SAFETY: the block is valid during the callback, which the lifetime of `self` is.
        unsafe { qemu_plugin_tb_n_insns(self.0) }
    }

    /// Its instructions.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction<'_>> {
        // SAFETY: as above, and the index is in range.
        (0..self.len()).map(|index| Instruction(unsafe { qemu_plugin_tb_get_insn(self.0, index) }, PhantomData))
    }

    /// Adds `value` to a count whenever the block is run.
    pub fn add_at_each_run(&self, entry: Entry, value: u64) {
        // SAFETY: as above; the entry is within its scoreboard, which is never freed.
        unsafe { qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(self.0, ADD_U64, entry.0, value) };
    }

    /// Calls `act` when the block is about to run and the count is `limit` or more.
    pub fn call_from(&self, entry: Entry, limit: u64, act: Callback) {
        let data = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.0,
                act,
                NO_REGISTERS,
                GREATER_OR_EQUAL,
                entry.0,
                limit,
                data,
            );
        }
    }
}

/// An instruction that is being translated.
pub struct Instruction<'a>(*mut c_void, PhantomData<&'a ()>);

impl Instruction<'_> {
    /// Its first four bytes (two if it is compressed).
    pub fn word(&self) -> u32 {
        let mut bytes = [0_u8; 4];
        // SAFETY: the instruction is valid during the callback; at most four bytes are written.
        unsafe { qemu_plugin_insn_data(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        u32::from_le_bytes(bytes)
    }

    /// Calls `act` with `number`, whenever the instruction is about to run.
    pub fn call_at_each_run(&self, act: Callback, number: usize) {
        let data = std::ptr::without_provenance_mut(number);
        // SAFETY: as above; the data is a number and never followed.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.0, act, NO_REGISTERS, data) };
    }
}

/// A record of `u64` counts for each hart that translated code can add to.
pub struct Scoreboard {
    raw: *mut c_void,
    counts: usize,
}

/// One of the counts.
#[derive(Clone, Copy)]
pub struct Entry(RawEntry);

// SAFETY: QEMU's scoreboards are made for use from all of its threads.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    /// All zero.
    pub fn new(counts: usize) -> Self {
        // SAFETY: any size is possible.
        Self { raw: unsafe { qemu_plugin_scoreboard_new(counts * size_of::<u64>()) }, counts }
    }

    /// The count `index`.
    pub fn entry(&self, index: usize) -> Entry {
        assert!(index < self.counts, "a count of the scoreboard");
        Entry(RawEntry { scoreboard: self.raw, offset: index * size_of::<u64>() })
    }

    /// Count `index` of a hart.
    pub fn get(&self, hart: usize, index: usize) -> u64 {
        // SAFETY: `place` is a count of this hart; only the thread that emulates the hart writes it, which is this one.
        unsafe { self.place(hart, index).read_volatile() }
    }

    /// Sets count `index` of a hart.
    pub fn set(&self, hart: usize, index: usize, value: u64) {
        // SAFETY: as in `get`.
        unsafe { self.place(hart, index).write_volatile(value) };
    }

    fn place(&self, hart: usize, index: usize) -> *mut u64 {
        assert!(index < self.counts, "a count of the scoreboard");
        // SAFETY: QEMU gives the record of the hart, which is as long as was asked for.
        unsafe { qemu_plugin_scoreboard_find(self.raw, hart as c_uint).cast::<u64>().add(index) }
    }
}

/// A register of a hart. The handle is the same for all harts of a machine.
pub struct Register(*mut c_void);

// SAFETY: a handle is a number for QEMU, not memory of a thread.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

impl Register {
    /// The register of this name of the hart on whose thread this runs.
    pub fn find(name: &str) -> Option<Self> {
        // SAFETY: on a hart's thread QEMU gives an array of descriptors whose names live for ever.
        unsafe {
            let array = qemu_plugin_get_registers();
            if array.is_null() {
                return None;
            }
            let descriptors = (*array).data.cast::<RawDescriptor>();
            let mut found = None;
            for index in 0..(*array).len as usize {
                let descriptor = &*descriptors.add(index);
                if CStr::from_ptr(descriptor.name).to_bytes() == name.as_bytes() {
                    found = Some(Self(descriptor.handle));
                }
            }
            g_array_free(array, 1);
            found
        }
    }

    /// Its value on the hart on whose thread this runs, at most 64 bits.
    pub fn read(&self) -> Option<u64> {
        // SAFETY: the handle is QEMU's own; the array is ours and freed here.
        unsafe {
            let array = g_byte_array_new();
            let len = qemu_plugin_read_register(self.0, array);
            let value = usize::try_from(len).ok().filter(|len| (1..=8).contains(len)).map(|len| {
                let mut bytes = [0; 8];
                std::ptr::copy_nonoverlapping((*array).data, bytes.as_mut_ptr(), len);
                u64::from_le_bytes(bytes)
            });
            g_byte_array_free(array, 1);
            value
        }
    }
}
