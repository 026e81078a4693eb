//! The scheduler's promises on whole machines.

use addr::CpuIndex;
use proptest::prelude::*;
use sim::scenario::Scenario;
use sim::{Machine, Program, TICKS_PER_MS};

#[test]
fn vcpus_that_divide_evenly_are_served_alike_and_stay() {
    for scenario in [Scenario::Threefold, Scenario::Weighted] {
        let report = scenario.measure(16, 2_000);
        assert!(report.worst_permille >= 980 && report.best_permille <= 1_020, "{report:?}");
        assert_eq!((report.wasted_permille, report.moved()), (0, 0), "{report:?}");
    }
}

#[test]
fn vcpus_that_do_not_divide_take_turns() {
    let report = Scenario::ThreeOnTwo.measure(16, 6_000);
    assert!(report.worst_permille >= 970 && report.best_permille <= 1_030, "{report:?}");
    assert_eq!((report.wasted_permille, report.returns), (0, 0), "{report:?}");
    // Not even within one second is anybody forgotten.
    let report = Scenario::ThreeOnTwo.measure(16, 1_000);
    assert!(report.worst_permille >= 850, "{report:?}");
}

#[test]
fn one_vcpu_too_many_is_not_starved() {
    let report = Scenario::OneMore.measure(8, 6_000);
    assert!(report.worst_permille >= 970, "{report:?}");
    // Between nodes the balancer tolerates more before it moves memory's users away.
    let report = Scenario::OneMore.measure(32, 6_000);
    assert!(report.worst_permille >= 700, "{report:?}");
}

#[test]
fn idle_harts_take_over_within_milliseconds() {
    let mut machine = Scenario::Crowded.build(32);
    machine.run(200);
    let report = machine.report();
    assert!(report.wasted_permille <= 150, "{report:?}");
    machine.reset_counters();
    machine.run(500);
    let report = machine.report();
    assert_eq!((report.wasted_permille, report.busy_permille, report.moved()), (0, 1_000, 0), "{report:?}");
}

#[test]
fn wake_ups_are_prompt_beside_computing_vcpus() {
    let report = Scenario::Interactive.measure(16, 2_000);
    assert!(report.worst_wake_us <= 1_000, "{report:?}");
    assert!(report.worst_permille >= 980, "{report:?}");
}

fn program() -> impl Strategy<Value = Program> {
    let periodic = (1..20 * TICKS_PER_MS, 1..20 * TICKS_PER_MS);
    prop_oneof![
        Just(Program::Compute),
        periodic.prop_map(|(run_ticks, sleep_ticks)| Program::Periodic { run_ticks, sleep_ticks }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever runs, wherever it starts: harts hardly idle while somebody waits, and nobody who computes starves.
    #[test]
    fn work_is_conserved_and_nobody_starves(programs in prop::collection::vec(program(), 1..24)) {
        let mut machine = Machine::new(2, 4);
        let places = vec![CpuIndex(0); programs.len()];
        machine.start_vm_on(100, &programs, &places);
        machine.run(1_000);
        machine.reset_counters();
        machine.run(6_000);
        let report = machine.report();
        // The idle balancer lets a vCPU wait for a while before it takes it away from its caches, and for longer where
        // it has just come.
        prop_assert!(report.wasted_permille <= 200, "{report:?}");
        prop_assert!(report.most_moves_in_a_second <= 6, "{report:?}");
        if report.computing > 0 {
            prop_assert!(report.worst_permille >= 600, "{report:?}");
        }
    }
}
