//! Addresses for interfaces whose description gives none.

use control::MacAddress;

/// Bits of the first byte (IEEE 802-2014, 8.4): not a group's; administered locally.
const GROUP: u8 = 1;
const LOCAL: u8 = 2;

/// The address of interface `position` of VM `vm` on machine `machine`: always the same for the same names, so that a
/// guest keeps its lease and its configuration, and another one on another machine in the same network.
#[must_use]
pub fn derive_mac(machine: &str, vm: &str, position: usize) -> MacAddress {
    // Names do not contain zero bytes: "a", "bc" and "ab", "c" differ.
    let text = machine.bytes().chain([0]).chain(vm.bytes()).chain([0]).chain((position as u64).to_le_bytes());
    let [.., a, b, c, d, e, f] = mixed(text.fold(0xcbf2_9ce4_8422_2325, fnv_step)).to_be_bytes();
    MacAddress([a & !GROUP | LOCAL, b, c, d, e, f])
}

/// FNV-1a.
const fn fnv_step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Spreads the last bytes over all bits, as FNV does not.
const fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::format;

    #[test]
    fn is_a_local_address_of_one_interface() {
        for position in 0..1_000 {
            let mac = derive_mac("machine", "vm", position);
            assert!(!mac.is_multicast());
            assert_eq!(mac.0[0] & LOCAL, LOCAL);
        }
    }

    #[test]
    fn stays_the_same() {
        assert_eq!(derive_mac("demo", "one", 0), derive_mac("demo", "one", 0));
    }

    #[test]
    fn differs_by_machine_vm_and_position() {
        let mut seen = BTreeSet::new();
        for machine in ["a", "ab", "demo"] {
            for vm in 0..64 {
                for position in 0..8 {
                    assert!(seen.insert(derive_mac(machine, &format!("debian-{vm}"), position)));
                }
            }
        }
        assert_ne!(derive_mac("a", "bc", 0), derive_mac("ab", "c", 0));
    }
}
