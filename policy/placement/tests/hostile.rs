//! A machine that answers nonsense: the planner proposes nothing that its bounds forbid, and goes on.

mod fake;

use std::collections::BTreeSet;

use addr::{Gfn, Mfn, NodeId, PageSize};
use fake::{Fake, HARTS, NODES, guest, pages_of};
use placement::{
    AT_ONCE, BATCH, Backing, Facts, Hands, History, Hot, Job, Located, Look, Misses, Order, Planner, Reason, Samples,
    Shared, Sharer, Wish, Work,
};
use proptest::prelude::*;

/// A fact of any kind.
fn located() -> impl Strategy<Value = Located> {
    let backing = prop_oneof![
        Just(Backing::Private),
        Just(Backing::Shared),
        Just(Backing::SharedBlock),
        any::<u64>().prop_map(|nodes| Backing::Replicated { nodes }),
    ];
    let size = prop_oneof![Just(PageSize::Base), Just(PageSize::Large)];
    (0_usize..5, gfn(), node(), size, backing, any::<(bool, u8, u16)>()).prop_map(
        |(guest, gfn, home, size, backing, (is_pinned, tries, last))| Located {
            guest,
            gfn,
            home,
            size,
            backing,
            is_pinned,
            history: History { tries, last },
        },
    )
}

/// Mostly one that is there.
fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![4 => (0..NODES as u8).prop_map(NodeId), 1 => any::<u8>().prop_map(NodeId)]
}

fn page() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0x1000_u64..0x1400, 1 => any::<u64>()]
}

fn gfn() -> impl Strategy<Value = Gfn> {
    prop_oneof![8 => 0_u64..1024, 1 => any::<u64>()].prop_map(Gfn::new)
}

/// What happens before a look.
#[derive(Clone, Debug)]
enum Event {
    Back(u64, Located),
    Share(u64, NodeId, Vec<(usize, Gfn)>),
    Miss(u64, NodeId, u32, usize),
    Look(u64),
    Sample(u64),
    Refuse(bool),
    Written(bool),
    Guests(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (page(), located()).prop_map(|(page, found)| Event::Back(page, found)),
        1 => (page(), node(), prop::collection::vec((0_usize..5, gfn()), 0..16))
            .prop_map(|(page, home, sharers)| Event::Share(page, home, sharers)),
        8 => (page(), node(), 0_u32..100_000, 1_usize..40).prop_map(|(p, n, misses, times)| Event::Miss(p, n, misses, times)),
        4 => (0_u64..300).prop_map(Event::Look),
        2 => (0_u64..300).prop_map(Event::Sample),
        1 => any::<bool>().prop_map(Event::Refuse),
        1 => any::<bool>().prop_map(Event::Written),
        1 => (0_u8..5).prop_map(Event::Guests),
    ]
}

/// What must hold for the jobs of one look.
fn check(fake: &mut Fake) -> Result<(), TestCaseError> {
    let sent = fake.take_sent();
    let harts: BTreeSet<_> = sent.iter().map(|(hart, _)| *hart).collect();
    prop_assert_eq!(harts.len(), sent.len(), "a hart has one job of a look");
    for (hart, job) in &sent {
        prop_assert!(job.guest < fake.guests.len() && job.node.index() < NODES);
        prop_assert_eq!(hart / HARTS, job.node.index());
        prop_assert!(pages_of(job) <= BATCH);
    }
    for guest in 0..fake.guests.len() {
        let lanes = sent.iter().filter(|(_, job)| job.guest == guest && job.work.takes_lane()).count();
        prop_assert!(lanes <= AT_ONCE);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_leads_to_no_harm(events in prop::collection::vec(event(), 1..200)) {
        let mut fake = Fake::new(2);
        let mut planner = Planner::new();
        let mut ms = 0;
        for event in events {
            match event {
                Event::Back(page, found) => _ = fake.pages.insert(page, found),
                Event::Share(page, home, sharers) => {
                    let sharer = |(guest, gfn)| Sharer { guest, gfn, backing: Backing::Shared };
                    let sharers = sharers.into_iter().map(sharer).collect();
                    fake.shared.insert(page, Shared { home, sharers });
                }
                Event::Miss(page, node, misses, times) => {
                    (0..times as u64).for_each(|at| fake.miss(page.wrapping_add(at), node.0, misses));
                }
                Event::Look(later) => {
                    ms += later;
                    fake.look(&mut planner, ms);
                    check(&mut fake)?;
                }
                Event::Sample(later) => {
                    ms += later;
                    fake.look_at_samples(&mut planner, ms);
                    check(&mut fake)?;
                }
                Event::Refuse(is_so) => fake.refuses = is_so,
                Event::Written(is_so) => fake.is_written = is_so,
                Event::Guests(count) => fake.guests = (1..=u16::from(count)).map(guest).collect(),
            }
        }
    }
}

/// Reports without end, all of them news: more than the planner asks for at a time, and more of it at each look.
struct Flood {
    next: u64,
    asked: usize,
    pages: usize,
    waits: usize,
}

impl Facts for Flood {
    fn counts_misses(&self) -> bool {
        true
    }
    fn take_hot(&mut self, most: usize) -> usize {
        self.asked += most;
        self.next += 1000;
        usize::MAX
    }
    fn hot(&self, at: usize) -> Option<Hot> {
        Some(Hot { page: Mfn::new(self.next + at as u64), by: NodeId(1) })
    }
    fn add_misses(&self, _: Mfn, _: u64, to: &mut Misses) {
        to[1] = u32::MAX;
    }
    fn locate(&self, page: Mfn) -> Option<Located> {
        let history = History::default();
        let (gfn, backing) = (Gfn::new(page.raw()), Backing::Private);
        Some(Located { guest: 0, gfn, home: NodeId(0), size: PageSize::Base, backing, is_pinned: false, history })
    }
    fn look_up(&self, _: usize, _: Gfn, _: Mfn) -> Option<placement::Backed> {
        None
    }
    fn shared(&self, _: Mfn, _: NodeId) -> Option<Shared> {
        None
    }
    fn has_copy(&self, _: Mfn, _: NodeId) -> bool {
        false
    }
    fn is_copying_block(&self, _: usize, _: Gfn) -> bool {
        false
    }
    fn is_unwritten(&self, _: usize, _: Gfn, _: Mfn) -> bool {
        true
    }
    fn block_moves(&self, _: usize, _: NodeId) -> usize {
        usize::MAX
    }
    fn has_block_copy(&self, _: usize, _: NodeId) -> bool {
        true
    }
    fn harts(&self) -> usize {
        usize::MAX
    }
    fn hart(&self, at: usize) -> Option<placement::Hart> {
        (at < 8).then_some(placement::Hart { node: NodeId(1), is_online: at > 1, is_control: false })
    }
    fn ran(&self, _: usize) -> u64 {
        u64::MAX
    }
    fn spent(&self) -> u64 {
        u64::MAX
    }
    fn fault_us(&self) -> u64 {
        u64::MAX
    }
}

impl Hands for Flood {
    fn may_go_on(&mut self) -> bool {
        true
    }

    fn set_threshold(&mut self, _: u32) {}
    fn count_anew(&mut self) {}
    fn watch(&mut self, _: usize, _: NodeId, _: &mut Vec<Gfn>) {}
    fn begin_samples(&mut self, _: usize, _: &mut Samples) {}
    fn look_at(&mut self, _: usize, _: &mut Samples) -> u64 {
        u64::MAX
    }
    fn carry_out(&mut self, _: usize, _: Order) -> bool {
        true
    }
    fn send(&mut self, _: usize, job: Job) {
        if let Work::Migrate(gfns) = job.work {
            self.pages += gfns.len();
        }
    }
    fn leave(&mut self, _: usize, _: u64, _: Reason) {
        self.waits += 1;
    }
    fn compare(&mut self, _: usize, _: Wish, _: Wish) {}
}

#[test]
fn a_flood_is_taken_in_portions() {
    let mut flood = Flood { next: 0, asked: 0, pages: 0, waits: 0 };
    let mut planner = Planner::new();
    let guests = [guest(1)];
    for at in 0..200 {
        let look = Look { now: at * 1000, hz: 1_000_000, nodes: 2, guests: &guests };
        let (asked, pages) = (flood.asked, flood.pages);
        planner.look(&look, &mut flood);
        assert!(flood.asked - asked <= 128 && flood.pages - pages <= AT_ONCE * BATCH);
    }
    assert!(flood.pages > 0, "and something comes of it");
    // Nobody takes jobs: what waits is bounded, and then nothing more is taken.
    let guests = [placement::Guest { jobs: AT_ONCE, ..guests[0] }];
    for at in 200..300 {
        let look = Look { now: at * 1000, hz: 1_000_000, nodes: 2, guests: &guests };
        planner.look(&look, &mut flood);
    }
    let asked = flood.asked;
    planner.look(&Look { now: 300_000, hz: 1_000_000, nodes: 2, guests: &guests }, &mut flood);
    assert_eq!(flood.asked, asked);
}

#[test]
fn a_look_that_takes_for_ever_is_the_last() {
    let mut flood = Flood { next: 0, asked: 0, pages: 0, waits: 0 };
    let mut planner = Planner::new();
    let guests = [guest(1)];
    for now in [0, u64::MAX / 2, u64::MAX] {
        let look = Look { now, hz: u64::MAX, nodes: usize::MAX, guests: &guests };
        planner.look_at_samples(&look, &mut flood);
        planner.look(&look, &mut flood);
    }
}
