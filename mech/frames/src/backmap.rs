//! Who maps a page: the first in its row, further ones in chains.

use alloc::vec::Vec;

use crate::entry::{NO_OWNER, unpack_owner};
use crate::{MemMapEntry, PageOwner};

/// The end of a chain (a row's chain field starts as zero, so links are numbered from one).
const NIL: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Link {
    back: u64,
    next: u32,
}

/// The chains of one node's pages. Guarded by the node's lock.
#[derive(Debug)]
pub(crate) struct Chains {
    /// Link `n` is at index `n - 1`.
    links: Vec<Link>,
    /// Unused links, chained.
    free: u32,
}

impl Chains {
    pub(crate) const fn new() -> Self {
        Self { links: Vec::new(), free: NIL }
    }

    /// One more guest page (an owner word) maps the page of `entry`. `false` if no link number is left.
    pub(crate) fn attach(&mut self, entry: &MemMapEntry, back: u64) -> bool {
        let (references, chain) = entry.references();
        let Some(more) = references.checked_add(1) else { return false };
        if entry.back() == NO_OWNER {
            entry.set_back(back);
            entry.set_references(more, chain);
            return true;
        }
        let Some(link) = self.new_link(Link { back, next: chain }) else { return false };
        entry.set_references(more, link);
        true
    }

    /// A guest page no longer maps the page of `entry`. Returns the references left, `None` if it did not map it.
    pub(crate) fn detach(&mut self, entry: &MemMapEntry, back: u64) -> Option<u32> {
        let (references, chain) = entry.references();
        let chain = if entry.back() == back { self.promote(entry, chain) } else { self.cut(chain, back)? };
        let left = references.checked_sub(1)?;
        entry.set_references(left, chain);
        Some(left)
    }

    /// Calls `see` for every guest page that maps the page of `entry`.
    pub(crate) fn for_each(&self, entry: &MemMapEntry, mut see: impl FnMut(PageOwner)) {
        unpack_owner(entry.back()).into_iter().for_each(&mut see);
        let mut at = entry.references().1;
        while let Some(link) = self.get(at) {
            unpack_owner(link.back).into_iter().for_each(&mut see);
            at = link.next;
        }
    }

    /// The inline back-map went: the chain's first takes its place.
    fn promote(&mut self, entry: &MemMapEntry, chain: u32) -> u32 {
        let Some(first) = self.get(chain) else {
            entry.set_back(NO_OWNER);
            return NIL;
        };
        entry.set_back(first.back);
        self.recycle(chain);
        first.next
    }

    /// Removes one link that says `back` from a chain; returns the chain's new head.
    fn cut(&mut self, head: u32, back: u64) -> Option<u32> {
        let (mut previous, mut at) = (NIL, head);
        loop {
            let link = self.get(at)?;
            if link.back == back {
                self.recycle(at);
                if previous == NIL {
                    return Some(link.next);
                }
                self.links[previous as usize - 1].next = link.next;
                return Some(head);
            }
            (previous, at) = (at, link.next);
        }
    }

    fn get(&self, number: u32) -> Option<Link> {
        self.links.get((number as usize).checked_sub(1)?).copied()
    }

    fn new_link(&mut self, link: Link) -> Option<u32> {
        if let Some(unused) = self.get(self.free) {
            let number = self.free;
            self.links[number as usize - 1] = link;
            self.free = unused.next;
            return Some(number);
        }
        let number = u32::try_from(self.links.len() + 1).ok()?;
        self.links.push(link);
        Some(number)
    }

    fn recycle(&mut self, number: u32) {
        self.links[number as usize - 1] = Link { back: NO_OWNER, next: self.free };
        self.free = number;
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
        fn chains_agree_with_sets(steps in prop::collection::vec((0usize..2, 0u16..12, any::<bool>()), 0..120)) {
            let rows = pages(2);
            let mut chains = Chains::new();
            let mut model: [Vec<PageOwner>; 2] = Default::default();
            for (page, n, add) in steps {
                let back = pack_owner(owner(n)).unwrap();
                if add && !model[page].contains(&owner(n)) {
                    prop_assert!(chains.attach(&rows[page], back));
                    model[page].push(owner(n));
                } else if !add {
                    let at = model[page].iter().position(|o| *o == owner(n));
                    let left = chains.detach(&rows[page], back);
                    prop_assert_eq!(left.is_some(), at.is_some());
                    at.map(|at| model[page].remove(at));
                }
                for (row, want) in rows.iter().zip(&model) {
                    let mut got = Vec::new();
                    chains.for_each(row, |o| got.push(o));
                    got.sort();
                    let mut want = want.clone();
                    want.sort();
                    prop_assert_eq!(row.references().0 as usize, want.len());
                    prop_assert_eq!(got, want);
                }
            }
            prop_assert!(chains.links.len() <= 24, "links are reused");
        }
    }
}
