//! What a cell is told where it begins: where its tree and bundle are, and what is not to be used. Plain bytes in its own
//! memory, written by the cell that starts it before it does.

use crate::machine::{boards, direct};
use ::cell::board::CELLS;
use addr::MachineAddr;
use machine_tree::AddressRange;

/// "MBCELL02".
const MAGIC: u64 = u64::from_le_bytes(*b"MBCELL02");
/// Where the addresses of the boards begin.
const BOARDS_AT: usize = 14;
/// Words of a handover.
const WORDS: usize = BOARDS_AT + CELLS;
/// Bytes of it.
pub const BYTES: u64 = 8 * WORDS as u64;

/// Where a cell begins.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    /// Its position among the machine's cells.
    pub cell: usize,
    /// Nanoseconds since 1970 at `time` = 0: only the first cell can ask the machine's clock.
    pub epoch_ns: Option<u64>,
    /// The device tree.
    pub tree: AddressRange,
    /// The boot bundle; empty if there is none.
    pub bundle: AddressRange,
    /// What is not to be used although no reservation names it: the firmware's tree, the first cell's image and its bundle.
    pub kept: [AddressRange; 3],
    /// Where all cells' boards are.
    pub boards: boards::Places,
}

impl Handover {
    /// Writes it to `at`, memory that nobody uses.
    pub fn write(&self, at: MachineAddr) {
        let mut words = [0; WORDS];
        let epoch = self.epoch_ns.unwrap_or_default();
        words[..4].copy_from_slice(&[MAGIC, self.cell as u64, self.epoch_ns.is_some().into(), epoch]);
        let ranges = [self.tree, self.bundle, self.kept[0], self.kept[1], self.kept[2]];
        for (pair, range) in words[4..BOARDS_AT].chunks_exact_mut(2).zip(ranges) {
            pair.copy_from_slice(&[range.start().raw(), range.bytes()]);
        }
        // No board is at address 0.
        for (word, board) in words[BOARDS_AT..].iter_mut().zip(self.boards) {
            *word = board.map_or(0, MachineAddr::raw);
        }
        for (index, word) in (0..).zip(words) {
            direct::write_u64(MachineAddr::new(at.raw() + 8 * index), word);
        }
    }

    /// Reads it from `at`.
    ///
    /// # Panics
    /// If there is none: then this image was entered by somebody who is no monitor.
    #[must_use]
    pub fn read(at: MachineAddr) -> Self {
        let word = |index: u64| direct::read_u64(MachineAddr::new(at.raw() + 8 * index));
        assert!(word(0) == MAGIC, "no handover to a cell at {at:?}");
        let range = |index| AddressRange::new(MachineAddr::new(word(index)), word(index + 1));
        let range = |index| range(index).unwrap_or_else(|| panic!("the handover to a cell at {at:?} is damaged"));
        let epoch_ns = (word(2) != 0).then(|| word(3));
        let kept = [range(8), range(10), range(12)];
        let board = |cell| Some(MachineAddr::new(word((BOARDS_AT + cell) as u64))).filter(|at| at.raw() != 0);
        let boards = core::array::from_fn(board);
        Self { cell: word(1) as usize, epoch_ns, tree: range(4), bundle: range(6), kept, boards }
    }
}
