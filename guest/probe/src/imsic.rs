//! The interrupt file of the executing hart (AIA specification, "Incoming MSI Controller").

use crate::cpu;

/// The identity that probes use.
pub const IDENTITY: u32 = 9;
/// Where the S-level files of the harts lie, 4 KiB each.
pub const BASE: u64 = 0x2800_0000;

const DELIVERY: u64 = 0x70;
const THRESHOLD: u64 = 0x72;
const ENABLE_0: u64 = 0xc0;

fn set(register: u64, value: u64) {
    cpu::set_siselect(register);
    cpu::set_sireg(value);
}

/// Delivery on, no threshold, [`IDENTITY`] enabled.
pub fn enable() {
    set(THRESHOLD, 0);
    set(ENABLE_0, 1 << IDENTITY);
    set(DELIVERY, 1);
}

/// Delivery on, no threshold, these identities enabled.
pub fn enable_all(identities: &[u32]) {
    /// Registers of 64 identities each; odd numbers are no registers.
    const WORDS: u64 = 4;
    set(THRESHOLD, 0);
    for word in 0..WORDS {
        let in_word = identities.iter().filter(|identity| u64::from(**identity) / 64 == word);
        set(ENABLE_0 + 2 * word, in_word.fold(0, |bits, identity| bits | 1 << (identity % 64)));
    }
    set(DELIVERY, 1);
}

/// Only identities below `identity` are delivered; 0 = all.
pub fn set_threshold(identity: u32) {
    set(THRESHOLD, u64::from(identity));
}

/// Sends a message to the file of hart `hart`.
pub fn send(hart: u64, identity: u32) {
    cpu::store32(BASE + hart * 0x1000, u64::from(identity));
}

/// The most urgent message, as `stopei` shows it (identity in bits 16 to 26), or 0.
pub fn top() -> u64 {
    cpu::stopei()
}

/// The same, and takes it.
pub fn claim() -> u64 {
    cpu::claim_stopei()
}
