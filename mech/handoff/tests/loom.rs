//! The crate's own source under the model checker: every interleaving and every value that the memory model allows.
//!
//! A hart is modelled as its loop is: it silences its ring, takes the call, looks at requests, and sleeps until it is rung, if nobody has
//! called by then. A hart that sleeps with nothing that rings it again would sleep for ever, which loom reports as a deadlock.
#![allow(unreachable_pub, missing_docs, reason = "the crate's files are parts of a test here")]

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

    /// As the monitor's: locking cannot fail.
    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[path = "../src/bell.rs"]
mod bell;
#[path = "../src/debt.rs"]
mod debt;
#[path = "../src/file.rs"]
#[allow(dead_code, reason = "the monitor uses all of it")]
mod file;
#[path = "../src/life.rs"]
mod life;
#[path = "../src/requests.rs"]
#[allow(dead_code, reason = "the monitor uses all of it")]
mod requests;
#[path = "../src/waiters.rs"]
mod waiters;

use bell::Doorbell;
use debt::Debt;
use file::FilePlace;
use life::Life;
use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Condvar};
use loom::thread;
use requests::Requests;
use sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, fence};
use vcpu::hsm::{Change, HartState};
use vcpu::sbi::Entry;
use waiters::Waiters;

const SOFTWARE: u32 = 1;
const EXTERNAL: u32 = 2;
const FENCE: u32 = 4;

/// A hart: its doorbell, the pin that rings set, and the requests of its vCPU.
struct Hart {
    bell: Doorbell,
    /// The software interrupt, and who is woken up by it.
    pin: (loom::sync::Mutex<bool>, Condvar),
    requests: Requests,
}

impl Hart {
    fn new() -> Self {
        Self { bell: Doorbell::new(), pin: (loom::sync::Mutex::new(false), Condvar::new()), requests: Requests::new() }
    }

    fn ring(&self) {
        *self.pin.0.lock().unwrap() = true;
        self.pin.1.notify_one();
    }

    /// Somebody else's way.
    fn ask(&self, bits: u32) {
        self.requests.add(bits);
        self.bell.call(|| self.ring());
    }

    fn silence(&self) {
        *self.pin.0.lock().unwrap() = false;
    }

    /// As WFI: goes on when the pin is set.
    fn sleep(&self) {
        let mut is_set = self.pin.0.lock().unwrap();
        while !*is_set {
            is_set = self.pin.1.wait(is_set).unwrap();
        }
    }

    /// The hart's loop, until its vCPU was asked for all of `wanted`: `serve` does what is asked.
    fn run(&self, wanted: u32, mut serve: impl FnMut(u32)) {
        let mut served = 0;
        loop {
            self.silence();
            self.bell.take();
            let requests = self.requests.take();
            serve(requests);
            served |= requests;
            if served & wanted == wanted {
                return;
            }
            if !self.bell.is_called() {
                self.sleep();
            }
        }
    }
}

/// Where there are too many interleavings: those in which harts are interrupted so often at most.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(run);
}

fn two_ask(ask: impl Fn(&Hart, u32) + Copy + Send + Sync + 'static) {
    model(move || {
        let hart = Arc::new(Hart::new());
        let others: Vec<_> = [SOFTWARE, EXTERNAL]
            .map(|bit| {
                let hart = Arc::clone(&hart);
                thread::spawn(move || ask(&hart, bit))
            })
            .into();
        hart.run(SOFTWARE | EXTERNAL, |_| ());
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn no_request_is_missed_by_a_hart_that_sleeps() {
    two_ask(Hart::ask);
}

/// The checker is worth something only if it sees the bug: here the call comes before what it is about.
#[test]
#[should_panic]
fn a_call_before_its_request_is_caught() {
    two_ask(|hart, bits| {
        hart.bell.call(|| hart.ring());
        hart.requests.add(bits);
    });
}

/// Two start a hart that was never started, or stops at this moment: at most one of them may for each stop, and the hart begins where that
/// one said.
#[test]
fn a_stopped_hart_is_started_once_where_its_starter_said() {
    loom::model(|| {
        let life = Arc::new(Life::new());
        let won = Arc::new(AtomicUsize::new(0));
        let starters: Vec<_> = (1..3_u64)
            .map(|number| {
                let (life, won) = (Arc::clone(&life), Arc::clone(&won));
                thread::spawn(move || {
                    if life.claim_start(Entry { pc: number, opaque: 10 * number }).is_ok() {
                        won.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        // The owner looks, now and at the end.
        let mut begun = 0;
        let mut look = || {
            if life.state() == HartState::StartPending {
                let entry = life.entry();
                assert!(entry.pc != 0 && entry.opaque == 10 * entry.pc, "an entry of nobody: {entry:?}");
                life.change(Change::Begin);
                begun += 1;
                life.change(Change::AskStop);
                life.change(Change::Stop);
            }
        };
        look();
        starters.into_iter().for_each(|starter| starter.join().unwrap());
        look();
        assert_eq!(begun, won.load(Ordering::SeqCst), "starts that were granted, and those that were made");
        assert!(begun >= 1);
    });
}

/// A vCPU that is loaded while a fence of it is asked for: who asks goes on only when the vCPU has done it, or cannot execute before it has.
#[test]
fn nobody_goes_on_before_a_fence_that_is_owed() {
    loom::model(|| {
        let requests = Arc::new(Requests::new());
        let changed = Arc::new(AtomicU32::new(0));
        let owner = {
            let (requests, changed) = (Arc::clone(&requests), Arc::clone(&changed));
            thread::spawn(move || {
                // What its TLB would have.
                let seen = changed.load(Ordering::Relaxed);
                requests.set_loaded(true);
                let has_fenced = requests.take() & FENCE != 0;
                // It executes: with the old translation only if nobody can believe that it has fenced.
                (seen, has_fenced)
            })
        };
        changed.store(1, Ordering::Relaxed);
        requests.add(FENCE);
        let may_go_on = !requests.owes(FENCE);
        let (seen, has_fenced) = owner.join().unwrap();
        assert!(!may_go_on || seen == 1 || has_fenced, "it went on, and the vCPU executes with what was");
    });
}

/// A vCPU waits until a hart has left its VM: it sees that, or is told.
#[test]
fn who_waits_sees_that_a_hart_has_left_or_is_told() {
    loom::model(|| {
        let (waiters, is_inside) = (Arc::new(Waiters::new()), Arc::new(AtomicBool::new(true)));
        let leaving = {
            let (waiters, is_inside) = (Arc::clone(&waiters), Arc::clone(&is_inside));
            thread::spawn(move || {
                is_inside.store(false, Ordering::Release);
                fence(Ordering::SeqCst);
                let mut told = Vec::new();
                waiters.take(|number| told.push(number));
                told
            })
        };
        waiters.note(3);
        let has_seen = !is_inside.load(Ordering::Acquire);
        let told = leaving.join().unwrap();
        assert!(has_seen || told == [3], "it waits for ever");
    });
}

/// The other order is a bug, and is seen.
#[test]
#[should_panic]
fn a_look_before_the_note_is_caught() {
    loom::model(|| {
        let (waiters, is_inside) = (Arc::new(Waiters::new()), Arc::new(AtomicBool::new(true)));
        let leaving = {
            let (waiters, is_inside) = (Arc::clone(&waiters), Arc::clone(&is_inside));
            thread::spawn(move || {
                is_inside.store(false, Ordering::Release);
                fence(Ordering::SeqCst);
                let mut told = Vec::new();
                waiters.take(|number| told.push(number));
                told
            })
        };
        let has_seen = !is_inside.load(Ordering::Acquire);
        waiters.note(3);
        let told = leaving.join().unwrap();
        assert!(has_seen || told == [3], "it waits for ever");
    });
}

/// A file of the hardware: identities that are pending.
#[derive(Default)]
struct Hardware(AtomicU64);

/// Two devices send while the file moves to the hardware and back. Each message is there once in the end, and the hart was told of those in
/// software.
#[test]
fn no_message_is_lost_or_doubled_when_a_file_moves() {
    model(|| {
        let hart = Arc::new(Hart::new());
        let hardware = Arc::new(Hardware(AtomicU64::new(0)));
        let place = Arc::new(Mutex::new(FilePlace::<(), u64>::new(0)));
        let senders: Vec<_> = [1_u64, 2]
            .map(|identity| {
                let (hart, hardware, place) = (Arc::clone(&hart), Arc::clone(&hardware), Arc::clone(&place));
                thread::spawn(move || {
                    let is_software = place.lock().send(
                        |()| _ = hardware.0.fetch_or(identity, Ordering::Relaxed),
                        |software| *software |= identity,
                    );
                    if is_software {
                        hart.ask(EXTERNAL);
                    }
                })
            })
            .into();
        place.lock().settle((), 0, |software| hardware.0.store(*software, Ordering::Relaxed));
        assert_eq!(*place.lock().software(), 0, "what is in the hardware does not interrupt from software");
        place.lock().evacuate(|| hardware.0.swap(0, Ordering::Relaxed));
        // The owner looks at its file whenever it has moved to software, and when it is asked.
        let mut known = *place.lock().software();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        if hart.requests.take() & EXTERNAL != 0 {
            assert!(hart.bell.take(), "it was called for it");
            known |= *place.lock().software();
        }
        assert_eq!((*place.lock().software(), known, hardware.0.load(Ordering::Relaxed)), (3, 3, 0));
    });
}

#[test]
fn no_tick_of_a_debt_is_lost_or_paid_twice() {
    loom::model(|| {
        let debt = Arc::new(Debt::new());
        let adder = {
            let debt = debt.clone();
            thread::spawn(move || debt.add(5, 100))
        };
        let taker = {
            let debt = debt.clone();
            thread::spawn(move || debt.take(3))
        };
        debt.add(7, 100);
        let here = debt.take(4);
        adder.join().unwrap();
        let there = taker.join().unwrap();
        assert!(here <= 4 && there <= 3);
        assert_eq!(here + there + debt.take(u64::MAX), 12);
        assert_eq!(debt.take(u64::MAX), 0);
    });
}

#[test]
fn a_debt_stops_growing() {
    loom::model(|| {
        let debt = Debt::new();
        (0..10).for_each(|_| debt.add(40, 100));
        assert_eq!(debt.take(u64::MAX), 120);
        // However long one step was.
        debt.add(u64::MAX, 100);
        assert_eq!(debt.take(u64::MAX), 100);
    });
}
