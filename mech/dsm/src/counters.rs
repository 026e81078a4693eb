//! What happened.

use core::hash::{Hash, Hasher};

/// Counts since the machine began. They are no part of the protocol's state: two machines that differ in them alone are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Requests that went to a home, this machine's own included.
    pub requests: u64,
    /// Pages whose contents came.
    pub fetched: u64,
    /// Ownerships that came without contents.
    pub ownerships: u64,
    /// Blocks that nobody had touched.
    pub blocks: u64,
    /// Copies that others took away.
    pub invalidated: u64,
    /// Stores that went into the log.
    pub logged: u64,
    /// Messages that the log went out in.
    pub batches: u64,
    /// Stores by others that this machine applied.
    pub applied: u64,
    /// Bytes of those that were left out, because a later store of this machine covers them.
    pub masked: u64,
    /// Pages that went from invalidation to updates.
    pub to_update: u64,
    /// Pages that went back.
    pub to_invalidate: u64,
    /// Pages that went to a single writer.
    pub to_single: u64,
    /// Messages that waited until a hart had made progress with a page.
    pub held: u64,
    /// Messages that waited for the order.
    pub early: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Answers that waited for memory.
    pub no_memory: u64,
}

impl PartialEq for Counters {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Counters {}

impl Hash for Counters {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
