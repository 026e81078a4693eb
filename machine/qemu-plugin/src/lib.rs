//! QEMU's plugin API, version 4 (`include/qemu/qemu-plugin.h` of 10.0), as far as our plugins use it: declared by hand,
//! with types around it that can be used without `unsafe`.
//!
//! # Key types
//! [`export!`] makes a library a plugin; [`register`] says which functions QEMU calls; [`Block`] and [`Instruction`] are
//! what it translates, [`Scoreboard`] the words that translated code counts in, [`Register`] a hart's registers.
//!
//! # Licence
//! QEMU's plugin interface is under the GPL: so is whatever links to it, this crate and its users.
//
// UNSAFETY: the API is C. Callbacks come in with numbers and pointers that QEMU made; each is passed on as it is, and
// what may be done with it is said where it is used.
#![expect(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The version of the plugin API that this is written for.
pub const VERSION: c_int = 4;

/// The plugin, as QEMU names it.
pub type Id = u64;
/// Called when a block or an instruction is run, with the hart's index and the data given.
pub type RunCallback = extern "C" fn(c_uint, *mut c_void);
/// Called after an access, with the hart's index, a description of the access, its virtual address and the data given.
pub type AccessCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);

const PAGE: usize = 4096;
const ADD_U64: c_int = 0;
const NO_REGISTERS: c_int = 0;
const READ_REGISTERS: c_int = 1;
const NOT_EQUAL: c_int = 3;
const AT_LEAST: c_int = 7;
const READS: c_int = 1;
const WRITES: c_int = 2;

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

#[repr(C)]
struct Info {
    target: *const c_char,
    version: [c_int; 2],
    is_system: bool,
    harts: c_int,
    most_harts: c_int,
}

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: extern "C" fn(Id, c_uint));
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, *mut c_void));
    fn qemu_plugin_register_flush_cb(id: Id, callback: extern "C" fn(Id));
    fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(Id, *mut c_void), data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_data(instruction: *const c_void, to: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_insn_size(instruction: *const c_void) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: *const c_void) -> u64;
    fn qemu_plugin_insn_haddr(instruction: *const c_void) -> *mut c_void;
    fn qemu_plugin_scoreboard_new(element: usize) -> *mut c_void;
    fn qemu_plugin_u64_sum(entry: RawEntry) -> u64;
    fn qemu_plugin_scoreboard_find(scoreboard: *mut c_void, hart: c_uint) -> *mut c_void;
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block: *mut c_void, op: c_int, entry: RawEntry, value: u64);
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        block: *mut c_void,
        callback: RunCallback,
        flags: c_int,
        condition: c_int,
        entry: RawEntry,
        value: u64,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(i: *mut c_void, callback: RunCallback, flags: c_int, data: *mut c_void);
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut c_void,
        callback: AccessCallback,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_get_registers() -> *mut RawArray;
    fn qemu_plugin_read_register(handle: *mut c_void, buf: *mut RawArray) -> c_int;
    // GLib, which QEMU is linked with.
    fn g_byte_array_new() -> *mut RawArray;
    fn g_byte_array_set_size(array: *mut RawArray, len: c_uint) -> *mut RawArray;
    fn g_array_free(array: *mut RawArray, free_segment: c_int) -> *mut c_char;
}

/// What QEMU says when it loads a plugin.
pub struct Installation {
    /// The plugin.
    pub id: Id,
    /// The plugin's arguments.
    pub arguments: Vec<String>,
    /// What is emulated: `riscv64`.
    pub target: String,
    /// The harts of the machine; 0 if it is no whole machine.
    pub harts: usize,
}

impl Installation {
    /// # Safety
    /// `info` describes the machine, and `arguments` are `count` strings, as QEMU gives them to `qemu_plugin_install`.
    #[doc(hidden)]
    pub unsafe fn new(id: Id, info: *const c_void, count: c_int, arguments: *const *const c_char) -> Self {
        let mut words = Vec::new();
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: QEMU gives `count` pointers to strings.
            let word = unsafe { CStr::from_ptr(*arguments.add(index)) };
            words.push(word.to_string_lossy().into_owned());
        }
        // SAFETY: QEMU gives a description that has this shape in version 4 of the API, with a string for the target.
        let (target, harts) = unsafe {
            let info = &*info.cast::<Info>();
            let target = CStr::from_ptr(info.target).to_string_lossy().into_owned();
            (target, if info.is_system { info.most_harts } else { 0 })
        };
        Self { id, arguments: words, target, harts: usize::try_from(harts).unwrap_or(0) }
    }
}

/// Makes this library a plugin: QEMU calls the function `fn(Installation) -> Result<(), String>` when it loads it. An
/// error is printed after the given name, and QEMU ends.
#[macro_export]
macro_rules! export {
    ($name:literal, $install:path) => {
        /// The version of the plugin API that this is written for.
        #[unsafe(no_mangle)]
        pub static qemu_plugin_version: ::std::ffi::c_int = $crate::VERSION;

        /// Called by QEMU when it loads the plugin: 0 = ready.
        ///
        /// # Safety
        /// `info` describes the machine, and `arguments` are `count` strings; both live as long as the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn qemu_plugin_install(
            id: $crate::Id,
            info: *const ::std::ffi::c_void,
            count: ::std::ffi::c_int,
            arguments: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: as this function's caller says.
            let installation = unsafe { $crate::Installation::new(id, info, count, arguments) };
            match $install(installation) {
                Ok(()) => 0,
                Err(problem) => {
                    eprintln!("{}: {problem}", $name);
                    -1
                }
            }
        }
    };
}

/// Which functions QEMU calls.
pub struct Callbacks {
    /// A hart is there; on its own thread.
    pub hart_begins: Option<extern "C" fn(Id, c_uint)>,
    /// A block is translated.
    pub translate: extern "C" fn(Id, *mut c_void),
    /// All translated blocks go.
    pub flush: Option<extern "C" fn(Id)>,
    /// QEMU ends.
    pub exit: extern "C" fn(Id, *mut c_void),
}

/// Tells QEMU the functions.
pub fn register(id: Id, callbacks: &Callbacks) {
    // SAFETY: functions live as long as the plugin, which is never unloaded.
    unsafe {
        if let Some(hart_begins) = callbacks.hart_begins {
            qemu_plugin_register_vcpu_init_cb(id, hart_begins);
        }
        qemu_plugin_register_vcpu_tb_trans_cb(id, callbacks.translate);
        if let Some(flush) = callbacks.flush {
            qemu_plugin_register_flush_cb(id, flush);
        }
        qemu_plugin_register_atexit_cb(id, callbacks.exit, std::ptr::null_mut());
    }
}

/// A block that is being translated. Exists only during the callback.
pub struct Block(*mut c_void);

impl Block {
    /// # Safety
    /// `block` is what QEMU gave to the translation callback that is running; the value must not outlive it.
    pub unsafe fn new(block: *mut c_void) -> Self {
        Self(block)
    }

    /// Its number of instructions, one at least.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        // SAFETY: the block is valid, see `new`.
        unsafe { qemu_plugin_tb_n_insns(self.0) }
    }

    /// One of its instructions.
    pub fn instruction(&self, index: usize) -> Instruction {
        assert!(index < self.len(), "an instruction of the block");
        // SAFETY: the block is valid, and the index is in range.
        Instruction(unsafe { qemu_plugin_tb_get_insn(self.0, index) })
    }

    /// The first four bytes of each of its instructions (two if it is compressed).
    ///
    /// Read where the guest's memory is, since asking QEMU for each costs more than translating it.
    pub fn words(&self) -> Words<'_> {
        let first = self.instruction(0);
        let (start, left) = match first.host() {
            0 => (std::ptr::null(), 0),
            host => (std::ptr::with_exposed_provenance(host), PAGE - first.virt() as usize % PAGE),
        };
        Words { block: self, next: 0, len: self.len(), start, left }
    }

    /// Adds `value` to a count whenever the block is run.
    pub fn add(&self, entry: Entry, value: u64) {
        // SAFETY: the block is valid; the entry is within its scoreboard, which is never freed.
        unsafe { qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(self.0, ADD_U64, entry.0, value) };
    }

    /// Calls before the block is run if the count is at least `value`.
    pub fn call_from(&self, entry: Entry, value: u64, callback: RunCallback) {
        self.call_if(AT_LEAST, entry, value, callback, 0);
    }

    /// Calls with `data` before the block is run if the count is not `value`.
    pub fn call_unless(&self, entry: Entry, value: u64, callback: RunCallback, data: usize) {
        self.call_if(NOT_EQUAL, entry, value, callback, data);
    }

    fn call_if(&self, condition: c_int, entry: Entry, value: u64, callback: RunCallback, data: usize) {
        let data = std::ptr::without_provenance_mut(data);
        // SAFETY: as in `add`; the data is a number.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_cond_cb(self.0, callback, NO_REGISTERS, condition, entry.0, value, data);
        }
    }
}

/// See [`Block::words`].
pub struct Words<'a> {
    block: &'a Block,
    next: usize,
    len: usize,
    /// Where the next instruction is in this process, and how many bytes of its page are left: 0 if it is not known.
    start: *const u8,
    left: usize,
}

impl Iterator for Words<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == self.len {
            return None;
        }
        self.next += 1;
        // SAFETY: this much of the page is left, and a page of the guest's RAM lies in one piece. Nothing runs that would
        // change it during the callback.
        let half = |at: usize| u32::from(unsafe { self.start.add(at).cast::<u16>().read_unaligned() });
        let (word, size) = match self.left {
            2.. if half(0) & 3 != 3 => (half(0), 2),
            4.. => (half(0) | half(2) << 16, 4),
            // Its end is on another page, or it is not in RAM, and so is all that follows.
            _ => (self.block.instruction(self.next - 1).word(), self.left),
        };
        self.left -= size;
        // SAFETY: at most one past the page.
        self.start = unsafe { self.start.add(size) };
        Some(word)
    }
}

/// An instruction of a [`Block`], and valid as long.
pub struct Instruction(*mut c_void);

impl Instruction {
    /// Its first four bytes (two if it is compressed).
    pub fn word(&self) -> u32 {
        let mut bytes = [0_u8; 4];
        // SAFETY: the instruction is valid; at most four bytes are written.
        unsafe { qemu_plugin_insn_data(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        u32::from_le_bytes(bytes)
    }

    /// Its virtual address.
    pub fn virt(&self) -> u64 {
        // SAFETY: the instruction is valid.
        unsafe { qemu_plugin_insn_vaddr(self.0) }
    }

    /// Where in this process its bytes are; 0 if they are not in RAM.
    pub fn host(&self) -> usize {
        // SAFETY: the instruction is valid.
        unsafe { qemu_plugin_insn_haddr(self.0) }.addr()
    }

    /// Its bytes.
    pub fn size(&self) -> usize {
        // SAFETY: the instruction is valid.
        unsafe { qemu_plugin_insn_size(self.0) }
    }

    /// Calls before it is run; `reads` if the callback reads the hart's general registers.
    pub fn call(&self, callback: RunCallback, data: usize, reads: bool) {
        let (data, flags) = (std::ptr::without_provenance_mut(data), if reads { READ_REGISTERS } else { NO_REGISTERS });
        // SAFETY: the instruction is valid; the data is a number.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.0, callback, flags, data) };
    }

    /// Calls after each of its reads and writes.
    pub fn call_at_accesses(&self, read: AccessCallback, write: AccessCallback) {
        let data = std::ptr::null_mut();
        // SAFETY: the instruction is valid, and there is no data.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(self.0, read, NO_REGISTERS, READS, data);
            qemu_plugin_register_vcpu_mem_cb(self.0, write, NO_REGISTERS, WRITES, data);
        }
    }
}

/// Some words for each hart, which translated code can count in.
#[derive(Clone, Copy)]
pub struct Scoreboard {
    raw: *mut c_void,
    words: usize,
}

/// One of the words.
#[derive(Clone, Copy)]
pub struct Entry(RawEntry);

impl Scoreboard {
    /// `words` for each hart, all zero.
    pub fn new(words: usize) -> Self {
        // SAFETY: any size is possible.
        Self { raw: unsafe { qemu_plugin_scoreboard_new(words * size_of::<u64>()) }, words }
    }

    /// The word of this index.
    pub fn entry(&self, index: usize) -> Entry {
        assert!(index < self.words, "a word of the scoreboard");
        Entry(RawEntry { scoreboard: self.raw, offset: index * size_of::<u64>() })
    }

    /// The words of a hart; they move when a hart is added.
    pub fn words(&self, hart: usize) -> *mut u64 {
        // SAFETY: QEMU makes room when it creates a hart, before any callback names it.
        unsafe { qemu_plugin_scoreboard_find(self.raw, hart as c_uint) }.cast()
    }
}

impl Entry {
    /// The word of all harts together.
    pub fn sum(self) -> u64 {
        // SAFETY: the entry is within its scoreboard, which is never freed.
        unsafe { qemu_plugin_u64_sum(self.0) }
    }
}

// SAFETY: QEMU's scoreboards are made for use from all of its threads.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

/// A register of a hart. The handle is the same for all harts of a machine.
#[derive(Clone, Copy)]
pub struct Register(*mut c_void);

// SAFETY: a handle is a number for QEMU, not memory of a thread.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

/// Names and handles of all registers of the hart on whose thread this runs.
pub fn registers() -> Vec<(String, Register)> {
    // SAFETY: on a hart's thread QEMU gives an array of descriptors whose names live for ever.
    unsafe {
        let array = qemu_plugin_get_registers();
        if array.is_null() {
            return Vec::new();
        }
        let descriptors = (*array).data.cast::<RawDescriptor>();
        let read = |index: usize| {
            let descriptor = &*descriptors.add(index);
            (CStr::from_ptr(descriptor.name).to_string_lossy().into_owned(), Register(descriptor.handle))
        };
        let found = (0..(*array).len as usize).map(read).collect();
        g_array_free(array, 1);
        found
    }
}

/// Where register values are read into.
pub struct Buffer(*mut RawArray);

// SAFETY: nobody else knows of the array, and it belongs to no thread.
unsafe impl Send for Buffer {}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Buffer {
    /// An empty one.
    pub fn new() -> Self {
        // SAFETY: never freed.
        Self(unsafe { g_byte_array_new() })
    }

    /// The value of a register of the hart on whose thread this runs, at most 64 bits; 0 if QEMU does not tell.
    pub fn read(&self, register: Register) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the handle is QEMU's own, the array is ours, and QEMU makes it as long as it says.
        unsafe {
            g_byte_array_set_size(self.0, 0);
            let len = qemu_plugin_read_register(register.0, self.0);
            let len = usize::try_from(len).unwrap_or(0).min(8);
            std::ptr::copy_nonoverlapping((*self.0).data, bytes.as_mut_ptr(), len);
        }
        u64::from_le_bytes(bytes)
    }
}
