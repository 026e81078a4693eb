//! Which pages to look at where nobody counts misses.
//!
//! A look takes the leaves of some pages away; the next one sees which nodes' leaves came back: these nodes have used the
//! page meanwhile. [`LOOKS`] looks at the same pages are a round, and tell as much as an interval of miss counters does, only
//! more coarsely: a page that is used once a look seems as hot as one that is used all the time.
//!
//! Rounds go over a guest's memory again and again. A large page is one page to them. One whose users are several says
//! little: nearly every large page of a guest with several vCPUs is like that. So one of them at a time is *examined*: the
//! caller splits it, its single pages are looked at next, and if none of them found a better place it is put together again.

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use alloc::vec::Vec;

use crate::{Misses, NODES, NodeBits};

/// Looks in a round.
pub const LOOKS: u32 = 4;
/// Pages in a round: what a look costs, two or three memory accesses for each page and node.
pub const OPEN: usize = 128;
/// Guest pages without memory that are passed over in one look.
const SKIPS: usize = 256;

/// A page under observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<const N: usize = NODES> {
    /// Its (first) guest page.
    pub gfn: Gfn,
    /// The (first) machine page behind it; the master of replicas.
    pub page: Mfn,
    /// How much it is.
    pub size: PageSize,
    /// In how many looks each node had used it.
    pub seen: Misses<N>,
}

impl<const N: usize> Sample<N> {
    /// The nodes whose bits are set have used it since the last look.
    pub fn note(&mut self, users: NodeBits) {
        for (node, seen) in self.seen.iter_mut().enumerate() {
            *seen += (users >> node & 1) as u32;
        }
    }

    /// The node that has used it most, among those that pass.
    #[must_use]
    pub fn most(&self, passes: impl Fn(NodeId) -> bool) -> Option<(NodeId, u32)> {
        let nodes = (0..N as u8).map(NodeId).zip(self.seen);
        nodes.filter(|(node, seen)| *seen != 0 && passes(*node)).max_by_key(|(node, seen)| (*seen, N - node.index()))
    }
}

/// What is at a guest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Something that can be looked at.
    Page {
        /// Its first guest page.
        gfn: Gfn,
        /// The machine page behind that.
        page: Mfn,
        /// How much it is.
        size: PageSize,
    },
    /// Nothing, for so many pages from there on.
    Nothing {
        /// How many; at least one is taken.
        pages: u64,
    },
}

/// A block that was split to find out more about its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Examined {
    first: Gfn,
    /// Pages of it that rounds have begun with.
    done: u64,
}

/// The rounds over one guest's memory.
#[derive(Clone, Debug)]
pub struct Samples<const N: usize = NODES> {
    base: Gfn,
    pages: u64,
    /// Where the next round begins, from `base` on.
    next: u64,
    open: Vec<Sample<N>>,
    looks: u32,
    examined: Option<Examined>,
}

impl<const N: usize> Samples<N> {
    /// For a guest with `pages` pages from `base` on.
    #[must_use]
    pub const fn new(base: Gfn, pages: u64) -> Self {
        Self { base, pages, next: 0, open: Vec::new(), looks: 0, examined: None }
    }

    /// Whether a round is under way.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// One look: `look` notes what became of a page, and returns whether it is still what it was.
    pub fn look(&mut self, look: impl FnMut(&mut Sample<N>) -> bool) {
        self.open.retain_mut(look);
        self.looks += 1;
    }

    /// The pages of the round, if it has ended.
    pub fn take_round(&mut self) -> Option<Vec<Sample<N>>> {
        (self.looks >= LOOKS).then(|| {
            self.looks = 0;
            core::mem::take(&mut self.open)
        })
    }

    /// Begins a round with what `find` says is there.
    pub fn begin(&mut self, mut find: impl FnMut(Gfn) -> Found) {
        self.looks = 0;
        let mut left = self.pages;
        let mut skips = SKIPS;
        while self.open.len() < OPEN && skips > 0 && left > 0 {
            let Some(gfn) = self.wanted() else { return };
            let passed = match find(gfn) {
                Found::Page { gfn: first, page, size } => {
                    self.open.push(Sample { gfn: first, page, size, seen: [0; N] });
                    (first.raw() + size.base_pages()).saturating_sub(gfn.raw())
                }
                Found::Nothing { pages } => {
                    skips -= 1;
                    pages
                }
            };
            let passed = passed.max(1);
            self.pass(passed);
            left = left.saturating_sub(passed);
        }
    }

    fn wanted(&self) -> Option<Gfn> {
        match &self.examined {
            Some(block) if block.done < PAGES_PER_LARGE => Some(Gfn::new(block.first.raw() + block.done)),
            _ if self.pages == 0 => None,
            _ => Some(Gfn::new(self.base.raw() + self.next)),
        }
    }

    fn pass(&mut self, pages: u64) {
        match &mut self.examined {
            Some(block) if block.done < PAGES_PER_LARGE => block.done += pages,
            _ => {
                self.next += pages;
                if self.next >= self.pages {
                    self.next = 0;
                }
            }
        }
    }

    /// Whether no block is examined at present: there is one at a time.
    #[must_use]
    pub const fn can_examine(&self) -> bool {
        self.examined.is_none()
    }

    /// The block from `first` on has been split: its pages are next.
    pub fn examine(&mut self, first: Gfn) {
        self.examined = Some(Examined { first, done: 0 });
    }

    /// The block whose pages all have been looked at, to be put together if it can be. To be asked when a round's pages have
    /// been judged.
    pub fn take_examined(&mut self) -> Option<Gfn> {
        self.examined.take_if(|block| block.done >= PAGES_PER_LARGE && self.open.is_empty()).map(|block| block.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x8_0000;
    const PAGES: u64 = 4 * PAGES_PER_LARGE;

    /// Large pages, but for what `single` says.
    fn find(single: impl Fn(u64) -> bool) -> impl Fn(Gfn) -> Found {
        move |gfn| {
            let block = (gfn.raw() - BASE) / PAGES_PER_LARGE;
            if single(block) {
                return Found::Page { gfn, page: Mfn::new(gfn.raw()), size: PageSize::Base };
            }
            let gfn = gfn.large_base();
            Found::Page { gfn, page: Mfn::new(gfn.raw()), size: PageSize::Large }
        }
    }

    fn round(samples: &mut Samples, users: impl Fn(Gfn) -> NodeBits) -> Vec<Sample> {
        for look in 0..LOOKS {
            assert!(look == 0 || samples.take_round().is_none());
            samples.look(|sample| {
                sample.note(users(sample.gfn));
                true
            });
        }
        samples.take_round().expect("the round has ended")
    }

    #[test]
    fn a_round_counts_who_used_what() {
        let mut samples: Samples = Samples::new(Gfn::new(BASE), PAGES);
        assert_eq!((samples.take_round(), samples.is_open()), (None, false));
        samples.begin(find(|_| false));
        assert!(samples.is_open());
        let ended = round(&mut samples, |gfn| if gfn.raw() == BASE { 0b10 } else { 0b101 });
        assert_eq!(ended.len(), 4, "each large page once");
        assert_eq!(ended[0].seen[..3], [0, LOOKS, 0]);
        assert_eq!(ended[1].seen[..3], [LOOKS, 0, LOOKS]);
        assert_eq!(ended[0].most(|_| true), Some((NodeId(1), LOOKS)));
        assert_eq!(ended[1].most(|_| true), Some((NodeId(0), LOOKS)));
        assert_eq!(ended[1].most(|node| node != NodeId(0)), Some((NodeId(2), LOOKS)));
        assert_eq!(ended[0].most(|node| node == NodeId(7)), None);
    }

    #[test]
    fn rounds_go_over_all_memory() {
        let mut samples: Samples = Samples::new(Gfn::new(BASE), PAGES);
        let mut seen = Vec::new();
        for _ in 0..PAGES as usize / OPEN {
            samples.begin(find(|_| true));
            seen.extend(round(&mut samples, |_| 0).into_iter().map(|sample| sample.gfn.raw() - BASE));
        }
        assert_eq!(seen, (0..PAGES).collect::<Vec<_>>());
        samples.begin(find(|_| true));
        assert_eq!(samples.take_round(), None);
        samples.look(|_| false);
        assert!(!samples.is_open(), "what is gone is forgotten");
    }

    #[test]
    fn a_block_is_examined_and_then_given_back() {
        let mut samples: Samples = Samples::new(Gfn::new(BASE), PAGES);
        let first = Gfn::new(BASE + PAGES_PER_LARGE);
        samples.examine(first);
        for turn in 0..PAGES_PER_LARGE / OPEN as u64 {
            assert_eq!((samples.can_examine(), samples.take_examined()), (false, None));
            samples.begin(find(|block| block == 1));
            let ended = round(&mut samples, |_| 1);
            assert_eq!((ended.len(), ended[0].gfn.raw()), (OPEN, first.raw() + turn * OPEN as u64));
        }
        assert_eq!((samples.take_examined(), samples.can_examine()), (Some(first), true));
    }

    #[test]
    fn memory_that_is_not_there_costs_little() {
        let mut samples: Samples = Samples::new(Gfn::new(BASE), 1 << 30);
        let asked = core::cell::Cell::new(0);
        let nothing = |_| {
            asked.set(asked.get() + 1);
            Found::Nothing { pages: 0 }
        };
        samples.begin(nothing);
        assert_eq!(asked.get(), SKIPS);
        Samples::<NODES>::new(Gfn::new(BASE), 0).begin(|_| panic!("there is no memory"));
        let mut small: Samples = Samples::new(Gfn::new(BASE), 3);
        small.begin(|gfn| Found::Page { gfn, page: Mfn::new(1), size: PageSize::Base });
        assert_eq!(round(&mut small, |_| 0).len(), 3, "nothing twice in a round");
    }
}
