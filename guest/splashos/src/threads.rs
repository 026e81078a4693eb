//! Threads: at most one on each vCPU. The first vCPU runs the program itself; the others wait until they are given work.
//
// UNSAFETY: work of a thread that outlives no borrow is handed over as an address.
#![expect(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use workloads::Crew;

use crate::machine::MAX_VCPUS;
use crate::platform;

/// What a thread does, with its argument.
pub type Work = extern "C" fn(usize);

/// Nobody uses the vCPU.
const FREE: u32 = 0;
/// Somebody is about to say what it does.
const TAKEN: u32 = 1;
/// It has work.
const READY: u32 = 2;
/// It is done; nobody has asked yet.
const DONE: u32 = 3;

/// A vCPU's work.
struct Slot {
    state: AtomicU32,
    work: AtomicUsize,
    argument: AtomicUsize,
}

static SLOTS: [Slot; MAX_VCPUS] =
    [const { Slot { state: AtomicU32::new(FREE), work: AtomicUsize::new(0), argument: AtomicUsize::new(0) } };
        MAX_VCPUS];

/// Why a thread cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// There is no such vCPU for threads: the first one runs the program itself.
    NoVcpu,
    /// It has a thread already, or one that nobody has waited for.
    Busy,
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoVcpu => "there is no such vCPU for threads",
            Self::Busy => "the vCPU has a thread already",
        })
    }
}

/// Starts a thread on vCPU `vcpu`, from 1 on.
///
/// # Errors
/// [`StartError`].
pub fn start(vcpu: usize, work: Work, argument: usize) -> Result<(), StartError> {
    let slot = SLOTS.get(vcpu).filter(|_| (1..platform::vcpus()).contains(&vcpu)).ok_or(StartError::NoVcpu)?;
    // Acquire: what the last thread did here is over.
    slot.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).map_err(|_| StartError::Busy)?;
    slot.work.store(work as *const () as usize, Ordering::Relaxed);
    slot.argument.store(argument, Ordering::Relaxed);
    // Release: the thread sees its work, and all that was done before.
    slot.state.store(READY, Ordering::Release);
    platform::offer(vcpu, &slot.state);
    Ok(())
}

/// Waits until the thread of vCPU `vcpu` is done, if it has one, and frees the vCPU. One thread may wait for each.
pub fn join(vcpu: usize) {
    let Some(slot) = SLOTS.get(vcpu) else { return };
    loop {
        // Acquire: what the thread did is seen.
        match slot.state.load(Ordering::Acquire) {
            FREE => return,
            DONE => return slot.state.store(FREE, Ordering::Release),
            state => platform::sleep_while(&slot.state, state),
        }
    }
}

/// Waits for work on vCPU `vcpu`, and does it.
pub(crate) fn serve(vcpu: usize) {
    let Some(slot) = SLOTS.get(vcpu) else { return };
    loop {
        match slot.state.load(Ordering::Acquire) {
            READY => break,
            state => platform::sleep_while(&slot.state, state),
        }
    }
    // SAFETY: `start` stored a `Work` before it made the slot ready.
    let work = unsafe { core::mem::transmute::<usize, Work>(slot.work.load(Ordering::Relaxed)) };
    work(slot.argument.load(Ordering::Relaxed));
    slot.state.store(DONE, Ordering::Release);
    platform::wake_all(&slot.state);
}

/// One thread on each of the first vCPUs, the caller's among them.
#[derive(Clone, Copy, Debug)]
pub struct Vcpus {
    threads: usize,
}

impl Vcpus {
    /// All vCPUs.
    pub fn all() -> Self {
        Self { threads: platform::vcpus() }
    }

    /// The first `threads` vCPUs; `None` if there are fewer, or `threads` is 0.
    pub fn first(threads: usize) -> Option<Self> {
        (1..=platform::vcpus()).contains(&threads).then_some(Self { threads })
    }

    /// Threads that C has started, as far as barriers are concerned.
    pub(crate) const fn party(threads: usize) -> Self {
        Self { threads }
    }
}

/// What a thread of [`Vcpus::each`] is told.
#[derive(Clone, Copy)]
struct Each<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    index: usize,
}

extern "C" fn run_each(argument: usize) {
    // SAFETY: `each` lends it until it has waited for this thread.
    let each = unsafe { &*(argument as *const Each<'_>) };
    (each.work)(each.index);
}

impl Crew for Vcpus {
    fn threads(&self) -> usize {
        self.threads
    }

    fn each(&self, work: &(dyn Fn(usize) + Sync)) {
        let each: [Each<'_>; MAX_VCPUS] = core::array::from_fn(|index| Each { work, index });
        // Thread k is on vCPU k, each time.
        for (vcpu, of_vcpu) in each.iter().enumerate().take(self.threads).skip(1) {
            if let Err(error) = start(vcpu, run_each, core::ptr::from_ref(of_vcpu).cast::<()>() as usize) {
                panic!("thread {vcpu}: {error}");
            }
        }
        work(0);
        (1..self.threads).for_each(join);
    }

    fn sleep_while(&self, word: &AtomicU32, value: u32) {
        platform::sleep_while(word, value);
    }

    fn wake_all(&self, word: &AtomicU32) {
        platform::wake_all(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run at the same time, and there is one set of vCPUs.
    pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn each_thread_has_its_number_and_all_are_waited_for() {
        let _alone = ALONE.lock();
        let crew = Vcpus::first(3).unwrap();
        let counts = [const { AtomicU32::new(0) }; 3];
        for round in 1..=50 {
            crew.each(&|index| {
                counts[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round));
        }
    }

    #[test]
    fn busy_and_missing_vcpus_are_refused() {
        extern "C" fn wait(word: usize) {
            // SAFETY: the test lends the word until it has waited for the thread.
            let word = unsafe { &*(word as *const AtomicU32) };
            while word.load(Ordering::Acquire) == 0 {
                platform::sleep_while(word, 0);
            }
        }
        let _alone = ALONE.lock();
        let word = AtomicU32::new(0);
        let place = core::ptr::from_ref(&word) as usize;
        assert_eq!(start(0, wait, place), Err(StartError::NoVcpu));
        assert_eq!(start(platform::vcpus(), wait, place), Err(StartError::NoVcpu));
        assert_eq!(start(1, wait, place), Ok(()));
        assert_eq!(start(1, wait, place), Err(StartError::Busy));
        word.store(1, Ordering::Release);
        platform::wake_all(&word);
        join(1);
        assert_eq!(start(1, wait, place), Ok(()));
        join(1);
        join(1);
        assert!(Vcpus::first(0).is_none() && Vcpus::first(platform::vcpus() + 1).is_none());
    }
}
