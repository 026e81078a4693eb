//! The planner's promises on whole machines. Shares are thousandths of misses that were local.

use placement::Thresholds;
use sim::numa::{By, Load, Numa, PlacementReport, PlacementScenario as Scenario};

const T: Thresholds = Thresholds::for_misses();

/// What a page may come to in so many milliseconds, whatever its users do: ticks of the planner's clock are tenths of a second.
fn most_tries(ms: u64) -> u32 {
    u32::from(T.max_tries) + (ms / 100 / u64::from(T.forgive_ticks)) as u32
}

fn play(load: Load, is_large: bool, nodes: usize, pages_per_node: u64, ms: u64) -> PlacementReport {
    play_on::<8>(load, is_large, nodes, pages_per_node, ms)
}

fn play_on<const N: usize>(load: Load, is_large: bool, nodes: usize, pages_per_node: u64, ms: u64) -> PlacementReport {
    let mut machine = Numa::<N>::new(nodes, pages_per_node, By::Misses);
    assert!(machine.start(load, is_large), "there is memory for it");
    machine.run(ms);
    machine.report()
}

#[test]
fn memory_comes_to_its_threads() {
    for scenario in [Scenario::Engineering, Scenario::EngineeringBlocks] {
        for nodes in [2, 8] {
            let report = scenario.measure(nodes, 3_000, By::Misses);
            assert!(report.first_permille <= 100 && report.last_permille >= 990, "{report:?}");
            assert_eq!((report.moved, report.most_moves, report.copied), (report.pages, 1, 0), "{report:?}");
        }
    }
}

#[test]
fn readers_get_copies_and_keep_them() {
    for scenario in [Scenario::Raytrace, Scenario::RaytraceBlocks] {
        for nodes in [2, 8] {
            let report = scenario.measure(nodes, 3_000, By::Misses);
            assert!(report.last_permille >= 990, "{report:?}");
            let scene = report.pages - 16 * nodes as u64;
            assert_eq!(report.copied, scene * (nodes as u64 - 1), "{report:?}");
            assert_eq!((report.moved, report.ended, report.most_moves), (0, 0, 1), "{report:?}");
        }
    }
}

#[test]
fn pages_that_are_used_by_turns_stop_moving() {
    let ms = 40_000;
    for turn_ms in [20, 100, 300, 2_000, 7_000] {
        let load = Load::PingPong { pages: 64, turn_ms };
        let report = play(load, false, 2, 4096, ms);
        assert!(report.most_moves <= most_tries(ms), "turns of {turn_ms} ms: {report:?}");
        assert!(report.moved + report.refused <= 64 * u64::from(most_tries(ms)), "turns of {turn_ms} ms: {report:?}");
        // It costs no more locality than leaving them does.
        assert!(report.all_permille >= 450, "turns of {turn_ms} ms: {report:?}");
    }
}

#[test]
fn pages_that_all_write_stay() {
    for nodes in [2, 8] {
        let report = Scenario::Fight.measure(nodes, 5_000, By::Misses);
        assert_eq!((report.moved, report.copied, report.most_moves), (0, 0, 0), "{report:?}");
        let tries = u64::from(most_tries(5_000)) * nodes as u64;
        assert!(report.refused <= report.pages * tries, "{report:?}");
    }
}

#[test]
fn pages_follow_the_phases_of_a_guest() {
    let report = Scenario::Phases.measure(4, 30_000, By::Misses);
    // A page whose user changes in the middle of an interval seems to have two: some are watched in vain, and then left alone for
    // their patience.
    assert!(report.all_permille >= 850 && report.last_permille >= 990, "{report:?}");
    assert_eq!((report.moved, report.most_moves), (2 * report.pages, 2), "once per change: {report:?}");
}

#[test]
fn samples_find_what_counters_do_later() {
    for scenario in [Scenario::Engineering, Scenario::EngineeringBlocks, Scenario::Raytrace, Scenario::RaytraceBlocks] {
        let report = scenario.measure(4, 10_000, By::Samples);
        assert!(report.last_permille >= 950, "{scenario:?} {report:?}");
        assert!(report.most_moves <= 1, "{scenario:?} {report:?}");
    }
    let report = Scenario::Fight.measure(4, 10_000, By::Samples);
    assert_eq!((report.moved, report.copied), (0, 0), "{report:?}");
}

#[test]
fn guests_do_not_keep_each_other_from_their_places() {
    let report = Scenario::Mixed.measure(8, 5_000, By::Misses);
    // All but the pages that two nodes write by turns.
    assert!(report.last_permille >= 950, "{report:?}");
    assert!(report.most_moves <= most_tries(5_000), "{report:?}");
}

#[test]
fn what_finds_no_memory_stays_and_is_not_asked_for_all_the_time() {
    let report = play(Load::Raytrace { pages: 512 }, true, 4, 600, 5_000);
    assert_eq!(report.copied, 0, "behind its own pages no node has room for a block: {report:?}");
    let (engineering, nodes) = (Load::Engineering { pages: 256 }, 4);
    let report = play(engineering, false, nodes, 256, 5_000);
    assert_eq!(report.moved, 0, "all nodes are full: {report:?}");
    // Each page asks once in an interval, and a job of 64 pages takes a step.
    assert!(report.refused <= report.pages * 50, "{report:?}");
}

#[test]
fn machines_of_64_nodes_are_as_local_as_small_ones() {
    for scenario in [Scenario::Engineering, Scenario::Raytrace] {
        let report = scenario.measure(64, 4_000, By::Misses);
        assert!(report.last_permille >= 900, "{scenario:?} {report:?}");
        assert_eq!(report.most_moves, 1, "{scenario:?} {report:?}");
    }
}

#[test]
fn a_planner_for_more_nodes_plans_alike() {
    for load in [Load::Engineering { pages: 512 }, Load::Raytrace { pages: 512 }, Load::Fight { pages: 64 }] {
        let small = play_on::<8>(load, true, 3, 8192, 2_000);
        assert_eq!(small, play_on::<64>(load, true, 3, 8192, 2_000), "{load:?}");
    }
}

#[test]
fn nobody_moves_anything_where_nobody_looks() {
    let report = Scenario::Engineering.measure(4, 500, By::Nothing);
    assert_eq!((report.moved, report.jobs, report.all_permille), (0, 0, 0), "{report:?}");
}
