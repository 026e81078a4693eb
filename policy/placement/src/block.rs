//! A 2 MiB block that one machine page backs.

use addr::NodeId;

use crate::{History, Misses, NODES, NodeBits, Reason, Switches, Thresholds, Writes, sole_user};

/// What is known of a block, one page of which is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts<const N: usize = NODES> {
    /// Where it is.
    pub home: NodeId,
    /// Misses of each node on all its pages, since the first of them was hot, it was looked at last, or the interval began.
    pub misses: Misses<N>,
    /// Whether the interval is over. Before, only what is clear is decided.
    pub is_over: bool,
    /// Whether it may come to more misses: the counters go on nevertheless ([`Thresholds::go_on`]), or have not counted
    /// it from their beginning.
    pub may_grow: bool,
    /// Whether the look before said that its pages have different users.
    pub was_mixed: bool,
    /// Whether its own node seemed to be its only user a moment ago. So does each guest that uses a block by turns,
    /// while it is its turn.
    pub was_local: bool,
    /// Whether a device uses any of it.
    pub is_pinned: bool,
    /// Whether a vCPU of its VM changed nodes lately.
    pub is_unsettled: bool,
    /// More about its pages, where that is known: see [`BlockFacts::wants_parts`].
    pub parts: Option<Parts>,
    /// How often the block was tried.
    pub history: History,
    /// Whether its VM has anything left for pages that were tried before ([`crate::Budget`]).
    pub may_retry: bool,
}

/// Of a block's misses, thousandths on pages that one node uses alone, and not the block's, that make it worth to split.
const ELSEWHERE_PERMILLE: u64 = 250;
/// Of the pages of one that is written, those that are used at all, thousandths that one node uses alone. Few misses may be on these: who
/// uses the others may use those much more.
const ALONE_PERMILLE: u32 = 125;

/// Misses of one node on a block, as a part of [`Thresholds::block_hot`], that make it worth to split for its hot pages: walks through a
/// table of pages cost whoever uses the block as much as fewer misses do.
const WORTH: u32 = 4;
/// Misses of other nodes on a block that is written, as a multiple of [`Thresholds::block_hot`], that make it worth to find out which of
/// its pages are: 512 tries in vain take 50 ms, and so many misses take 40 ms more than near ones. Half of it is enough where many pages
/// seem to have one user each.
const FAR: u64 = 16;
/// The same on a node where no vCPU of the VM runs: whatever becomes of the pages is better than what is. And the least for which a
/// block is given up that its own node uses most by far.
const ASTRAY: u64 = 2;
/// Misses on a block that was tried once, as a multiple of [`Thresholds::block_hot`], that are clear before the interval is over: a guest
/// that has just filled its memory begins to use it.
const AGAIN: u64 = 4;

/// Who uses a block's pages in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Misses on all of them.
    pub misses: u64,
    /// Those on pages that one node uses alone, and not the block's.
    pub elsewhere: u64,
    /// Pages that one node uses alone.
    pub alone: u32,
    /// Pages that several use.
    pub several: u32,
}

impl Uses {
    /// One more page of a block on `home`, with these misses. If they are few it does not count: the first users of any page seem to
    /// be alone.
    pub fn add<const N: usize>(&mut self, misses: &Misses<N>, home: NodeId, thresholds: &Thresholds) {
        let all = misses.iter().map(|misses| u64::from(*misses)).sum::<u64>();
        if all < u64::from(thresholds.sharing) {
            return;
        }
        self.misses += all;
        match sole_user(misses, thresholds) {
            Some((node, misses)) => {
                self.alone += 1;
                self.elsewhere += if node == home { 0 } else { u64::from(misses) };
            }
            None => self.several += 1,
        }
    }

    /// Whether many pages would find a place of their own. Of a block that nobody writes misses alone tell: who uses
    /// the other pages has its own copy of them.
    #[must_use]
    pub fn is_divided(&self, writes: Writes) -> bool {
        self.elsewhere > self.misses * ELSEWHERE_PERMILLE / 1000
            || writes != Writes::None && self.alone > (self.alone + self.several) * ALONE_PERMILLE / 1000
    }
}

/// What is known of a block's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Whether many pages would find a place of their own ([`Uses::is_divided`]).
    pub is_divided: bool,
    /// Whether that was so at the end of the interval before. For a moment it is between two phases of a guest, too.
    pub was_divided: bool,
    /// Whether any of them was written since the last look.
    pub writes: Writes,
}

/// What to do with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockProposal {
    /// Nothing, with its pages either.
    Leave(Reason),
    /// Move all of it.
    Migrate {
        /// Where to.
        to: NodeId,
    },
    /// Several nodes read it: let these (bit `n` for node `n`) have copies of all of it.
    Replicate {
        /// The nodes.
        nodes: NodeBits,
    },
    /// Its pages have different users: let each find its place. That costs a table and TLB entries.
    Split,
    /// Too little is known yet: ask again with more misses, or when the next interval ends if this one has.
    Wait,
    /// It looks as if its pages had different users. So do all pages between two phases of a guest: ask again with the misses from
    /// now on, when they are as many again or another interval is over.
    LookAgain,
}

/// What to do with a block at tick `now`.
#[must_use]
pub fn decide_block<const N: usize>(
    facts: &BlockFacts<N>,
    now: u16,
    switches: Switches,
    thresholds: &Thresholds,
) -> BlockProposal {
    if facts.home.index() >= N {
        return BlockProposal::Leave(Reason::BadFacts);
    }
    if facts.is_pinned {
        return BlockProposal::Leave(Reason::Pinned);
    }
    if facts.is_unsettled {
        return BlockProposal::Leave(Reason::Unsettled);
    }
    if switches == Switches::NEITHER {
        return BlockProposal::Leave(Reason::SwitchedOff);
    }
    if !facts.history.lets(facts.may_retry, now, thresholds) {
        return BlockProposal::Leave(Reason::Tried);
    }
    let total = facts.total();
    let is_clear = total >= u64::from(thresholds.block_hot);
    // Who makes blocks move again and again shall have to make it look so for whole intervals.
    let is_enough = match facts.history.at(now, thresholds).tries {
        0 => is_clear,
        1 => total >= u64::from(thresholds.block_hot) * AGAIN,
        _ => false,
    };
    if !facts.is_over && !is_enough {
        return BlockProposal::Wait;
    }
    if total < u64::from(thresholds.hot) {
        return BlockProposal::Leave(Reason::Cold);
    }
    let dominates = |misses: u32| u64::from(misses) * 1000 >= total * u64::from(thresholds.dominant_permille);
    let is_others_too =
        |user| user == facts.home.index() && facts.is_over && facts.far() >= u64::from(thresholds.block_hot) * ASTRAY;
    let user = facts.misses.iter().position(|misses| dominates(*misses)).filter(|user| !is_others_too(*user));
    let Some(user) = user else {
        return if facts.was_mixed { among_several(facts, switches, thresholds) } else { BlockProposal::LookAgain };
    };
    if user == facts.home.index() {
        // Another node's pages are too few to give the block up for.
        return BlockProposal::Leave(Reason::Local);
    }
    if !switches.migrate {
        return BlockProposal::Leave(Reason::SwitchedOff);
    }
    if facts.was_local {
        return BlockProposal::Wait;
    }
    if !is_clear {
        let is_worth_a_split = total >= u64::from(thresholds.block_hot / WORTH);
        return match (facts.may_grow, is_worth_a_split) {
            (true, _) => BlockProposal::Wait,
            (false, true) => BlockProposal::Split,
            (false, false) => BlockProposal::Leave(Reason::Cold),
        };
    }
    BlockProposal::Migrate { to: NodeId(user as u8) }
}

/// Whether so many misses of a node on a block that nobody writes, in an interval or less, are worth a copy of it. The
/// copy stays, so it may pay for itself later than a move.
#[must_use]
pub const fn is_worth_a_copy(misses: u32, thresholds: &Thresholds) -> bool {
    misses >= thresholds.block_hot / 8
}

impl<const N: usize> BlockFacts<N> {
    /// Whether anything would come of its parts, if its writes are these. They cost as many reads of counters as all
    /// its misses.
    #[must_use]
    pub fn wants_parts(&self, writes: Writes, thresholds: &Thresholds) -> bool {
        let may_be_enough = self.far() >= u64::from(thresholds.block_hot) * ASTRAY;
        self.was_mixed && (self.is_over || writes == Writes::None || may_be_enough)
    }

    fn total(&self) -> u64 {
        self.misses.iter().map(|misses| u64::from(*misses)).sum()
    }

    /// Misses of other nodes than its own.
    fn far(&self) -> u64 {
        self.total() - self.misses.get(self.home.index()).map_or(0, |misses| u64::from(*misses))
    }

    /// Whether other nodes than its own use nearly all of it, now, and used it a moment ago.
    fn is_astray(&self, thresholds: &Thresholds) -> bool {
        !self.was_local && self.far() * 1000 >= self.total() * u64::from(thresholds.dominant_permille)
    }

    /// The node that uses it most.
    fn first_user(&self) -> Option<NodeId> {
        let (node, _) = self.misses.iter().enumerate().max_by_key(|(_, misses)| **misses)?;
        Some(NodeId(node as u8))
    }
}

/// A block that several nodes use.
fn among_several<const N: usize>(facts: &BlockFacts<N>, switches: Switches, thresholds: &Thresholds) -> BlockProposal {
    let Some(parts) = facts.parts else {
        return if facts.is_over { BlockProposal::Split } else { BlockProposal::Wait };
    };
    if parts.writes == Writes::None && !parts.is_divided && switches.replicate {
        let readers = facts.misses.iter().enumerate().filter(|(_, misses)| is_worth_a_copy(**misses, thresholds));
        let readers = readers.filter(|(node, _)| *node != facts.home.index());
        let nodes = readers.fold(0, |nodes, (node, _)| nodes | 1 << node);
        if nodes != 0 {
            return BlockProposal::Replicate { nodes };
        }
    }
    let is_astray = facts.is_astray(thresholds);
    let times = |times: u64| u64::from(thresholds.block_hot) * times;
    let enough = match (parts.is_divided, is_astray) {
        (true, true) => times(ASTRAY),
        (true, false) => times(FAR / 2),
        (false, _) => times(FAR),
    };
    match parts.writes {
        // What nobody writes and comes here is divided, or is to have no copies.
        Writes::Seen | Writes::None if facts.far() >= enough => BlockProposal::Split,
        _ if !facts.is_over => BlockProposal::Wait,
        // One of them may as well have it. Soon its parts may tell more, so there is no hurry.
        Writes::Seen if is_astray && !parts.is_divided => match facts.first_user() {
            Some(to) if switches.migrate && facts.far() >= times(FAR / 2) => BlockProposal::Migrate { to },
            _ => BlockProposal::LookAgain,
        },
        // Single pages would not be anywhere better either.
        Writes::Seen if !parts.is_divided => BlockProposal::Leave(Reason::WriteShared),
        Writes::None if !parts.is_divided => BlockProposal::Split,
        _ if parts.is_divided && parts.was_divided => BlockProposal::Split,
        _ => BlockProposal::LookAgain,
    }
}

#[cfg(test)]
mod tests;
