//! Memory for back-maps beyond the first of a page: pages of the same node, cut into links of 16 bytes.
//!
//! Not the heap: that takes pages from a node under its own lock, and links are made with the node's lock held.

use addr::{MachineAddr, Mfn};

use crate::MachineMemory;

/// The end of a chain. Links are numbered from 1.
pub(crate) const NIL: u32 = 0;
/// Links of a page, its header included.
const SLOTS: u32 = 256;
/// Pages that link numbers can tell apart: 64 GiB of one node.
const MAX_PAGES: u64 = 1 << 24;

/// One guest page that maps a machine page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// An owner word.
    pub(crate) back: u64,
    /// The next link of the chain.
    pub(crate) next: u32,
}

/// The links of one node. Guarded by the node's lock.
///
/// A link's number is its page's, counted from `first`, times 256, plus its slot; slot 0 is the page's header: links in use
/// 0..16 and the first unused slot 16..32 of the first word; the pages with room before (0..32) and after it (32..64), as
/// numbers of their headers plus one, in the second.
#[derive(Debug)]
pub(crate) struct Links {
    first: u64,
    /// The first page with room.
    room: u32,
}

#[derive(Clone, Copy)]
struct Header {
    used: u32,
    free: u32,
    before: u32,
    after: u32,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self { first: 0, room: NIL }
    }

    /// A link, if a page has room.
    pub(crate) fn take<M: MachineMemory>(&mut self, memory: &M, link: Link) -> Option<u32> {
        let page = self.room.checked_sub(1)?;
        let mut header = self.header(memory, page);
        let number = page + header.free;
        header.free = self.get(memory, number).next;
        header.used += 1;
        if header.free == NIL {
            self.unlink(memory, header);
            (header.before, header.after) = (NIL, NIL);
        }
        self.set_header(memory, page, header);
        self.set(memory, number, link);
        Some(number)
    }

    /// Takes a link back. Returns a page without links that is not needed.
    pub(crate) fn give<M: MachineMemory>(&mut self, memory: &M, number: u32) -> Option<Mfn> {
        let page = number & !(SLOTS - 1);
        let mut header = self.header(memory, page);
        self.set(memory, number, Link { back: 0, next: header.free });
        let was_full = header.free == NIL;
        header.free = number % SLOTS;
        header.used -= 1;
        if was_full {
            self.put_first(memory, page, header);
        } else if header.used == 0 && (header.before, header.after) != (NIL, NIL) {
            self.unlink(memory, header);
            return Some(self.page_of(page));
        } else {
            self.set_header(memory, page, header);
        }
        None
    }

    /// `page`, of the node whose memory begins at `first`, is for links from now on. `false` if it lies too far behind.
    pub(crate) fn add_page<M: MachineMemory>(&mut self, memory: &M, first: Mfn, page: Mfn) -> bool {
        self.first = first.raw();
        let Some(index) = page.raw().checked_sub(self.first).filter(|index| *index < MAX_PAGES) else { return false };
        // Fits: fewer than 2^24.
        let number = index as u32 * SLOTS;
        for slot in 1..SLOTS {
            self.set(memory, number + slot, Link { back: 0, next: (slot + 1) % SLOTS });
        }
        self.put_first(memory, number, Header { used: 0, free: 1, before: NIL, after: NIL });
        true
    }

    pub(crate) fn get<M: MachineMemory>(&self, memory: &M, number: u32) -> Link {
        let at = self.addr(number);
        Link { back: memory.read_u64(at), next: memory.read_u64(second(at)) as u32 }
    }

    pub(crate) fn set<M: MachineMemory>(&self, memory: &M, number: u32, link: Link) {
        let at = self.addr(number);
        memory.write_u64(at, link.back);
        memory.write_u64(second(at), u64::from(link.next));
    }

    fn header<M: MachineMemory>(&self, memory: &M, page: u32) -> Header {
        let at = self.addr(page);
        let (first, pages) = (memory.read_u64(at), memory.read_u64(second(at)));
        Header {
            used: first as u32 & 0xffff,
            free: first as u32 >> 16,
            before: pages as u32,
            after: (pages >> 32) as u32,
        }
    }

    fn set_header<M: MachineMemory>(&self, memory: &M, page: u32, header: Header) {
        let at = self.addr(page);
        memory.write_u64(at, u64::from(header.free << 16 | header.used));
        memory.write_u64(second(at), u64::from(header.before) | u64::from(header.after) << 32);
    }

    /// Puts a page in front of those with room.
    fn put_first<M: MachineMemory>(&mut self, memory: &M, page: u32, header: Header) {
        if let Some(old) = self.room.checked_sub(1) {
            self.set_header(memory, old, Header { before: page + 1, ..self.header(memory, old) });
        }
        self.set_header(memory, page, Header { before: NIL, after: self.room, ..header });
        self.room = page + 1;
    }

    /// Takes the page with this header out of those with room.
    fn unlink<M: MachineMemory>(&mut self, memory: &M, header: Header) {
        match header.before.checked_sub(1) {
            Some(before) => {
                self.set_header(memory, before, Header { after: header.after, ..self.header(memory, before) });
            }
            None => self.room = header.after,
        }
        if let Some(after) = header.after.checked_sub(1) {
            self.set_header(memory, after, Header { before: header.before, ..self.header(memory, after) });
        }
    }

    const fn page_of(&self, number: u32) -> Mfn {
        Mfn::new(self.first + (number / SLOTS) as u64)
    }

    const fn addr(&self, number: u32) -> MachineAddr {
        MachineAddr::new(self.page_of(number).addr().raw() + (number % SLOTS) as u64 * 16)
    }
}

const fn second(at: MachineAddr) -> MachineAddr {
    MachineAddr::new(at.raw() + 8)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::small_machine;

    proptest! {
        /// Many taken, then many given back, in waves: what is in use keeps its contents, and pages come back.
        #[test]
        fn links_keep_their_contents(waves in prop::collection::vec((0u32..700, 0u32..700, any::<u32>()), 1..8)) {
            let (memory, _) = small_machine(&[2]);
            let first = Mfn::new(0x8_0000);
            let mut links = Links::new();
            let mut used: BTreeMap<u32, Link> = BTreeMap::new();
            let mut pages: alloc::vec::Vec<Mfn> = (0..32).map(|n| Mfn::new(first.raw() + n)).collect();
            for (take, give, seed) in waves {
                for n in 0..take {
                    let link = Link { back: u64::from(seed) << 20 | u64::from(n), next: n };
                    let number = links.take(&memory, link).unwrap_or_else(|| {
                        assert!(links.add_page(&memory, first, pages.pop().expect("pages come back")));
                        links.take(&memory, link).expect("a fresh page has room")
                    });
                    prop_assert!(number != NIL && used.insert(number, link).is_none());
                }
                for n in 0..give.min(used.len() as u32) {
                    let at = (seed.wrapping_mul(n + 1) as usize) % used.len();
                    let number = *used.keys().nth(at).expect("in range");
                    used.remove(&number);
                    pages.extend(links.give(&memory, number));
                }
                for (number, link) in &used {
                    prop_assert_eq!(links.get(&memory, *number), *link);
                }
            }
            while let Some((number, _)) = used.pop_first() {
                pages.extend(links.give(&memory, number));
            }
            prop_assert!(pages.len() >= 31, "one page at most is kept: {}", pages.len());
        }
    }

    #[test]
    fn a_page_too_far_behind_is_refused() {
        let (memory, _) = small_machine(&[2]);
        assert!(!Links::new().add_page(&memory, Mfn::new(5), Mfn::new(4)));
        assert!(!Links::new().add_page(&memory, Mfn::new(0), Mfn::new(MAX_PAGES)));
    }
}
