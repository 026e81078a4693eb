//! A 2 MiB block that one machine page backs.

use addr::NodeId;

use crate::{History, Misses, NODES, Reason, Switches, Thresholds, Writes};

/// What is known of a block, one page of which is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// Where it is.
    pub home: NodeId,
    /// Misses of each node on all its pages, since the first of them was hot, it was looked at last, or the interval began.
    pub misses: Misses,
    /// Is the interval over? Before, only what is clear is decided.
    pub is_over: bool,
    /// Did the look before say that its pages have different users?
    pub was_mixed: bool,
    /// Does a device use any of it?
    pub is_pinned: bool,
    /// Did a vCPU of its VM change nodes lately?
    pub is_unsettled: bool,
    /// More about its pages, where that is known.
    pub parts: Option<Parts>,
    /// How often the block was tried.
    pub history: History,
    /// Has its VM anything left for pages that were tried before ([`crate::Budget`])?
    pub may_retry: bool,
}

/// Many of a block's pages: so many thousandths of those that are used at all, or more.
const UNEVEN_PERMILLE: u32 = 125;

/// Are many of a block's pages used by one node alone, if so many are and so many are used by several? Few misses may be on them: who
/// uses the others may use those much more.
#[must_use]
pub const fn is_uneven(alone: u32, several: u32) -> bool {
    alone > (alone + several) * UNEVEN_PERMILLE / 1000
}

/// What is known of a block's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Of all misses on them, thousandths on those that one node uses alone, and not the block's.
    pub alone_permille: u32,
    /// Are many of its pages used by one node each, at this look as at the last one ([`is_uneven`])?
    pub is_uneven: bool,
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
        nodes: u8,
    },
    /// Its pages have different users: let each find its place. That costs a table and TLB entries.
    Split,
    /// Too little is known yet: ask again with more misses.
    Wait,
    /// It looks as if its pages had different users. So do all pages between two phases of a guest: ask again with the misses from
    /// now on, when they are as many again or another interval is over.
    LookAgain,
}

/// What to do with a block at tick `now`.
#[must_use]
pub fn decide_block(facts: &BlockFacts, now: u16, switches: Switches, thresholds: &Thresholds) -> BlockProposal {
    if facts.home.index() >= NODES {
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
    let total: u64 = facts.misses.iter().map(|misses| u64::from(*misses)).sum();
    let is_clear = total >= u64::from(thresholds.block_hot);
    // Who makes blocks move again and again shall have to make it look so for whole intervals.
    let is_fresh = facts.history.at(now, thresholds).tries == 0;
    let is_enough = is_clear && is_fresh;
    if !facts.is_over && !is_enough {
        return BlockProposal::Wait;
    }
    if total < u64::from(thresholds.hot) {
        return BlockProposal::Leave(Reason::Cold);
    }
    let dominates = |misses: u32| u64::from(misses) * 1000 >= total * u64::from(thresholds.dominant_permille);
    let Some(user) = facts.misses.iter().position(|misses| dominates(*misses)) else {
        return if facts.was_mixed { among_several(facts, switches, thresholds) } else { BlockProposal::LookAgain };
    };
    if user == facts.home.index() {
        // Another node's pages are too few to give the block up for.
        return BlockProposal::Leave(Reason::Local);
    }
    if !switches.migrate {
        return BlockProposal::Leave(Reason::SwitchedOff);
    }
    if !is_clear {
        return BlockProposal::Split;
    }
    BlockProposal::Migrate { to: NodeId(user as u8) }
}

/// Of a block's misses, thousandths on pages with users of their own that make it worth to split.
const MANY_PERMILLE: u32 = 250;

/// Are these a node's misses on a block that nobody writes, in an interval or less, worth a copy of it? The copy stays, so it may
/// pay for itself later than a move.
#[must_use]
pub const fn is_worth_a_copy(misses: u32, thresholds: &Thresholds) -> bool {
    misses >= thresholds.block_hot / 8
}

/// A block that several nodes use.
fn among_several(facts: &BlockFacts, switches: Switches, thresholds: &Thresholds) -> BlockProposal {
    let Some(parts) = facts.parts else { return BlockProposal::Split };
    if parts.alone_permille >= MANY_PERMILLE {
        return BlockProposal::Split;
    }
    match parts.writes {
        // Single pages would not be anywhere better either.
        Writes::Seen if !parts.is_uneven => BlockProposal::Leave(Reason::WriteShared),
        Writes::None if switches.replicate => {
            let readers = facts.misses.iter().enumerate().filter(|(_, misses)| is_worth_a_copy(**misses, thresholds));
            let readers = readers.filter(|(node, _)| *node != facts.home.index());
            match readers.fold(0, |nodes, (node, _)| nodes | 1 << node) {
                0 => BlockProposal::Split,
                nodes => BlockProposal::Replicate { nodes },
            }
        }
        Writes::None | Writes::Seen | Writes::Unknown => BlockProposal::Split,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Thresholds = Thresholds::for_misses();

    fn facts(misses: &[u32]) -> BlockFacts {
        let mut counts = [0; NODES];
        counts[..misses.len()].copy_from_slice(misses);
        let (home, history) = (NodeId(0), History::default());
        let (is_over, was_mixed) = (true, false);
        let misses = counts;
        let (is_pinned, is_unsettled, may_retry) = (false, false, true);
        BlockFacts { home, misses, is_over, was_mixed, is_pinned, is_unsettled, parts: None, history, may_retry }
    }

    fn ask(facts: &BlockFacts) -> BlockProposal {
        decide_block(facts, 0, Switches::BOTH, &T)
    }

    #[test]
    fn a_block_of_one_user_goes_to_it() {
        assert_eq!(ask(&facts(&[1000, 9000])), BlockProposal::Migrate { to: NodeId(1) });
        assert_eq!(ask(&facts(&[1010, 8990])), BlockProposal::LookAgain);
        assert_eq!(ask(&facts(&[0, 4095])), BlockProposal::Split, "too little for all of it");
        assert_eq!(ask(&facts(&[0, 31])), BlockProposal::Leave(Reason::Cold));
        assert_eq!(ask(&facts(&[])), BlockProposal::Leave(Reason::Cold));
        assert_eq!(ask(&facts(&[u32::MAX, 0])), BlockProposal::Leave(Reason::Local));
        assert_eq!(ask(&facts(&[u32::MAX; 8])), BlockProposal::LookAgain);
    }

    #[test]
    fn what_is_clear_is_done_before_the_interval_ends() {
        let early = |misses: &[u32]| ask(&BlockFacts { is_over: false, ..facts(misses) });
        assert_eq!(early(&[0, 4096]), BlockProposal::Migrate { to: NodeId(1) });
        assert_eq!(early(&[2048, 2048]), BlockProposal::LookAgain, "another phase may have begun");
        assert_eq!(early(&[4096, 0]), BlockProposal::Leave(Reason::Local));
        for few in [&[0, 4095][..], &[2047, 2048], &[0, 1], &[]] {
            assert_eq!(early(few), BlockProposal::Wait, "{few:?}");
        }
        let tried = BlockFacts { history: History { tries: 1, last: 0 }, ..facts(&[0, 9000]) };
        assert_eq!(ask(&BlockFacts { is_over: false, ..tried }), BlockProposal::Wait, "it has moved before");
        assert_eq!(ask(&tried), BlockProposal::Migrate { to: NodeId(1) });
        let mixed = BlockFacts { history: History { tries: 1, last: 0 }, ..facts(&[5000, 5000]) };
        assert_eq!(ask(&mixed), BlockProposal::LookAgain);
    }

    #[test]
    fn a_block_with_misses_of_several_is_looked_at_twice() {
        let again = |facts: BlockFacts| BlockFacts { was_mixed: true, ..facts };
        for mixed in [facts(&[500, 500]), facts(&[5000, 5000])] {
            assert_eq!(ask(&mixed), BlockProposal::LookAgain);
            assert_eq!(ask(&again(mixed)), BlockProposal::Split);
        }
        let early = |facts: BlockFacts| BlockFacts { is_over: false, ..again(facts) };
        assert_eq!(ask(&early(facts(&[2048, 2048]))), BlockProposal::Split);
        assert_eq!(ask(&early(facts(&[2048, 2047]))), BlockProposal::Wait);
        assert_eq!(
            ask(&early(facts(&[100, 5000]))),
            BlockProposal::Migrate { to: NodeId(1) },
            "it was a change of phases"
        );
    }

    #[test]
    fn many_pages_with_one_user_are_uneven() {
        assert!(is_uneven(65, 447) && is_uneven(500, 12) && is_uneven(1, 1));
        assert!(!is_uneven(64, 448) && !is_uneven(0, 512) && !is_uneven(0, 0));
    }

    #[test]
    fn a_block_of_several_goes_by_its_parts() {
        let mixed = |alone_permille, writes| {
            let parts = Some(Parts { alone_permille, is_uneven: false, writes });
            BlockFacts { was_mixed: true, parts, ..facts(&[3000, 3000, 512, 511]) }
        };
        assert_eq!(ask(&mixed(249, Writes::None)), BlockProposal::Replicate { nodes: 0b110 });
        assert_eq!(ask(&mixed(250, Writes::None)), BlockProposal::Split, "its pages have users of their own");
        assert_eq!(ask(&mixed(0, Writes::Seen)), BlockProposal::Leave(Reason::WriteShared));
        assert_eq!(ask(&mixed(1000, Writes::Seen)), BlockProposal::Split);
        let uneven = Parts { alone_permille: 0, is_uneven: true, writes: Writes::Seen };
        let uneven = BlockFacts { parts: Some(uneven), ..mixed(0, Writes::Seen) };
        assert_eq!(ask(&uneven), BlockProposal::Split, "some pages would be better off elsewhere");
        assert_eq!(ask(&mixed(0, Writes::Unknown)), BlockProposal::Split, "single pages will be watched");
        let few = BlockFacts { misses: [500, 500, 0, 0, 0, 0, 0, 0], ..mixed(0, Writes::None) };
        assert_eq!(ask(&few), BlockProposal::Split, "not worth all of it");
        let only_migrate = Switches { migrate: true, replicate: false };
        assert_eq!(decide_block(&mixed(0, Writes::None), 0, only_migrate, &T), BlockProposal::Split);
    }

    #[test]
    fn what_speaks_against_it_is_named() {
        let hot = facts(&[0, 9000]);
        let leave = |facts: BlockFacts, reason| assert_eq!(ask(&facts), BlockProposal::Leave(reason));
        leave(BlockFacts { is_pinned: true, ..hot }, Reason::Pinned);
        leave(BlockFacts { is_unsettled: true, ..hot }, Reason::Unsettled);
        leave(BlockFacts { history: History { tries: T.max_tries, last: 0 }, ..hot }, Reason::Tried);
        let once = History { tries: 1, last: 0 };
        leave(BlockFacts { history: once, may_retry: false, ..hot }, Reason::Tried);
        leave(BlockFacts { home: NodeId(9), ..hot }, Reason::BadFacts);
        let readers = Switches { migrate: false, replicate: true };
        assert_eq!(decide_block(&hot, 0, readers, &T), BlockProposal::Leave(Reason::SwitchedOff));
        let mixed = BlockFacts { was_mixed: true, ..facts(&[5000, 5000]) };
        assert_eq!(decide_block(&mixed, 0, readers, &T), BlockProposal::Split);
    }
}
