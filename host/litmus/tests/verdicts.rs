//! The tests in the tree: what the model says of them, and what the protocol does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dsm::{Protocol, Visibility};
use litmus::{Lay, Test, allowed, generate, parse, run};

fn tests() -> Vec<Test> {
    let tests = generate::all();
    tests.iter().map(|(name, text)| parse(text).unwrap_or_else(|problem| panic!("{name}: {problem}\n{text}"))).collect()
}

#[test]
fn the_tree_has_what_the_generator_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/set");
    let expected: BTreeMap<String, String> = generate::all().into_iter().collect();
    assert!(expected.len() >= 100, "only {} tests", expected.len());
    let files = fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("it can be read").path());
    let found: BTreeMap<String, String> = files
        .map(|path| {
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("it can be read"))
        })
        .collect();
    assert!(found == expected, "write them again: cargo run -p litmus -- generate host/litmus/tests/set");
}

/// Verdicts that are known from the manual and from the published set of tests.
#[test]
fn the_model_says_what_is_known() {
    let known = [
        ("MP+po+po", true),
        ("MP+fence+addr", false),
        ("MP+light+light", false),
        ("MP+fence+ctrl", true),
        ("MP+rl+aq", false),
        ("MP+po+fence", true),
        ("SB+po+po", true),
        ("SB+fence+fence", false),
        ("SB+tso+tso", true),
        ("SB+aqrl+aqrl", false),
        ("SB+aq+aq", false),
        ("SB+fence+aq", false),
        ("LB+po+po", true),
        ("LB+data+data", false),
        ("LB+ctrl+ctrl", false),
        ("S+light+data", false),
        ("R+fence+fence", false),
        ("R+light+fence", false),
        ("R+po+fence", true),
        ("2+2W+light+light", false),
        ("2+2W+po+po", true),
        ("WRC+addr+addr", false),
        ("IRIW+addr+addr", false),
        ("IRIW+po+po", true),
        ("RWC+addr+fence", false),
        ("ISA2+fence+fence+fence", false),
        ("3.SB+fence+fence+fence", false),
        ("CoRR+po", false),
        ("CoRW+po", false),
        ("CoWR+po", false),
        ("CoWW+po", false),
        ("CoRR2+po+po", false),
        ("LRSC+amo", false),
        ("LRSC+store", false),
        ("LRSC+LRSC", false),
        ("AMO+AMO+AMO", false),
    ];
    let tests = tests();
    for (name, is_allowed) in known {
        let test = tests.iter().find(|test| test.name == name).unwrap_or_else(|| panic!("no test {name}"));
        let ends = allowed(test).expect("it is small");
        assert_eq!(ends.contains(&test.asked()), is_allowed, "{name}: {ends:?}");
    }
}

fn none_is_forbidden(lays: &[Lay], rounds: usize) {
    let (mut count, mut seen) = (0, 0);
    for (number, test) in tests().iter().enumerate() {
        let allowed = allowed(test).expect("it is small");
        for lay in lays {
            for (end, times) in run(test, *lay, rounds, number as u64 * 977 + 1) {
                assert!(allowed.contains(&end), "{}: {end:?} came {times} times with {lay:?}", test.name);
                seen += usize::from(end == test.asked());
            }
            count += rounds;
        }
    }
    assert!(seen > 0, "no order shows anything weak");
    println!("{count} runs, 0 forbidden; {seen} times a test's question was answered by yes");
}

fn lays(machines: u8, visibility: Visibility) -> Vec<Lay> {
    let all = [Protocol::Invalidate, Protocol::Update, Protocol::UpdatePlus];
    let of = |protocol| [0, 2].map(|to_update| Lay { machines, protocol, visibility, to_update });
    all.into_iter().flat_map(of).collect()
}

#[test]
fn a_machine_for_each_thread_that_sees_its_fences() {
    none_is_forbidden(&lays(4, Visibility::Early), 40);
}

#[test]
fn several_threads_on_a_machine() {
    let (tests, lays) = (tests(), lays(2, Visibility::Ordered));
    for (number, test) in tests.iter().enumerate() {
        let allowed = allowed(test).expect("it is small");
        for lay in &lays {
            let ends = run(test, *lay, 25, number as u64 + 5);
            assert!(ends.keys().all(|end| allowed.contains(end)), "{}: {ends:?} with {lay:?}", test.name);
        }
    }
}

#[test]
#[ignore = "minutes"]
fn many_runs() {
    none_is_forbidden(&lays(4, Visibility::Early), 5_000);
}
