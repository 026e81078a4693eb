//! From a machine page to its row.

use alloc::boxed::Box;
use alloc::vec::Vec;

use addr::{Mfn, NodeId};

use crate::plan::Span;
use crate::{MAX_ORDER, MemMapEntry, PageInfo, PageState};

/// The rows of one section of the address space; empty where there is no memory.
#[derive(Clone, Copy)]
struct Section {
    /// Index in the section of the page that `entries[0]` describes.
    first: u64,
    entries: &'static [MemMapEntry],
}

/// One row per machine page, found in constant time.
pub struct MemMap {
    sections: Box<[Section]>,
    /// Number of the section that `sections[0]` describes.
    base: u64,
    shift: u32,
    spans: Vec<Span>,
}

impl MemMap {
    /// `parts` are in ascending order and meet in no section.
    pub(crate) fn new(parts: Vec<(Span, &'static [MemMapEntry])>, shift: u32) -> Self {
        let number = |page: u64| page >> shift;
        let base = parts.first().map_or(0, |(span, _)| number(span.start.raw()));
        let end = parts.last().map_or(0, |(span, _)| number(span.start.raw() + span.pages - 1) + 1);
        let mut sections: Vec<_> = (base..end).map(|_| Section { first: 0, entries: &[] }).collect();
        for (span, entries) in &parts {
            fill_sections(&mut sections, base, shift, span, entries);
        }
        let spans = parts.into_iter().map(|(span, _)| span).collect();
        Self { sections: sections.into_boxed_slice(), base, shift, spans }
    }

    /// The row of `mfn`, or `None` if no such memory is described. In the middle of a block the row is stale; see
    /// [`MemMap::info`].
    #[must_use]
    #[inline(always)]
    pub fn entry(&self, mfn: Mfn) -> Option<&MemMapEntry> {
        // Below the base the subtraction wraps to an index that no slice has; the same holds inside the section.
        let number = (mfn.raw() >> self.shift).wrapping_sub(self.base);
        let section = self.sections.get(usize::try_from(number).ok()?)?;
        let index = (mfn.raw() & ((1 << self.shift) - 1)).wrapping_sub(section.first);
        section.entries.get(usize::try_from(index).ok()?)
    }

    /// The row of a page that the caller knows to exist.
    #[inline(always)]
    pub(crate) fn known(&self, mfn: Mfn) -> &MemMapEntry {
        self.entry(mfn).expect("only described pages are in lists and tables")
    }

    /// The rows of a naturally aligned block, which no section's border cuts.
    pub(crate) fn entries(&self, block: Mfn, pages: u64) -> &[MemMapEntry] {
        self.rows(block, pages).expect("blocks in lists are described")
    }

    /// The same for a block that may not be described wholly.
    pub(crate) fn rows(&self, block: Mfn, pages: u64) -> Option<&[MemMapEntry]> {
        let number = (block.raw() >> self.shift).wrapping_sub(self.base);
        let section = self.sections.get(number as usize).filter(|_| pages <= 1 << self.shift)?;
        let index = (block.raw() & ((1 << self.shift) - 1)).checked_sub(section.first)? as usize;
        section.entries.get(index..index + pages as usize)
    }

    /// The first page of the block that `mfn` lies in.
    #[must_use]
    pub fn block_of(&self, mfn: Mfn) -> Option<Mfn> {
        self.entry(mfn)?;
        // A page aligned to the largest order always starts a block. Going down, each candidate starts one too, because
        // the block that would otherwise cover it was larger and would have answered before.
        for order in (0..=MAX_ORDER).rev() {
            let head = Mfn::new(mfn.raw() & !((1 << order) - 1));
            if self.entry(head).is_some_and(|entry| mfn.raw() < head.raw() + (1 << entry.order())) {
                return Some(head);
            }
        }
        None
    }

    /// What is known about `mfn`. May be out of date if nobody holds the lock that guards the page.
    #[must_use]
    pub fn info(&self, mfn: Mfn) -> Option<PageInfo> {
        let head = self.block_of(mfn)?;
        Some(self.entry(head)?.info(mfn.raw() - head.raw()))
    }

    /// What the page's own row says: right for single pages. In the middle of a block the row is stale, and whoever asks finds
    /// out: its owner does not map the page. Quick, for who asks about many pages.
    #[must_use]
    #[inline]
    pub fn glance(&self, mfn: Mfn) -> Option<PageInfo> {
        self.entry(mfn).map(|entry| entry.info(0))
    }

    /// The home node of `mfn`.
    #[must_use]
    #[inline(always)]
    pub fn node_of(&self, mfn: Mfn) -> Option<NodeId> {
        Some(self.entry(mfn)?.node())
    }

    /// What is described.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// All blocks in ascending order: first page and row. A walk beside running allocators is approximate.
    pub fn blocks(&self) -> impl Iterator<Item = (Mfn, &MemMapEntry)> {
        self.spans.iter().flat_map(move |span| {
            let end = span.start.raw() + span.pages;
            let mut next = span.start.raw();
            core::iter::from_fn(move || {
                let at = Mfn::new(next);
                let entry = self.entry(at).filter(|_| next < end)?;
                next += 1 << entry.order();
                Some((at, entry))
            })
        })
    }

    /// Whether all `pages` from `start` are described, single and [`PageState::Bad`]. So they are before they are
    /// donated.
    pub(crate) fn is_unused(&self, start: Mfn, pages: u64) -> bool {
        (start.raw()..start.raw() + pages)
            .all(|page| self.entry(Mfn::new(page)).is_some_and(|e| e.is(PageState::Bad, 0)))
    }
}

fn fill_sections(sections: &mut [Section], base: u64, shift: u32, span: &Span, entries: &'static [MemMapEntry]) {
    let (mut page, mut rest) = (span.start.raw(), entries);
    while !rest.is_empty() {
        let number = page >> shift;
        let take = (((number + 1) << shift) - page).min(rest.len() as u64);
        let (now, later) = rest.split_at(take as usize);
        sections[(number - base) as usize] = Section { first: page & ((1 << shift) - 1), entries: now };
        page += take;
        rest = later;
    }
}
