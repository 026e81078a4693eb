//! Many VMs on few harts, whose lives are changed faster than they get to run; and guests whose vCPUs all want at once what others
//! have to wait for.

use control::{ControlError, OnCrash, StopReason, VmSpec, VmState};
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, checksum, ok, probe};

/// Numbers that look random and are the same in every run (Marsaglia, "Xorshift RNGs").
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % sides
    }
}

/// What guests do meanwhile: compute on all vCPUs, start and stop vCPUs, send messages, sleep, touch memory, fail.
const WORK: [&str; 6] = [
    "figure=spin n=1000000000",
    "probe=hsm,all-harts,rfence,ipi",
    "probe=all-registers,wfi-timer,timer",
    "figure=idle",
    "figure=touch n=24",
    "attack=trap-loop-inside",
];

/// One change of one VM's life; what is possible depends on its state.
fn change(machine: &Running, spec: &VmSpec, dice: &mut Dice) {
    let (client, vm) = (machine.client(), &spec.name);
    let Ok(summary) = client.vm(vm) else {
        ok(client.create_vm(spec.clone()));
        return ok(client.start_vm(vm));
    };
    let answer = match (summary.state, dice.below(6)) {
        (VmState::Stopped, 0..4) => client.start_vm(vm),
        (VmState::Stopped, _) => client.destroy_vm(vm),
        (VmState::Paused, 0..4) => client.resume_vm(vm),
        (VmState::Paused, _) => client.kill_vm(vm),
        (_, 0..3) => client.pause_vm(vm),
        (_, 3) => client.reset_vm(vm),
        (_, 4) => client.kill_vm(vm),
        (_, _) => Ok(()),
    };
    if let Err(error) = answer {
        // A VM on its way from one state to another, or one that ended by itself meanwhile, may refuse; no other.
        let is_moving = summary.state == VmState::Stopping || ok(client.vm(vm)).state != summary.state;
        let is_refused = matches!(error.refusal(), Some(ControlError::BadState { .. }));
        assert!(is_moving && is_refused, "{vm}, which was {:?}: {error}", summary.state);
    }
}

/// Nobody escapes by a reset that is under way, whoever asked for it: what is killed stays off.
#[test]
fn who_is_killed_does_not_begin_again() {
    let machine = ok(ok(ok(Rig::new("killed", 2, 512)).with_probe()).boot());
    let client = machine.client();
    let before = ok(machine.free_bytes());
    let asked = probe("asked", 2, "figure=spin n=1000000000");
    let crashes = VmSpec { on_crash: OnCrash::Reset, ..probe("crashes", 2, "attack=panic") };
    for _ in 0..40 {
        ok(machine.start(&asked));
        ok(client.reset_vm(&asked.name));
        ok(machine.start(&crashes));
        for spec in [&crashes, &asked] {
            ok(client.kill_vm(&spec.name));
            let vm = ok(client.vm(&spec.name));
            assert_eq!((vm.state, vm.reason), (VmState::Stopped, Some(StopReason::Killed)), "{}", spec.name);
            ok(client.destroy_vm(&spec.name));
        }
    }
    assert_all_returned(&machine, before);
}

fn storm(harts: u16, vcpus: u16, changes: usize, seed: u64) {
    let machine = ok(ok(ok(Rig::new("storm", harts, 768)).with_probe()).boot());
    let before = ok(machine.free_bytes());
    let neighbour = probe("neighbour", 1, "figure=checksum n=20");
    ok(machine.start(&neighbour));
    let mut dice = Dice(seed);
    let specs: Vec<_> = (0..8).map(|vm| probe(&format!("vm-{vm}"), vcpus, WORK[vm % WORK.len()])).collect();
    for _ in 0..changes {
        change(&machine, &specs[dice.below(8) as usize], &mut dice);
    }
    let ended = ok(machine.end_of(&neighbour.name));
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff));
    assert!(ended.console.contains(&checksum(20)), "the neighbour was disturbed:\n{}", ended.console);
    for spec in &specs {
        let Ok(vm) = machine.client().vm(&spec.name) else { continue };
        if vm.state != VmState::Stopped {
            // It may end by itself in between.
            let _ = machine.client().kill_vm(&spec.name);
            ok(machine.wait_stopped(&spec.name));
        }
        ok(machine.client().destroy_vm(&spec.name));
    }
    assert_all_returned(&machine, before);
    let log = machine.log();
    assert!(!log.contains("ERROR"), "the monitor found a fault of its own:\n{log}");
}

#[test]
fn lives_change_fast_on_two_harts() {
    storm(2, 2, 400, 0x5eed_0001);
}

#[test]
fn lives_change_fast_on_one_hart() {
    storm(1, 3, 300, 0x5eed_0002);
}

#[test]
fn lives_change_fast_on_four_harts() {
    storm(4, 3, 150, 0x5eed_0003);
}

/// Waits until a VM that was reset runs again.
fn wait_reset(machine: &Running, spec: &VmSpec) {
    const LOOKS: usize = 20_000;
    let has_begun = |_: &usize| {
        let vm = ok(machine.client().vm(&spec.name));
        vm.resets > 0 && vm.state == VmState::Running
    };
    assert!((0..LOOKS).any(|look| has_begun(&look)), "{} does not begin again", spec.name);
}

/// Guests whose vCPUs all fence each other, and take pages that go away under them, are paused, resumed, reset and killed in the middle of
/// it: again and again, as many vCPUs as harts and more. Each goes on until somebody ends it; the machine answers, and a neighbour
/// computes what it always does.
fn storm_of_shootdowns(harts: u16, second_node: u16, vcpus: u16) {
    const LIVES: usize = 6;
    let rig = ok(ok(Rig::new("shootdowns", harts, 512)).node(second_node, 512).with_probe());
    let machine = ok(rig.boot());
    let before = ok(machine.free_bytes());
    let neighbour = probe("neighbour", 1, "figure=checksum n=20");
    ok(machine.start(&neighbour));
    let specs = [probe("fences", vcpus, "attack=fence-storm"), probe("remaps", vcpus, "attack=remap-storm")];
    for life in 0..LIVES {
        specs.iter().for_each(|spec| ok(machine.start(spec)));
        for spec in &specs {
            ok(machine.wait_text(&spec.name, "STORM 1"));
            let vcpus = ok(machine.client().vm_stats(&spec.name)).vcpus;
            assert!(vcpus.iter().all(|vcpu| vcpu.run_ticks > 0), "{}: {vcpus:?}", spec.name);
        }
        ok(machine.stats());
        for spec in &specs {
            match life % 3 {
                0 => {}
                1 => {
                    ok(machine.client().pause_vm(&spec.name));
                    ok(machine.client().resume_vm(&spec.name));
                    ok(machine.wait_text(&spec.name, "STORM 2"));
                }
                _ => {
                    ok(machine.client().reset_vm(&spec.name));
                    wait_reset(&machine, spec);
                }
            }
        }
        for spec in &specs {
            ok(machine.client().kill_vm(&spec.name));
            let ended = ok(machine.end_of(&spec.name));
            assert_eq!(ended.summary.reason, Some(StopReason::Killed), "{}:\n{}", spec.name, ended.console);
        }
    }
    let ended = ok(machine.end_of(&neighbour.name));
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff));
    assert!(ended.console.contains(&checksum(20)), "the neighbour was disturbed:\n{}", ended.console);
    assert_all_returned(&machine, before);
    let log = machine.log();
    assert!(!log.contains("ERROR"), "the monitor found a fault of its own:\n{log}");
}

#[test]
fn shootdown_storms_on_four_harts_of_two_nodes() {
    storm_of_shootdowns(2, 2, 4);
}

#[test]
fn shootdown_storms_with_more_vcpus_than_harts() {
    storm_of_shootdowns(1, 1, 5);
}
