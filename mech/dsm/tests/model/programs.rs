//! The programs, and what they may come to.

use std::collections::BTreeSet;

use dsm::{Protocol, Visibility};

use crate::world::{Op, World, config};
use crate::{Found, search};

use Op::{Add, Copy, Count, Fence, Half, Load, Store};

const X: u64 = 0;
const Y: u64 = 1;
const LIMIT: usize = 3_000_000;

const PROTOCOLS: [Protocol; 3] = [Protocol::Invalidate, Protocol::Update, Protocol::UpdatePlus];
const VISIBILITIES: [Visibility; 2] = [Visibility::Ordered, Visibility::Early];

/// All have copies of both pages, and stores go to all of them.
const SHARED: [(usize, Op); 6] = [(0, Load(X)), (1, Load(X)), (2, Load(X)), (0, Load(Y)), (1, Load(Y)), (2, Load(Y))];

/// The machine that orders has none.
const PARTLY: [(usize, Op); 2] = [(1, Load(X)), (2, Load(X))];

/// Goes through all orders of `programs`, with fresh pages and with shared ones, in each protocol. `is_allowed` judges what they come to.
fn every(programs: &[&[Op]], starts: &[&[(usize, Op)]], is_allowed: impl Fn(&[u64]) -> bool) -> BTreeSet<Vec<u64>> {
    let mut all = BTreeSet::new();
    for start in starts {
        for protocol in PROTOCOLS {
            for visibility in VISIBILITIES {
                let Found { states, ends } = search(World::new(config(protocol, visibility), start, programs), LIMIT);
                println!("{protocol:?} {visibility:?} from {} steps: {states} states, {ends:?}", start.len());
                let wrong: Vec<_> = ends.iter().filter(|end| !is_allowed(end)).collect();
                assert!(wrong.is_empty(), "{protocol:?} {visibility:?}: {wrong:?}");
                all.extend(ends);
            }
        }
    }
    all
}

#[test]
fn message_passing() {
    let found = every(&[&[Store(X, 1), Fence, Store(Y, 1)], &[Load(Y), Fence, Load(X)]], &[&[], &SHARED], |end| {
        end[..2] != [1, 0]
    });
    assert!(found.len() >= 3, "all that is allowed is seen: {found:?}");
}

#[test]
fn store_buffering() {
    let found = every(&[&[Store(X, 1), Fence, Load(Y)], &[Store(Y, 1), Fence, Load(X)]], &[&[], &SHARED], |end| {
        end[..2] != [0, 0]
    });
    assert_eq!(found.len(), 3);
}

#[test]
fn store_buffering_without_fences_is_seen() {
    let programs: [&[Op]; 2] = [&[Store(X, 1), Load(Y)], &[Store(Y, 1), Load(X)]];
    let world = World::new(config(Protocol::Update, Visibility::Early), &SHARED, &programs);
    assert!(search(world, LIMIT).ends.iter().any(|end| end[..2] == [0, 0]), "a fence is what forbids it");
}

#[test]
fn copies_come_to_one_value_and_none_goes_back() {
    every(
        &[&[Store(X, 1)], &[Store(X, 2)], &[Load(X), Load(X)]],
        &[&[], &SHARED],
        |end| matches!(end, [a, b, last, _] if *last != 0 && (a == b || *a == 0 || b == last && a != last)),
    );
}

#[test]
fn a_page_leaves_without_stores_that_have_no_place() {
    // The last fetches X from the second, whose store may not have its place; the first, which orders, says whether it came before its own.
    let start = [(1, Load(X)), (0, Load(X)), (0, Load(Y)), (2, Load(Y))];
    every(&[&[Store(Y, 1), Fence, Load(X)], &[Store(X, 1)], &[Load(X), Load(Y)]], &[&start], |end| {
        end[..3] != [0, 1, 0]
    });
}

#[test]
fn halves_of_a_word_are_kept() {
    every(&[&[Half(X, false, 1)], &[Half(X, true, 2)], &[Store(X, 3)]], &[&SHARED], |end| {
        [3, 1, 0x2_0000_0000 | 3, 0x2_0000_0001].contains(&end[0])
    });
}

#[test]
fn atomics_lose_no_update() {
    every(&[&[Add(X, 1)], &[Add(X, 1)], &[Add(X, 1)]], &[&[], &SHARED], |end| {
        let mut olds = end[..3].to_vec();
        olds.sort_unstable();
        olds == [0, 1, 2] && end[3] == 3
    });
}

#[test]
fn reservations_lose_no_update() {
    every(&[&[Count(X)], &[Count(X)], &[Add(X, 1)]], &[&SHARED], |end| end[3] == 3);
}

#[test]
fn an_atomic_and_a_store_happen_one_after_the_other() {
    // The fourth figure of vNUMA: an atomic on a page that another machine stores to. Adding 4 to 1 or storing 1 over 5.
    every(&[&[Add(X, 4)], &[Store(X, 1)]], &[&[], &SHARED], |end| matches!(end, [0, 1, _] | [1, 5, _]));
}

#[test]
fn an_atomic_among_stores_has_none_in_its_middle() {
    every(&[&[Store(X, 1)], &[Add(X, 4)], &[Store(X, 2)]], &[&[], &SHARED, &PARTLY], |end| {
        [[0, 1], [0, 2], [1, 2], [2, 1], [2, 6], [1, 5]].contains(&[end[0], end[1]])
    });
}

#[test]
fn what_one_has_seen_others_do_not_miss() {
    every(&[&[Store(X, 1)], &[Load(X), Store(Y, 1)], &[Load(Y), Load(X)]], &[&[], &SHARED], |end| {
        // The store may come before the load in the middle, for nothing orders them there; the hart that is played here keeps the order.
        end[..3] != [1, 1, 0]
    });
}

#[test]
fn instructions_of_two_pages_make_progress() {
    every(&[&[Copy(X, Y)], &[Copy(Y, X)]], &[&[], &SHARED], |_| true);
}
