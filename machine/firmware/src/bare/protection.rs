//! The protection entries of the executing hart.

use core::sync::atomic::{AtomicBool, Ordering};

use containment::{ENTRIES, Entry};

use super::csr;

const CONFIG_0: u16 = 0x3a0;
const CONFIG_2: u16 = 0x3a2;

macro_rules! write_addresses {
    ($entries:ident: $($index:literal)*) => {
        $(csr::write::<{ 0x3b0 + $index }>($entries[$index].address);)*
    };
}

static IS_THERE: AtomicBool = AtomicBool::new(false);

/// Finds out whether the harts have protection entries at all: QEMU's profile CPUs have none unless told to.
pub fn init() {
    IS_THERE.store(csr::try_write::<0x3b0>(0), Ordering::Relaxed);
}

/// Whether memory can be closed at all. `false` before [`init`].
pub fn is_there() -> bool {
    IS_THERE.load(Ordering::Relaxed)
}

/// Writes all entries. Every write empties the hart's translation caches in the emulator; elsewhere the fence does.
pub fn write(entries: &[Entry; ENTRIES]) {
    if !is_there() {
        return;
    }
    write_addresses!(entries: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    csr::write::<CONFIG_0>(packed(&entries[..8]));
    csr::write::<CONFIG_2>(packed(&entries[8..]));
    super::sbi::fence::everything();
}

fn packed(entries: &[Entry]) -> u64 {
    entries.iter().rev().fold(0, |packed, entry| packed << 8 | u64::from(entry.config))
}
