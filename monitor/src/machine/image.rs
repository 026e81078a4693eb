//! Where the parts of the running image are.
//
// UNSAFETY: linker symbols are foreign statics of which only the address is taken.
#![expect(unsafe_code)]

use crate::machine::direct;
use addr::MachineAddr;
use spin::Once;

unsafe extern "C" {
    static __image_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __bss_start: u8;
    static __pristine_start: u8;
    static __image_end: u8;
}

static LOADED_AT: Once<MachineAddr> = Once::new();

/// Virtual addresses of the image's parts: `[start, text_end)` is text, up to `rodata_end` read-only data, up to
/// `end` data and bss.
#[derive(Clone, Copy, Debug)]
pub struct ImageParts {
    /// First byte.
    pub start: u64,
    /// End of text.
    pub text_end: u64,
    /// End of read-only data.
    pub rodata_end: u64,
    /// End of data and bss.
    pub end: u64,
}

/// The parts of this image.
#[must_use]
pub fn parts() -> ImageParts {
    ImageParts {
        start: &raw const __image_start as u64,
        text_end: &raw const __text_end as u64,
        rodata_end: &raw const __rodata_end as u64,
        end: &raw const __image_end as u64,
    }
}

/// The image's text, word by word.
pub fn text_words() -> impl Iterator<Item = u64> {
    let parts = parts();
    (parts.start..parts.text_end).step_by(8).map(|va| direct::read_u64(machine_of(va)))
}

/// Whether the instruction in front of this address of the image is a call.
#[must_use]
pub fn is_behind_call(va: u64) -> bool {
    let parts = parts();
    // The first word is a header's.
    if va & 1 != 0 || va < parts.start + 8 || va > parts.text_end {
        return false;
    }
    let parcel = |at: u64| (direct::read_u64(machine_of(at & !7)) >> (at % 8 * 8)) as u16;
    crash::ends_a_call([parcel(va - 4), parcel(va - 2)])
}

/// Remembers where the loader put the image (called once, by boot).
pub fn set_loaded_at(addr: MachineAddr) {
    LOADED_AT.call_once(|| addr);
}

/// The machine address of the image's first byte, as loaded.
#[must_use]
pub fn loaded_at() -> MachineAddr {
    *LOADED_AT.get().expect("boot sets the load address first")
}

/// The machine address of the loaded copy of linked address `va`.
#[must_use]
pub fn machine_of(va: u64) -> MachineAddr {
    MachineAddr::new(va - parts().start + loaded_at().raw())
}

/// The image as it was loaded, at machine address `to`: text and read-only data, and what data was before anything ran. The
/// rest needs no content.
pub fn copy_to(to: MachineAddr) {
    let parts = parts();
    let (data, bss) = (&raw const __data_start as u64, &raw const __bss_start as u64);
    let to = |va: u64| MachineAddr::new(to.raw() + (va - parts.start));
    direct::copy(to(parts.start), machine_of(parts.start), parts.rodata_end - parts.start);
    direct::copy(to(data), machine_of(&raw const __pristine_start as u64), bss - data);
}
