//! Walking one-stage tables in software: what a guest's own tables say of an address.

use addr::Mfn;

use crate::{Decoded, Leaf, Level, Pte, Satp};

/// What tables say of an address: its leaf, and the level at which that was found; no leaf means that nothing is mapped in all
/// that one entry of that level stands for.
///
/// `read` gives an entry of a table by the table's frame and the entry's index; `None` ends the walk as an invalid entry does. The
/// frames are whatever the root's owner counts in: a guest's are guest frames.
pub fn walk(root: Satp, address: u64, mut read: impl FnMut(Mfn, usize) -> Option<u64>) -> (Level, Option<Leaf>) {
    let (mut level, mut table) = (root.mode.root_level(), root.root);
    loop {
        let entry = read(table, root.mode.index(level, address)).map(|raw| Pte::from_raw(raw).decode(level));
        match (entry, level.down()) {
            (Some(Ok(Decoded::Leaf(leaf))), _) => return (level, Some(leaf)),
            (Some(Ok(Decoded::Table(next))), Some(lower)) => (level, table) = (lower, next),
            _ => return (level, None),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeMap;

    use super::*;
    use crate::{Mode, Pbmt, PteFlags};

    const ROOT: Satp = Satp { mode: Mode::Sv39, asid: 3, root: Mfn::new(0x1000) };
    const FLAGS: PteFlags = PteFlags::RX;

    /// Entries by table and index.
    fn tables() -> BTreeMap<(u64, usize), u64> {
        let table = |frame| Pte::table(Mfn::new(frame)).expect("a frame").raw();
        let leaf = |frame, level| {
            Pte::leaf(Mfn::new(frame), level, FLAGS.union(PteFlags::AD), Pbmt::Pma).expect("a leaf").raw()
        };
        BTreeMap::from([
            ((0x1000, 508), table(0x2000)),
            ((0x1000, 509), 1 << 60 | 1),
            ((0x2000, 0), table(0x3000)),
            ((0x2000, 1), leaf(0x8_0200, Level::LARGE)),
            ((0x3000, 7), leaf(0x8_1234, Level::BASE)),
            // A pointer where only leaves may be.
            ((0x3000, 8), table(0x4000)),
        ])
    }

    #[test]
    fn finds_what_is_mapped_and_how_much_is_not() {
        let tables = tables();
        let look = |address| {
            let (level, leaf) = walk(ROOT, address, |table, index| tables.get(&(table.raw(), index)).copied());
            (level, leaf.map(|leaf| leaf.frame.raw()))
        };
        const BASE: u64 = 0xffff_ffff_0000_0000;
        assert_eq!(look(BASE + 0x7000), (Level::BASE, Some(0x8_1234)));
        assert_eq!(look(BASE + 0x7fff), (Level::BASE, Some(0x8_1234)));
        assert_eq!(look(BASE + 0x6000), (Level::BASE, None));
        assert_eq!(look(BASE + 0x8000), (Level::BASE, None));
        assert_eq!(look(BASE + 0x20_3000), (Level::LARGE, Some(0x8_0200)));
        assert_eq!(look(BASE + 0x40_0000), (Level::LARGE, None));
        assert_eq!(look(BASE + 0x4000_0000), (Level::GIGA, None), "reserved bits");
        assert_eq!(look(0), (Level::GIGA, None));
    }
}
