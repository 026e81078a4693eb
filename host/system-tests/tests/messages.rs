//! Messages between vCPUs that are moved between harts meanwhile, with interrupt files in hardware, in software, and in turns.

use config::MachineInterrupts;
use control::{EventKind, Followed, StreamData, VmSpec};
use lab::rig::{Rig, Running};
use std::time::Duration;
use system_tests::{ok, probe};

/// Some vCPU moves within this time, or none will. Most wait for messages, so moves are rare, and come by chance: a minute without any
/// has been seen.
const WATCHDOG: Duration = Duration::from_secs(600);
/// A token is told of after so many passes.
const EVERY: u64 = 10;

/// Harts of three nodes, fewer than the vCPUs, which do not divide them evenly.
fn machine(guest_files: u8) -> Running {
    let rig = ok(ok(Rig::new("odd", 1, 384)).node(3, 384).node(1, 384).with_probe());
    ok(rig.hardware(|hardware| hardware.interrupts = MachineInterrupts::Aia { guest_files }).boot())
}

/// Waits until vCPUs have moved `count` times more.
fn wait_for_moves(machine: &Running, count: usize) {
    let end = ok(machine.events()).last().map_or(0, |event| event.sequence + 1);
    let stream = ok(machine.client().follow_events(end, Followed::All));
    let mut moves = 0;
    while moves < count {
        let data = ok(stream.recv_timeout(WATCHDOG));
        let Some(StreamData::Events(batch)) = data else { panic!("nobody moves any more, after {moves} moves") };
        let is_move = |kind: &EventKind| matches!(kind, EventKind::VcpuMigrated { .. });
        moves += batch.events.iter().filter(|event| is_move(&event.kind)).count();
    }
}

/// How often the console says that `token` has been passed on.
fn passes(console: &str, token: u64) -> u64 {
    let told = console.lines().filter_map(|line| line.strip_prefix(&format!("MESSAGES {token} ")));
    told.filter_map(|number| number.trim().parse().ok()).max().unwrap_or(0)
}

/// Every token goes on round the vCPUs.
fn goes_on(machine: &Running, spec: &VmSpec, tokens: u64) {
    let console = ok(machine.console(&spec.name));
    for token in 0..tokens {
        let next = passes(&console, token) + 2 * EVERY;
        let told = ok(machine.wait_text(&spec.name, &format!("MESSAGES {token} {next}\n")));
        assert!(!told.contains("FAILED"), "{told}");
    }
}

fn messages_survive_moves(guest_files: u8) {
    const MOVES: usize = 24;
    // Without files one token goes by IPIs.
    let tokens = if guest_files == 0 { 1 } else { 5 };
    let machine = machine(guest_files);
    let specs =
        [("five", 5), ("three", 3)].map(|(name, vcpus)| probe(name, vcpus, &format!("figure=message-moves n={EVERY}")));
    specs.iter().for_each(|spec| ok(machine.start(spec)));
    specs.iter().for_each(|spec| goes_on(&machine, spec, tokens));
    wait_for_moves(&machine, MOVES);
    specs.iter().for_each(|spec| goes_on(&machine, spec, tokens));
}

#[test]
fn messages_survive_moves_without_files() {
    messages_survive_moves(0);
}

/// Most files are software, and a file changes its place at many moves.
#[test]
fn messages_survive_moves_with_one_file_a_hart() {
    messages_survive_moves(1);
}

#[test]
fn messages_survive_moves_with_two_files_a_hart() {
    messages_survive_moves(2);
}

/// There are enough: all files are hardware.
#[test]
fn messages_survive_moves_with_seven_files_a_hart() {
    messages_survive_moves(7);
}
