//! Machine pages: which node's, whose, and how often they were missed on.

use addr::{Mfn, NodeId, PAGES_PER_LARGE};
use placement::Misses;

/// Pages of a node's address range: its number is in the bits above.
const NODE_SHIFT: u32 = 24;

/// A machine page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<const N: usize> {
    /// The guest and its page that it backs.
    pub owner: Option<(usize, u64)>,
    misses: Misses<N>,
    /// The misses are of this time of the counters, or none.
    epoch: u32,
}

impl<const N: usize> Row<N> {
    const FREE: Self = Self { owner: None, misses: [0; N], epoch: 0 };
}

/// One node's pages.
#[derive(Clone, Debug, Default)]
struct Bank<const N: usize> {
    rows: Vec<Row<N>>,
    /// Pages that were given back.
    free: Vec<u64>,
    /// The same, of whole blocks.
    free_blocks: Vec<u64>,
}

/// All pages.
#[derive(Clone, Debug)]
pub(super) struct Memory<const N: usize> {
    banks: Vec<Bank<N>>,
    pages_per_node: u64,
    epoch: u32,
}

/// The node of a page.
pub(super) const fn node_of(page: Mfn) -> NodeId {
    NodeId((page.raw() >> NODE_SHIFT) as u8)
}

const fn index_of(page: Mfn) -> usize {
    (page.raw() & ((1 << NODE_SHIFT) - 1)) as usize
}

impl<const N: usize> Memory<N> {
    pub fn new(nodes: usize, pages_per_node: u64) -> Self {
        let banks = vec![Bank { rows: Vec::new(), free: Vec::new(), free_blocks: Vec::new() }; nodes];
        Self { banks, pages_per_node, epoch: 1 }
    }

    /// A page of this node, for that guest page.
    pub fn take(&mut self, node: NodeId, owner: (usize, u64)) -> Option<Mfn> {
        let bank = self.banks.get_mut(node.index())?;
        let index = match bank.free.pop() {
            Some(index) => index,
            None => {
                let next = bank.rows.len() as u64;
                let block = if next < self.pages_per_node { None } else { Some(bank.free_blocks.pop()?) };
                match block {
                    Some(first) => {
                        bank.free.extend((first + 1..first + PAGES_PER_LARGE).rev());
                        first
                    }
                    None => {
                        bank.rows.push(Row::FREE);
                        next
                    }
                }
            }
        };
        bank.rows[index as usize] = Row { owner: Some(owner), ..Row::FREE };
        Some(Mfn::new(u64::from(node.0) << NODE_SHIFT | index))
    }

    /// A whole block of this node, for the guest's pages from there on.
    pub fn take_block(&mut self, node: NodeId, (guest, first_page): (usize, u64)) -> Option<Mfn> {
        let bank = self.banks.get_mut(node.index())?;
        let first = match bank.free_blocks.pop() {
            Some(first) => first,
            None => {
                let end = bank.rows.len() as u64;
                let first = end.next_multiple_of(PAGES_PER_LARGE);
                if first + PAGES_PER_LARGE > self.pages_per_node {
                    return None;
                }
                bank.rows.resize((first + PAGES_PER_LARGE) as usize, Row::FREE);
                // What is left out on the way to the next block is for single pages.
                bank.free.extend(end..first);
                first
            }
        };
        for at in 0..PAGES_PER_LARGE {
            bank.rows[(first + at) as usize] = Row { owner: Some((guest, first_page + at)), ..Row::FREE };
        }
        Some(Mfn::new(u64::from(node.0) << NODE_SHIFT | first))
    }

    /// Gives a page back.
    pub fn free(&mut self, page: Mfn) {
        let Some(bank) = self.banks.get_mut(node_of(page).index()) else { return };
        bank.rows[index_of(page)] = Row::FREE;
        bank.free.push(index_of(page) as u64);
    }

    /// Gives a whole block back.
    pub fn free_block(&mut self, first: Mfn) {
        let Some(bank) = self.banks.get_mut(node_of(first).index()) else { return };
        let index = index_of(first);
        bank.rows[index..index + PAGES_PER_LARGE as usize].fill(Row::FREE);
        bank.free_blocks.push(index as u64);
    }

    pub fn row(&self, page: Mfn) -> Option<&Row<N>> {
        self.banks.get(node_of(page).index())?.rows.get(index_of(page))
    }

    /// So many more misses of a node on a page; whether it has become hot by them.
    pub fn miss(&mut self, page: Mfn, by: NodeId, misses: u32, threshold: u32) -> bool {
        let epoch = self.epoch;
        let row = self.banks.get_mut(node_of(page).index()).and_then(|bank| bank.rows.get_mut(index_of(page)));
        let Some(row) = row else { return false };
        if row.epoch != epoch {
            (row.epoch, row.misses) = (epoch, [0; N]);
        }
        let Some(count) = row.misses.get_mut(by.index()) else { return false };
        let before = *count;
        *count = before.saturating_add(misses);
        threshold != 0 && by != node_of(page) && before < threshold && *count >= threshold
    }

    pub fn add_misses(&self, first: Mfn, pages: u64, to: &mut Misses<N>) {
        for page in first.raw()..first.raw().saturating_add(pages) {
            let Some(row) = self.row(Mfn::new(page)).filter(|row| row.epoch == self.epoch) else { continue };
            to.iter_mut().zip(row.misses).for_each(|(to, misses)| *to = to.saturating_add(misses));
        }
    }

    /// All counters begin at 0 again.
    pub const fn count_anew(&mut self) {
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_as_many_pages_as_it_has() {
        let mut memory = Memory::<4>::new(2, 1024);
        let single = memory.take(NodeId(1), (0, 7)).unwrap();
        let block = memory.take_block(NodeId(1), (0, 512)).unwrap();
        assert_eq!((node_of(single), node_of(block), block.raw() % 512), (NodeId(1), NodeId(1), 0));
        assert_eq!(memory.take_block(NodeId(1), (0, 1024)), None);
        let singles = std::iter::from_fn(|| memory.take(NodeId(1), (0, 0))).count();
        assert_eq!(singles, 511);
        memory.free_block(block);
        assert_eq!(memory.row(block).unwrap().owner, None);
        assert_eq!(std::iter::from_fn(|| memory.take(NodeId(1), (0, 0))).count(), 512, "a block is pages, too");
        assert_eq!(memory.take(NodeId(2), (0, 0)), None);
    }

    #[test]
    fn a_page_becomes_hot_once() {
        let mut memory = Memory::<4>::new(2, 1024);
        let page = memory.take(NodeId(1), (0, 7)).unwrap();
        assert!(!memory.miss(page, NodeId(0), 31, 32));
        assert!(memory.miss(page, NodeId(0), 1, 32));
        assert!(!memory.miss(page, NodeId(0), 100, 32));
        assert!(!memory.miss(page, NodeId(1), 100, 32), "it is at home");
        let mut misses = [0; 4];
        memory.add_misses(page, 1, &mut misses);
        assert_eq!(misses, [132, 100, 0, 0]);
        memory.count_anew();
        memory.add_misses(page, 1, &mut misses);
        assert_eq!(misses, [132, 100, 0, 0], "nothing since");
        assert!(memory.miss(page, NodeId(0), 32, 32));
    }
}
