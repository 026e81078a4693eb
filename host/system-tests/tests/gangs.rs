//! VMs whose vCPUs wait for each other run together where they share harts, and can be changed meanwhile.

use control::{EventKind, Gang, Setting, ShareStats, VmSpec};
use lab::rig::{Rig, Running};
use system_tests::{ok, probe};

/// Looks at the machine before a test gives up.
const LOOKS: usize = 20_000;

fn share(machine: &Running, spec: &VmSpec) -> ShareStats {
    ok(machine.client().vm_stats(&spec.name)).share
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!((0..LOOKS).any(|_| holds()), "{what}");
}

/// Two VMs that meet at barriers on the harts of both: it is found out that they wait, they get turns, and lose them by command.
#[test]
fn vms_that_wait_at_barriers_are_found_out_and_can_be_set() {
    let machine = ok(ok(Rig::new("gangs", 4, 512)).with_probe());
    let machine = ok(machine.boot());
    let specs = [probe("one", 4, "figure=barriers n=100000000"), probe("two", 4, "figure=barriers n=100000000")];
    specs.iter().for_each(|spec| ok(machine.start(spec)));
    let [one, two] = &specs;
    wait_until("both have had turns", || specs.iter().all(|spec| share(&machine, spec).turns > 10));
    let events = ok(machine.events());
    let gathers = events.iter().filter(|event| matches!(event.kind, EventKind::VmGathers { .. })).count();
    assert!(gathers >= 2, "it is told: {events:?}");
    assert!(share(&machine, one).steals.total() > 0, "they share harts");

    let settings = vec![Setting::Weight(300), Setting::Gang(Gang::No)];
    ok(machine.client().set_vm(&one.name, settings.clone()));
    let now = share(&machine, one);
    assert_eq!((now.weight, now.gang, now.gathers), (300, Gang::No, false));
    let told: Vec<_> = ok(machine.events())
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::VmSet { setting } => Some(setting),
            _ => None,
        })
        .collect();
    assert_eq!(told, settings);
    let before = share(&machine, two).turns;
    wait_until("the other goes on", || share(&machine, two).turns > before + 5);
    assert_eq!(share(&machine, one).turns, now.turns, "it has no more turns");

    // All or nothing.
    let refused = machine.client().set_vm(&one.name, vec![Setting::Gang(Gang::Yes), Setting::Weight(0)]);
    assert!(refused.is_err_and(|error| error.to_string().contains("weight")));
    assert_eq!(share(&machine, one).gang, Gang::No);
    ok(machine.client().set_vm(&one.name, vec![Setting::Gang(Gang::Yes)]));
    wait_until("it has turns again", || share(&machine, one).turns > now.turns);
}

/// Heavier ones have more, at once: three times as much as their neighbour, on each hart.
#[test]
fn a_weight_that_is_set_counts_at_once() {
    let machine = ok(ok(Rig::new("weights", 1, 256)).with_probe());
    let machine = ok(machine.boot());
    let specs = [probe("light", 1, "figure=spin n=1000000000"), probe("heavy", 1, "figure=spin n=1000000000")];
    specs.iter().for_each(|spec| ok(machine.start(spec)));
    let ran = || specs.each_ref().map(|spec| ok(machine.client().vm_stats(&spec.name)).vcpus[0].run_ticks);
    wait_until("both run", || ran().iter().all(|ticks| *ticks > 0));
    ok(machine.client().set_vm(&specs[1].name, vec![Setting::Weight(300)]));
    let before = ran();
    let hz = ok(machine.client().machine_info()).timebase_hz;
    wait_until("four seconds pass", || ran().iter().sum::<u64>() > before.iter().sum::<u64>() + 4 * hz);
    let [light, heavy] = [0, 1].map(|vm| ran()[vm] - before[vm]);
    // Within a slice and what is asked in between.
    assert!(heavy * 10 > light * 25 && heavy * 10 < light * 35, "{heavy} to {light}");
}
