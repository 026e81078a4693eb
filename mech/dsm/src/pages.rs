//! The caller's pages.

use alloc::vec::Vec;

use dsm_wire::{Content, Page};
use scarce::NoMemory;

/// What harts may do to a page without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rights {
    /// Nothing.
    None,
    /// Load. LR counts as a store here: only who may write has reservations that hardware keeps.
    Read,
    /// Everything.
    ReadWrite,
}

/// The memory of the VM on this machine. A word is eight bytes at a multiple of eight.
pub trait Pages {
    /// From here on harts may do this to the page. When rights shrink, no hart may still have more when this returns, and reservations on
    /// the page are lost.
    fn rights(&mut self, page: Page, rights: Rights);

    /// From here on harts may do everything to `count` pages from `first`, all of which are zero.
    fn open(&mut self, first: Page, count: u64);

    /// A word of the page.
    fn read(&self, page: Page, word: u16) -> u64;

    /// Writes the bytes of the word that are in `mask`.
    fn write(&mut self, page: Page, word: u16, mask: u8, value: u64);

    /// Whether nobody has written to the page.
    fn is_zero(&self, page: Page) -> bool;

    /// All bytes of the page, into a list that is empty.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn copy_out(&self, page: Page, bytes: &mut Vec<u8>) -> Result<(), NoMemory>;

    /// The page has these contents, which are of its size.
    fn copy_in(&mut self, page: Page, content: &Content);

    /// Messages wait until `hart` has retired an instruction: make it leave its guest soon, and call [`crate::Dsm::retired`].
    fn kick(&mut self, hart: u8);
}
