//! Who was moved stays for a while, on machines whose nodes have different numbers of harts.

use sched::balance::Caution;
use sim::{Machine, Program, Report, TICKS_PER_MS};

const HZ: u64 = 1_000 * TICKS_PER_MS;

/// No stays at all.
const fn hasty() -> Caution {
    Caution { stay_ticks: 0, ..Caution::new(HZ) }
}

const fn periodic(run_ms: u64, sleep_ms: u64) -> Program {
    Program::Periodic { run_ticks: run_ms * TICKS_PER_MS, sleep_ticks: sleep_ms * TICKS_PER_MS }
}

/// VMs on a machine with nodes of 1 + 3 + 1 harts: five seconds to settle, then ten.
fn odd_machine(caution: Caution, vms: &[&[Program]]) -> Report {
    let mut machine = Machine::with_nodes(&[1, 3, 1]).with_caution(caution);
    vms.iter().for_each(|vm| machine.start_vm(100, vm));
    machine.run(5_000);
    machine.reset_counters();
    machine.run(10_000);
    machine.report()
}

/// VMs of 5 and 3 vCPUs that never sleep.
const BUSY: [&[Program]; 2] = [&[Program::Compute; 5], &[Program::Compute; 3]];

/// The same with some that sleep: for long, for short times, and about as long as they run.
const MIXED: [&[Program]; 2] = [
    &[Program::Compute, periodic(30, 20), Program::Compute, periodic(3, 4), periodic(55, 45)],
    &[Program::Compute, periodic(12, 9), periodic(150, 130)],
];

#[test]
fn busy_vcpus_take_turns_and_do_not_go_back_at_once() {
    let before = odd_machine(hasty(), &BUSY);
    assert!(before.returns > 10, "this machine provokes nothing: {before:?}");
    let report = odd_machine(Caution::new(HZ), &BUSY);
    assert_eq!(report.returns, 0, "{report:?}");
    assert!(report.most_moves_in_a_second <= 2, "{report:?}");
    assert!(report.worst_permille >= 900 && report.wasted_permille == 0, "{report:?}");
}

#[test]
fn vcpus_that_sleep_now_and_then_do_not_go_back_and_forth() {
    let before = odd_machine(hasty(), &MIXED);
    assert!(before.returns > 50, "this machine provokes nothing: {before:?}");
    let report = odd_machine(Caution::new(HZ), &MIXED);
    assert!(report.most_moves_in_a_second <= 5 && report.returns * 4 <= before.returns, "{before:?} {report:?}");
    // Not at the cost of what they get done.
    assert!(report.busy_permille + 50 >= before.busy_permille, "{before:?} {report:?}");
}
