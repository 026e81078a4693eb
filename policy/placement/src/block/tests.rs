//! What becomes of blocks.

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
    let tried = BlockFacts { history: History { tries: 1, last: 0 }, ..facts(&[0, 16_383]) };
    assert_eq!(ask(&BlockFacts { is_over: false, ..tried }), BlockProposal::Wait, "it has moved before");
    assert_eq!(ask(&tried), BlockProposal::Migrate { to: NodeId(1) });
    let early = |tries, misses: &[u32]| {
        ask(&BlockFacts { is_over: false, history: History { tries, last: 0 }, ..facts(misses) })
    };
    assert_eq!(early(1, &[0, 16_384]), BlockProposal::Migrate { to: NodeId(1) }, "it may well have");
    assert_eq!(early(2, &[0, 160_000]), BlockProposal::Wait, "but not again");
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
    assert_eq!(ask(&early(facts(&[2048, 2048]))), BlockProposal::Wait, "of its pages nothing is known");
    assert_eq!(ask(&early(facts(&[2048, 2047]))), BlockProposal::Wait);
    assert_eq!(ask(&early(facts(&[100, 5000]))), BlockProposal::Migrate { to: NodeId(1) }, "it was a change of phases");
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
    let is_divided = |pages| [Writes::None, Writes::Seen, Writes::Unknown].map(|writes| uses(pages).is_divided(writes));
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
fn a_block_of_several_that_is_nobodys_at_home_is_given_up_soon() {
    let ask = |misses: &[u32], is_divided, was_local| {
        let parts = Some(Parts { is_divided, was_divided: false, writes: Writes::Seen });
        [false, true].map(|is_over| ask(&BlockFacts { was_mixed: true, was_local, parts, is_over, ..facts(misses) }))
    };
    assert_eq!(ask(&[900, 1000, 7192], true, false), [BlockProposal::Split; 2]);
    assert_eq!(ask(&[900, 1000, 7191], true, false), [BlockProposal::Wait, BlockProposal::LookAgain]);
    assert_eq!(ask(&[911, 1000, 7192], true, false), [BlockProposal::Wait, BlockProposal::LookAgain], "it is its own");
    assert_eq!(ask(&[0, 1000, 7192], true, true), [BlockProposal::Wait, BlockProposal::LookAgain], "it may be again");
    assert_eq!(ask(&[0, 8000, 24_768], false, false), [BlockProposal::Wait, BlockProposal::Migrate { to: NodeId(2) }]);
    assert_eq!(ask(&[0, 8000, 24_767], false, false), [BlockProposal::Wait, BlockProposal::LookAgain]);
    assert_eq!(ask(&[0, 30_000, 35_536], false, false), [BlockProposal::Split; 2]);
    let written = Some(Parts { is_divided: false, was_divided: false, writes: Writes::Seen });
    let facts = BlockFacts { was_mixed: true, parts: written, ..facts(&[0, 8000, 24_768]) };
    let readers = Switches { migrate: false, replicate: true };
    assert_eq!(decide_block(&facts, 0, readers, &T), BlockProposal::LookAgain);
}

#[test]
fn who_uses_a_block_most_does_not_keep_it_from_those_who_use_it_much() {
    let early = |misses: &[u32]| ask(&BlockFacts { is_over: false, ..facts(misses) });
    assert_eq!(ask(&facts(&[90_000, 8191])), BlockProposal::Leave(Reason::Local));
    assert_eq!(ask(&facts(&[90_000, 8192])), BlockProposal::LookAgain);
    assert_eq!(early(&[90_000, 8192]), BlockProposal::Leave(Reason::Local), "of a whole interval");
    let again = |is_divided, was_divided| {
        let parts = Some(Parts { is_divided, was_divided, writes: Writes::Seen });
        ask(&BlockFacts { was_mixed: true, parts, ..facts(&[90_000, 8192]) })
    };
    let expected = [BlockProposal::Leave(Reason::WriteShared), BlockProposal::LookAgain, BlockProposal::Split];
    assert_eq!([again(false, true), again(true, false), again(true, true)], expected);
}

#[test]
fn parts_are_asked_for_where_they_tell_something() {
    let mixed = BlockFacts { was_mixed: true, is_over: false, ..facts(&[9000, 8191]) };
    assert!(!mixed.wants_parts(Writes::Seen, &T));
    assert!(mixed.wants_parts(Writes::None, &T), "it may have copies");
    assert!(BlockFacts { is_over: true, ..mixed }.wants_parts(Writes::Seen, &T));
    let far = BlockFacts { misses: facts(&[0, 8192]).misses, ..mixed };
    assert!(far.wants_parts(Writes::Seen, &T));
    assert!(!BlockFacts { was_mixed: false, ..far }.wants_parts(Writes::None, &T));
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
