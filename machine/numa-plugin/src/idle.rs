//! Time while all harts wait.

use std::ffi::c_void;
use std::thread;
use std::time::{Duration, Instant};

use model_file::at;

use crate::state::model;
use crate::time::machine_ns;
use crate::{gates, hooks};

/// How long the host is given to finish input or output for the machine before time jumps.
const IO_PATIENCE: Duration = Duration::from_millis(20);
/// A timer that is further away than this is one that somebody set to the end of time: 34 years.
const NEVER_NS: u64 = 1 << 60;

/// Passes time until a hart has something to do. Runs on the harts' thread, outside of translated code, with the lock.
pub extern "C" fn pass_time(_: *mut c_void, _: usize) {
    while model().clocks.slowest().is_none() && hooks().all_idle() {
        // A disk server answers when it sees that its time has come.
        model().machine.shared().set(at::NOW, machine_ns() as u64 * 1000);
        let timer_ns = hooks().next_timer_ns().filter(|rest_ns| *rest_ns < NEVER_NS);
        let held_ns = gates::limit_ps(model().machine.shared());
        let held_ns = held_ns.map(|limit_ps| (limit_ps / 1000).saturating_sub(machine_ns() as u64));
        // With neither, only something from outside can go on from here, and the emulator waits for that.
        let Some(rest_ns) = [timer_ns, held_ns].into_iter().flatten().min() else { return };
        let is_held = held_ns == Some(rest_ns);
        let to_ns = if model().is_on { jump(rest_ns, is_held) } else { pace(rest_ns, is_held) };
        if let Some(to_ns) = to_ns {
            // Without a timer up to then the clock does not move by itself.
            hooks().run_timers(to_ns);
            crate::time::set_machine(to_ns);
        }
    }
}

/// To the next timer, or as far as a disk lets time go, at once, unless a hart is woken meanwhile.
fn jump(rest_ns: u64, is_held: bool) -> Option<i64> {
    if is_held && rest_ns == 0 {
        wait(gates::LOOK);
        return None;
    }
    if !servers_have_seen() {
        return None;
    }
    // The main loop has input for the machine, or what it asked for: signals, consoles, networks.
    let patience = if std::mem::take(&mut model().io_is_due) { IO_PATIENCE } else { Duration::ZERO };
    if wait(patience) {
        // There may be more to come.
        model().io_is_due = patience > Duration::ZERO;
        return None;
    }
    Some(machine_ns() + rest_ns.max(u64::from(!is_held)) as i64)
}

/// Waits until the disk servers know of all requests. `false`: somebody has woken a hart, or has set a limit.
fn servers_have_seen() -> bool {
    let shared = *model().machine.shared();
    let start = Instant::now();
    let mut has_waited = false;
    while gates::are_behind(&shared) {
        if start.elapsed() > gates::PATIENCE {
            gates::give_up(&shared);
            break;
        }
        has_waited = true;
        if wait(gates::LOOK) {
            return false;
        }
    }
    !has_waited
}

/// To the next timer at the host's pace, as an emulator without model.
fn pace(rest_ns: u64, is_held: bool) -> Option<i64> {
    let start = Instant::now();
    let wanted = Duration::from_nanos(rest_ns);
    let woken = wait(if is_held { wanted.max(gates::LOOK) } else { wanted });
    let passed_ns = start.elapsed().as_nanos() as u64;
    let rest_ns = rest_ns.max(u64::from(!is_held));
    Some(machine_ns() + if woken { passed_ns.min(rest_ns) } else { rest_ns } as i64)
}

/// Lets others work for some time; tells whether a hart was woken.
fn wait(patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        hooks().unlocked(|| {
            hooks().wake_main_loop();
            if patience > Duration::ZERO {
                thread::sleep(gates::LOOK.min(patience));
            } else {
                thread::yield_now();
            }
        });
        if !hooks().all_idle() {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
    }
}
