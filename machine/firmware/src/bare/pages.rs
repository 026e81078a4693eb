//! The status page and the mailbox.
//
// UNSAFETY: two pages of the firmware's memory that are no Rust objects: the supervisor reads one, the host writes the
// other, at any time.
#![expect(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use faults::{MAILBOX_AT, MAILBOX_WORDS, STATUS_AT};

/// A word of the status page.
pub fn status(index: usize) -> &'static AtomicU64 {
    word(STATUS_AT, index)
}

/// A word of the mailbox.
pub fn mailbox(index: usize) -> &'static AtomicU64 {
    word(MAILBOX_AT, index)
}

fn word(page: u64, index: usize) -> &'static AtomicU64 {
    assert!(index < MAILBOX_WORDS, "a page has {MAILBOX_WORDS} words");
    // SAFETY: (1) the two pages are reserved by the linker script and used by nothing else; (2) an atomic may be written
    // by others at any time; (3) the index lies within the page.
    unsafe { AtomicU64::from_ptr((page as *mut u64).add(index)) }
}

/// Writes words in order.
pub fn write(target: impl Fn(usize) -> &'static AtomicU64, words: &[u64]) {
    for (index, value) in words.iter().enumerate() {
        target(index).store(*value, Ordering::Relaxed);
    }
}
