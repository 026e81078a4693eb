//! Pages that have been taken up lately: that another report of one comes is no news.

use addr::{Mfn, NodeId};
use alloc::vec::Vec;

/// Places of [`Known`] for each node.
const PLACES: usize = 256;
/// What no page's word is.
const NOTHING: u64 = u64::MAX;
const TICK: u64 = 0xffff;

/// Pages that have been taken up lately. A place knows one page, so some are forgotten; then a page is tried twice, which the second
/// one finds out.
#[derive(Debug)]
pub struct Known<const N: usize>(Vec<u64>);

impl<const N: usize> Known<N> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether the page has been taken up for `node` in interval `tick`, or in the `before` ones.
    #[inline(always)]
    pub fn is_known(&self, page: Mfn, node: NodeId, tick: u16, before: u16) -> bool {
        let known = self.0.get(Self::place_of(page, node)).copied().unwrap_or(NOTHING);
        known & !TICK == key_of(page, node) && tick.wrapping_sub(known as u16) <= before
    }

    /// The page is taken up for `node` in interval `tick`.
    #[inline(always)]
    pub fn note(&mut self, page: Mfn, node: NodeId, tick: u16) {
        if self.0.is_empty() {
            self.0.resize(PLACES * N, NOTHING);
        }
        self.0[Self::place_of(page, node)] = key_of(page, node) | u64::from(tick);
    }

    /// Neighbours are neighbours here, and nodes far apart.
    #[inline(always)]
    const fn place_of(page: Mfn, node: NodeId) -> usize {
        (page.raw() as usize).wrapping_add(node.index() * PLACES) % (PLACES * N)
    }
}

/// The page's and the node's part of a word; the interval has the low 16 bits.
#[inline(always)]
const fn key_of(page: Mfn, node: NodeId) -> u64 {
    page.raw() << 24 | (node.0 as u64) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_for_its_node_and_a_while() {
        let mut known = Known::<8>::new();
        let (page, node) = (Mfn::new(0x12_3456), NodeId(3));
        assert!(!known.is_known(page, node, 0, 9));
        known.note(page, node, u16::MAX);
        assert!(known.is_known(page, node, u16::MAX, 0));
        assert!(known.is_known(page, node, 1, 2), "the clock has wrapped");
        assert!(!known.is_known(page, node, 2, 2));
        assert!(!known.is_known(page, NodeId(4), u16::MAX, 9));
        assert!(!known.is_known(Mfn::new(0x12_3457), node, u16::MAX, 9));
    }

    #[test]
    fn a_place_knows_the_last_of_its_pages() {
        let mut known = Known::<8>::new();
        known.note(Mfn::new(5), NodeId(0), 1);
        known.note(Mfn::new(5 + 8 * PLACES as u64), NodeId(0), 1);
        assert!(!known.is_known(Mfn::new(5), NodeId(0), 1, 0));
        assert!(known.is_known(Mfn::new(5 + 8 * PLACES as u64), NodeId(0), 1, 0));
    }

    #[test]
    fn nonsense_has_a_place_too() {
        let mut known = Known::<64>::new();
        for (page, node) in [(u64::MAX >> 12, 255), (0, 63), (u64::MAX >> 12, 0)] {
            known.note(Mfn::new(page), NodeId(node), 7);
            assert!(known.is_known(Mfn::new(page), NodeId(node), 7, 0));
        }
    }
}
