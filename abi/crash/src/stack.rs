//! Return addresses on a stack. The monitor is built without frame pointers, and its image has no unwind tables: whatever on the stack
//! points behind a call is taken for a return address. Old ones that were not overwritten are among them.

/// Writes into `found` those of `words` that `is_behind_call`, in order; how many there are.
pub fn find_calls(
    words: impl Iterator<Item = u64>,
    mut is_behind_call: impl FnMut(u64) -> bool,
    found: &mut [u64],
) -> usize {
    let mut count = 0;
    for word in words {
        let Some(place) = found.get_mut(count) else { break };
        if is_behind_call(word) {
            *place = word;
            count += 1;
        }
    }
    count
}

/// Whether the last instruction in these four bytes, as two parcels of 16 bits in the order of memory, is a call: one that leaves
/// its return address in `ra`.
#[must_use]
pub const fn ends_a_call(parcels: [u16; 2]) -> bool {
    const RA: u32 = 1;
    let [low, high] = parcels;
    // c.jalr rs1: 1001 rs1 00000 10, with rs1 not 0 (that is c.ebreak).
    let is_compressed = high & 0xf07f == 0x9002 && high & 0x0f80 != 0;
    let word = (high as u32) << 16 | low as u32;
    let (opcode, rd, funct3) = (word & 0x7f, word >> 7 & 0x1f, word >> 12 & 7);
    let is_long = rd == RA && (opcode == 0x6f || opcode == 0x67 && funct3 == 0);
    is_compressed || is_long
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn parcels(word: u32) -> [u16; 2] {
        [word as u16, (word >> 16) as u16]
    }

    #[test]
    fn calls_are_told_from_jumps_and_returns() {
        assert!(ends_a_call(parcels(0x0080_00ef)), "jal ra, 8");
        assert!(ends_a_call(parcels(0x000c_80e7)), "jalr ra, 0(s9)");
        assert!(ends_a_call([0, 0x9782]), "c.jalr a5");
        assert!(!ends_a_call(parcels(0x0080_006f)), "j 8");
        assert!(!ends_a_call(parcels(0x0000_8067)), "jr ra");
        assert!(!ends_a_call([0, 0x9002]), "c.ebreak");
        assert!(!ends_a_call([0, 0x8782]), "c.jr a5");
        assert!(!ends_a_call([0, 0]));
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let mut found = [0; 3];
        assert_eq!(find_calls([1, 2, 4, 6, 8, 10].into_iter(), |word| word % 2 == 0, &mut found), 3);
        assert_eq!(found, [2, 4, 6]);
        assert_eq!(find_calls([1, 3].into_iter(), |word| word % 2 == 0, &mut found), 0);
    }
}
