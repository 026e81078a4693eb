//! QEMU's plugin API, version 4 (`include/qemu/qemu-plugin.h` of 10.0), as far as it is used.
//
// UNSAFETY: the API is C. Everything else in this crate is safe code over the types here.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;

/// The version of the plugin API that this is written for.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

/// The plugin, as QEMU names it.
pub type Id = u64;

const ADD_U64: c_int = 0;
const NO_REGISTERS: c_int = 0;

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
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, *mut c_void));
    fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(Id, *mut c_void), data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_data(instruction: *const c_void, to: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_scoreboard_new(element: usize) -> *mut c_void;
    fn qemu_plugin_u64_sum(entry: RawEntry) -> u64;
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block: *mut c_void, op: c_int, entry: RawEntry, value: u64);
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
/// `arguments` are `count` strings that live as long as the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let mut words = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: QEMU gives `count` pointers to strings.
        let word = unsafe { CStr::from_ptr(*arguments.add(index)) };
        words.push(word.to_string_lossy().into_owned());
    }
    crate::install(id, &words)
}

static ON_TRANSLATION: std::sync::OnceLock<fn(&Block)> = std::sync::OnceLock::new();
static ON_EXIT: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

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

    /// Calls the one function that plugins have for this with `number`, whenever the instruction is run.
    pub fn call_at_each_run(&self, act: fn(usize), number: usize) {
        static ACT: std::sync::OnceLock<fn(usize)> = std::sync::OnceLock::new();
        extern "C" fn call(_: c_uint, data: *mut c_void) {
            if let Some(act) = ACT.get() {
                act(data.addr());
            }
        }
        ACT.get_or_init(|| act);
        let data = std::ptr::without_provenance_mut(number);
        // SAFETY: as above; the data is a number and never followed.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.0, call, NO_REGISTERS, data) };
    }
}

/// `N` counts for each hart.
pub struct Scoreboard<const N: usize>(*mut c_void);

/// One of the counts.
#[derive(Clone, Copy)]
pub struct Entry(RawEntry);

// SAFETY: QEMU's scoreboards are made for use from all of its threads.
unsafe impl<const N: usize> Send for Scoreboard<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Scoreboard<N> {}

impl<const N: usize> Scoreboard<N> {
    /// All zero.
    pub fn new() -> Self {
        // SAFETY: any size is possible.
        Self(unsafe { qemu_plugin_scoreboard_new(N * size_of::<u64>()) })
    }

    /// The count `index`.
    pub fn entry(&self, index: usize) -> Entry {
        assert!(index < N, "a count of the scoreboard");
        Entry(RawEntry { scoreboard: self.0, offset: index * size_of::<u64>() })
    }

    /// The count `index` of all harts together.
    pub fn sum(&self, index: usize) -> u64 {
        // SAFETY: the entry is within the scoreboard.
        unsafe { qemu_plugin_u64_sum(self.entry(index).0) }
    }
}

/// A register of a hart. The handle is the same for all harts of a machine.
pub struct Register(*mut c_void);

// SAFETY: a handle is a number for QEMU, not memory of a thread.
unsafe impl Send for Register {}

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
