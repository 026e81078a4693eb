//! Where vCPUs run, on a machine whose nodes have different numbers of harts and whose harts do not divide them evenly.

use addr::{CpuIndex, VcpuIndex, VmId};
use config::MachineInterrupts;
use control::{EventKind, Followed, MigrationReason, StreamData, VcpuState, VmSpec};
use lab::rig::{Rig, Running};
use std::{collections::BTreeMap, time::Duration};
use system_tests::{ok, probe};

/// A vCPU of any VM moves within this time, or none will.
const WATCHDOG: Duration = Duration::from_secs(120);

/// A vCPU of any VM.
type Subject = (VmId, VcpuIndex);

/// A move: when, in ticks, from where, and to where.
#[derive(Clone, Copy, Debug)]
struct Trip {
    at: u64,
    from: CpuIndex,
    to: CpuIndex,
    /// An idle hart took it over. Where nobody sleeps, that happens when the host has kept a hart's partner from its turn.
    is_pulled: bool,
}

/// The shortest stay before an idle hart takes a vCPU over, as a fraction of a second.
const SHORTEST: u64 = 32;

/// Nodes of 1 + 3 + 1 harts without AIA.
fn odd_machine() -> Running {
    let rig = ok(ok(Rig::new("odd", 1, 384)).node(3, 384).node(1, 384).with_probe());
    ok(rig.hardware(|hardware| hardware.interrupts = MachineInterrupts::Plic).boot())
}

/// Waits until all vCPUs of a VM have been started and have run.
fn wait_until_busy(machine: &Running, spec: &VmSpec) {
    const LOOKS: usize = 20_000;
    let is_busy = |_: &usize| {
        let vcpus = ok(machine.client().vm_stats(&spec.name)).vcpus;
        vcpus.iter().all(|vcpu| vcpu.state != VcpuState::Stopped && vcpu.run_ticks > 0)
    };
    assert!((0..LOOKS).any(|look| is_busy(&look)), "{}: not all of its vCPUs got to run", spec.name);
}

/// The next `count` moves, by vCPU.
fn next_moves(machine: &Running, count: usize) -> BTreeMap<Subject, Vec<Trip>> {
    let end = ok(machine.events()).last().map_or(0, |event| event.sequence + 1);
    let stream = ok(machine.client().follow_events(end, Followed::All));
    let mut trips: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut next = end;
    while trips.values().map(Vec::len).sum::<usize>() < count {
        let data = ok(stream.recv_timeout(WATCHDOG));
        let Some(StreamData::Events(batch)) = data else { panic!("nobody moves any more, after {trips:?}") };
        for event in batch.events {
            assert_eq!(event.sequence, next, "events were overwritten unread");
            next += 1;
            if let (EventKind::VcpuMigrated { vcpu, from, to, reason }, Some(vm)) = (event.kind, event.vm) {
                let is_pulled = !matches!(reason, MigrationReason::Balance | MigrationReason::Turns);
                trips.entry((vm.id, vcpu)).or_default().push(Trip { at: event.ticks, from, to, is_pulled });
            }
        }
    }
    trips
}

/// Eight vCPUs that never sleep on five harts take turns: each stays for half a second at least, and for a whole one before it goes
/// back where it came from.
#[test]
fn busy_vcpus_on_an_odd_machine_stay_between_turns() {
    const MOVES: usize = 32;
    let machine = odd_machine();
    let specs = [probe("five", 5, "figure=spin n=1000000000"), probe("three", 3, "figure=spin n=1000000000")];
    specs.iter().for_each(|spec| ok(machine.start(spec)));
    for spec in &specs {
        wait_until_busy(&machine, spec);
    }
    let hz = ok(machine.client().machine_info()).timebase_hz;
    let run_ticks = || -> Vec<u64> {
        let of = |spec: &VmSpec| ok(machine.client().vm_stats(&spec.name)).vcpus;
        specs.iter().flat_map(of).map(|vcpu| vcpu.run_ticks).collect()
    };
    let before = run_ticks();
    let moves = next_moves(&machine, MOVES);
    let served: Vec<u64> = run_ticks().iter().zip(&before).map(|(after, before)| after - before).collect();
    for (subject, trips) in &moves {
        for pair in trips.windows(2) {
            let (stayed, is_return) = (pair[1].at - pair[0].at, pair[1].to == pair[0].from);
            let least = match pair[1] {
                Trip { is_pulled: true, .. } => hz / SHORTEST,
                _ if is_return => hz,
                _ => hz / 2,
            };
            assert!(stayed >= least, "{subject:?} stayed for {stayed} ticks, {hz} are a second: {trips:?}");
        }
    }
    let pulled = moves.values().flatten().filter(|trip| trip.is_pulled).count();
    assert!(pulled <= MOVES / 4, "{pulled} of {MOVES} moves to a hart that was idle: {moves:?}");
    // They took turns on the better places: in halves of seconds, over several seconds.
    let mean = served.iter().sum::<u64>() / served.len() as u64;
    assert!(served.iter().all(|ticks| *ticks * 2 >= mean), "{served:?}");
}

/// The same where some sleep now and then: a hart that is idle takes over who waits, but no vCPU several times within moments,
/// and the sooner moves follow each other, the longer it stays.
#[test]
fn vcpus_that_sleep_do_not_go_back_and_forth() {
    /// The shortest stay from the fourth move on, as a fraction of a second.
    const RESTLESS: u64 = 4;
    let machine = odd_machine();
    let specs = [probe("five", 5, "figure=naps"), probe("three", 3, "figure=naps")];
    specs.iter().for_each(|spec| ok(machine.start(spec)));
    for spec in &specs {
        wait_until_busy(&machine, spec);
    }
    let hz = ok(machine.client().machine_info()).timebase_hz;
    for (subject, trips) in &next_moves(&machine, 100) {
        let gaps: Vec<u64> = trips.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(gaps.iter().all(|gap| *gap >= hz / SHORTEST), "{subject:?}, {hz} ticks a second: {trips:?}");
        let is_calm = |gap: &u64| *gap >= hz / RESTLESS;
        assert!(gaps.windows(4).all(|four| four.iter().any(is_calm)), "{subject:?}, {hz} ticks a second: {trips:?}");
    }
}
