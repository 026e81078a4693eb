//! What all machines of a cluster agree on.

use dsm_wire::{MachineId, Page};

/// Which protocol pages may use. The papers' three, for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Who writes has the only copy (WI).
    Invalidate,
    /// Stores may go to all copies; an atomic needs the only copy (WU).
    Update,
    /// Atomics, too, may go to all copies, from the page's owner (WU+).
    UpdatePlus,
}

/// When a machine sees its own stores to pages that others have copies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// When they have their place in the order of all machines; the storing hart waits until then. Right for any number of harts, and
    /// where fences are not seen.
    Ordered,
    /// At once, and a fence that orders stores before loads waits. Right if the machine has one hart for this VM and its fences are seen.
    Early,
}

/// A machine's place in a cluster, and what the cluster agrees on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This machine.
    pub me: MachineId,
    /// How many there are, 1 to 64.
    pub machines: u8,
    /// The machine that gives stores their places.
    pub orderer: MachineId,
    /// Harts of this machine, 1 to 64.
    pub harts: u8,
    /// Pages of the VM. A message about another one is refused.
    pub pages: u64,
    /// Pages that are given away together if nobody has touched any of them.
    pub block_pages: u64,
    /// Which modes pages may have.
    pub protocol: Protocol,
    /// When stores are seen.
    pub visibility: Visibility,
    /// Times that a page must be needed elsewhere before its stores are sent instead.
    pub to_update: u8,
    /// Stores without one from elsewhere after which a page goes back to invalidation; doubled each time, up to eightfold.
    pub to_invalidate: u8,
}

impl Config {
    /// The usual one.
    #[must_use]
    pub const fn new(me: MachineId, machines: u8, harts: u8) -> Self {
        Self {
            me,
            machines,
            orderer: MachineId(0),
            harts,
            pages: 1 << 36,
            block_pages: 512,
            protocol: Protocol::UpdatePlus,
            visibility: Visibility::Ordered,
            to_update: 4,
            to_invalidate: 16,
        }
    }

    /// The machine that knows who owns `page`.
    #[must_use]
    pub const fn home(&self, page: Page) -> MachineId {
        // Fibonacci hashing: neighbouring blocks get different homes.
        let block = self.block(page).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        MachineId(((block >> 32) % self.machines as u64) as u8)
    }

    /// The block that `page` is in.
    #[must_use]
    pub const fn block(&self, page: Page) -> u64 {
        page.0 / self.block_pages
    }
}
