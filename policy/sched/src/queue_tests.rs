//! The run queue's promises.

use alloc::vec;
use alloc::vec::Vec;

use addr::{VcpuIndex, VmId};
use proptest::prelude::*;

use crate::{Entity, MAX_WEIGHT, RunQueue, Scheduling};

/// 10 MHz, as on QEMU `virt`: a millisecond is 10,000 ticks.
const HZ: u64 = 10_000_000;
const MS: u64 = HZ / 1_000;
const SLICE: u64 = 10 * MS;

fn vm(number: u16) -> Entity {
    Entity { vm: VmId(number), vcpu: VcpuIndex(0) }
}

fn queue_of(weights: &[u32]) -> RunQueue {
    let mut queue = Scheduling::new(HZ).new_queue();
    for (number, weight) in (0..).zip(weights) {
        queue.enqueue(vm(number), *weight, 0);
    }
    queue
}

/// One turn, at most `limit` ticks long; returns who ran and for how long.
fn turn(queue: &mut RunQueue, limit: u64) -> Option<(Entity, u64)> {
    let entity = queue.pick_next()?;
    let ran = queue.slice_ticks(entity).min(limit);
    queue.charge(entity, ran);
    Some((entity, ran))
}

#[test]
fn an_empty_queue_has_nobody_to_run() {
    let mut queue = queue_of(&[]);
    assert_eq!(queue.pick_next(), None);
    queue.charge(vm(1), SLICE);
    queue.dequeue(vm(1));
    assert_eq!(queue.remove(vm(1)), None);
    assert!(queue.is_empty());
}

#[test]
fn the_slice_shrinks_with_the_queue_down_to_a_minimum() {
    let rules = Scheduling::new(HZ);
    let ms: Vec<_> = [0, 1, 2, 4, 10, 20, 64].map(|queued| rules.slice_for(queued) / MS).into();
    assert_eq!(ms, [10, 10, 10, 5, 2, 1, 1]);
}

#[test]
fn an_interrupted_slice_goes_on_and_then_ends() {
    let mut queue = queue_of(&[100, 100]);
    let first = queue.pick_next().unwrap();
    queue.charge(first, SLICE / 4);
    assert_eq!(queue.pick_next(), Some(first));
    assert_eq!(queue.slice_ticks(first), SLICE * 3 / 4);
    assert_eq!(queue.slice_end(first, 1_000), 1_000 + SLICE * 3 / 4);
    queue.charge(first, SLICE * 3 / 4);
    assert_ne!(queue.pick_next(), Some(first));
}

#[test]
fn a_sleeper_interrupts_a_hog_and_keeps_at_most_its_credit() {
    let mut queue = queue_of(&[100, 100]);
    queue.dequeue(vm(1));
    for _ in 0..1_000 {
        turn(&mut queue, SLICE);
    }
    assert!(queue.enqueue(vm(1), 100, 10_000 * SLICE));
    assert!(queue.should_preempt(vm(1)));
    let mut alone = 0;
    while queue.pick_next() == Some(vm(1)) {
        alone += turn(&mut queue, MS).unwrap().1;
    }
    let rules = Scheduling::new(HZ);
    assert!(alone <= rules.wake_credit_ticks + rules.slice_ticks, "{alone}");
}

#[test]
fn short_sleeps_do_not_buy_more_than_a_fair_share() {
    // One vCPU runs 9.9 of 10 ms and sleeps for the rest; the other never sleeps.
    let mut queue = queue_of(&[100, 100]);
    let mut ran = [0, 0];
    for _ in 0..10_000 {
        let (entity, ticks) = turn(&mut queue, SLICE - 100).unwrap();
        ran[entity.vm.index()] += ticks;
        if entity == vm(1) {
            queue.dequeue(vm(1));
            queue.charge(vm(0), 100);
            ran[0] += 100;
            queue.enqueue(vm(1), 100, 0);
        }
    }
    assert!(ran[1] <= ran[0] + 2 * SLICE, "{ran:?}");
}

#[test]
fn a_moved_vcpu_takes_its_debt_along() {
    let mut from = queue_of(&[100, 100]);
    let (ahead, _) = turn(&mut from, SLICE).unwrap();
    let lag = from.remove(ahead).unwrap();
    assert_eq!(from.len(), 1);
    let mut to = queue_of(&[100]);
    let other = Entity { vm: VmId(7), vcpu: VcpuIndex(3) };
    to.enqueue_moved(other, 100, lag, 5);
    assert_eq!(to.pick_next(), Some(vm(0)));
}

#[test]
fn queueing_twice_changes_only_the_weight() {
    let mut queue = queue_of(&[100]);
    queue.enqueue(vm(0), MAX_WEIGHT + 5, 7);
    assert_eq!((queue.len(), queue.weight()), (1, MAX_WEIGHT));
}

#[test]
fn waiting_time_counts_from_the_last_turn() {
    let mut queue = queue_of(&[100, 100]);
    let (first, _) = turn(&mut queue, SLICE).unwrap();
    let (second, _) = turn(&mut queue, SLICE).unwrap();
    assert_ne!(first, second);
    let waiting: Vec<_> = queue.waiting().map(|waiting| (waiting.entity, waiting.waited_ticks)).collect();
    assert_eq!(waiting, [(first, SLICE)]);
}

#[test]
fn virtual_time_survives_its_wrap() {
    let mut queue = queue_of(&[1, 1]);
    // 2^40 ticks per charge at the smallest weight: the clock of a century in a loop.
    for _ in 0..4_096 {
        let entity = queue.pick_next().unwrap();
        queue.charge(entity, u64::MAX);
    }
    let mut ran = [0_u64, 0];
    for _ in 0..100 {
        let (entity, ticks) = turn(&mut queue, SLICE).unwrap();
        ran[entity.vm.index()] += ticks;
    }
    assert_eq!(ran[0], ran[1]);
}

#[derive(Clone, Debug)]
enum Step {
    Run(u64),
    Sleep(u16),
    Wake(u16),
    Leave(u16),
}

fn step(vms: u16) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..2 * SLICE).prop_map(Step::Run),
        1 => (0..vms).prop_map(Step::Sleep),
        2 => (0..vms).prop_map(Step::Wake),
        1 => (0..vms).prop_map(Step::Leave),
    ]
}

proptest! {
    /// Equal weights, always runnable: service differs by at most one slice, at any moment, with turns cut short
    /// at random.
    #[test]
    fn equal_vcpus_stay_within_one_slice(count in 1_u16..40, limits in prop::collection::vec(1..SLICE, 1..400)) {
        let mut queue = queue_of(&vec![100; usize::from(count)]);
        let slice = Scheduling::new(HZ).slice_for(usize::from(count));
        let mut served = vec![0_u64; usize::from(count)];
        for limit in limits {
            let (entity, ran) = turn(&mut queue, limit).unwrap();
            served[entity.vm.index()] += ran;
            let spread = served.iter().max().unwrap() - served.iter().min().unwrap();
            prop_assert!(spread <= slice, "{spread} > {slice}");
        }
    }

    /// Weighted service per weight differs by at most one slice of the lighter of any two.
    #[test]
    fn shares_follow_weights(weights in prop::collection::vec(1_u32..=MAX_WEIGHT, 2..12)) {
        let mut queue = queue_of(&weights);
        let slice = Scheduling::new(HZ).slice_for(weights.len());
        let mut served = vec![0_u64; weights.len()];
        for _ in 0..2_000 {
            let (entity, ran) = turn(&mut queue, SLICE).unwrap();
            served[entity.vm.index()] += ran;
        }
        for (i, wi) in weights.iter().enumerate() {
            for (j, wj) in weights.iter().enumerate() {
                let (a, b) = (served[i] as f64 / f64::from(*wi), served[j] as f64 / f64::from(*wj));
                let bound = (slice + 1) as f64 / f64::from(*wi.min(wj)) * 1.001 + 2_000.0;
                prop_assert!((a - b).abs() <= bound, "{a} {b} {bound}");
            }
        }
    }

    /// Nobody starves: between two turns of a runnable vCPU the others get no more than their slices and credits.
    #[test]
    fn nobody_starves_among_sleepers(steps in prop::collection::vec(step(8), 1..600)) {
        let rules = Scheduling::new(HZ);
        let mut queue = queue_of(&[100; 9]);
        let patient = vm(8);
        let (mut waited, mut now) = (0, 0);
        for step in steps {
            match step {
                Step::Run(limit) => {
                    let (entity, ran) = turn(&mut queue, limit).expect("somebody is runnable");
                    now += ran;
                    waited = if entity == patient { 0 } else { waited + ran };
                }
                Step::Sleep(number) => queue.dequeue(vm(number)),
                Step::Wake(number) => { queue.enqueue(vm(number), 100, now); }
                Step::Leave(number) => { queue.remove(vm(number)); }
            }
            prop_assert!(queue.current().is_none_or(|entity| queue.slice_ticks(entity) > 0));
        }
        // Every other vCPU may use its credit and a slice before the floor has to move on; one that leaves and comes
        // back as a stranger starts at the floor, with no credit.
        prop_assert!(waited <= 2 * 8 * (rules.slice_ticks + rules.wake_credit_ticks), "{waited}");
    }

    /// Whatever is done, nobody is lost or doubled, and somebody runs while anybody is runnable.
    #[test]
    fn the_queue_is_a_set(steps in prop::collection::vec(step(8), 1..300)) {
        let mut queue = queue_of(&[]);
        let mut model = alloc::collections::BTreeSet::new();
        for step in steps {
            match step {
                Step::Run(limit) => prop_assert_eq!(turn(&mut queue, limit).is_some(), !model.is_empty()),
                Step::Sleep(number) => { queue.dequeue(vm(number)); model.remove(&number); }
                Step::Wake(number) => { queue.enqueue(vm(number), 100, 0); model.insert(number); }
                Step::Leave(number) => { queue.remove(vm(number)); model.remove(&number); }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert!(queue.pick_next().is_none_or(|entity| model.contains(&entity.vm.0)));
        }
    }
}

/// The share of the hart's time that the first of three vCPUs of equal weight gets while the two others belong to a VM for which the
/// monitor works `served` ticks between their turns, in thousandths. `is_charged`: what was done is charged to whose turn comes next.
fn share_beside_a_served_vm(served: u64, is_charged: bool) -> u64 {
    let mut queue = queue_of(&[100, 100, 100]);
    let (mut own, mut all, mut owed) = (0, 0, 0);
    for _ in 0..3_000 {
        // An access of a device ends the others' turns early.
        let (entity, ran) = match queue.pick_next() {
            Some(entity) if entity == vm(0) => (entity, queue.slice_ticks(entity)),
            Some(entity) => (entity, queue.slice_ticks(entity).min(MS / 10)),
            None => unreachable!("three are queued"),
        };
        if entity == vm(0) {
            own += ran;
            queue.charge(entity, ran);
        } else {
            queue.charge(entity, ran + core::mem::take(&mut owed));
            all += served;
            owed += if is_charged { served } else { 0 };
        }
        all += ran;
    }
    1_000 * own / all
}

#[test]
fn what_is_done_for_a_vm_is_paid_by_its_vcpus() {
    // Three times as long as the guests themselves ask for it.
    let served = 3 * MS / 10;
    let free = share_beside_a_served_vm(served, false);
    let charged = share_beside_a_served_vm(served, true);
    assert!(free < 150, "the test shows nothing: {free}");
    assert!((323..=343).contains(&charged), "{charged}");
}
