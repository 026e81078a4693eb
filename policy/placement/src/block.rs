//! A 2 MiB block that one machine page backs.

use addr::NodeId;

use crate::{History, Misses, NODES, Reason, Switches, Thresholds, Writes, sole_user};

/// What is known of a block, one page of which is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// Where it is.
    pub home: NodeId,
    /// Misses of each node on all its pages, since the first of them was hot, it was looked at last, or the interval began.
    pub misses: Misses,
    /// Is the interval over? Before, only what is clear is decided.
    pub is_over: bool,
    /// May it come to more misses? The counters go on nevertheless ([`Thresholds::go_on`]), or have not counted it from their beginning.
    pub may_grow: bool,
    /// Did the look before say that its pages have different users?
    pub was_mixed: bool,
    /// Did its own node seem to be its only user a moment ago? Guests that use a block by turns look so: whoever's turn it is.
    pub was_local: bool,
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
    pub fn add(&mut self, misses: &Misses, home: NodeId, thresholds: &Thresholds) {
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

    /// Would many pages find a place of their own? Of a block that nobody writes misses alone tell: who uses the other pages has its own
    /// copy of them.
    #[must_use]
    pub fn is_divided(&self, writes: Writes) -> bool {
        self.elsewhere > self.misses * ELSEWHERE_PERMILLE / 1000
            || writes != Writes::None && self.alone > (self.alone + self.several) * ALONE_PERMILLE / 1000
    }
}

/// What is known of a block's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Would many pages find a place of their own ([`Uses::is_divided`])?
    pub is_divided: bool,
    /// Was that so at the end of the interval before? For a moment it is between two phases of a guest, too.
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
        nodes: u8,
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

/// Are these a node's misses on a block that nobody writes, in an interval or less, worth a copy of it? The copy stays, so it may
/// pay for itself later than a move.
#[must_use]
pub const fn is_worth_a_copy(misses: u32, thresholds: &Thresholds) -> bool {
    misses >= thresholds.block_hot / 8
}

/// Misses of other nodes than the block's.
fn far(facts: &BlockFacts) -> u64 {
    let others = facts.misses.iter().enumerate().filter(|(node, _)| *node != facts.home.index());
    others.map(|(_, misses)| u64::from(*misses)).sum()
}

/// A block that several nodes use.
fn among_several(facts: &BlockFacts, switches: Switches, thresholds: &Thresholds) -> BlockProposal {
    let Some(parts) = facts.parts else { return BlockProposal::Split };
    if parts.writes == Writes::None && !parts.is_divided && switches.replicate {
        let readers = facts.misses.iter().enumerate().filter(|(_, misses)| is_worth_a_copy(**misses, thresholds));
        let readers = readers.filter(|(node, _)| *node != facts.home.index());
        let nodes = readers.fold(0, |nodes, (node, _)| nodes | 1 << node);
        if nodes != 0 {
            return BlockProposal::Replicate { nodes };
        }
    }
    let enough = u64::from(thresholds.block_hot) * if parts.is_divided { FAR / 2 } else { FAR };
    match parts.writes {
        // What nobody writes and comes here is divided, or is to have no copies.
        Writes::Seen | Writes::None if far(facts) >= enough => BlockProposal::Split,
        _ if !facts.is_over => BlockProposal::Wait,
        // Single pages would not be anywhere better either.
        Writes::Seen if !parts.is_divided => BlockProposal::Leave(Reason::WriteShared),
        Writes::None if !parts.is_divided => BlockProposal::Split,
        _ if parts.is_divided && parts.was_divided => BlockProposal::Split,
        _ => BlockProposal::LookAgain,
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
        let (is_over, may_grow, was_mixed, was_local) = (true, false, false, false);
        let misses = counts;
        let (is_pinned, is_unsettled, may_retry) = (false, false, true);
        BlockFacts {
            home,
            misses,
            is_over,
            may_grow,
            was_mixed,
            was_local,
            is_pinned,
            is_unsettled,
            parts: None,
            history,
            may_retry,
        }
    }

    fn ask(facts: &BlockFacts) -> BlockProposal {
        decide_block(facts, 0, Switches::BOTH, &T)
    }

    #[test]
    fn a_block_of_one_user_goes_to_it() {
        assert_eq!(ask(&facts(&[1000, 9000])), BlockProposal::Migrate { to: NodeId(1) });
        assert_eq!(ask(&facts(&[1010, 8990])), BlockProposal::LookAgain);
        assert_eq!(ask(&facts(&[0, 4095])), BlockProposal::Split, "too little for all of it");
        assert_eq!(ask(&facts(&[0, 1024])), BlockProposal::Split);
        assert_eq!(ask(&facts(&[0, 1023])), BlockProposal::Leave(Reason::Cold), "walks would cost more");
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
    fn a_block_that_one_node_uses_a_little_has_time_to_come_to_more() {
        let growing = |misses: &[u32]| ask(&BlockFacts { may_grow: true, ..facts(misses) });
        assert_eq!(growing(&[0, 4095]), BlockProposal::Wait, "it would be split else");
        assert_eq!(growing(&[0, 4096]), BlockProposal::Migrate { to: NodeId(1) });
        assert_eq!(growing(&[2000, 2000]), BlockProposal::LookAgain);
        assert_eq!(growing(&[0, 31]), BlockProposal::Leave(Reason::Cold));
    }

    #[test]
    fn who_follows_the_own_node_has_to_be_alone_for_a_while() {
        let turns = |misses: &[u32], is_over| ask(&BlockFacts { was_local: true, is_over, ..facts(misses) });
        for is_over in [false, true] {
            assert_eq!(turns(&[0, 9000], is_over), BlockProposal::Wait, "its own node's turn may come again");
            assert_eq!(turns(&[0, 4000], is_over), BlockProposal::Wait);
        }
        assert_eq!(turns(&[5000, 5000], false), BlockProposal::LookAgain);
        assert_eq!(turns(&[9000, 0], false), BlockProposal::Leave(Reason::Local));
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
    fn pages_with_users_of_their_own_divide_a_block() {
        let uses = |pages: &[(u32, [u32; 2])]| {
            let mut uses = Uses::default();
            for (count, [home, other]) in pages {
                let misses = facts(&[*home, *other]).misses;
                (0..*count).for_each(|_| uses.add(&misses, NodeId(0), &T));
            }
            uses
        };
        assert_eq!(
            uses(&[(2, [5, 5]), (3, [0, 9]), (1, [8, 0]), (9, [7, 0])]),
            Uses { misses: 55, elsewhere: 27, alone: 4, several: 2 }
        );
        let is_divided =
            |pages| [Writes::None, Writes::Seen, Writes::Unknown].map(|writes| uses(pages).is_divided(writes));
        assert_eq!(is_divided(&[(450, [10, 10]), (62, [0, 60])]), [true; 3], "by misses");
        assert_eq!(is_divided(&[(447, [100, 100]), (65, [8, 0])]), [false, true, true], "by pages");
        assert_eq!(is_divided(&[(448, [100, 100]), (64, [0, 8])]), [false; 3]);
        assert_eq!([is_divided(&[(9, [0, 0])]), is_divided(&[])], [[false; 3]; 2]);
    }

    #[test]
    fn a_block_of_several_goes_by_its_parts() {
        let mixed = |is_over, [was_divided, is_divided]: [bool; 2], writes| {
            let parts = Some(Parts { is_divided, was_divided, writes });
            ask(&BlockFacts { was_mixed: true, is_over, parts, ..facts(&[3000, 3000, 512, 511]) })
        };
        let (whole, new, divided) = ([false; 2], [false, true], [true; 2]);
        let copies = BlockProposal::Replicate { nodes: 0b110 };
        assert_eq!([mixed(false, whole, Writes::None), mixed(true, whole, Writes::None)], [copies; 2]);
        assert_eq!(mixed(true, [true, false], Writes::None), copies);
        let written = BlockProposal::Leave(Reason::WriteShared);
        assert_eq!([mixed(true, whole, Writes::Seen), mixed(true, [true, false], Writes::Seen)], [written; 2]);
        for writes in [Writes::None, Writes::Seen, Writes::Unknown] {
            assert_eq!(mixed(true, divided, writes), BlockProposal::Split, "{writes:?}");
            assert_eq!(mixed(true, new, writes), BlockProposal::LookAgain, "{writes:?}: it may be between two phases");
            assert_eq!(mixed(false, divided, writes), BlockProposal::Wait, "{writes:?}");
        }
        assert_eq!(mixed(true, whole, Writes::Unknown), BlockProposal::LookAgain, "it could not be watched");
        let parts = Some(Parts { is_divided: false, was_divided: false, writes: Writes::None });
        let few = BlockFacts { was_mixed: true, parts, ..facts(&[500, 500]) };
        assert_eq!(ask(&few), BlockProposal::Split, "not worth all of it");
        let only_migrate = Switches { migrate: true, replicate: false };
        let many = BlockFacts { misses: [5000; NODES], ..few };
        assert_eq!(decide_block(&many, 0, only_migrate, &T), BlockProposal::Split);
    }

    #[test]
    fn a_block_that_is_hot_enough_is_split_for_the_pages_that_nobody_writes() {
        let ask = |misses: &[u32], is_divided, writes| {
            let parts = Some(Parts { is_divided, was_divided: false, writes });
            [false, true].map(|is_over| ask(&BlockFacts { was_mixed: true, is_over, parts, ..facts(misses) }))
        };
        let written = BlockProposal::Leave(Reason::WriteShared);
        assert_eq!(ask(&[30_000, 65_536], false, Writes::Seen), [BlockProposal::Split; 2]);
        assert_eq!(ask(&[65_536, 65_535], false, Writes::Seen), [BlockProposal::Wait, written], "its own node is near");
        assert_eq!(ask(&[30_000, 32_768], true, Writes::Seen), [BlockProposal::Split; 2], "half is enough");
        assert_eq!(ask(&[30_000, 32_767], true, Writes::Seen), [BlockProposal::Wait, BlockProposal::LookAgain]);
        assert_eq!(ask(&[30_000, 32_768], true, Writes::None), [BlockProposal::Split; 2]);
        assert_eq!(ask(&[65_536, 65_536], false, Writes::Unknown), [BlockProposal::Wait, BlockProposal::LookAgain]);
        let copies = BlockProposal::Replicate { nodes: 0b10 };
        assert_eq!(ask(&[65_536, 65_536], false, Writes::None), [copies; 2]);
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
