//! Tells a machine model in which code the guest's kernel takes and waits for its locks.

use workloads::symbols::Ranges;

use super::linux;
use super::output::print;

/// Where Linux puts the code of spinlocks, which is nothing else, and functions elsewhere that spin.
const SECTION: [&[u8]; 2] = [b"__lock_text_start", b"__lock_text_end"];
const FUNCTIONS: [&[u8]; 8] = [
    b"osq_lock",
    b"osq_unlock",
    b"mutex_spin_on_owner",
    b"rwsem_spin_on_owner",
    b"rwsem_optimistic_spin",
    b"queued_spin_lock_slowpath",
    b"queued_read_lock_slowpath",
    b"queued_write_lock_slowpath",
];

/// Reads the kernel's list of symbols, in which they stand by address; gives the exit status.
pub fn mark() -> i32 {
    let Some(file) = linux::open_to_read(c"/proc/kallsyms") else {
        print!("load: the kernel does not list its symbols\n");
        return 1;
    };
    let mut ranges = Ranges::new(SECTION, &FUNCTIONS);
    let (mut bytes, mut found) = ([0_u8; 4096], 0);
    loop {
        let count = linux::read_some(file, &mut bytes);
        for byte in &bytes[..count] {
            let Some((from, to)) = ranges.take(*byte) else { continue };
            linux::mark_lock_code(from as usize, to as usize);
            found += 1;
        }
        if count == 0 || ranges.is_done() {
            break;
        }
    }
    if !ranges.is_done() {
        print!("load: the kernel lists no code of locks ({found} functions that spin)\n");
    }
    i32::from(!ranges.is_done())
}
