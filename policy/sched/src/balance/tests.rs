//! Placement and moves on small machines.

use alloc::vec::Vec;

use addr::{CpuIndex, NodeId, VcpuIndex, VmId};
use arrayvec::ArrayVec;
use proptest::prelude::*;

use super::*;
use crate::Entity;

const HZ: u64 = 10_000_000;
const LONG: Activity = Activity::Waiting { ticks: HZ };

fn near(a: NodeId, b: NodeId) -> u8 {
    10 + 10 * a.0.abs_diff(b.0)
}

/// So many harts on each node.
fn harts(per_node: &[usize]) -> Vec<HartFacts> {
    let nodes = (0..).zip(per_node);
    nodes
        .flat_map(|(node, count)| {
            (0..*count).map(move |_| HartFacts { node: NodeId(node), is_online: true, has_duties: false })
        })
        .collect()
}

fn vcpu(vm: u16, index: u16, hart: u16, activity: Activity) -> VcpuFacts {
    let entity = Entity { vm: VmId(vm), vcpu: VcpuIndex(index) };
    VcpuFacts {
        entity,
        weight: 100,
        hart: CpuIndex(hart),
        activity,
        home: None,
        served_permille: 1_000,
        last_move: None,
        is_gang: false,
    }
}

fn snapshot<'a>(harts: &'a [HartFacts], vcpus: &'a [VcpuFacts]) -> Snapshot<'a> {
    Snapshot { harts, vcpus, distance: &near }
}

fn rebalance_all(snapshot: &Snapshot<'_>, caution: &Caution) -> ArrayVec<Move, MAX_MOVES> {
    rebalance(snapshot, caution, &Domain::region(snapshot.harts.len()))
}

/// What a hart takes that has just become idle.
fn pull(snapshot: &Snapshot<'_>, caution: &Caution, idle: CpuIndex) -> Option<Move> {
    pull_for_idle(snapshot, caution, idle, 0)
}

/// Starts VMs of these sizes one after the other.
fn start(harts: &[HartFacts], sizes: &[usize]) -> Vec<VcpuFacts> {
    let mut vcpus = Vec::new();
    for (vm, size) in (0..).zip(sizes) {
        let places = place_vm(&snapshot(harts, &vcpus), *size);
        assert_eq!(places.len(), *size);
        vcpus.extend((0..).zip(places).map(|(index, cpu)| vcpu(vm, index, cpu.0, Activity::Running)));
    }
    vcpus
}

fn places(vcpus: &[VcpuFacts], vm: u16) -> Vec<u16> {
    vcpus.iter().filter(|vcpu| vcpu.entity.vm == VmId(vm)).map(|vcpu| vcpu.hart.0).collect()
}

#[test]
fn four_vms_of_two_get_a_node_each() {
    let vcpus = start(&harts(&[2, 2, 2, 2]), &[2, 2, 2, 2]);
    let all: Vec<_> = (0..4).map(|vm| places(&vcpus, vm)).collect();
    assert_eq!(all, [[0, 1], [2, 3], [4, 5], [6, 7]]);
}

#[test]
fn the_hart_with_duties_gets_its_first_vcpu_last() {
    let mut harts = harts(&[3, 2]);
    harts[0].has_duties = true;
    let vcpus = start(&harts, &[1, 1, 2, 1, 1]);
    assert_eq!(places(&vcpus, 0), [1]);
    assert_eq!(places(&vcpus, 2), [2, 0], "before another node has to help");
    // All harts have one by then: none of them is spared.
    assert_eq!((places(&vcpus, 1), places(&vcpus, 3), places(&vcpus, 4)), ([3].into(), [4].into(), [1].into()));
}

#[test]
fn parts_of_a_vm_lie_on_nodes_of_their_own() {
    let harts = harts(&[2, 2, 2, 2]);
    let place = |vcpus: &[VcpuFacts], parts: &[usize]| -> Vec<u16> {
        place_parts(&snapshot(&harts, vcpus), parts).iter().map(|cpu| cpu.0).collect()
    };
    assert_eq!(place(&[], &[2, 2]), [0, 1, 2, 3]);
    assert_eq!(place(&[], &[1, 1, 1]), [0, 2, 4]);
    // Node 0 is busy.
    let busy = [vcpu(9, 0, 0, Activity::Running), vcpu(9, 1, 1, Activity::Running)];
    assert_eq!(place(&busy, &[2, 2]), [2, 3, 4, 5]);
    // More parts than nodes, and more vCPUs than harts.
    assert_eq!(place(&[], &[1; 5]), [0, 2, 4, 6, 1]);
    let all = place(&[], &[3, 3, 3]);
    assert!(all.len() == 9 && all[..2] == [0, 1], "{all:?}");
    assert!(place_parts(&snapshot(&[], &[]), &[1, 1]).is_empty());
}

#[test]
fn a_large_vm_spreads_over_the_nearest_nodes_before_it_shares_harts() {
    let vcpus = start(&harts(&[2, 2, 2, 2]), &[4]);
    assert_eq!(places(&vcpus, 0), [0, 1, 2, 3]);
    let vcpus = start(&harts(&[2, 2]), &[8]);
    assert_eq!(places(&vcpus, 0), [0, 1, 0, 1, 2, 3, 2, 3]);
}

#[test]
fn uneven_nodes_are_used_as_they_are() {
    let vcpus = start(&harts(&[1, 3]), &[3, 1]);
    assert_eq!(places(&vcpus, 0), [1, 2, 3]);
    assert_eq!(places(&vcpus, 1), [0]);
}

#[test]
fn offline_harts_get_nothing() {
    let mut harts = harts(&[2]);
    harts[0].is_online = false;
    assert_eq!(place_vm(&snapshot(&harts, &[]), 2), [CpuIndex(1), CpuIndex(1)]);
    harts[1].is_online = false;
    assert!(place_vm(&snapshot(&harts, &[]), 2).is_empty());
    assert_eq!(pull(&snapshot(&harts, &[vcpu(0, 0, 1, LONG)]), &Caution::new(HZ), CpuIndex(0)), None);
}

#[test]
fn an_idle_hart_takes_from_its_own_node_first() {
    let harts = harts(&[2, 2]);
    let vcpus = [vcpu(0, 0, 2, LONG), vcpu(1, 0, 1, Activity::Waiting { ticks: HZ / 100 })];
    let pulled = pull(&snapshot(&harts, &vcpus), &Caution::new(HZ), CpuIndex(0)).unwrap();
    assert_eq!((pulled.entity.vm, pulled.from, pulled.to), (VmId(1), CpuIndex(1), CpuIndex(0)));
    assert_eq!(pulled.reason, Reason::IdlePull);
    let pulled = pull(&snapshot(&harts, &vcpus[..1]), &Caution::new(HZ), CpuIndex(0)).unwrap();
    assert_eq!(pulled.entity.vm, VmId(0));
}

#[test]
fn an_idle_hart_leaves_running_blocked_and_fresh_vcpus_alone() {
    let harts = harts(&[2]);
    for activity in [Activity::Running, Activity::Blocked, Activity::Waiting { ticks: 1 }] {
        let vcpus = [vcpu(0, 0, 1, activity)];
        assert_eq!(pull(&snapshot(&harts, &vcpus), &Caution::new(HZ), CpuIndex(0)), None);
    }
}

#[test]
fn many_short_waits_count_as_a_long_one() {
    let harts = harts(&[2]);
    let mut vcpus = [vcpu(0, 0, 1, Activity::Waiting { ticks: 1 }), vcpu(1, 0, 1, Activity::Running)];
    vcpus[0].served_permille = 500;
    let pulled = pull(&snapshot(&harts, &vcpus), &Caution::new(HZ), CpuIndex(0)).unwrap();
    assert_eq!(pulled.entity.vm, VmId(0));
    let moves = rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ));
    assert_eq!((moves.len(), moves[0].reason), (1, Reason::Even));
}

#[test]
fn loads_are_evened_until_they_differ_by_less_than_one_vcpu() {
    let harts = harts(&[2]);
    let vcpus =
        [vcpu(0, 0, 0, Activity::Running), vcpu(1, 0, 0, LONG), vcpu(2, 0, 0, LONG), vcpu(3, 0, 1, Activity::Running)];
    let moves = rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ));
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].to, moves[0].reason), (CpuIndex(1), Reason::Even));
}

#[test]
fn a_sibling_is_the_last_choice() {
    let harts = harts(&[2]);
    let vcpus = [
        vcpu(0, 0, 0, Activity::Running),
        vcpu(1, 1, 0, Activity::Waiting { ticks: HZ * 2 }),
        vcpu(2, 0, 0, LONG),
        vcpu(1, 0, 1, Activity::Blocked),
    ];
    let moves = rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ));
    assert_eq!(moves[0].entity.vm, VmId(2));
}

#[test]
fn two_of_a_gang_do_not_come_together() {
    let harts = harts(&[2, 1]);
    // Hart 1 has nothing to do, but a sibling of the one that could come.
    let mut vcpus = [vcpu(1, 0, 0, LONG), vcpu(0, 0, 0, Activity::Running), vcpu(1, 1, 1, Activity::Blocked)];
    assert!(pull(&snapshot(&harts, &vcpus), &Caution::new(HZ), CpuIndex(1)).is_some(), "it is no gang");
    vcpus.iter_mut().for_each(|vcpu| vcpu.is_gang = true);
    let caution = Caution::new(HZ);
    let to = |vcpus: &[VcpuFacts]| rebalance_all(&snapshot(&harts, vcpus), &caution).first().map(|found| found.to);
    let pulls = |vcpus: &[VcpuFacts], hart| pull(&snapshot(&harts, vcpus), &caution, CpuIndex(hart)).is_some();
    assert_eq!((to(&vcpus), pulls(&vcpus, 1), pulls(&vcpus, 2)), (Some(CpuIndex(2)), false, true));
    // They are together already where they are.
    vcpus[1] = vcpu(1, 2, 0, Activity::Running);
    assert_eq!((to(&vcpus), pulls(&vcpus, 1)), (Some(CpuIndex(1)), true));
}

#[test]
fn three_on_two_harts_take_turns() {
    let harts = harts(&[2]);
    let mut vcpus = [vcpu(0, 0, 0, Activity::Running), vcpu(1, 0, 0, LONG), vcpu(2, 0, 1, Activity::Running)];
    assert!(rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ)).is_empty());
    vcpus[0].served_permille = 520;
    vcpus[1].served_permille = 500;
    let moves = rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ));
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].entity.vm, moves[0].to, moves[0].reason), (VmId(0), CpuIndex(1), Reason::Rotate));
}

#[test]
fn a_vcpu_goes_home_when_a_hart_there_is_idle() {
    let harts = harts(&[1, 1]);
    let mut vcpus = [vcpu(0, 0, 0, Activity::Running)];
    vcpus[0].home = Some(NodeId(1));
    let moves = rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ));
    assert_eq!((moves[0].to, moves[0].reason), (CpuIndex(1), Reason::Home));
    let with_sibling = [vcpus[0], vcpu(0, 1, 1, Activity::Blocked)];
    assert!(rebalance_all(&snapshot(&harts, &with_sibling), &Caution::new(HZ)).is_empty(), "a sibling sleeps there");
}

#[test]
fn service_history_fades_and_forgives_a_restart() {
    let mut history = ServiceHistory::default();
    assert_eq!(history.served_permille(), 1_000);
    history.observe(100, 300, 1_000);
    assert_eq!(history.served_permille(), 250);
    for ran in 1..10 {
        history.observe(100 + ran * 1_000, 300, 1_000);
    }
    assert_eq!(history.served_permille(), 1_000);
    history.observe(5, 5, 1_000);
    assert!((990..=1_000).contains(&history.served_permille()));
    history.observe(u64::MAX, u64::MAX, 1_000);
    assert_eq!(history.served_permille(), 500);
    history.observe(u64::MAX, u64::MAX, 0);
    assert_eq!(history.served_permille(), 1_000, "nothing is remembered");
}

#[test]
fn a_history_does_not_depend_on_how_often_it_is_looked_at() {
    let [mut often, mut seldom] = [ServiceHistory::default(); 2];
    for at in 1..=100 {
        // Served by half, then fully.
        let (ran, waited) = (at * 10, at.min(50) * 10);
        often.observe(ran, waited, 640);
        if at % 10 == 0 {
            seldom.observe(ran, waited, 640);
        }
    }
    let (often, seldom) = (often.served_permille(), seldom.served_permille());
    assert!(often > 700 && often.abs_diff(seldom) < 50, "{often} {seldom}");
}

fn any_vcpu() -> impl Strategy<Value = VcpuFacts> {
    let activity = prop_oneof![
        Just(Activity::Running),
        (0..2 * HZ).prop_map(|ticks| Activity::Waiting { ticks }),
        Just(Activity::Blocked)
    ];
    // Harts and nodes beyond those that exist are facts of a confused caller.
    let home = prop::option::of((0..6_u8).prop_map(NodeId));
    (0..6_u16, 0..4_u16, 0..12_u16, activity, home, 1..10_001_u32, 0..1_001_u16).prop_map(
        |(vm, index, hart, activity, home, weight, served_permille)| VcpuFacts {
            home,
            weight,
            served_permille,
            ..vcpu(vm, index, hart, activity)
        },
    )
}

proptest! {
    /// Proposals name what exists, move each vCPU once, and never raise the load of the busiest hart.
    #[test]
    fn proposals_are_sane(per_node in prop::collection::vec(0..4_usize, 1..5),
                          mut vcpus in prop::collection::vec(any_vcpu(), 0..40)) {
        let harts = harts(&per_node);
        vcpus.sort_by_key(|vcpu| vcpu.entity);
        vcpus.dedup_by_key(|vcpu| vcpu.entity);
        let snapshot = snapshot(&harts, &vcpus);
        let caution = Caution::new(HZ);
        let peak = |vcpus: &[VcpuFacts]| {
            let load = |hart: usize| -> u64 {
                let mine = vcpus.iter().filter(|vcpu| vcpu.hart.index() == hart && vcpu.activity != Activity::Blocked);
                mine.map(|vcpu| u64::from(vcpu.weight)).sum()
            };
            (0..harts.len()).map(load).max().unwrap_or(0)
        };
        let moves = rebalance_all(&snapshot, &caution);
        let mut after = vcpus.clone();
        let mut went_home = false;
        for (at, one) in moves.iter().enumerate() {
            let subject = after.iter_mut().find(|vcpu| vcpu.entity == one.entity).unwrap();
            prop_assert_eq!(subject.hart, one.from);
            prop_assert!(one.to != one.from && one.to.index() < harts.len());
            prop_assert!(moves.iter().skip(at + 1).all(|other| other.entity != one.entity));
            subject.hart = one.to;
            went_home |= one.reason == Reason::Home;
        }
        prop_assert!(went_home || peak(&after) <= peak(&vcpus).max(1));
        for cpu in 0..harts.len() {
            if let Some(pulled) = pull(&snapshot, &caution, CpuIndex(cpu as u16)) {
                prop_assert!(pulled.to == CpuIndex(cpu as u16) && pulled.from != pulled.to);
            }
        }
    }

    /// Every new vCPU gets a hart; siblings share one only when they must; no hart is filled above the least level.
    #[test]
    fn placement_is_even(per_node in prop::collection::vec(1..5_usize, 1..6),
                         sizes in prop::collection::vec(1..9_usize, 1..8)) {
        let harts = harts(&per_node);
        let vcpus = start(&harts, &sizes);
        for (vm, size) in (0..).zip(&sizes) {
            let mut mine = places(&vcpus, vm);
            mine.sort_unstable();
            let most = mine.chunk_by(|a, b| a == b).map(<[u16]>::len).max().unwrap();
            prop_assert!(most <= size.div_ceil(harts.len()));
        }
        if sizes.iter().all(|size| *size == 1) {
            let owned = |cpu: u16| vcpus.iter().filter(|vcpu| vcpu.hart.0 == cpu).count();
            let counts: Vec<_> = (0..harts.len() as u16).map(owned).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        }
    }
}

/// The history of moves so many thousandths of a stay apart.
fn moved(apart_permille: &[u64], reason: Reason) -> MoveHistory {
    let caution = Caution::new(HZ);
    let (mut history, mut now) = (MoveHistory::default(), 0);
    for (at, apart) in (0..).zip(apart_permille) {
        now += caution.stay_ticks * apart / 1_000;
        history.note(CpuIndex(at % 2), reason, &caution, now);
    }
    history
}

#[test]
fn moves_soon_after_each_other_make_restless_and_a_calm_time_ends_that() {
    let restless = |apart: &[u64]| moved(apart, Reason::IdlePull).last(u64::MAX).map(|last| last.restless);
    assert_eq!(restless(&[]), None);
    assert_eq!(restless(&[0]), Some(0));
    assert_eq!(restless(&[0, 500, 500]), Some(2));
    assert_eq!(restless(&[0, 500, 500, 500, 500, 500]), Some(3));
    assert_eq!(restless(&[0, 500, 500, 8_000]), Some(0));
    let turns = moved(&[0, 500, 500, 500], Reason::Rotate).last(u64::MAX);
    assert_eq!(turns.map(|last| (last.restless, last.left)), Some((0, CpuIndex(1))));
}

#[test]
fn who_was_moved_stays() {
    let harts = harts(&[2, 1]);
    let caution = Caution::new(HZ);
    let mut subject = vcpu(0, 0, 0, LONG);
    subject.served_permille = 400;
    subject.home = Some(NodeId(1));
    let mut ask = |restless: u8, stays_permille: u64, to: u16, is_idle: bool, reason: Reason| {
        let ago_ticks = caution.stay_ticks * stays_permille / 1_000;
        subject.last_move = Some(LastMove { ago_ticks, left: CpuIndex(1), restless });
        stay::may_leave(&snapshot(&harts, &[]), &caution, &subject, CpuIndex(to), is_idle, reason)
    };
    // Each allowed and refused just before; local, then to the other node.
    for (restless, enough, to, is_idle, reason) in [
        (0, 1_000, 1, false, Reason::Even),
        (0, 2_000, 2, false, Reason::Even),
        (3, 8_000, 1, false, Reason::Even),
        (0, 63, 1, true, Reason::IdlePull),
        (0, 125, 2, true, Reason::IdlePull),
        (3, 500, 1, true, Reason::Even),
        (0, 100, 2, true, Reason::Home),
        (2, 2_000, 2, true, Reason::Home),
        (0, 2_000, 1, false, Reason::Rotate),
        (3, 2_000, 2, false, Reason::Rotate),
    ] {
        assert!(ask(restless, enough, to, is_idle, reason), "{restless} {enough} {to} {reason:?}");
        assert!(!ask(restless, enough - 2, to, is_idle, reason), "{restless} {enough} {to} {reason:?}");
    }
}

#[test]
fn the_balancer_and_idle_harts_leave_newcomers_alone() {
    let harts = harts(&[2]);
    let caution = Caution::new(HZ);
    let mut vcpus = [vcpu(0, 0, 0, Activity::Running), vcpu(1, 0, 0, LONG)];
    let came = |ago_ticks| Some(LastMove { ago_ticks, left: CpuIndex(1), restless: 0 });
    vcpus[1].last_move = came(HZ / 100);
    assert!(rebalance_all(&snapshot(&harts, &vcpus), &caution).is_empty());
    assert_eq!(pull(&snapshot(&harts, &vcpus), &caution, CpuIndex(1)), None);
    vcpus[1].last_move = came(HZ / 10);
    assert_eq!(rebalance_all(&snapshot(&harts, &vcpus), &caution).len(), 1);
    assert!(pull(&snapshot(&harts, &vcpus), &caution, CpuIndex(1)).is_some());
}

#[test]
fn a_newcomer_does_not_stop_others_from_taking_turns() {
    // Harts 0 and 1 are equally crowded; the best-served one of hart 0 has just come.
    let harts = harts(&[3]);
    let vcpus: Vec<_> = [0, 0, 1, 1, 2].into_iter().zip(0..).map(|(hart, vm)| vcpu(vm, 0, hart, LONG)).collect();
    let mut vcpus: Vec<_> = vcpus.into_iter().map(|vcpu| VcpuFacts { served_permille: 500, ..vcpu }).collect();
    vcpus[4].served_permille = 1_000;
    vcpus[0].served_permille = 510;
    vcpus[0].last_move = Some(LastMove { ago_ticks: 1, left: CpuIndex(1), restless: 0 });
    vcpus[2].served_permille = 520;
    let moves = rebalance_all(&snapshot(&harts, &vcpus), &Caution::new(HZ));
    assert_eq!((moves.len(), moves[0].entity.vm, moves[0].to), (1, VmId(2), CpuIndex(2)));
}

#[test]
fn an_idle_hart_helps_a_vm_that_can_run_then_and_only_later_others() {
    let harts = harts(&[4]);
    let gang = |vm, index, hart, activity| VcpuFacts { is_gang: true, ..vcpu(vm, index, hart, activity) };
    let caution = Caution::new(HZ);
    // Figure 6 of the paper: vCPU 1 of VM 1 keeps its VM from running.
    let blocked = [gang(0, 0, 1, Activity::Running), gang(1, 0, 2, Activity::Running), gang(1, 1, 1, LONG)];
    let found = pull(&snapshot(&harts, &blocked), &caution, CpuIndex(0)).unwrap();
    assert_eq!((found.entity, found.reason), (blocked[2].entity, Reason::Together));
    // One that two keep from running waits for the longer patience, and goes behind one that one keeps.
    let mut two =
        [gang(0, 0, 1, Activity::Running), gang(1, 0, 1, LONG), gang(1, 1, 2, LONG), gang(2, 0, 2, Activity::Running)];
    let idle = |vcpus: &[VcpuFacts], ticks| pull_for_idle(&snapshot(&harts, vcpus), &caution, CpuIndex(0), ticks);
    assert_eq!(idle(&two, caution.patience_ticks - 1), None);
    assert!(idle(&two, caution.patience_ticks).is_some_and(|found| found.entity.vm == VmId(1)));
    two[3] = gang(2, 0, 3, LONG);
    assert!(idle(&two, caution.patience_ticks).is_some_and(|found| found.entity.vm == VmId(2)));
    // Who need not run together is taken at once.
    let plain = [vcpu(1, 0, 1, LONG), vcpu(1, 1, 1, LONG)];
    assert_eq!(idle(&plain, 0).map(|found| found.reason), Some(Reason::IdlePull));
}

#[test]
fn halves_of_a_large_machine_are_evened_out_and_nothing_inside_them() {
    let harts = harts(&[8, 8]);
    let mut vcpus: Vec<_> = (0..16).map(|n| vcpu(n, 0, n % 8, LONG)).collect();
    let domain = Domain { harts: 0..16, split: Some(8) };
    let caution = Caution::new(HZ);
    let moves = rebalance(&snapshot(&harts, &vcpus), &caution, &domain);
    assert_eq!(moves.len(), 8);
    let targets: Vec<_> = moves.iter().map(|found| found.to.0).collect();
    assert!((8..16).all(|hart| targets.contains(&hart)) && moves.iter().all(|found| found.from.0 < 8), "{moves:?}");
    // One half is uneven in itself: its region does that.
    vcpus.iter_mut().take(8).for_each(|vcpu| vcpu.hart = CpuIndex(0));
    vcpus.iter_mut().skip(8).for_each(|vcpu| vcpu.hart = CpuIndex(8));
    assert!(rebalance(&snapshot(&harts, &vcpus), &caution, &domain).is_empty());
    let moves = rebalance(&snapshot(&harts, &vcpus), &caution, &Domain { harts: 8..16, split: None });
    assert!(
        moves.len() == 7 && moves.iter().all(|found| found.from.0 == 8 && (9..16).contains(&found.to.0)),
        "{moves:?}"
    );
}
