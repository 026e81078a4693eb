//! The planner on a machine that says what a test wants: intervals, jobs, blocks, budgets, several VMs.

mod fake;

use addr::{Gfn, NodeId, VmId};
use arrayvec::ArrayVec;
use fake::{Fake, HARTS, guest, pages_of};
use placement::{AT_ONCE, BATCH, Backing, History, IDLE_HZ, Order, Planner, Reason, Shared, Sharer, Thresholds, Work};

const GFN: u64 = 0x8_0000;
const PAGE: u64 = 0x10_0000;
const T: Thresholds = Thresholds::for_misses();

/// A planner that has begun to count at 0 ms.
fn begun(fake: &mut Fake) -> Planner {
    let mut planner = Planner::new();
    fake.look(&mut planner, 0);
    planner
}

#[test]
fn nobody_takes_part_and_little_is_done() {
    let mut fake = Fake::new(0);
    let mut planner = Planner::new();
    assert_eq!((fake.look(&mut planner, 0), fake.threshold, fake.resets), (IDLE_HZ, 0, 0));
    fake.guests.push(guest(1));
    assert!(fake.look(&mut planner, 100) > IDLE_HZ);
    assert_eq!((fake.threshold, fake.resets), (T.hot, 1), "what was counted before there was a guest is of no use");
}

#[test]
fn pages_of_one_user_go_to_a_hart_of_its_node() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    for at in 0..3 {
        fake.back(0, GFN + at, PAGE + at, 0);
        fake.miss(PAGE + at, 2, T.hot);
    }
    fake.look(&mut planner, 5);
    let sent = fake.take_sent();
    let [(hart, job)] = sent.as_slice() else { panic!("one job: {sent:?}") };
    assert_eq!((*hart / HARTS, job.node, job.guest), (2, NodeId(2), 0));
    assert_eq!(job.work, Work::Migrate((GFN..GFN + 3).map(Gfn::new).collect()));
    // Whoever reports them again meanwhile tells no news.
    (0..3).for_each(|at| fake.miss(PAGE + at, 2, 1));
    fake.look(&mut planner, 10);
    assert_eq!(fake.take_sent(), []);
}

#[test]
fn readers_get_copies_when_nobody_has_written_for_a_while() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    fake.back(0, GFN, PAGE, 0);
    fake.miss_quietly(PAGE, 0, 100);
    fake.miss_quietly(PAGE, 3, T.hot / 2);
    fake.miss(PAGE, 1, T.hot);
    fake.look(&mut planner, 5);
    assert_eq!(fake.watched, [(0, NodeId(1), vec![Gfn::new(GFN)]), (0, NodeId(3), vec![Gfn::new(GFN)])]);
    assert_eq!(fake.take_sent(), [], "it is watched first");
    fake.look(&mut planner, 10);
    assert_eq!(fake.take_sent(), []);
    fake.look(&mut planner, 15);
    let nodes: Vec<_> = fake.take_sent().into_iter().map(|(_, job)| (job.node.0, job.work)).collect();
    let copy = || Work::Replicate(vec![Gfn::new(GFN)]);
    assert_eq!(nodes, [(1, copy()), (3, copy())], "who will ask soon gets one, too");
}

#[test]
fn counters_begin_anew_unless_little_is_hot() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    assert_eq!(fake.resets, 1);
    for interval in 1..=10 {
        assert_eq!(fake.resets, 1, "nothing is hot: they go on before interval {interval}");
        fake.look(&mut planner, interval * 100);
    }
    assert_eq!(fake.resets, 2, "but not for ever");
    for at in 0..T.few {
        fake.back(0, GFN + at, PAGE + at, 0);
        fake.miss(PAGE + at, 1, T.hot);
    }
    fake.look(&mut planner, 1100);
    assert_eq!(fake.resets, 3, "so much is hot that an interval is enough");
    fake.guests[0].node_change_at = 1_150 * (fake::HZ / 1000);
    fake.look(&mut planner, 1200);
    assert_eq!(fake.resets, 4, "a vCPU has changed nodes");
}

#[test]
fn a_vm_has_two_jobs_at_a_time_and_a_hart_one() {
    let mut fake = Fake::new(2);
    let mut planner = begun(&mut fake);
    for (at, vm) in [(0, 0), (1000, 1)] {
        for page in (at..at + 100).chain(at + 200..at + 205) {
            fake.back(vm, GFN + page, PAGE + page, 0);
            fake.miss(PAGE + page, if page < at + 200 { 1 } else { 2 }, T.hot);
        }
    }
    fake.look(&mut planner, 5);
    let sent = fake.take_sent();
    assert!(sent.iter().all(|(hart, job)| hart / HARTS == job.node.index() && pages_of(job) <= BATCH));
    let jobs = |vm| sent.iter().filter(|(_, job)| job.guest == vm).count();
    let pages = |vm| sent.iter().filter(|(_, job)| job.guest == vm).map(|(_, job)| pages_of(job)).sum::<usize>();
    assert_eq!((jobs(0), pages(0)), (AT_ONCE, 100), "a full batch and what is left, to one node");
    assert_eq!(jobs(1), 0, "node 1 has no hart left");
    // Those of the first are still under way; the other's are done.
    fake.guests[0].jobs = AT_ONCE;
    for at in [10, 15] {
        fake.look(&mut planner, at);
    }
    let sent = fake.take_sent();
    assert!(sent.iter().all(|(_, job)| job.guest == 1));
    assert_eq!(sent.iter().map(|(_, job)| pages_of(job)).sum::<usize>(), 105);
    fake.guests[0].jobs = 0;
    fake.guests[1].is_ending = true;
    fake.look(&mut planner, 20);
    let sent = fake.take_sent();
    assert!(sent.iter().all(|(_, job)| job.guest == 0 && job.node == NodeId(2)) && sent.len() == 1, "{sent:?}");
}

#[test]
fn a_look_ends_early_if_somebody_calls_and_nothing_is_lost() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    for page in 0..100 {
        fake.back(0, GFN + page, PAGE + page, 0);
        fake.miss(PAGE + page, 1, T.hot);
    }
    fake.is_called = true;
    fake.look(&mut planner, 5);
    let early: usize = fake.take_sent().iter().map(|(_, job)| pages_of(job)).sum();
    assert!((1..100).contains(&early), "{early} pages");
    fake.is_called = false;
    fake.look(&mut planner, 10);
    let late: usize = fake.take_sent().iter().map(|(_, job)| pages_of(job)).sum();
    assert_eq!(early + late, 100);
}

#[test]
fn the_control_hart_copies_if_nobody_else_can() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    for look in 0..4 {
        fake.back(0, GFN + look, PAGE + look, 1);
        fake.miss(PAGE + look, 0, T.hot);
        fake.look(&mut planner, 5 * (look + 1));
    }
    assert_eq!(fake.take_sent().iter().map(|(hart, _)| *hart).collect::<Vec<_>>(), [1; 4]);
    // Two full batches for the two harts of node 0.
    for page in 100..100 + 2 * BATCH as u64 {
        fake.back(0, GFN + page, PAGE + page, 1);
        fake.miss(PAGE + page, 0, T.hot);
    }
    fake.look(&mut planner, 40);
    let mut harts: Vec<_> = fake.take_sent().iter().map(|(hart, _)| *hart).collect();
    harts.sort_unstable();
    assert_eq!(harts, [0, 1]);
}

#[test]
fn a_block_of_one_user_moves_two_at_a_time() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    for block in 0..4 {
        fake.back_block(0, GFN + block * 512, PAGE + block * 512, 0);
        // The first pages come before it is noted; what they were missed on does not count for it.
        fake.miss(PAGE + block * 512, 1, T.hot);
    }
    fake.look(&mut planner, 5);
    assert_eq!(fake.take_sent(), []);
    for block in 0..4 {
        for page in 0..128 {
            fake.miss(PAGE + block * 512 + page, 1, T.hot);
        }
    }
    fake.look(&mut planner, 10);
    let begins: Vec<_> = fake.take_sent().into_iter().map(|(_, job)| job.work).collect();
    assert_eq!(begins, [0, 1].map(|block| Work::BeginBlock(Gfn::new(GFN + block * 512))));
    // Both are on their way: they are moved on, and no others begin.
    fake.moving.insert((0, NodeId(1)), 2);
    fake.look(&mut planner, 15);
    assert!(fake.take_sent().iter().all(|(_, job)| job.work == Work::StepBlock && job.node == NodeId(1)));
    fake.moving.clear();
    fake.look(&mut planner, 20);
    assert_eq!(fake.take_sent().len(), 2, "the other two");
    fake.look(&mut planner, 25);
    assert_eq!(fake.take_sent(), [], "and nothing is left");
}

/// A block that two nodes use for some intervals.
fn two_users(fake: &mut Fake, planner: &mut Planner, is_apart: bool) {
    fake.back_block(0, GFN, PAGE, 0);
    for ms in (5..600).step_by(5) {
        for page in 0..512 {
            let (mine, others) = if is_apart && page >= 256 { (1, 2) } else { (2, 1) };
            fake.miss_quietly(PAGE + page, mine, 2);
            fake.miss_quietly(PAGE + page, others, if is_apart { 0 } else { 2 });
        }
        fake.miss(PAGE, 1, 0);
        fake.look(planner, ms);
    }
}

#[test]
fn a_block_that_several_read_gets_copies_as_a_whole() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    two_users(&mut fake, &mut planner, false);
    assert_eq!(fake.orders.first(), Some(&(0, Order::WatchBlock(Gfn::new(GFN)))), "it is looked at again first");
    assert!(fake.orders.contains(&(0, Order::CopyBlock { gfn: Gfn::new(GFN), nodes: 0b110 })), "{:?}", fake.orders);
    assert!(!fake.orders.contains(&(0, Order::Split(Gfn::new(GFN)))));
}

#[test]
fn a_block_whose_pages_have_different_users_is_split() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    fake.is_written = true;
    two_users(&mut fake, &mut planner, true);
    assert!(fake.orders.contains(&(0, Order::Split(Gfn::new(GFN)))), "{:?}", fake.orders);
}

#[test]
fn a_block_that_was_tried_too_often_is_left_and_asked_about_no_more() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    fake.back_block(0, GFN, PAGE, 0);
    fake.pages.values_mut().for_each(|found| found.history = History { tries: T.max_tries, last: 1 });
    for page in 0..100 {
        fake.miss(PAGE + page, 1, 100);
    }
    fake.look(&mut planner, 5);
    assert_eq!(fake.left, [(0, 1, Reason::Tried)], "its other pages are no news");
    assert_eq!((fake.take_sent(), fake.orders.len()), (Vec::new(), 0));
}

#[test]
fn a_vm_tries_again_only_what_its_budget_allows() {
    let mut fake = Fake::new(2);
    fake.guests[0].pages = 32 * u64::from(T.retry_part);
    let mut planner = begun(&mut fake);
    for page in 0..200 {
        let vm = usize::from(page >= 100);
        fake.back(vm, GFN + page, PAGE + page, 0);
        fake.pages.get_mut(&(PAGE + page)).unwrap().history = History { tries: 1, last: 1 };
    }
    let mut pages = [0, 0];
    for ms in (5..100).step_by(5) {
        (0..200).for_each(|page| fake.miss(PAGE + page, 1, 100));
        fake.look(&mut planner, ms);
        fake.take_sent().iter().for_each(|(_, job)| pages[job.guest] += pages_of(job));
    }
    assert_eq!(pages, [32, 100], "the other VM has more to spend, and nothing of the first one's");
    assert!(fake.left.iter().all(|(vm, _, reason)| (*vm, *reason) == (0, Reason::Tried)));
}

#[test]
fn who_is_gone_gets_no_jobs_and_leaves_nothing_to_others() {
    let mut fake = Fake::new(2);
    let mut planner = begun(&mut fake);
    for page in 0..100 {
        let vm = usize::from(page >= 50);
        fake.back(vm, GFN + page, PAGE + page, 0);
        fake.miss_quietly(PAGE + page, 2, 100);
        fake.miss(PAGE + page, 1, T.hot);
    }
    fake.look(&mut planner, 5);
    assert_eq!(fake.take_sent(), [], "all are watched");
    fake.guests.remove(0);
    fake.look(&mut planner, 20);
    let sent = fake.take_sent();
    assert!(!sent.is_empty() && sent.iter().all(|(_, job)| job.guest == 0 && pages_of(job) == 50), "{sent:?}");
    let gfns = |work: &Work| matches!(work, Work::Replicate(gfns) if gfns.iter().all(|gfn| gfn.raw() >= GFN + 50));
    assert!(sent.iter().all(|(_, job)| gfns(&job.work)), "those of the VM that is left, which is the first now");
    // A new one of another identity has none of that either.
    fake.guests = vec![guest(9)];
    fake.look(&mut planner, 25);
    assert_eq!(fake.take_sent(), []);
}

#[test]
fn shared_pages_are_copied_for_all_and_paid_for() {
    let mut fake = Fake::new(2);
    let mut planner = begun(&mut fake);
    let sharer = |guest, gfn| Sharer { guest, gfn: Gfn::new(gfn), backing: Backing::Shared };
    let sharers: ArrayVec<_, 16> = [sharer(0, GFN), sharer(1, GFN + 7), sharer(9, GFN)].into_iter().collect();
    fake.shared.insert(PAGE, Shared { home: NodeId(0), sharers });
    fake.miss(PAGE, 3, T.hot);
    fake.look(&mut planner, 5);
    let work: Vec<_> = fake.take_sent().into_iter().map(|(_, job)| (job.guest, job.node.0, job.work)).collect();
    let spread = |gfn| Work::Spread(vec![Gfn::new(gfn)]);
    assert_eq!(work, [(0, 3, spread(GFN)), (1, 3, spread(GFN + 7))], "and none for a guest that does not exist");
}

#[test]
fn a_block_of_shared_pages_is_copied_when_many_of_them_are_hot() {
    let mut fake = Fake::new(1);
    let mut planner = begun(&mut fake);
    for page in 0..20 {
        let sharer = Sharer { guest: 0, gfn: Gfn::new(GFN + page), backing: Backing::SharedBlock };
        let sharers = [sharer].into_iter().collect();
        fake.shared.insert(PAGE + page, Shared { home: NodeId(0), sharers });
        fake.miss(PAGE + page, 1, 100);
        fake.look(&mut planner, 5 + page);
        assert_eq!(fake.orders.len(), usize::from(page >= 15), "sixteen hot pages are enough");
    }
    assert_eq!(fake.orders, [(0, Order::CopyShared { gfn: Gfn::new(GFN + 15), on: NodeId(1) })]);
}

#[test]
fn samples_move_pages_and_pause_for_what_they_cost() {
    let mut fake = Fake::new(1);
    fake.counts = false;
    fake.guests[0].pages = 2;
    fake.back(0, GFN, PAGE, 0);
    fake.back(0, GFN + 1, PAGE + 1, 0);
    fake.users = [(GFN, 0b1000), (GFN + 1, 0b1)].into();
    let mut planner = Planner::new();
    let mut ms = 0;
    while fake.sent.is_empty() && ms < 2000 {
        fake.look_at_samples(&mut planner, ms);
        ms += 5;
    }
    let sent = fake.take_sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].1.node, &sent[0].1.work), (NodeId(3), &Work::Migrate(vec![Gfn::new(GFN)])));
    // A look that takes 100 ms is followed by a pause of 1.1 s.
    let begun = fake.begun;
    fake.spent = fake::HZ / 10;
    for at in (ms..ms + 6000).step_by(5) {
        fake.look_at_samples(&mut planner, at);
    }
    assert!(fake.begun - begun <= 2, "five looks in six seconds, and a round takes five: {}", fake.begun - begun);
    assert_eq!(fake.resets, 0);
}

#[test]
fn samples_are_compared_with_counters_where_there_are_some() {
    let mut fake = Fake::new(1);
    fake.back(0, GFN, PAGE, 0);
    fake.users = [(GFN, 0b10)].into();
    fake.miss_quietly(PAGE, 1, 100);
    let mut planner = Planner::new();
    let looks = (0..400).step_by(5);
    looks.for_each(|ms| _ = fake.look_at_samples(&mut planner, ms));
    use placement::Wish::{Move, Stay};
    assert_eq!(fake.compared, [(Move, Move), (Stay, Stay), (Stay, Stay)]);
    assert_eq!(fake.resets, 1);
}

#[test]
fn who_rests_is_not_sampled() {
    let mut fake = Fake::new(1);
    fake.back(0, GFN, PAGE, 0);
    let mut planner = Planner::new();
    fake.look_at_samples(&mut planner, 0);
    assert_eq!(fake.begun, 1);
    fake.guests[0].vm = VmId(2);
    fake.ran = u64::MAX;
    for ms in (5..1000).step_by(5) {
        // It has run as long as before each time: the count wraps to 0, which is what a new VM begins with.
        fake.ran = u64::MAX;
        fake.look_at_samples(&mut planner, ms);
    }
    assert_eq!(fake.begun, 1);
}
