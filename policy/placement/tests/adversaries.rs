//! Users of a page who make the worst of the policy.

use addr::NodeId;
use placement::{Backing, History, NODES, PageFacts, Proposal, Switches, Thresholds, Writes, decide};
use proptest::prelude::*;

/// What the users do in one interval: misses by node, and whether somebody writes.
#[derive(Clone, Debug)]
struct Interval {
    misses: [u32; NODES],
    is_written: bool,
}

/// A page as a mechanism would keep it, and what it cost.
#[derive(Debug)]
struct Page {
    home: u8,
    replicas: u64,
    history: History,
    migrations: u32,
    replications: u32,
    collapses: u32,
    watches: u32,
    local: u64,
    remote: u64,
}

impl Page {
    const fn new() -> Self {
        let history = History { tries: 0, last: 0 };
        Self {
            home: 0,
            replicas: 0,
            history,
            migrations: 0,
            replications: 0,
            collapses: 0,
            watches: 0,
            local: 0,
            remote: 0,
        }
    }

    /// A first copy follows its watch, and further ones are no tries.
    const fn tries(&self) -> u32 {
        self.migrations + self.watches
    }

    fn has_copy(&self, node: u8) -> bool {
        self.home == node || self.replicas >> node & 1 != 0
    }

    /// One interval: misses happen, the hottest node reports, the proposal is performed.
    fn live(&mut self, interval: &Interval, now: u16, thresholds: &Thresholds) {
        for (node, misses) in interval.misses.iter().enumerate() {
            let place = if self.has_copy(node as u8) { &mut self.local } else { &mut self.remote };
            *place += u64::from(*misses);
        }
        if interval.is_written && self.replicas != 0 {
            (self.replicas, self.collapses) = (0, self.collapses + 1);
        }
        let hottest = (0..NODES as u8).max_by_key(|node| interval.misses[usize::from(*node)]).unwrap();
        if self.has_copy(hottest) {
            return;
        }
        let mut facts = PageFacts {
            by: NodeId(hottest),
            home: NodeId(self.home),
            misses: interval.misses,
            backing: if self.replicas == 0 { Backing::Private } else { Backing::Replicated { nodes: self.replicas } },
            writes: Writes::Unknown,
            is_pinned: false,
            is_unsettled: false,
            may_retry: true,
            history: self.history,
        };
        let mut proposal = decide(&facts, now, Switches::BOTH, thresholds);
        if proposal == Proposal::Watch {
            self.watches += 1;
            facts.writes = if interval.is_written { Writes::Seen } else { Writes::None };
            self.history = self.history.tried(now, thresholds);
            proposal = decide(&facts, now, Switches::BOTH, thresholds);
        }
        match proposal {
            Proposal::Migrate { to, .. } => {
                assert_eq!(self.replicas, 0);
                (self.home, self.migrations) = (to.0, self.migrations + 1);
                self.history = self.history.tried(now, thresholds);
            }
            Proposal::Replicate { on, .. } => {
                assert!(facts.backing != Backing::Private || facts.writes == Writes::None, "written pages stay one");
                (self.replicas, self.replications) = (self.replicas | 1 << on.0, self.replications + 1);
            }
            Proposal::Watch | Proposal::Leave(_) | Proposal::Collapse(_) => {}
        }
    }
}

fn play(intervals: impl IntoIterator<Item = Interval>, thresholds: &Thresholds) -> Page {
    let mut page = Page::new();
    for (now, interval) in intervals.into_iter().enumerate() {
        page.live(&interval, now as u16, thresholds);
    }
    page
}

fn by(node: usize, is_written: bool) -> Interval {
    let mut misses = [0; NODES];
    misses[node] = 1000;
    Interval { misses, is_written }
}

fn bound(intervals: usize, thresholds: &Thresholds) -> u32 {
    u32::from(thresholds.max_tries) + intervals as u32 / u32::from(thresholds.forgive_ticks) + 1
}

#[test]
fn a_page_that_is_fought_over_stops_moving() {
    let thresholds = Thresholds::for_misses();
    let page = play((0..1000).map(|turn| by(turn % 2, true)), &thresholds);
    assert!(page.migrations <= bound(1000, &thresholds), "{page:?}");
    assert!(page.migrations >= 4, "nothing was tried: {page:?}");
}

#[test]
fn a_page_follows_long_phases() {
    let thresholds = Thresholds::for_misses();
    // Forty seconds at a node, then forty at another.
    let page = play((0..4000).map(|turn| by(turn / 400 % 2, true)), &thresholds);
    assert_eq!(page.migrations, 9, "each phase but the first begins with a move");
    assert!(page.local * 100 >= (page.local + page.remote) * 99, "{page:?}");
}

#[test]
fn readers_get_copies_and_keep_them() {
    let thresholds = Thresholds::for_misses();
    let misses = [400, 1000, 300, 0, 0, 0, 0, 0];
    let page = play((0..100).map(|_| Interval { misses, is_written: false }), &thresholds);
    assert_eq!((page.migrations, page.replications, page.collapses), (0, 1, 0), "{page:?}");
}

#[test]
fn a_rare_writer_costs_a_bounded_number_of_copies() {
    let thresholds = Thresholds::for_misses();
    let misses = [1000, 1001, 0, 0, 0, 0, 0, 0];
    // It writes just after each copy.
    let page = play((0..1000).map(|turn| Interval { misses, is_written: turn % 2 == 1 }), &thresholds);
    assert!(page.replications <= bound(1000, &thresholds), "{page:?}");
    assert!(page.collapses <= page.replications, "{page:?}");
}

fn interval() -> impl Strategy<Value = Interval> {
    (prop::array::uniform8(prop_oneof![Just(0u32), 0u32..300, Just(u32::MAX)]), any::<bool>())
        .prop_map(|(misses, is_written)| Interval { misses, is_written })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nobody makes a page move more often than its history allows, whatever they do.
    #[test]
    fn tries_are_bounded(
        intervals in prop::collection::vec(interval(), 0..200),
        max_tries in 1u8..6,
        forgive_ticks in 1u16..50,
    ) {
        let thresholds = Thresholds { max_tries, forgive_ticks, ..Thresholds::for_misses() };
        let turns = intervals.len();
        let page = play(intervals, &thresholds);
        prop_assert!(page.tries() <= bound(turns, &thresholds), "{:?}", page);
        prop_assert!(page.collapses <= page.watches);
        prop_assert!(page.replications <= page.watches * NODES as u32);
    }

    /// The history never forgives early, and forgets all in the end.
    #[test]
    fn histories_forgive_in_time(tries in 0u8..20, last: u16, later in 0u16..1000, forgive_ticks in 1u16..60) {
        let thresholds = Thresholds { forgive_ticks, ..Thresholds::for_misses() };
        let then = History { tries, last }.at(last.wrapping_add(later), &thresholds);
        prop_assert_eq!(u16::from(then.tries), u16::from(tries).saturating_sub(later / forgive_ticks));
        prop_assert_eq!(then.at(last.wrapping_add(later), &thresholds), then, "asking twice changes nothing");
    }

    /// Without a clock that moves, nothing is forgiven.
    #[test]
    fn a_standing_clock_forgives_nothing(tries in 0u8..20, now: u16) {
        let history = History { tries, last: now };
        prop_assert_eq!(history.at(now, &Thresholds { forgive_ticks: 0, ..Thresholds::for_misses() }), history);
    }
}
