//! Who maps a page: the first in its row, further ones in chains.

use addr::Mfn;

use crate::entry::{NO_OWNER, unpack_owner};
use crate::links::{Link, Links, NIL};
use crate::{MachineMemory, MemMapEntry, PageOwner};

/// References to a page, at most: whoever lets go of one walks the others with the node's lock held, and guests choose how many
/// there are. 512 steps are 0.2 ms where memory is far (FLASH).
pub const MOST_REFERENCES: u32 = 512;

/// A row without a chain.
pub(crate) const NO_CHAIN: u32 = NIL;

/// What came of a new reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// It is there. `is_first`: before, nobody mapped the page.
    Done {
        /// Whether it is the page's only one.
        is_first: bool,
    },
    /// There is no link: [`Chains::add_page`], then again.
    NoLink,
    /// There are [`MOST_REFERENCES`].
    TooMany,
}

/// What came of the end of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detached {
    /// References left.
    pub(crate) left: u32,
    /// Nobody maps the page any more.
    pub(crate) was_last_owner: bool,
    /// A page that held links and is not needed any more.
    pub(crate) page: Option<Mfn>,
}

/// The chains of one node's pages. Guarded by the node's lock. A guest page may be in a chain twice: mapped again before
/// the shootdown of its last mapping has ended.
#[derive(Debug)]
pub(crate) struct Chains {
    links: Links,
}

impl Chains {
    pub(crate) const fn new() -> Self {
        Self { links: Links::new() }
    }

    /// A page for links.
    pub(crate) fn add_page<M: MachineMemory>(&mut self, memory: &M, first: Mfn, page: Mfn) -> bool {
        self.links.add_page(memory, first, page)
    }

    /// One more guest page (an owner word) maps the page of `entry`.
    #[inline(always)]
    pub(crate) fn attach<M: MachineMemory>(&mut self, memory: &M, entry: &MemMapEntry, back: u64) -> Attached {
        let (references, chain) = entry.references();
        if references >= MOST_REFERENCES {
            return Attached::TooMany;
        }
        let more = references + 1;
        if entry.back() == NO_OWNER {
            entry.set_back(back);
            entry.set_references(more, chain);
            return Attached::Done { is_first: true };
        }
        let Some(link) = self.links.take(memory, Link { back, next: chain }) else { return Attached::NoLink };
        entry.set_references(more, link);
        Attached::Done { is_first: false }
    }

    /// A guest page no longer maps the page of `entry`. `None` if it did not.
    #[inline(always)]
    pub(crate) fn detach<M: MachineMemory>(&mut self, memory: &M, entry: &MemMapEntry, back: u64) -> Option<Detached> {
        let (references, chain) = entry.references();
        let left = references.checked_sub(1)?;
        if entry.back() == back && chain == NIL {
            entry.set_back(NO_OWNER);
            entry.set_references(left, NIL);
            return Some(Detached { left, was_last_owner: true, page: None });
        }
        self.detach_link(memory, entry, back)
    }

    /// The same where there are links.
    #[inline(never)]
    fn detach_link<M: MachineMemory>(&mut self, memory: &M, entry: &MemMapEntry, back: u64) -> Option<Detached> {
        let (references, chain) = entry.references();
        let left = references.checked_sub(1)?;
        let (chain, unused) =
            if entry.back() == back { self.promote(memory, entry, chain) } else { self.cut(memory, chain, back)? };
        entry.set_references(left, chain);
        let page = if unused == NIL { None } else { self.links.give(memory, unused) };
        Some(Detached { left, was_last_owner: entry.back() == NO_OWNER, page })
    }

    /// The guest pages that map the page of `entry`.
    pub(crate) fn owners<M: MachineMemory>(&self, memory: &M, entry: &MemMapEntry) -> impl Iterator<Item = PageOwner> {
        let mut at = entry.references().1;
        let chain = core::iter::from_fn(move || {
            let link = (at != NIL).then(|| self.links.get(memory, at))?;
            at = link.next;
            Some(link.back)
        });
        core::iter::once(entry.back()).chain(chain).filter_map(unpack_owner)
    }

    /// The inline back-map went: the chain's first takes its place. Returns the new chain and the link not needed.
    fn promote<M: MachineMemory>(&self, memory: &M, entry: &MemMapEntry, chain: u32) -> (u32, u32) {
        if chain == NIL {
            entry.set_back(NO_OWNER);
            return (NIL, NIL);
        }
        let first = self.links.get(memory, chain);
        entry.set_back(first.back);
        (first.next, chain)
    }

    /// Takes the link that says `back` out of a chain. Returns the chain's new head and that link.
    fn cut<M: MachineMemory>(&self, memory: &M, head: u32, back: u64) -> Option<(u32, u32)> {
        let (mut previous, mut at) = (NIL, head);
        while at != NIL {
            let link = self.links.get(memory, at);
            if link.back == back {
                if previous == NIL {
                    return Some((link.next, at));
                }
                let before = self.links.get(memory, previous);
                self.links.set(memory, previous, Link { next: link.next, ..before });
                return Some((head, at));
            }
            (previous, at) = (at, link.next);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use addr::{Gfn, NodeId, SpuId, VmId};
    use proptest::prelude::*;

    use super::*;
    use crate::PageState;
    use crate::entry::pack_owner;
    use crate::testing::small_machine;

    fn owner(n: u16) -> PageOwner {
        PageOwner { vm: VmId(n % 3), gfn: Gfn::new(0x80000 + u64::from(n)) }
    }

    fn pages(count: usize) -> Vec<MemMapEntry> {
        let rows: Vec<_> = (0..count).map(|_| MemMapEntry::new()).collect();
        for row in &rows {
            row.reset(NodeId(0));
            row.set_used(PageState::Shared, 0, SpuId(0), NO_OWNER, 0);
        }
        rows
    }

    proptest! {
        #[test]
        fn chains_agree_with_bags(steps in prop::collection::vec((0usize..2, 0u16..12, any::<bool>()), 0..120)) {
            let rows = pages(2);
            let (memory, _) = small_machine(&[1]);
            let mut chains = Chains::new();
            assert!(chains.add_page(&memory, Mfn::new(0x8_0000), Mfn::new(0x8_0001)));
            let mut model: [Vec<PageOwner>; 2] = Default::default();
            for (page, n, add) in steps {
                let back = pack_owner(owner(n)).unwrap();
                if add {
                    let is_first = model[page].is_empty();
                    prop_assert_eq!(chains.attach(&memory, &rows[page], back), Attached::Done { is_first });
                    model[page].push(owner(n));
                } else {
                    let at = model[page].iter().position(|o| *o == owner(n));
                    let got = chains.detach(&memory, &rows[page], back);
                    prop_assert_eq!(got.is_some(), at.is_some());
                    at.map(|at| model[page].remove(at));
                    if let Some(got) = got {
                        prop_assert_eq!(got.left as usize, model[page].len());
                        prop_assert_eq!(got.was_last_owner, model[page].is_empty());
                    }
                }
                for (row, want) in rows.iter().zip(&model) {
                    let mut got: Vec<_> = chains.owners(&memory, row).collect();
                    got.sort();
                    let mut want = want.clone();
                    want.sort();
                    prop_assert_eq!(row.references().0 as usize, want.len());
                    prop_assert_eq!(got, want);
                }
            }
        }
    }
}
