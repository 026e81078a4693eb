//! The VM's memory as blocks of 2 MiB, by node.

/// Bytes of a block: a large page.
pub const BLOCK: u64 = 2 << 20;
/// Most pieces of memory that are told apart: what a VM's nodes have, cut where something lies.
const PIECES: usize = 16;

/// Blocks from `next` up to `end`, on a node.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    next: u64,
    end: u64,
    node: u32,
}

/// Blocks that nobody uses yet.
#[derive(Debug)]
pub struct Pools {
    pieces: [Piece; PIECES],
    used: usize,
}

impl Pools {
    /// No blocks.
    pub const fn new() -> Self {
        Self { pieces: [Piece { next: 0, end: 0, node: 0 }; PIECES], used: 0 }
    }

    /// Adds the whole blocks of memory from `start` up to `end` on a node, less those that touch one of `holes` (start, end).
    /// What there is no room to note is left unused.
    pub fn add(&mut self, node: u32, start: u64, end: u64, holes: &[(u64, u64)]) {
        let Some(mut next) = start.checked_next_multiple_of(BLOCK) else { return };
        let end = end / BLOCK * BLOCK;
        while next < end {
            let is_hit = |hole: &&(u64, u64)| hole.0 < next + BLOCK && next < hole.1;
            if let Some(hole) = holes.iter().find(is_hit) {
                let Some(behind) = hole.1.checked_next_multiple_of(BLOCK) else { return };
                next = behind;
                continue;
            }
            let ahead = holes.iter().filter(|hole| hole.0 >= next).map(|hole| hole.0 / BLOCK * BLOCK).min();
            let stop = ahead.unwrap_or(end).min(end);
            let Some(piece) = self.pieces.get_mut(self.used) else { return };
            *piece = Piece { next, end: stop, node };
            self.used += 1;
            next = stop;
        }
    }

    /// How many blocks there are.
    pub fn count(&self) -> usize {
        self.pieces.iter().map(|piece| ((piece.end - piece.next) / BLOCK) as usize).sum()
    }

    /// A block of this node or, if it has none left, of another.
    pub fn take(&mut self, node: u32) -> Option<u64> {
        let has_some = |piece: &&mut Piece| piece.next < piece.end;
        let own = self.pieces.iter().position(|piece| piece.node == node && piece.next < piece.end);
        let piece = match own {
            Some(at) => self.pieces.get_mut(at),
            None => self.pieces.iter_mut().find(has_some),
        }?;
        piece.next += BLOCK;
        Some(piece.next - BLOCK)
    }
}

impl Default for Pools {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAM: u64 = 0x8000_0000;

    #[test]
    fn nothing_lies_in_a_hole() {
        let mut pools = Pools::new();
        // The image in the second block, and a device tree across the border of the last two of ten.
        let holes = [(RAM + BLOCK, RAM + BLOCK + 100), (RAM + 9 * BLOCK - 8, RAM + 9 * BLOCK + 8)];
        pools.add(0, RAM, RAM + 10 * BLOCK + 5, &holes);
        assert_eq!(pools.count(), 7);
        let mut seen = Vec::new();
        while let Some(block) = pools.take(0) {
            assert!(block.is_multiple_of(BLOCK) && !seen.contains(&block));
            assert!(holes.iter().all(|hole| block + BLOCK <= hole.0 || hole.1 <= block), "{block:#x}");
            seen.push(block);
        }
        assert_eq!(seen.len(), 7);
        assert_eq!(pools.count(), 0);
    }

    #[test]
    fn a_node_gives_its_own_first() {
        let mut pools = Pools::new();
        pools.add(0, RAM, RAM + 2 * BLOCK, &[]);
        pools.add(3, RAM + 2 * BLOCK, RAM + 3 * BLOCK, &[]);
        assert_eq!(pools.take(3), Some(RAM + 2 * BLOCK));
        assert_eq!(pools.take(3), Some(RAM));
        assert_eq!(pools.take(0), Some(RAM + BLOCK));
        assert_eq!(pools.take(0), None);
    }

    #[test]
    fn strange_memory_adds_nothing() {
        let mut pools = Pools::new();
        pools.add(0, u64::MAX, u64::MAX, &[]);
        pools.add(0, RAM + 1, RAM + BLOCK, &[]);
        pools.add(0, RAM, RAM - 1, &[]);
        pools.add(0, RAM, RAM + BLOCK, &[(0, u64::MAX)]);
        assert_eq!((pools.count(), pools.take(0)), (0, None));
    }
}
