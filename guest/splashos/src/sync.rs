//! Locks and conditions whose waiters sleep.
//
// UNSAFETY: a lock gives access to what it guards.
#![expect(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::platform;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

/// A lock around a value. `anl.h` knows its layout.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Mutex<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value, and holders follow each other.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to a locked value; dropped, it lets the lock go.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Guard<'_, T> {
        self.acquire();
        Guard { lock: self }
    }

    /// Waits for the lock, which whoever calls [`Mutex::release`] lets go: for C, which has no guards.
    pub(crate) fn acquire(&self) {
        // Acquire: what the last holder did is seen.
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            platform::sleep_while(&self.state, AWAITED);
        }
    }

    /// Lets the lock go.
    pub(crate) fn release(&self) {
        // Release: the next holder sees what this one did.
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            platform::wake_all(&self.state);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard's holder has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed for as long.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

/// Something that is waited for under a lock.
#[derive(Debug, Default)]
pub struct Condition {
    round: AtomicU32,
}

impl Condition {
    /// A condition that nobody waits for.
    pub const fn new() -> Self {
        Self { round: AtomicU32::new(0) }
    }

    /// Lets the lock go, waits for [`Condition::notify_all`], and takes the lock again. It may come back without reason: look at
    /// what is waited for, and wait again.
    pub fn wait<'a, T>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
        let lock = guard.lock;
        // Read under the lock: a notice that comes after the lock is free is not missed.
        let round = self.round.load(Ordering::Relaxed);
        drop(guard);
        platform::sleep_while(&self.round, round);
        lock.lock()
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        // The lock orders what is waited for; the word only changes.
        self.round.fetch_add(1, Ordering::Relaxed);
        platform::wake_all(&self.round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_follow_each_other() {
        let sum = Mutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *sum.lock() += 1));
            }
        });
        assert_eq!(*sum.lock(), 4000);
    }

    #[test]
    fn who_waits_sees_what_came() {
        let (queue, came) = (Mutex::new(Vec::new()), Condition::new());
        let taken: u32 = std::thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                let mut taken = 0;
                for _ in 0..300 {
                    let mut guard = queue.lock();
                    while guard.is_empty() {
                        guard = came.wait(guard);
                    }
                    taken += guard.pop().unwrap_or(0);
                }
                taken
            });
            for number in 0..300 {
                queue.lock().push(number);
                came.notify_all();
            }
            consumer.join().unwrap()
        });
        assert_eq!(taken, 299 * 300 / 2);
    }
}
