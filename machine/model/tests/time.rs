//! The clocks under an emulator that is no more than a loop: harts in a fixed order, each offered a turn.

use machine_model::{Clocks, Config, Step};
use proptest::prelude::*;

const HARTS: usize = 4;

fn config() -> Config {
    Config::flash(HARTS, 2, 1 << 20)
}

fn window() -> u64 {
    config().window_ps
}

fn clocks(seed: u64) -> Clocks {
    let mut clocks = Clocks::new(&config(), 1_000).unwrap();
    (0..HARTS).for_each(|hart| clocks.start(hart, seed));
    clocks
}

/// Offers `hart` a turn, in which it runs in pieces until its budget is used up. Tells each piece's end.
fn offer(clocks: &mut Clocks, hart: usize, piece: u64, ends: &mut Vec<(usize, u64)>) {
    if clocks.must_refuse(hart) {
        return;
    }
    clocks.advance(hart, 0);
    let slowest = clocks.slowest().expect("one runs");
    clocks.set_machine(slowest);
    let Step::Run { budget_ps } = clocks.step(hart, None) else { return };
    let mut left = budget_ps;
    while left > 0 {
        let spent = piece.min(left);
        clocks.advance(hart, spent);
        left -= spent;
        ends.push((hart, clocks.now(hart)));
    }
    // The slowest may go on at once; the others are asked first here.
    clocks.end_turn();
}

proptest! {
    #[test]
    fn running_harts_stay_within_a_window(seed: u64, pieces in prop::collection::vec(1u64..3_000_000, 1..100)) {
        let mut clocks = clocks(seed);
        let mut machine = 0;
        for (at, piece) in pieces.into_iter().enumerate() {
            offer(&mut clocks, at % HARTS, piece, &mut vec![]);
            let times: Vec<u64> = (0..HARTS).map(|hart| clocks.now(hart)).collect();
            // At the start the seed puts them up to ten windows apart.
            let start = 10 * window();
            prop_assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= window().max(start));
            prop_assert!(clocks.machine() >= machine && clocks.machine() <= *times.iter().min().unwrap());
            machine = clocks.machine();
        }
    }

    #[test]
    fn offers_out_of_turn_change_nothing(seed: u64, extra in prop::collection::vec((0..HARTS, 1usize..5), 1..60)) {
        let run = |extra: &[(usize, usize)]| {
            let (mut clocks, mut ends) = (clocks(seed), vec![]);
            for round in 0..extra.len() * HARTS {
                let hart = round % HARTS;
                if clocks.must_refuse(hart) { continue }
                clocks.advance(hart, 0);
                let Step::Run { budget_ps } = clocks.step(hart, None) else { continue };
                clocks.advance(hart, budget_ps / 2);
                // In the middle of its turn the emulator offers others one.
                let (other, times) = extra[round / HARTS];
                for _ in 0..times {
                    if other != hart { assert!(clocks.must_refuse(other)); }
                }
                clocks.advance(hart, budget_ps - budget_ps / 2);
                clocks.end_turn();
                ends.push((hart, clocks.now(hart)));
            }
            ends
        };
        let calm: Vec<_> = extra.iter().map(|_| (0, 1)).collect();
        prop_assert_eq!(run(&extra), run(&calm));
    }
}

#[test]
fn seeds_differ_and_seed_zero_is_plain() {
    let starts = |seed| (0..HARTS).map(|hart| clocks(seed).now(hart)).collect::<Vec<_>>();
    assert_eq!(starts(0), [1_000; HARTS]);
    assert_ne!(starts(1), starts(2));
    assert_eq!(starts(7), starts(7));
}

#[test]
fn a_woken_hart_goes_on_when_it_was_woken() {
    let mut clocks = clocks(0);
    assert!(!clocks.wait(3, 500));
    assert_eq!((clocks.now(3), clocks.is_waiting(3)), (1_500, true));
    clocks.advance(0, 90_000);
    assert_eq!((clocks.idle(3, 21_500), clocks.idle(3, 0)), (20_000, 0), "it has waited so far");
    assert!(clocks.stir(clocks.now(0)), "somebody waits, who may have been woken");
    clocks.advance(3, 0);
    assert_eq!((clocks.now(3), clocks.idle(3, 95_000)), (91_000, 89_500));
}

#[test]
fn when_all_wait_time_moves_by_timers_alone() {
    let mut clocks = clocks(0);
    let all: Vec<bool> = (0..HARTS).map(|hart| clocks.wait(hart, 0)).collect();
    assert_eq!(all, [false, false, false, true]);
    assert_eq!(clocks.slowest(), None);
    clocks.set_machine(70_000);
    clocks.advance(2, 0);
    assert_eq!((clocks.now(2), clocks.idle(2, 70_000), clocks.slowest()), (70_000, 69_000, Some(70_000)));
    clocks.set_machine(10);
    assert_eq!(clocks.machine(), 70_000, "time never goes back");
}

#[test]
fn a_hart_alone_runs_up_to_the_next_timer() {
    let mut clocks = clocks(0);
    assert!((1..HARTS).all(|hart| !clocks.wait(hart, 0)), "one still runs");
    clocks.advance(0, 0);
    assert_eq!(clocks.step(0, Some(1_000 + 700)), Step::Run { budget_ps: 700 });
    clocks.advance(0, 700);
    assert_eq!(clocks.step(0, None), Step::Yield, "it may have woken somebody");
    assert!(matches!(clocks.step(0, None), Step::Run { budget_ps } if budget_ps > window()));
}

#[test]
fn a_turn_that_nobody_takes_up_is_given_away() {
    let mut clocks = clocks(0);
    clocks.advance(0, 0);
    assert!(matches!(clocks.step(0, None), Step::Run { .. }));
    let refused = (0..10_000).take_while(|_| clocks.must_refuse(1)).count();
    assert!((10..10_000).contains(&refused), "{refused}");
    clocks.advance(1, 0);
    assert!(matches!(clocks.step(1, None), Step::Run { .. }));
}
