//! The monitor's own panics: what it leaves behind, and machines that are started again.

use std::time::{Duration, Instant};

use addr::{CpuIndex, VcpuIndex};
use config::OnPanic;
use control::{ControlError, PanicBy, VmSpec};
use crash::{Crash, How};
use lab::rig::{Rig, WATCHDOG, name};
use machine::{Client, ClientError, Machine, Outcome, Restarts, Symbols, crashes_in};
use system_tests::{ok, probe};

/// A machine of two harts that may be made to panic, with a VM on each that computes.
fn rig(machine: &str) -> Rig {
    let busy = |vm: &str| VmSpec { autostart: true, ..probe(vm, 1, "figure=checksum n=100000000") };
    let rig = ok(ok(Rig::new(machine, 2, 256)).with_probe()).options(|options| options.allow_panic = true);
    rig.vm(busy("one")).vm(busy("two"))
}

/// Waits until both VMs compute: their guests have faulted in some pages.
fn wait_busy(client: &Client) {
    const SOME: usize = 8;
    let begin = Instant::now();
    for vm in ["one", "two"] {
        while ok(client.exit_trace(&ok(name(vm)), VcpuIndex(0))).exits.len() < SOME {
            assert!(begin.elapsed() < WATCHDOG, "{vm} does nothing");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn ended(machine: &Machine) -> Outcome {
    machine.wait_timeout(WATCHDOG).expect("a panic ends the machine")
}

fn symbols() -> Symbols {
    ok(Symbols::of(&ok(lab::artifacts::monitor()).with_extension("")))
}

/// Names of the functions on a hart's stack.
fn functions(crash: &Crash, hart: usize) -> Vec<String> {
    let symbols = symbols();
    assert_eq!(crash.begin.fingerprint, symbols.fingerprint(), "the program that was booted");
    let calls = crash.harts[hart].calls.iter();
    calls.filter_map(|call| symbols.of_call(*call)).map(|symbol| symbol.name.to_owned()).collect()
}

#[track_caller]
fn only_crash(log: &std::path::Path) -> Crash {
    let mut crashes = ok(crashes_in(log));
    assert_eq!(crashes.len(), 1, "{crashes:?}");
    let crash = crashes.remove(0);
    assert_eq!((crash.lost, crash.is_whole, crash.harts.len()), (0, true, 2), "{crash:?}");
    crash
}

/// A machine whose file does not say that it may, and a hart that is not there.
#[test]
fn no_client_makes_a_normal_machine_panic() {
    let machine = ok(ok(Rig::new("crash-refused", 1, 256)).boot());
    let refused = machine.client().panic(CpuIndex(0), PanicBy::Statement);
    assert!(matches!(refused, Err(ClientError::Refused(ControlError::Unsupported { .. }))), "{refused:?}");
    let machine = ok(rig("crash-absent").boot());
    let refused = machine.client().panic(CpuIndex(2), PanicBy::Statement);
    assert!(matches!(refused, Err(ClientError::Refused(ControlError::Unsupported { .. }))), "{refused:?}");
    wait_busy(machine.client());
}

/// A panic while two VMs run: the record has its message and place, the functions on the way to it, and what the vCPUs did.
#[test]
fn a_panic_says_where_and_what_the_harts_did() {
    let machine = ok(rig("crash-panic").boot());
    wait_busy(machine.client());
    ok(machine.client().panic(CpuIndex(1), PanicBy::Statement));
    let outcome = ended(machine.machine());
    assert!(!outcome.is_orderly(), "{outcome:?}");
    let crash = only_crash(&machine.machine().dir().monitor_log());
    assert_eq!((crash.cell, crash.begin.hart), (0, 1));
    for text in ["monitor/src/services/crash.rs:", "a client has asked for it"] {
        assert!(crash.message().contains(text), "{}", crash.message());
    }
    assert_eq!(outcome.panic.as_deref(), Some(crash.message()));
    let [other, culprit] = &crash.harts[..] else { panic!("{crash:?}") };
    assert_eq!((culprit.how, culprit.trap), (How::Panicked, None));
    assert_eq!(culprit.registers[2], Some(culprit.sp));
    let found = functions(&crash, 1);
    for function in ["monitor::services::crash::provoke", "monitor::run::run"] {
        assert!(found.iter().any(|name| name == function), "no {function} in {found:#?}");
    }
    assert_eq!(other.how, How::Stopped, "it ran a guest, and was called");
    for hart in [other, culprit] {
        assert!(hart.hart.running.is_some_and(|(vm, vcpu)| vm != 0 && vcpu == 0), "{hart:?}");
        assert!(!hart.exits.is_empty() && hart.exits.is_sorted_by_key(|exit| exit.ticks), "{hart:?}");
        assert!(hart.exits.iter().all(|exit| exit.ticks <= crash.begin.ticks), "{hart:?}");
        let events: Option<Vec<_>> = hart.events.iter().map(|bytes| control::Event::from_bytes(bytes)).collect();
        assert!(!events.as_ref().is_none_or(Vec::is_empty), "each hart has told that it is up: {hart:?}");
    }
}

/// A stack that overflows is a trap: all registers are there, the stack pointer is below the stack, and the stack is full of the function.
#[test]
fn a_trap_of_the_monitor_shows_the_registers() {
    let machine = ok(rig("crash-trap").boot());
    wait_busy(machine.client());
    // The control hart.
    ok(machine.client().panic(CpuIndex(0), PanicBy::Overflow));
    let outcome = ended(machine.machine());
    let crash = only_crash(&machine.machine().dir().monitor_log());
    assert!(crash.message().contains("trap in the monitor: scause 0xf,"), "{outcome:?}");
    let culprit = &crash.harts[0];
    let trap = culprit.trap.expect("it was a trap");
    let name = |address| symbols().at(address).map(|symbol| symbol.name.to_owned());
    let overflow = "monitor::services::crash::overflow";
    assert!(trap.scause == 15 && trap.stval.abs_diff(culprit.sp) < 4096, "{trap:x?}");
    assert!(name(trap.sepc).is_some_and(|name| name == overflow || name.contains("mem")), "{:?}", name(trap.sepc));
    // All but zero, and gp and tp, which the monitor's traps do not change.
    let known = culprit.registers.iter().filter(|register| register.is_some()).count();
    assert_eq!((known, culprit.registers[2]), (29, Some(culprit.sp)));
    let found = functions(&crash, 0);
    assert!(found.iter().filter(|name| *name == overflow).count() > 8, "{found:#?}");
}

/// With `on_panic = "restart"` the machine comes back, with the VMs that begin with it, and other VMs run.
#[test]
fn a_machine_is_started_again_after_a_panic() {
    let dir = ok(tempfile::tempdir());
    let options = ok(lab::rig::launch_options(dir.path()));
    let mut plan = rig("crash-again").into_plan();
    plan.on_panic = OnPanic::Restart;
    let machine = ok(Machine::launch(&plan, &options, |_| {}));
    let client = ok(machine.client()).with_timeout(WATCHDOG);
    wait_busy(&client);
    ok(client.panic(CpuIndex(1), PanicBy::Statement));
    let outcome = ended(&machine);
    let message = outcome.panic.expect("the log says so");
    plan.boot.options.restarts = Restarts::default().begin(Instant::now()).expect("it is the first");
    let machine = ok(machine.restart(&plan, &options, |_| {}));
    let client = ok(machine.client()).with_timeout(WATCHDOG);
    wait_busy(&client);
    let log = ok(std::fs::read_to_string(machine.dir().monitor_log()));
    assert!(log.contains("this machine was started again after a panic (restart 1)"), "{log}");
    assert_eq!(only_crash(&machine.dir().crash_log()).message(), message);
    let spec = probe("new", 1, "");
    ok(client.create_vm(spec.clone()));
    ok(client.start_vm(&spec.name));
    let stopped = |vm: &control::VmSummary| vm.reason.is_some();
    let summary = ok(machine::wait_for_vm(&client, &spec.name, WATCHDOG, stopped));
    assert_eq!(summary.reason, Some(control::StopReason::PowerOff));
    ok(client.shutdown());
    assert!(ended(&machine).is_orderly());
}
