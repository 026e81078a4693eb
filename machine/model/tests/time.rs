//! Virtual time: order, windows, idling, determinism.

use machine_model::Clocks;
use proptest::prelude::*;

const WINDOW: u64 = 1_000_000;
const HARTS: usize = 4;

fn clocks(seed: u64) -> Clocks {
    let clocks = Clocks::new(HARTS, 0, WINDOW, seed);
    (0..HARTS).for_each(|hart| {
        clocks.start(hart);
    });
    clocks
}

/// Harts in turn, as an emulator with one thread takes them: each runs as long as it may, in steps of `work`.
fn run(seed: u64, work: &[u64]) -> Vec<(usize, u64)> {
    let clocks = clocks(seed);
    let mut trace = Vec::new();
    for (turn, work) in work.iter().enumerate() {
        let hart = turn % HARTS;
        while let Some(leave) = clocks.leave(hart) {
            let now = clocks.reach(hart, clocks.now(hart) + (*work).min(leave));
            clocks.pass(clocks.slowest().unwrap());
            trace.push((hart, now));
        }
    }
    trace
}

proptest! {
    #[test]
    fn one_seed_gives_one_order(seed: u64, work in prop::collection::vec(50_000u64..3_000_000, 1..100)) {
        prop_assert_eq!(run(seed, &work), run(seed, &work));
    }

    #[test]
    fn running_harts_stay_within_a_window(seed: u64, work in prop::collection::vec(50_000u64..3_000_000, 1..100)) {
        let mut now = [0; HARTS];
        let start = clocks(seed);
        (0..HARTS).for_each(|hart| now[hart] = start.now(hart));
        for (hart, reached) in run(seed, &work) {
            now[hart] = reached;
            prop_assert!(now.iter().max().unwrap() - now.iter().min().unwrap() <= WINDOW);
        }
    }

    #[test]
    fn nobody_is_told_a_time_before_one_that_was_told(asked in prop::collection::vec((0..HARTS, 0u64..WINDOW), 1..100)) {
        let clocks = clocks(0);
        let mut last = 0;
        for (hart, ahead) in asked {
            let told = clocks.tell(clocks.now(hart) + ahead);
            prop_assert!(told >= last);
            last = told;
        }
    }
}

#[test]
fn seeds_differ_and_seed_zero_is_plain() {
    let work = [500_000; 40];
    assert_ne!(run(1, &work), run(2, &work));
    assert!((0..HARTS).all(|hart| clocks(0).now(hart) == 0));
}

#[test]
fn the_machine_follows_the_slowest_running_hart() {
    let clocks = clocks(0);
    (0..HARTS).for_each(|hart| {
        clocks.reach(hart, 1000 * (hart as u64 + 1));
    });
    assert_eq!(clocks.slowest(), Some(1000));
    clocks.wait(0, 1500);
    assert_eq!(clocks.slowest(), Some(2000), "one that waits holds nobody up");
    assert_eq!(clocks.leave(1), Some(WINDOW));
    assert_eq!(clocks.leave(3), Some(WINDOW - 2000));
    clocks.reach(3, 2000 + WINDOW);
    assert_eq!(clocks.leave(3), None);
}

#[test]
fn a_hart_that_waited_goes_on_at_the_machines_time() {
    let clocks = clocks(0);
    (0..HARTS).for_each(|hart| clocks.wait(hart, 100));
    assert_eq!(clocks.slowest(), None);
    clocks.pass(7_000);
    clocks.pass(6_000);
    assert_eq!((clocks.machine(), clocks.idle(2)), (7_000, 6_900));
    assert_eq!(clocks.reach(2, 100), 7_000);
    clocks.pass(9_000);
    assert_eq!((clocks.now(2), clocks.idle(2), clocks.is_waiting(2)), (7_000, 6_900, false));
    assert_eq!(clocks.slowest(), Some(7_000));
}
