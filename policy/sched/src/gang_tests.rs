//! Turns of VMs: harts agree, shares stay fair, sleepers wake up promptly.

use alloc::vec::Vec;
use core::cell::Cell;

use addr::{VcpuIndex, VmId};
use proptest::prelude::*;

use crate::gang::{Gangs, Pick};
use crate::{Entity, RunQueue, Scheduling};

const HZ: u64 = 10_000_000;
const MS: u64 = HZ / 1_000;
const TURN: u64 = Scheduling::new(HZ).turn_ticks;

/// When each VM's turn was called, if it is a gang; and whether it can gather.
#[derive(Default)]
struct Words {
    gangs: Vec<Option<Cell<u64>>>,
    is_scattered: bool,
}

impl Words {
    fn new(gangs: &[bool]) -> Self {
        let gangs = gangs.iter().map(|is_gang| is_gang.then(|| Cell::new(0))).collect();
        Self { gangs, is_scattered: false }
    }

    fn word(&self, vm: VmId) -> Option<&Cell<u64>> {
        self.gangs.get(usize::from(vm.0))?.as_ref()
    }
}

/// The words at a time.
struct At<'a>(&'a Words, u64);

impl Words {
    const fn at(&self, now: u64) -> At<'_> {
        At(self, now)
    }
}

impl Gangs for At<'_> {
    fn now(&self) -> u64 {
        self.1
    }

    fn called_at(&self, entity: Entity) -> Option<u64> {
        self.0.word(entity.vm).map(Cell::get)
    }

    fn can_gather(&self, _: Entity) -> bool {
        !self.0.is_scattered
    }
}

fn vcpu(vm: u16, index: u16) -> Entity {
    Entity { vm: VmId(vm), vcpu: VcpuIndex(index) }
}

/// Harts with vCPU n of each VM on hart n.
fn harts(count: u16, vms: u16) -> Vec<RunQueue> {
    let queue = |hart| {
        let mut queue = Scheduling::new(HZ).new_queue();
        (0..vms).for_each(|vm| {
            queue.enqueue(vcpu(vm, hart), 100, 0);
        });
        queue
    };
    (0..count).map(queue).collect()
}

/// One hart picks; a call is noted, and the others are told.
fn pick(harts: &mut [RunQueue], hart: usize, words: &Words, now: u64) -> Pick {
    let pick = harts[hart].pick_together(&words.at(now)).unwrap();
    if pick.calls {
        words.word(pick.entity.vm).unwrap().set(now);
        harts.iter_mut().for_each(RunQueue::heed_calls);
    }
    pick
}

#[test]
fn a_called_turn_is_followed_and_then_another_vm_has_its_own() {
    let words = Words::new(&[true, true]);
    let mut harts = harts(3, 2);
    let first = pick(&mut harts, 1, &words, MS);
    assert!(first.calls);
    for hart in [0, 1, 2] {
        let followed = pick(&mut harts, hart, &words, MS + 5);
        assert_eq!((followed.entity.vm, followed.calls, followed.turn_at), (first.entity.vm, false, Some(MS)));
        assert_eq!(harts[hart].slice_ticks(followed.entity), TURN - 5);
        harts[hart].charge(followed.entity, TURN - 5);
    }
    let second = pick(&mut harts, 2, &words, MS + TURN);
    assert!(second.calls && second.entity.vm != first.entity.vm);
    for hart in [0, 1] {
        assert_eq!(pick(&mut harts, hart, &words, MS + TURN + 1).entity.vm, second.entity.vm);
    }
}

#[test]
fn harts_that_call_at_the_same_time_agree_on_the_earlier_turn() {
    let words = Words::new(&[true, true]);
    let mut harts = harts(2, 2);
    // They differ in what they owe, so each calls another VM.
    harts[0].charge(vcpu(0, 0), MS);
    harts[1].charge(vcpu(1, 1), MS);
    let choices = [harts[0].pick_together(&words.at(100)).unwrap(), harts[1].pick_together(&words.at(101)).unwrap()];
    assert!(choices.iter().all(|pick| pick.calls) && choices[0].entity.vm != choices[1].entity.vm);
    for (choice, at) in choices.iter().zip([100, 101]) {
        words.word(choice.entity.vm).unwrap().set(at);
        harts.iter_mut().for_each(RunQueue::heed_calls);
    }
    for hart in [1, 0, 1] {
        assert_eq!(pick(&mut harts, hart, &words, 200).entity.vm, choices[0].entity.vm, "the earlier one");
    }
}

#[test]
fn a_vm_that_is_far_ahead_is_not_followed() {
    let words = Words::new(&[true, true]);
    let mut harts = harts(1, 2);
    harts[0].charge(vcpu(0, 0), 2 * TURN);
    words.word(VmId(0)).unwrap().set(50);
    assert_eq!(pick(&mut harts, 0, &words, 60).entity, vcpu(1, 0));
    // Somebody calls it without end: it waits until it is near again.
    harts[0].charge(vcpu(1, 0), TURN);
    words.word(VmId(0)).unwrap().set(60 + TURN);
    assert_eq!(pick(&mut harts, 0, &words, 60 + TURN).entity, vcpu(0, 0));
}

#[test]
fn a_call_that_means_nobody_here_changes_nothing() {
    let words = Words::new(&[false, true]);
    let mut harts = harts(1, 2);
    let first = pick(&mut harts, 0, &words, 1);
    harts[0].charge(first.entity, MS);
    for _ in 0..3 {
        harts[0].heed_calls();
        assert_eq!(pick(&mut harts, 0, &words, 1 + MS), Pick { calls: false, ..first });
    }
    assert_eq!(harts[0].slice_ticks(first.entity), TURN - MS);
}

#[test]
fn who_wakes_up_goes_before_a_turn_for_a_moment() {
    let words = Words::new(&[true, false, true]);
    let mut harts = harts(1, 3);
    harts[0].dequeue(vcpu(1, 0));
    let mut now = 1;
    for _ in 0..10 {
        let turn = pick(&mut harts, 0, &words, now);
        harts[0].charge(turn.entity, TURN);
        now += TURN;
    }
    let turn = pick(&mut harts, 0, &words, now);
    assert!(turn.calls);
    harts[0].charge(turn.entity, MS);
    assert!(harts[0].enqueue(vcpu(1, 0), 100, now + MS), "it interrupts the turn");
    let woken = pick(&mut harts, 0, &words, now + MS);
    assert_eq!((woken.entity, woken.turn_at), (vcpu(1, 0), None));
    assert!(harts[0].slice_ticks(woken.entity) <= MS);
    harts[0].charge(woken.entity, MS);
    let back = pick(&mut harts, 0, &words, now + 2 * MS);
    assert_eq!((back.entity, back.turn_at), (turn.entity, Some(now)));
    assert_eq!(harts[0].slice_ticks(back.entity), TURN - 2 * MS);
}

#[test]
fn who_cannot_gather_lets_others_go_first_but_not_for_long() {
    let words = Words { is_scattered: true, ..Words::new(&[true, false]) };
    let mut harts = harts(1, 2);
    let mut ran = [0; 2];
    for at in 0..200 {
        let pick = pick(&mut harts, 0, &words, at * MS);
        assert!(at > 0 || pick.entity == vcpu(1, 0), "alone it would only spin");
        harts[0].charge(pick.entity, MS);
        ran[usize::from(pick.entity.vm.0)] += 1;
    }
    assert!(ran[0] >= 85 && ran[0] <= 100, "{ran:?}");
}

proptest! {
    /// Whatever VMs pretend, and whatever turns others call for them: each gets its share, but for 2 % of the time.
    #[test]
    fn pretending_gains_nothing(gangs in prop::collection::vec(any::<bool>(), 2..5),
                                weights in prop::collection::vec(50..200_u32, 5),
                                forged in prop::collection::vec((0..5_u16, any::<bool>()), 1..40)) {
        let mut words = Words::new(&gangs);
        let mut queue = Scheduling::new(HZ).new_queue();
        for (vm, weight) in (0..gangs.len() as u16).zip(&weights) {
            queue.enqueue(vcpu(vm, 0), *weight, 0);
        }
        let total: u64 = weights.iter().take(gangs.len()).map(|weight| u64::from(*weight)).sum();
        let mut ran = [0_u64; 5];
        let (mut now, mut forged) = (1, forged.iter().cycle());
        while now < 4 * HZ {
            let (vm, is_scattered) = forged.next().unwrap();
            words.is_scattered = *is_scattered;
            if let Some(word) = words.word(VmId(*vm)) {
                word.set(now);
                queue.heed_calls();
            }
            let pick = queue.pick_together(&words.at(now)).unwrap();
            if pick.calls {
                words.word(pick.entity.vm).unwrap().set(now);
            }
            let ticks = queue.slice_ticks(pick.entity).min(3 * MS);
            queue.charge(pick.entity, ticks);
            ran[usize::from(pick.entity.vm.0)] += ticks;
            now += ticks;
        }
        for (ran, weight) in ran.iter().zip(&weights).take(gangs.len()) {
            let share = now * u64::from(*weight) / total;
            prop_assert!(ran.abs_diff(share) <= 4 * HZ / 50, "{ran} of {share}");
        }
    }

    /// A hart with somebody to run is never told to idle, and a pick is always of somebody queued.
    #[test]
    fn no_hart_idles_for_a_turn(gangs in prop::collection::vec(any::<bool>(), 1..5), steps in prop::collection::vec((0..5_u16, 0..3_u8, 1..20_u64), 1..200)) {
        let words = Words { is_scattered: true, ..Words::new(&gangs) };
        let mut queue = Scheduling::new(HZ).new_queue();
        let (mut now, mut queued) = (1, [false; 5]);
        for (vm, what, ms) in steps {
            let vm = vm % gangs.len() as u16;
            match what {
                0 => { queue.enqueue(vcpu(vm, 0), 100, now); queued[usize::from(vm)] = true; }
                1 => { queue.dequeue(vcpu(vm, 0)); queued[usize::from(vm)] = false; }
                _ => queue.heed_calls(),
            }
            let pick = queue.pick_together(&words.at(now));
            prop_assert_eq!(pick.is_some(), queued.contains(&true));
            if let Some(pick) = pick {
                prop_assert!(queued[usize::from(pick.entity.vm.0)]);
                queue.charge(pick.entity, ms * MS);
                if pick.calls { words.word(pick.entity.vm).unwrap().set(now); }
            }
            now += ms * MS;
        }
    }
}
