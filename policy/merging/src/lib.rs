//! Which guest pages are worth comparing with which, and when: memory that is the same in several VMs, found by hints and
//! not by scanning.
//!
//! Hints that next to nothing to know:
//! - *Boot images.* Guests that were started from one kernel have it at the same offset from where it was loaded. They
//!   write to it while they boot (alternatives, trace points, jump labels), so its pages cannot simply stay shared from
//!   the start: nearly all of them would be copied. But they write the same: once the guests have settled, page is
//!   compared with page, and nothing else.
//! - *Addresses.* Kernels of one image that load the same modules at boot often put them at the same addresses, wherever in
//!   memory their pages are: what both have mapped there is compared, page with page, with a few older guests.
//! - *Places.* A kernel of one image on as much memory takes the same steps while it boots, and its allocators hand out the same
//!   pages: tables that describe memory, what was unpacked and is free again. What both have at the same guest page is compared,
//!   with a few older guests; the first word that differs ends the look.
//! - *Blocks that were taken and never used.* A guest that clears a large table takes all its memory for zeroes. Each
//!   2 MiB block is looked at once in a pass; the first word that is not zero ends the look.
//! - *The wire.* Whole pages that one guest has sent to others are looked for in the memory of those ([`wire`]).
//!
//! # Key types
//! - [`Merging`]: facts in (a guest began, a guest ended), [`Proposal`]s out, in small portions and not before they are due.
//! - [`sent::Sent`], [`sent::Recent`], [`wire::Round`]: what was sent lately, and searches for it.
//! - [`marks::Marks`]: which pages of a block are worth something.
//! - [`breaks::Breaks`]: which merged pages were soon written, and cost more than they saved.
//! - [`Guest`]: what the monitor knows about a guest.
//!
//! # What it refuses
//! It reads no memory, knows no clock and merges nothing: whether pages are equal is found out by who carries a proposal
//! out, with the pages protected. A guest that has opted out is never told to it. Passes become rarer and end
//! ([`PASSES`]): a machine at rest does no work. A guest alone is not disturbed: there is nobody to
//! share with.
//!
//! # Locking
//! None: one owner calls it.
//!
//! # Tests
//! Unit tests of the order and the times of proposals; random lives of guests (proptest): every page of every image is
//! proposed once in a pass, against a guest that is alive and older.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod breaks;
pub mod marks;
pub mod sent;
#[cfg(test)]
mod tests;
pub mod wire;

use addr::{Gfn, PAGES_PER_LARGE, VmId};
use alloc::vec::Vec;

/// Pages in one comparison: bounded work.
pub const PORTION: u64 = 16;
/// Seconds from a guest's start to its first pass; each further pass comes after twice the time of the one before.
pub const FIRST_PASS_S: u64 = 15;
/// Older guests of one image that a guest is compared with by addresses and by places: which address a module gets also depends on
/// how soon memory of the one before was free again, so there are a few ways in which kernels lie.
pub const LIKELY: usize = 4;
/// Passes in a guest's life.
pub const PASSES: u32 = 7;

/// What a guest was started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Names the contents: guests with the same number were loaded with the same bytes.
    pub origin: u64,
    /// Where they begin; a multiple of a page.
    pub first: Gfn,
    /// How many pages they fill.
    pub pages: u64,
}

/// A guest that began to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Which.
    pub vm: VmId,
    /// First page of its RAM.
    pub base: Gfn,
    /// Pages of RAM.
    pub pages: u64,
    /// What it was started from, if others may be started from the same.
    pub image: Option<Image>,
}

impl Guest {
    /// First page of its whole block `number`, if it has so many.
    fn block(&self, number: u64) -> Option<Gfn> {
        let start = self.base.raw().checked_next_multiple_of(PAGES_PER_LARGE)?;
        let first = start.checked_add(number.checked_mul(PAGES_PER_LARGE)?)?;
        let end = self.base.raw().checked_add(self.pages)?;
        (first.checked_add(PAGES_PER_LARGE)? <= end).then_some(Gfn::new(first))
    }
}

/// Something worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// These pages were the same once, one by one.
    Compare {
        /// The guest that had them first, and its first page.
        original: (VmId, Gfn),
        /// The other one, and its first page.
        copy: (VmId, Gfn),
        /// How many; at most [`PORTION`], in one 2 MiB block of the copy.
        pages: u64,
    },
    /// What the kernels of these two have mapped at the same addresses may be the same.
    Kernels {
        /// The guest that had it first.
        original: VmId,
        /// The other one.
        copy: VmId,
    },
    /// What these two have at the same places of their RAM may be the same.
    Places {
        /// The guest that had it first.
        original: VmId,
        /// The other one.
        copy: VmId,
        /// First page of both.
        first: Gfn,
        /// How many both have.
        pages: u64,
    },
    /// A whole block may be nothing but zeroes.
    Zeroes {
        /// The guest.
        vm: VmId,
        /// The block's first page; all of it is RAM.
        first: Gfn,
    },
    /// The pass over this guest has ended.
    Passed {
        /// The guest.
        vm: VmId,
    },
}

/// A guest with its passes.
#[derive(Clone, Copy, Debug)]
struct Life {
    guest: Guest,
    began: u64,
    /// When to go on; `u64::MAX` after the last pass.
    due: u64,
    passes: u32,
    at: At,
}

/// Where a pass is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// So many pages of the image are done.
    Image(u64),
    /// Kernels of so many older guests are.
    Kernels(usize),
    /// So many blocks are.
    Block(u64),
    /// Places of so many older guests are.
    Places(usize),
}

/// All guests, oldest first.
#[derive(Debug, Default)]
pub struct Merging {
    lives: Vec<Life>,
}

impl Merging {
    /// No guests.
    #[must_use]
    pub const fn new() -> Self {
        Self { lives: Vec::new() }
    }

    /// A guest began to run at `now`, on a clock of `hz`. One that is known already began anew.
    pub fn began(&mut self, guest: Guest, now: u64, hz: u64) {
        self.ended(guest.vm);
        let due = now.saturating_add(FIRST_PASS_S.saturating_mul(hz));
        self.lives.push(Life { guest, began: now, due, passes: 0, at: At::Image(0) });
    }

    /// A guest has ended.
    pub fn ended(&mut self, vm: VmId) {
        self.lives.retain(|life| life.guest.vm != vm);
    }

    /// All guests, oldest first.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.lives.iter().map(|life| &life.guest)
    }

    /// When there will be something to do; `u64::MAX` if never, as long as there are not two guests.
    #[must_use]
    pub fn next_due(&self) -> u64 {
        if self.is_idle() {
            return u64::MAX;
        }
        self.lives.iter().map(|life| life.due).min().unwrap_or(u64::MAX)
    }

    /// The next thing worth a look at `now`.
    pub fn next(&mut self, now: u64) -> Option<Proposal> {
        if self.is_idle() {
            return None;
        }
        let position = self.lives.iter().position(|life| life.due <= now)?;
        loop {
            let original = match self.lives.get(position)?.at {
                At::Image(_) => self.originals_of(position).next(),
                At::Kernels(done) | At::Places(done) => self.originals_of(position).nth(done).filter(|_| done < LIKELY),
                At::Block(_) => None,
            };
            // Each kind of look is followed by the next, and the last one by the pass's end.
            let life = self.lives.get_mut(position)?;
            let found = match life.at {
                At::Image(done) => life.compare(done, original),
                At::Kernels(done) => life.kernels(done, original),
                At::Block(done) => life.zeroes(done),
                At::Places(done) => Some(life.places(done, original).unwrap_or_else(|| life.end_pass(now))),
            };
            if found.is_some() {
                return found;
            }
        }
    }

    /// Whether there is nobody to share with: fewer than two VMs take part.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.lives.len() < 2
    }

    /// Older guests with the image of the one at `position`, oldest first.
    fn originals_of(&self, position: usize) -> impl Iterator<Item = Guest> {
        let origin = |guest: &Guest| guest.image.map(|image| image.origin);
        let wanted = self.lives.get(position).and_then(|life| origin(&life.guest));
        let older = self.lives.get(..position).unwrap_or_default().iter().map(|life| life.guest);
        older.filter(move |guest| wanted.is_some() && origin(guest) == wanted)
    }
}

impl Life {
    fn compare(&mut self, done: u64, original: Option<Guest>) -> Option<Proposal> {
        let found = self.guest.image.zip(original).and_then(|(own, original)| {
            let theirs = original.image?;
            let first = own.first.checked_add(done)?;
            let in_block = PAGES_PER_LARGE - first.index_in_large() as u64;
            let pages = own.pages.min(theirs.pages).saturating_sub(done).min(PORTION).min(in_block);
            let from = theirs.first.checked_add(done).filter(|_| pages != 0)?;
            Some((Proposal::Compare { original: (original.vm, from), copy: (self.guest.vm, first), pages }, pages))
        });
        self.at = found.map_or(At::Kernels(0), |(_, pages)| At::Image(done + pages));
        found.map(|(proposal, _)| proposal)
    }

    fn kernels(&mut self, done: usize, original: Option<Guest>) -> Option<Proposal> {
        self.at = original.map_or(At::Block(0), |_| At::Kernels(done + 1));
        original.map(|original| Proposal::Kernels { original: original.vm, copy: self.guest.vm })
    }

    fn zeroes(&mut self, done: u64) -> Option<Proposal> {
        let first = self.guest.block(done);
        self.at = first.map_or(At::Places(0), |_| At::Block(done + 1));
        first.map(|first| Proposal::Zeroes { vm: self.guest.vm, first })
    }

    fn places(&mut self, done: usize, original: Option<Guest>) -> Option<Proposal> {
        let (own, theirs) = (self.guest, original?);
        self.at = At::Places(done + 1);
        let first = own.base.max(theirs.base);
        let end = |guest: Guest| guest.base.raw().saturating_add(guest.pages);
        let pages = end(own).min(end(theirs)).saturating_sub(first.raw());
        Some(Proposal::Places { original: theirs.vm, copy: own.vm, first, pages })
    }

    fn end_pass(&mut self, now: u64) -> Proposal {
        self.at = At::Image(0);
        self.passes += 1;
        // Counted from now on, so that a late pass does not bring the next one closer.
        let age = now.saturating_sub(self.began).max(1);
        self.due = if self.passes < PASSES { now.saturating_add(age) } else { u64::MAX };
        Proposal::Passed { vm: self.guest.vm }
    }
}
