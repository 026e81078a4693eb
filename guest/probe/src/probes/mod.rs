//! The checks. Each is a function that says why it failed.

mod counters;
mod devices;
pub mod double_traps;
mod events;
mod features;
mod harts;
mod hostile_calls;
mod interrupts;
mod memory;
mod registers;
mod sbi_calls;
mod suspend;

use crate::{attacks, console::println, cpu, entry::SEEN, figures, tree::Machine};
use core::sync::atomic::Ordering;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The behaviour is wrong.
    Wrong(&'static str),
    /// The machine lacks what the probe is about.
    Skipped(&'static str),
}

/// What a probe returns.
pub type Outcome = Result<(), Failure>;

type Probe = fn(&Machine, u64) -> Outcome;

const PROBES: &[(&str, Probe)] = &[
    ("sbi-base", sbi_calls::base),
    ("sbi-errors", sbi_calls::errors),
    ("sbi-time", sbi_calls::time),
    ("sbi-console", sbi_calls::console),
    ("sbi-steal", sbi_calls::steal_time),
    ("sbi-steal-restart", sbi_calls::steal_over_restart),
    ("sbi-reset", sbi_calls::reset_errors),
    ("sbi-counters", counters::all),
    ("timer", interrupts::timer),
    ("wfi-timer", interrupts::wfi_timer),
    ("ipi", interrupts::ipi),
    ("imsic", interrupts::imsic),
    ("user-imsic", interrupts::imsic_of_user_mode),
    ("pending-over-restart", interrupts::pending_over_restart),
    ("hsm", harts::start_stop),
    ("hsm-errors", harts::start_errors),
    ("suspend", harts::suspend),
    ("suspend-states", suspend::states),
    ("suspend-awake", suspend::awake),
    ("system-suspend", suspend::system),
    ("features", features::values),
    ("pointer-masking", features::masking),
    ("events", events::nested),
    ("events-remote", events::remote),
    ("double-traps", double_traps::event),
    ("hostile-calls", hostile_calls::all),
    ("rfence", harts::remote_fence),
    ("all-harts", harts::everybody),
    ("fp", registers::floating_point),
    ("vector", registers::vector),
    ("all-registers", registers::on_all_harts),
    ("vector-disk", registers::vector_and_disk),
    ("memory", memory::zeroed_and_kept),
    ("reporting", memory::page_reporting),
    ("wild-mmio", devices::wild),
    ("illegal-csr", devices::illegal_csr),
    ("unswitched-csr", devices::unswitched_csr),
    ("devices", devices::virtio_slots),
    ("uart", devices::uart),
    ("rtc", devices::rtc),
    ("interrupt-controller", devices::interrupt_controller),
    ("virtio-registers", devices::virtio_registers),
    ("entropy", devices::entropy),
];

/// Runs what the command line selects.
pub fn run(hart: u64, machine: &Machine) {
    if let Some(attack) = argument(machine, "attack=") {
        attacks::run(attack, machine);
        return;
    }
    if let Some(script) = argument(machine, "disk=") {
        crate::disk::run(script);
        return;
    }
    if let Some(figure) = argument(machine, "figure=") {
        let number = |key| argument(machine, key).and_then(|text| text.parse().ok());
        let count = number("n=").unwrap_or(1_000);
        figures::clock::count_by_time(number("ticks=").unwrap_or(0));
        figure.split(',').for_each(|figure| figures::run(figure, machine, hart, count));
        if machine.bootargs.split(' ').any(|word| word == "stay") {
            // The host wants to read this VM's counters, which go with it.
            figures::run("idle", machine, hart, 1);
        }
        return;
    }
    let selected = argument(machine, "probe=");
    let (mut passed, mut failed) = (0, 0);
    for (name, probe) in PROBES {
        if selected.is_some_and(|list| !list.split(',').any(|wanted| wanted == *name)) {
            continue;
        }
        match probe(machine, hart) {
            Ok(()) => {
                passed += 1;
                println!("PROBE {name} ok");
            }
            Err(Failure::Skipped(why)) => println!("PROBE {name} skipped: {why}"),
            Err(Failure::Wrong(why)) => {
                failed += 1;
                println!("PROBE {name} FAILED: {why}");
            }
        }
    }
    println!("PROBES passed={passed} failed={failed}");
}

/// The value of `key` (which ends with `=`) on the command line.
pub fn argument(machine: &Machine, key: &str) -> Option<&'static str> {
    machine.bootargs.split(' ').find_map(|word| word.strip_prefix(key))
}

fn check(condition: bool, why: &'static str) -> Outcome {
    if condition { Ok(()) } else { Err(Failure::Wrong(why)) }
}

const fn skip(why: &'static str) -> Outcome {
    Err(Failure::Skipped(why))
}

/// Longest wait in ticks, 60 seconds: only a watchdog, a machine that shares its host with others may stand still long.
const WATCHDOG: u64 = 600_000_000;

/// Waits for `condition`; false if it does not come to hold.
pub fn wait_for(condition: impl Fn() -> bool) -> bool {
    let begin = cpu::time();
    while !condition() {
        if cpu::time() - begin > WATCHDOG {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

/// Does something that may trap; the cause if it did.
fn exception_of(hart: u64, act: impl Fn()) -> Option<u64> {
    let seen = &SEEN[hart as usize];
    seen.exception.store(u64::MAX, Ordering::SeqCst);
    seen.expect.store(1, Ordering::SeqCst);
    act();
    seen.expect.store(0, Ordering::SeqCst);
    let cause = seen.exception.load(Ordering::SeqCst);
    (cause != u64::MAX).then_some(cause)
}
