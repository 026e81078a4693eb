//! Trials side by side, as far as that changes nothing of what they measure and the host has room for them.
//!
//! A machine in virtual time takes one core of the host and does not notice what else runs there. What is measured in the
//! host's time runs alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What an item needs while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing else may run.
    Alone,
    /// So much memory, in MiB.
    Memory(u64),
}

/// What there is for all items.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Items at a time.
    pub lanes: usize,
    /// Memory in MiB. One item that needs more runs all the same, while no other does.
    pub memory_mib: u64,
}

impl Room {
    /// A lane for each core of this host, and half of its memory. Where the host does not say, items run one by one.
    #[must_use]
    pub fn of_host() -> Self {
        let lanes = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { lanes, memory_mib: memory_mib().unwrap_or(0) / 2 }
    }
}

fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

/// What runs now.
#[derive(Default)]
struct State {
    next: usize,
    running: usize,
    is_alone: bool,
    memory_mib: u64,
    is_over: bool,
}

impl State {
    fn has_room(&self, need: Need, room: Room) -> bool {
        let fits = match need {
            Need::Alone => false,
            Need::Memory(mib) => self.memory_mib.saturating_add(mib) <= room.memory_mib && self.running < room.lanes,
        };
        self.running == 0 || (!self.is_alone && fits)
    }

    fn begin(&mut self, need: Need) {
        self.next += 1;
        self.running += 1;
        match need {
            Need::Alone => self.is_alone = true,
            Need::Memory(mib) => self.memory_mib += mib,
        }
    }

    fn end(&mut self, need: Need) {
        self.running -= 1;
        match need {
            Need::Alone => self.is_alone = false,
            Need::Memory(mib) => self.memory_mib -= mib,
        }
    }
}

/// Runs all items, begun in their order; their results in the same order.
///
/// # Errors
/// The first error that an item gave; items that had not begun then do not begin.
pub fn run<T: Sync, R: Send, E: Send>(
    items: &[T],
    room: Room,
    need: impl Fn(&T) -> Need + Sync,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let (state, changed) = (Mutex::new(State::default()), Condvar::new());
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let error = Mutex::new(None);
    let lane = || {
        while let Some(at) = take(&state, &changed, items, room, &need) {
            let mut running = Running { state: &state, changed: &changed, need: need(&items[at]), has_failed: true };
            match work(&items[at]) {
                Ok(result) => {
                    *lock(&results[at]) = Some(result);
                    running.has_failed = false;
                }
                Err(why) => _ = lock(&error).get_or_insert(why),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..room.lanes.clamp(1, items.len().max(1)) {
            scope.spawn(lane);
        }
    });
    match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(why),
        None => Ok(results.into_iter().filter_map(|slot| slot.into_inner().unwrap_or(None)).collect()),
    }
}

/// An item that runs; its end lets others begin, or none if it has failed. A panic is a failure, too: nobody may wait for its end.
struct Running<'a> {
    state: &'a Mutex<State>,
    changed: &'a Condvar,
    need: Need,
    has_failed: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = lock(self.state);
        state.end(self.need);
        state.is_over |= self.has_failed;
        self.changed.notify_all();
    }
}

/// The next item, once there is room for it.
fn take<T>(
    state: &Mutex<State>,
    changed: &Condvar,
    items: &[T],
    room: Room,
    need: &impl Fn(&T) -> Need,
) -> Option<usize> {
    let mut state = lock(state);
    loop {
        let at = state.next;
        let need = need(items.get(at).filter(|_| !state.is_over)?);
        if state.has_room(need, room) {
            state.begin(need);
            return Some(at);
        }
        state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Who panicked left nothing half done under these locks, and takes the run along when its thread is joined.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const ROOM: Room = Room { lanes: 3, memory_mib: 100 };

    /// The most that ran at a time, of items with these needs; each stays until the others had time to begin.
    fn most_at_once(needs: &[Need], room: Room) -> usize {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |need: &Need| {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::yield_now();
            if *need == Need::Alone {
                assert_eq!(now, 1, "another one ran beside it");
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ()>(())
        };
        assert_eq!(run(needs, room, |need| *need, work).map(|results| results.len()), Ok(needs.len()));
        most.load(Ordering::SeqCst)
    }

    #[test]
    fn as_many_run_at_a_time_as_there_are_lanes() {
        // Each waits for two others: this ends only if three run at a time.
        let together = Barrier::new(3);
        let work = |item: &usize| {
            together.wait();
            Ok::<_, ()>(*item)
        };
        assert_eq!(run(&[0, 1, 2, 3, 4, 5], ROOM, |_| Need::Memory(1), work), Ok(vec![0, 1, 2, 3, 4, 5]));
        assert!(most_at_once(&[Need::Memory(1); 40], ROOM) <= 3);
    }

    #[test]
    fn memory_is_not_given_twice() {
        assert!(most_at_once(&[Need::Memory(40); 40], ROOM) <= 2);
        assert_eq!(most_at_once(&[Need::Memory(1_000); 10], ROOM), 1, "too large for the host: one by one");
    }

    #[test]
    fn who_must_be_alone_is() {
        let needs: Vec<_> = (0..40).map(|n| if n % 3 == 0 { Need::Alone } else { Need::Memory(1) }).collect();
        most_at_once(&needs, ROOM);
    }

    #[test]
    fn a_panic_is_not_waited_for() {
        let panics = |_: &i32| -> Result<(), ()> { panic!("on purpose") };
        let outcome = std::panic::catch_unwind(|| run(&[0; 5], ROOM, |_| Need::Alone, panics));
        assert!(outcome.is_err());
    }

    #[test]
    fn an_error_ends_it() {
        let begun = AtomicUsize::new(0);
        let work = |item: &usize| {
            begun.fetch_add(1, Ordering::SeqCst);
            if *item == 2 { Err("two") } else { Ok(()) }
        };
        let one_by_one = Room { lanes: 1, ..ROOM };
        assert_eq!(run(&[0, 1, 2, 3, 4], one_by_one, |_| Need::Memory(1), work), Err("two"));
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }
}
