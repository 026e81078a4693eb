//! What running together gains, and that nobody gains by pretending.

use proptest::prelude::*;
use sim::play::{Outcome, Play, Scene};

fn play(text: &str) -> Outcome {
    Play::new(&Scene::parse(text).unwrap()).run()
}

/// Two VMs of 8 vCPUs that meet at barriers, on 8 harts, and one that now and then wants three of these.
fn barriers(gang: &str, wait: &str) -> Outcome {
    play(&format!(
        "[machine]\nharts_per_node = 8\nms = 60000\n\
         [[vm]]\nname = \"a\"\ncount = 2\nvcpus = 8\ngang = \"{gang}\"\nrounds = 500\n\
         program = [{{ up_to_us = 1000 }}, {{ barrier = \"{wait}\" }}]\n\
         [[vm]]\nname = \"daemons\"\nvcpus = 3\nharts = [0, 3, 5]\nprogram = [{{ up_to_us = 8000 }}, {{ sleep_us = 7000 }}]\n"
    ))
}

fn ended(outcome: &Outcome) -> u64 {
    outcome.vms.iter().take(2).map(|vm| vm.ended_us.expect("it ends")).max().unwrap()
}

#[test]
fn vms_that_spin_at_barriers_gain_by_running_together() {
    let (without, with) = (barriers("no", "spin"), barriers("yes", "spin"));
    assert!(without.vms.iter().all(|vm| vm.turns == 0) && with.vms.iter().take(2).all(|vm| vm.turns > 10));
    assert!(ended(&with) * 10 <= ended(&without) * 6, "{with:?} {without:?}");
    // Who says that it waits is found out.
    let (without, auto) = (barriers("no", "wrs"), barriers("auto", "wrs"));
    assert!(auto.vms.iter().take(2).all(|vm| vm.turns > 10), "{auto:?}");
    assert!(ended(&auto) <= ended(&without), "{auto:?} {without:?}");
}

/// A spinning VM, one that serves requests, one that computes, on 8 harts.
const MIXED: &str = r#"
[machine]
harts_per_node = 8
ms = 5000
[[vm]]
name = "spins"
vcpus = 8
gang = "yes"
program = [{ up_to_us = 300 }, { barrier = "spin" }]
[[vm]]
name = "serves"
vcpus = 8
program = [{ compute_us = 40 }, { sleep_us = 460 }]
[[vm]]
name = "computes"
vcpus = 8
program = [{ compute_us = 1000 }]
"#;

#[test]
fn sleepers_wake_up_promptly_although_gangs_run() {
    let outcome = play(MIXED);
    let [spins, serves, computes] = outcome.vms.as_slice() else { panic!("three VMs") };
    assert!(spins.turns > 10, "{outcome:?}");
    assert!(serves.wake_p99_us.unwrap() <= 100, "{outcome:?}");
    assert!(spins.ran_us.abs_diff(computes.ran_us) * 50 <= computes.ran_us, "{outcome:?}");
    assert!(outcome.wasted_ppm <= 5_000, "{outcome:?}");
}

#[test]
fn scenes_that_cannot_be_played_are_refused() {
    let vm = |rest: &str| format!("[machine]\nharts_per_node = 2\n[[vm]]\nname = \"v\"\n{rest}");
    let refused = [
        "".to_owned(),
        "[machine]\nharts_per_node = 0".to_owned(),
        "[machine]\nnodes = 255\nharts_per_node = 60000".to_owned(),
        vm("vcpus = 0\nprogram = [{ compute_us = 1 }]"),
        vm("vcpus = 1\nweight = 0\nprogram = [{ compute_us = 1 }]"),
        vm("vcpus = 1\nprogram = [{ barrier = \"spin\" }]"),
        vm("vcpus = 1\nprogram = [{ compute_us = 0 }]"),
        vm("vcpus = 1\nharts = [2]\nprogram = [{ compute_us = 1 }]"),
        vm("vcpus = 1\ncolour = 3\nprogram = [{ compute_us = 1 }]"),
        vm("vcpus = 1024\ncount = 4096\nprogram = [{ compute_us = 1 }]"),
    ];
    for text in refused {
        assert!(Scene::parse(&text).is_err(), "{text}");
    }
}

#[test]
fn a_play_is_the_same_each_time_and_its_spans_are_the_hart_time() {
    let scene = Scene::parse(MIXED).unwrap();
    let (mut play, mut again) = (Play::new(&scene).with_spans(), Play::new(&scene));
    let outcome = play.run();
    assert_eq!(format!("{outcome:?}"), format!("{:?}", again.run()));
    let ticks: u64 = play.spans().iter().map(|span| span.to - span.from).sum();
    let ran_us: u64 = outcome.vms.iter().map(|vm| vm.ran_us).sum();
    assert!((ticks / 10).abs_diff(ran_us) <= 3, "{ticks} ticks, {ran_us} us");
    // No hart runs two at once.
    let mut spans = play.spans().to_vec();
    spans.sort_by_key(|span| (span.hart, span.from));
    assert!(spans.windows(2).all(|two| two[0].hart != two[1].hart || two[0].to <= two[1].from));
}

fn program() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("{ up_to_us = 500 }, { barrier = \"spin\" }"),
        Just("{ up_to_us = 2000 }, { barrier = \"wrs\" }"),
        Just("{ up_to_us = 2000 }, { barrier = \"block\" }"),
        Just("{ up_to_us = 400 }, { lock_us = 50 }"),
        Just("{ compute_us = 900 }"),
        // Seems to be idle whenever somebody looks.
        Just("{ compute_us = 950 }, { sleep_us = 50 }"),
        Just("{ compute_us = 50 }, { sleep_us = 9000 }"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A VM that computes beside any others, whatever they pretend, has its share: harts are placed alike, one vCPU of each
    /// VM on each hart.
    #[test]
    fn nobody_gains_at_the_cost_of_who_computes(others in prop::collection::vec((program(), 0..3_usize, 50..200_u32), 1..4)) {
        let mut text = String::from("[machine]\nharts_per_node = 4\nms = 4000\n[[vm]]\nname = \"honest\"\nvcpus = 4\nharts = [0, 1, 2, 3]\nprogram = [{ compute_us = 500 }]\n");
        for (program, gang, weight) in &others {
            let gang = ["auto", "yes", "no"][*gang];
            text += &format!("[[vm]]\nname = \"other\"\nvcpus = 4\nharts = [0, 1, 2, 3]\nweight = {weight}\ngang = \"{gang}\"\nprogram = [{program}]\n");
        }
        let outcome = play(&text);
        let weights: u64 = outcome.vms.iter().map(|vm| u64::from(vm.weight)).sum();
        let share = 4 * outcome.us * 100 / weights;
        // What a share lacks is at most what a turn and a slice make of it, on each hart.
        prop_assert!(outcome.vms[0].ran_us + 4 * outcome.us / 50 >= share, "{} of {share}: {text}\n{outcome:?}", outcome.vms[0].ran_us);
        prop_assert!(outcome.vms.iter().all(|vm| vm.rounds > 0), "somebody starves: {text}\n{outcome:?}");
    }
}
