//! VMs that come and go while the machine runs, and their memory.

use control::{
    Boot, ControlError, Event, EventKind, Followed, MonitorMemoryKind, Name, Pages, StopReason, StreamData, VcpuState,
    VmSpec, VmState, VmSummary,
};
use lab::rig::{Rig, Running, WATCHDOG, label};
use machine::{Client, ClientError, Stream};
use system_tests::{assert_all_returned, checksum, ok, probe};

fn machine(name: &str) -> Running {
    ok(ok(ok(Rig::new(name, 2, 512)).with_probe()).boot())
}

#[track_caller]
fn refusal<T>(result: Result<T, ClientError>) -> ControlError {
    match result {
        Err(ClientError::Refused(error)) => error,
        Err(other) => panic!("not a refusal: {other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn a_vm_is_made_started_paused_resumed_killed_and_forgotten() {
    let machine = machine("life");
    let client = machine.client();
    let before = ok(machine.free_bytes());
    let spec = probe("vm", 2, "figure=spin n=1000000000");
    let name = &spec.name;
    ok(client.create_vm(spec.clone()));
    assert_eq!(ok(client.vm(name)).state, VmState::Stopped);
    assert!(matches!(refusal(client.create_vm(spec.clone())), ControlError::VmExists { .. }));
    assert!(matches!(refusal(client.pause_vm(name)), ControlError::BadState { .. }));
    ok(client.start_vm(name));
    ok(machine.wait_text(name, "SPINNING"));
    assert!(matches!(refusal(client.start_vm(name)), ControlError::BadState { .. }));
    assert!(matches!(refusal(client.destroy_vm(name)), ControlError::BadState { .. }));
    ok(client.pause_vm(name));
    assert_eq!(ok(client.vm(name)).state, VmState::Paused);
    let first = ok(client.vm_stats(name));
    let second = ok(client.vm_stats(name));
    for (before, after) in first.vcpus.iter().zip(&second.vcpus) {
        assert_eq!(before.run_ticks, after.run_ticks, "a paused vCPU runs");
    }
    ok(client.resume_vm(name));
    assert_eq!(ok(client.vm(name)).state, VmState::Running);
    ok(client.kill_vm(name));
    let stopped = ok(client.vm(name));
    assert_eq!((stopped.state, stopped.reason), (VmState::Stopped, Some(StopReason::Killed)));
    ok(client.start_vm(name));
    ok(client.kill_vm(name));
    ok(client.destroy_vm(name));
    assert!(matches!(refusal(client.vm_stats(name)), ControlError::UnknownVm { .. }));
    assert_all_returned(&machine, before);
}

/// Looks at a VM until it is as wanted. It does not wait between looks: what is wanted may be over soon, and makes no event.
#[track_caller]
fn look_for(client: &Client, vm: &Name, is_so: impl Fn(&VmSummary) -> bool) {
    const LOOKS: usize = 100_000;
    assert!((0..LOOKS).any(|_| is_so(&ok(client.vm(vm)))), "{vm} does not get there");
}

/// A VM with much to load is stopped meanwhile: whoever started it hears that, all of its memory comes back, and it starts again.
#[test]
fn a_vm_that_is_stopped_while_it_loads_gives_everything_back() {
    const BALLAST: &str = "ballast";
    const BYTES: u64 = 192 << 20;
    /// It may be loaded before it can be stopped: then it is stopped as it runs, and started once more.
    const ATTEMPTS: usize = 20;
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(BALLAST);
    ok(std::fs::File::create(&file).and_then(|file| file.set_len(BYTES)));
    let rig = ok(ok(Rig::new("loading", 2, 1024)).with_probe());
    let machine = ok(ok(rig.module(BALLAST, file)).boot());
    let client = machine.client();
    let before = ok(machine.free_bytes());
    let mut spec = probe("vm", 2, "figure=spin n=1000000000");
    spec.memory_mib = 256;
    if let Boot::Kernel { initrd, .. } = &mut spec.boot {
        *initrd = Some(ok(label(BALLAST)));
    }
    let name = &spec.name;
    ok(client.create_vm(spec.clone()));
    let stop_early = |_| {
        let started = std::thread::scope(|scope| {
            let start = scope.spawn(|| client.start_vm(name));
            let begun = |vm: &VmSummary| vm.resident.iter().any(|node| node.guest_pages() > 0);
            look_for(client, name, begun);
            assert!(matches!(refusal(client.start_vm(name)), ControlError::BadState { .. }));
            assert!(matches!(refusal(client.destroy_vm(name)), ControlError::BadState { .. }));
            ok(client.kill_vm(name));
            start.join()
        });
        let vm = ok(client.vm(name));
        assert_eq!((vm.state, vm.reason, vm.uptime_ticks), (VmState::Stopped, Some(StopReason::Killed), 0));
        assert_all_returned(&machine, before);
        match started {
            Ok(Err(ClientError::Refused(ControlError::BadState { state: VmState::Stopped, .. }))) => true,
            Ok(Ok(())) => false,
            other => panic!("the start was answered {other:?}"),
        }
    };
    assert!((0..ATTEMPTS).any(stop_early), "it was loaded before it could be stopped, each time");
    ok(client.start_vm(name));
    ok(machine.wait_text(name, "SPINNING"));
    ok(client.kill_vm(name));
    assert_all_returned(&machine, before);
    // A machine that goes off does not wait for it.
    std::thread::scope(|scope| {
        let _ = scope.spawn(|| client.start_vm(name));
        look_for(client, name, |vm| vm.state != VmState::Stopped);
        ok(client.shutdown());
    });
}

#[test]
fn memory_is_taken_as_it_is_touched_and_comes_back() {
    let machine = machine("memory");
    let before = ok(machine.free_bytes());
    for round in 0..3 {
        let mut spec = probe(&format!("touch-{round}"), 1, "figure=touch n=64");
        spec.memory_mib = 256;
        ok(machine.start(&spec));
        ok(machine.wait_text(&spec.name, "TOUCHED 64"));
        let pages: u64 = ok(machine.client().vm(&spec.name)).resident.iter().map(|node| node.guest_pages()).sum();
        assert!((64 << 8..96 << 8).contains(&pages), "{pages} pages are behind 64 MiB that were touched");
        ok(machine.client().kill_vm(&spec.name));
        ok(machine.client().destroy_vm(&spec.name));
        assert_all_returned(&machine, before);
    }
}

/// Pages that a guest reports free go back at once.
#[test]
fn pages_reported_free_come_back() {
    let machine = machine("reporting");
    let ended = ok(machine.run(&probe("vm", 1, "probe=reporting")));
    assert!(ended.console.contains("PROBE reporting ok"), "{}", ended.console);
    assert!(ended.stats.pages_returned >= 512, "{} pages came back", ended.stats.pages_returned);
    let told = ok(machine.events()).into_iter().filter_map(|event| match event.kind {
        EventKind::PagesReturned { pages } => Some(pages),
        _ => None,
    });
    let told: u64 = told.sum();
    assert!(told > ended.stats.pages_returned, "{told} pages by events: those at the end, too");
}

/// Who waits for a VM is told of lives, and of nothing else that happens.
#[test]
fn who_follows_lives_hears_of_nothing_else() {
    let machine = machine("lives");
    let follow = |which| ok(machine.client().follow_events(0, which));
    let (lives, all) = (follow(Followed::Lives), follow(Followed::All));
    ok(machine.run(&probe("vm", 1, "probe=reporting")));
    let heard_by = |stream: Stream| {
        let mut heard: Vec<Event> = Vec::new();
        while heard.iter().all(|event| event.kind != EventKind::VmDestroyed) {
            match ok(stream.recv_timeout(WATCHDOG)) {
                Some(StreamData::Events(batch)) => {
                    assert_eq!(batch.lost, 0, "what is left out is not lost");
                    heard.extend(batch.events);
                }
                other => panic!("{other:?} instead of the VM's end"),
            }
        }
        // Their VMs have names while the monitor knows them.
        heard.into_iter().map(|event| (event.sequence, event.kind)).collect::<Vec<_>>()
    };
    let (lives, (of_life, others)) =
        (heard_by(lives), heard_by(all).into_iter().partition::<Vec<_>, _>(|(_, kind)| kind.is_of_life()));
    assert_eq!(lives, of_life);
    assert!(!others.is_empty());
}

/// What a VM did is known after its end.
#[test]
fn counters_outlive_the_life_that_made_them() {
    let machine = machine("counters");
    let spec = VmSpec { pages: Pages::Base, ..probe("vm", 1, "figure=first_touch n=200") };
    let end_of_life = || {
        ok(machine.wait_stopped(&spec.name));
        let stats = ok(machine.client().vm_stats(&spec.name));
        assert_eq!(stats.vcpus.len(), 1);
        assert_eq!(stats.vcpus[0].state, VcpuState::Stopped);
        assert!(stats.vcpus[0].exits.total() > stats.vcpus[0].faults);
        stats.vcpus[0].faults
    };
    ok(machine.start(&spec));
    let first = end_of_life();
    assert!(first >= 200, "{first} faults for 200 pages");
    ok(machine.client().start_vm(&spec.name));
    assert!(end_of_life() >= 200, "the next life tells of itself");
}

/// The monitor's own memory: the heap is told by use, free memory by whole blocks.
#[test]
fn memory_of_the_machine_adds_up() {
    let machine = machine("sums");
    let stats = ok(machine.stats());
    let of = |kind| stats.monitor.iter().filter(|memory| memory.kind == kind).map(|memory| memory.bytes).sum::<u64>();
    assert!(of(MonitorMemoryKind::HeapUsed) > 0 && of(MonitorMemoryKind::HeapFree) > 0);
    let node = &stats.nodes[0];
    let large = node.free_large_blocks << 21;
    assert!(large <= node.free_bytes && large > node.free_bytes / 2, "{large} of {} in blocks", node.free_bytes);
    let taken = of(MonitorMemoryKind::PageTables);
    assert!(taken <= node.total_bytes - node.free_bytes, "{taken} bytes of the monitor");
}

#[test]
fn neighbours_do_not_notice_that_others_come_and_go() {
    let machine = machine("churn");
    let neighbour = probe("neighbour", 1, "figure=checksum n=30");
    ok(machine.start(&neighbour));
    for round in 0..6 {
        let spec = probe(&format!("guest-{round}"), 4, "figure=touch n=16");
        ok(machine.start(&spec));
        ok(machine.wait_text(&spec.name, "IDLE"));
        ok(machine.client().kill_vm(&spec.name));
        ok(machine.client().destroy_vm(&spec.name));
    }
    let ended = ok(machine.end_of(&neighbour.name));
    assert!(ended.console.contains(&checksum(30)), "{}", ended.console);
}

/// Three times more vCPUs than harts, all computing: each gets its share.
#[test]
fn overcommitted_harts_are_shared_fairly() {
    let machine = machine("fair");
    let specs: Vec<_> = (0..6).map(|vm| probe(&format!("vm-{vm}"), 1, "figure=spin n=100000000")).collect();
    for spec in &specs {
        ok(machine.start(spec));
    }
    for spec in &specs {
        ok(machine.wait_text(&spec.name, "SPINNING"));
    }
    let run = |spec: &control::VmSpec| ok(machine.client().vm_stats(&spec.name)).vcpus[0].run_ticks;
    let before: Vec<_> = specs.iter().map(run).collect();
    // Another guest's work is the measure of time.
    let ended = ok(machine.run(&probe("clock", 1, "figure=checksum n=400")));
    assert!(ended.console.contains(&checksum(400)));
    let spent: Vec<_> = specs.iter().zip(&before).map(|(spec, before)| run(spec) - before).collect();
    let (least, most) = (spent.iter().min().copied().unwrap_or(0), spent.iter().max().copied().unwrap_or(0));
    assert!(least * 2 >= most, "uneven shares: {spent:?}");
}
