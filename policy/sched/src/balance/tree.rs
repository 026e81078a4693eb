//! The load tree: what the periodic balancer knows of harts far away, and who balances what, and when.
//!
//! A binary tree over the machine: its nodes in halves until one is left, then the harts of that in halves. A *region* is a part of at
//! most eight harts. Each hart keeps its own leaf. The first hart of a region adds its leaves up every 10 ms and balances it; the first
//! hart of a larger part does so half as often for each level above (Cellular Disco, section 4.2). So every word has one writer, half
//! as many harts come to each level, and what balancing costs a hart does not grow with the machine.
//!
//! Departure from the paper: inside a region the balancer looks at all harts, so the tree has no sums there.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use addr::{CpuIndex, NodeId};

/// Most harts of a region.
pub const REGION: usize = 8;

/// A part of the machine that is balanced at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its harts.
    pub harts: Range<usize>,
    /// The first hart of its second half, where only moves between the halves are of interest; `None`: a region.
    pub split: Option<usize>,
}

impl Domain {
    /// So many harts as one region, from the first on.
    #[must_use]
    pub const fn region(harts: usize) -> Self {
        Self { harts: 0..harts, split: None }
    }

    /// Whether a hart is in it.
    #[must_use]
    pub fn has(&self, hart: CpuIndex) -> bool {
        self.harts.contains(&hart.index())
    }

    /// Its halves.
    #[must_use]
    pub fn halves(&self) -> Option<[Range<usize>; 2]> {
        self.split.map(|split| [self.harts.start..split, split..self.harts.end])
    }
}

/// What harts have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Weights of runnable vCPUs, added up.
    pub weight: u32,
    /// How many these are.
    pub runnable: u32,
}

impl Sum {
    const fn word(self) -> u64 {
        (self.weight as u64) << 32 | self.runnable as u64
    }

    const fn from_word(word: u64) -> Self {
        Self { weight: (word >> 32) as u32, runnable: word as u32 }
    }

    const fn and(self, other: Self) -> Self {
        Self {
            weight: self.weight.saturating_add(other.weight),
            runnable: self.runnable.saturating_add(other.runnable),
        }
    }
}

/// A part of the tree: a region, or two parts together.
#[derive(Debug)]
struct Part {
    domain: Domain,
    children: Option<(usize, usize)>,
    parent: Option<usize>,
    /// It is balanced every 10 ms times two to the power of this.
    level: u32,
    sum: AtomicU64,
}

/// The load tree. Shared by all harts, without a lock: words that are a little old make a proposal a little worse.
#[derive(Debug)]
pub struct LoadTree {
    leaves: Vec<AtomicU64>,
    /// Children before their parents.
    parts: Vec<Part>,
    /// The region of each hart.
    region_of: Vec<usize>,
}

impl LoadTree {
    /// The tree of a machine whose harts are on these nodes.
    #[must_use]
    pub fn new(nodes: &[NodeId]) -> Self {
        // Bounded: harts of the machine, twice.
        let mut tree = Self {
            leaves: nodes.iter().map(|_| AtomicU64::new(0)).collect(),
            parts: Vec::new(),
            region_of: nodes.iter().map(|_| 0).collect(),
        };
        let runs = runs(nodes);
        if !runs.is_empty() {
            tree.add(&runs);
        }
        tree
    }

    /// Adds the part of these runs of harts; which one that is. As deep as the logarithm of the machine.
    fn add(&mut self, runs: &[Range<usize>]) -> usize {
        let (first, last) = (runs.first().map_or(0, |run| run.start), runs.last().map_or(0, |run| run.end));
        if last - first <= REGION {
            let at = self.push(Domain { harts: first..last, split: None }, None, 0);
            self.region_of.iter_mut().skip(first).take(last - first).for_each(|region| *region = at);
            return at;
        }
        let middle = first + (last - first) / 2;
        let one = [first..middle, middle..last];
        let (left, right) = match runs {
            [_] => one.split_at(1),
            several => several.split_at(several.len() / 2),
        };
        let split = right.first().map_or(last, |run| run.start);
        let children = (self.add(left), self.add(right));
        let level = |child: usize| self.parts.get(child).map_or(0, |part| part.level);
        let level = 1 + level(children.0).max(level(children.1));
        self.push(Domain { harts: first..last, split: Some(split) }, Some(children), level)
    }

    fn push(&mut self, domain: Domain, children: Option<(usize, usize)>, level: u32) -> usize {
        let at = self.parts.len();
        for child in children.into_iter().flat_map(|(left, right)| [left, right]) {
            if let Some(part) = self.parts.get_mut(child) {
                part.parent = Some(at);
            }
        }
        self.parts.push(Part { domain, children, parent: None, level, sum: AtomicU64::new(0) });
        at
    }

    /// A hart has so much to do. By that hart alone.
    #[inline]
    pub fn note(&self, hart: CpuIndex, sum: Sum) {
        if let Some(leaf) = self.leaves.get(hart.index()) {
            leaf.store(sum.word(), Relaxed);
        }
    }

    /// What a hart has noted.
    #[must_use]
    pub fn leaf(&self, hart: CpuIndex) -> Sum {
        Sum::from_word(self.leaves.get(hart.index()).map_or(0, |leaf| leaf.load(Relaxed)))
    }

    /// Whether a hart is the first of its region: it balances that, and what it is the first of besides.
    #[must_use]
    pub fn leads(&self, hart: CpuIndex) -> bool {
        self.region(hart).is_some_and(|region| region.domain.harts.start == hart.index())
    }

    /// What the first hart of a region is to balance in its `tick`th 10 ms, from the region upwards. Their sums are brought up to
    /// date first; parts with nothing to even out are left out.
    pub fn due(&self, leader: CpuIndex, tick: u64) -> impl Iterator<Item = &Domain> {
        let first = self.region(leader).filter(|_| self.leads(leader));
        let above = move |part: &&Part| self.parts.get(part.parent?);
        let is_ours = move |part: &&Part| {
            part.domain.harts.start == leader.index() && tick.is_multiple_of(1_u64.checked_shl(part.level).unwrap_or(0))
        };
        let parts = core::iter::successors(first, move |part| above(part)).take_while(is_ours);
        parts.filter(|part| self.refresh(part)).map(|part| &part.domain)
    }

    /// The harts among which one looks that has been idle for `steps` long times: its region, and a level more for each.
    #[must_use]
    pub fn neighbourhood(&self, hart: CpuIndex, steps: u64) -> Range<usize> {
        let above = |part: &&Part| self.parts.get(part.parent?);
        let parts = core::iter::successors(self.region(hart), above);
        parts.take(steps.min(64) as usize + 1).last().map_or(0..0, |part| part.domain.harts.clone())
    }

    fn region(&self, hart: CpuIndex) -> Option<&Part> {
        self.parts.get(*self.region_of.get(hart.index())?)
    }

    /// Adds up; whether there is anything to balance in it.
    fn refresh(&self, part: &Part) -> bool {
        let Some((left, right)) =
            part.children.and_then(|(left, right)| Some((self.parts.get(left)?, self.parts.get(right)?)))
        else {
            let harts = part.domain.harts.clone();
            let leaves = harts.filter_map(|hart| self.leaves.get(hart)).map(|leaf| Sum::from_word(leaf.load(Relaxed)));
            part.sum.store(leaves.fold(Sum::default(), Sum::and).word(), Relaxed);
            return true;
        };
        let sums = [left, right].map(|side| Sum::from_word(side.sum.load(Relaxed)));
        part.sum.store(sums.into_iter().fold(Sum::default(), Sum::and).word(), Relaxed);
        let [left, right] =
            [(left, sums[0]), (right, sums[1])].map(|(part, sum)| (part.domain.harts.len() as u64, sum));
        has_room(left) || has_room(right) || is_uneven(left, right)
    }
}

/// Whether some hart of a side has nothing to do: somebody may come home.
fn has_room((harts, sum): (u64, Sum)) -> bool {
    u64::from(sum.runnable) < harts
}

/// Whether the sides differ by a vCPU at least, for as many harts each.
fn is_uneven(left: (u64, Sum), right: (u64, Sum)) -> bool {
    let per = |(_, sum): (u64, Sum), harts: u64| u64::from(sum.weight) * harts;
    let all = left.1.and(right.1);
    let vcpu = u64::from(all.weight).checked_div(u64::from(all.runnable)).unwrap_or(0);
    per(left, right.0).abs_diff(per(right, left.0)) >= vcpu * left.0.min(right.0)
}

/// Harts one after the other that are on one node.
fn runs(nodes: &[NodeId]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut last = None;
    for (hart, node) in nodes.iter().enumerate() {
        match runs.last_mut().filter(|_| last == Some(node)) {
            Some(run) => run.end = hart + 1,
            None => runs.push(hart..hart + 1),
        }
        last = Some(node);
    }
    runs
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are compared, and one range is a list, too")]
mod tests {
    use super::*;

    fn tree(harts_of_nodes: &[usize]) -> LoadTree {
        let nodes = (0..).zip(harts_of_nodes);
        let nodes: Vec<_> = nodes.flat_map(|(node, harts)| core::iter::repeat_n(NodeId(node), *harts)).collect();
        LoadTree::new(&nodes)
    }

    fn due(tree: &LoadTree, leader: u16, tick: u64) -> Vec<Range<usize>> {
        tree.due(CpuIndex(leader), tick).map(|domain| domain.harts.clone()).collect()
    }

    #[test]
    fn a_small_machine_is_one_region() {
        for nodes in [&[8][..], &[2, 2, 2, 2], &[1, 3, 1], &[1]] {
            let tree = tree(nodes);
            let harts: usize = nodes.iter().sum();
            assert!(due(&tree, 0, 1) == [0..harts] && tree.leads(CpuIndex(0)));
            assert!((1..harts as u16).all(|hart| !tree.leads(CpuIndex(hart)) && due(&tree, hart, 0).is_empty()));
        }
        assert!(due(&tree(&[]), 0, 0).is_empty());
    }

    #[test]
    fn each_level_is_balanced_half_as_often_by_half_as_many() {
        let tree = tree(&[8; 8]);
        assert_eq!(due(&tree, 0, 0), [0..8, 0..16, 0..32, 0..64]);
        assert_eq!(
            (due(&tree, 0, 1), due(&tree, 0, 2), due(&tree, 0, 4)),
            ([0..8].into(), [0..8, 0..16].into(), [0..8, 0..16, 0..32].into())
        );
        assert_eq!((due(&tree, 8, 0), due(&tree, 16, 0)), ([8..16].into(), [16..24, 16..32].into()));
        let comes = |tick| (0..64).flat_map(|hart| due(&tree, hart, tick)).count();
        assert_eq!((comes(0), comes(1), comes(2)), (15, 8, 12));
        let all: usize = (0..8)
            .map(|tick| (0..64).flat_map(|hart| due(&tree, hart, tick)).map(|harts| harts.len()).sum::<usize>())
            .sum();
        assert_eq!(all, 64 * 8 + 64 * 4 + 64 * 2 + 64, "harts that are looked at in 80 ms");
    }

    #[test]
    fn nodes_are_kept_together() {
        let tree = tree(&[6, 6, 4]);
        assert_eq!(due(&tree, 0, 0), [0..6, 0..16]);
        assert_eq!((due(&tree, 6, 0), due(&tree, 12, 0)), ([6..12, 6..16].into(), [12..16].into()));
        assert_eq!(tree.due(CpuIndex(0), 0).last().and_then(Domain::halves), Some([0..6, 6..16]));
        // A node of more harts than a region.
        assert_eq!(due(&self::tree(&[20]), 0, 0), [0..5, 0..10, 0..20]);
    }

    #[test]
    fn even_parts_are_left_alone() {
        let tree = tree(&[8, 8]);
        let note = |hart, runnable| tree.note(CpuIndex(hart), Sum { weight: 100 * runnable, runnable });
        let look = || [8, 0].map(|leader| due(&tree, leader, 0));
        (0..16).for_each(|hart| note(hart, 2));
        assert_eq!(look()[1], [0..8], "both halves have as much");
        note(9, 3);
        assert_eq!(look()[1], [0..8, 0..16], "one more on one side");
        (0..16).for_each(|hart| note(hart, 1));
        assert_eq!(look()[1], [0..8]);
        note(3, 0);
        assert_eq!(look()[1], [0..8, 0..16], "there is room");
    }

    #[test]
    fn who_idles_for_long_looks_further() {
        let tree = tree(&[8; 4]);
        assert_eq!([0, 1, 2, 9].map(|steps| tree.neighbourhood(CpuIndex(17), steps)), [16..24, 16..32, 0..32, 0..32]);
    }
}
