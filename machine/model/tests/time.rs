//! Virtual time: order, windows, idling, determinism.

use machine_model::{Clocks, Config};
use proptest::prelude::*;

fn config() -> Config {
    Config::flash(4, 2, 1 << 20)
}

fn run(seed: u64, work: &[u64]) -> Vec<(usize, u64)> {
    let mut clocks = Clocks::new(&config(), seed).unwrap();
    let turn = |(at, work): (usize, &u64)| {
        let turn = clocks.next_turn().unwrap();
        clocks.advance(turn.hart, (turn.until_ps - clocks.now(turn.hart)).min(*work));
        if at % 3 == 0 {
            let timer = clocks.now(turn.hart) + work;
            clocks.wait(turn.hart, Some(timer));
        }
        (turn.hart, clocks.now(turn.hart))
    };
    work.iter().enumerate().map(turn).collect()
}

proptest! {
    #[test]
    fn one_seed_gives_one_order(seed: u64, work in prop::collection::vec(1u64..3_000_000, 1..200)) {
        prop_assert_eq!(run(seed, &work), run(seed, &work));
    }

    #[test]
    fn running_harts_stay_within_a_window(seed: u64, work in prop::collection::vec(1u64..3_000_000, 1..200)) {
        let mut clocks = Clocks::new(&config(), seed).unwrap();
        for work in work {
            let turn = clocks.next_turn().unwrap();
            clocks.advance(turn.hart, (turn.until_ps - clocks.now(turn.hart)).min(work));
            let times: Vec<u64> = (0..4).map(|hart| clocks.now(hart)).collect();
            prop_assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= config().window_ps);
        }
    }
}

#[test]
fn seeds_differ_and_seed_zero_is_plain() {
    let work = [500_000; 40];
    assert_ne!(run(1, &work), run(2, &work));
    let plain = Clocks::new(&config(), 0).unwrap();
    assert!((0..4).all(|hart| plain.now(hart) == 0));
}

#[test]
fn all_idle_jumps_to_the_next_timer_and_ends_without_one() {
    let mut clocks = Clocks::new(&config(), 0).unwrap();
    (0..4).for_each(|hart| clocks.wait(hart, (hart == 2).then_some(7_000_000)));
    let turn = clocks.next_turn().unwrap();
    assert_eq!((turn.hart, clocks.now(2), clocks.idle(2)), (2, 7_000_000, 7_000_000));
    clocks.wait(2, None);
    assert_eq!(clocks.next_turn(), None);
    clocks.wake(1, 9_000_000);
    assert_eq!(clocks.next_turn().map(|turn| (turn.hart, clocks.now(1))), Some((1, 9_000_000)));
}
