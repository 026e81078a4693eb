//! Buddy lists over the memmap, of one node.
//!
//! A free block's row holds the links of its list, so free memory costs nothing. Every operation takes at most
//! [`MAX_ORDER`] steps.

use addr::Mfn;

use crate::{MAX_ORDER, MemMap};

/// The end of a list.
pub(crate) const NIL: u64 = u64::MAX;

/// Free blocks by size. The row of every listed block is `Free`, not pooled, with its order.
#[derive(Debug)]
pub(crate) struct Buddy {
    heads: [u64; MAX_ORDER as usize + 1],
    /// Bit `k` is set when list `k` is not empty.
    nonempty: u16,
    /// Blocks of [`MAX_ORDER`].
    large: u64,
}

impl Buddy {
    pub(crate) const fn new() -> Self {
        Self { heads: [NIL; MAX_ORDER as usize + 1], nonempty: 0, large: 0 }
    }

    /// Blocks of the largest size.
    pub(crate) const fn large_blocks(&self) -> u64 {
        self.large
    }

    /// Takes a block of `order`, splitting the smallest larger one. Its row is left `Free`.
    #[inline]
    pub(crate) fn take(&mut self, map: &MemMap, order: u8) -> Option<Mfn> {
        let large_enough = self.nonempty & (u16::MAX << order);
        if large_enough == 0 {
            return None;
        }
        let mut have = if self.nonempty & 1 << order != 0 { order } else { large_enough.trailing_zeros() as u8 };
        let block = self.pop(map, have);
        while have > order {
            have -= 1;
            self.push(map, block.checked_add(1 << have).expect("a half of a block"), have);
        }
        Some(block)
    }

    /// Takes the smallest block there is, but at most one of `max_order`. Its row is left `Free`.
    pub(crate) fn take_small(&mut self, map: &MemMap, max_order: u8) -> Option<(Mfn, u8)> {
        if self.nonempty == 0 {
            return None;
        }
        let order = max_order.min(self.nonempty.trailing_zeros() as u8);
        self.take(map, order).map(|block| (block, order))
    }

    /// Gives a block back, merging it with its buddies.
    #[inline]
    pub(crate) fn put(&mut self, map: &MemMap, block: Mfn, order: u8) {
        let (mut block, mut order) = (block, order);
        while order < MAX_ORDER {
            let buddy = Mfn::new(block.raw() ^ 1 << order);
            if !map.entry(buddy).is_some_and(|entry| entry.is_listed(order)) {
                break;
            }
            self.unlink(map, buddy, order);
            block = block.min(buddy);
            order += 1;
        }
        self.push(map, block, order);
    }

    fn push(&mut self, map: &MemMap, block: Mfn, order: u8) {
        let head = self.heads[usize::from(order)];
        let entry = map.known(block);
        entry.set_free(order, false);
        entry.set_back(NIL);
        entry.set_next(head);
        if head != NIL {
            map.known(Mfn::new(head)).set_back(block.raw());
        }
        self.heads[usize::from(order)] = block.raw();
        self.nonempty |= 1 << order;
        self.large += u64::from(order == MAX_ORDER);
    }

    /// The first block of a list that is not empty.
    fn pop(&mut self, map: &MemMap, order: u8) -> Mfn {
        let block = Mfn::new(self.heads[usize::from(order)]);
        let next = map.known(block).next();
        self.set_head(map, order, next);
        self.large -= u64::from(order == MAX_ORDER);
        block
    }

    fn unlink(&mut self, map: &MemMap, block: Mfn, order: u8) {
        let entry = map.known(block);
        let (previous, next) = (entry.back(), entry.next());
        if previous == NIL {
            self.set_head(map, order, next);
            return;
        }
        map.known(Mfn::new(previous)).set_next(next);
        if next != NIL {
            map.known(Mfn::new(next)).set_back(previous);
        }
    }

    fn set_head(&mut self, map: &MemMap, order: u8, head: u64) {
        self.heads[usize::from(order)] = head;
        if head == NIL {
            self.nonempty &= !(1 << order);
        } else {
            map.known(Mfn::new(head)).set_back(NIL);
        }
    }
}
