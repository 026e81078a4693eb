//! Workload `radix`: the parallel radix sort of SPLASH-2. Each thread counts the digits of its part of the keys, all
//! agree where each thread's keys of each digit go, and each moves its own: scattered writes to memory that all share.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::digest::Digest;
use crate::random::Random;
use crate::{Barrier, Crew, Size};

const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
/// How often keys move: once for each of their digits.
pub const PASSES: u32 = 32_u32.div_ceil(DIGIT_BITS);

/// Runs the workload. 0 = the keys are not sorted.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let mut random = Random::new(1);
    let keys = (0..size.pick(512 << 10, 4 << 20)).map(|_| AtomicU32::new(random.draw() as u32)).collect();
    let sorted = sort(crew, keys);
    let mut digest = Digest::default();
    let mut last = 0;
    for key in sorted.iter().map(|key| key.load(Ordering::Relaxed)) {
        if key < last {
            return 0;
        }
        last = key;
        digest.add(u64::from(key));
    }
    digest.value()
}

/// The result that it must have.
pub const fn expected(size: Size) -> u64 {
    size.pick(0x7a08_daa7_addc_7c0e, 0xb047_bac6_58be_3d84)
}

/// Sorts. Keys are atomic only because threads share them: every access is relaxed, a plain load or store; the barriers
/// order them, and no two threads write one place between two barriers.
fn sort(crew: &dyn Crew, keys: Vec<AtomicU32>) -> Vec<AtomicU32> {
    let zeros = |count: usize| -> Vec<AtomicU32> { (0..count).map(|_| AtomicU32::new(0)).collect() };
    let other = zeros(keys.len());
    let counts = tables(crew.threads());
    let barrier = Barrier::new();
    crew.each(&|thread| {
        let (mut from, mut to) = (&keys, &other);
        for pass in 0..PASSES {
            sort_pass(thread, crew, pass, (from, to), &counts, &barrier);
            core::mem::swap(&mut from, &mut to);
        }
    });
    if PASSES.is_multiple_of(2) { keys } else { other }
}

/// The counts of each digit of each thread.
pub fn tables(threads: usize) -> Vec<AtomicU32> {
    (0..threads * DIGITS).map(|_| AtomicU32::new(0)).collect()
}

/// Moves the keys of this thread to where their digits of pass `pass` want them. All threads call it.
pub fn sort_pass(
    thread: usize,
    crew: &dyn Crew,
    pass: u32,
    (from, to): (&[AtomicU32], &[AtomicU32]),
    counts: &[AtomicU32],
    barrier: &Barrier,
) {
    let (threads, shift) = (crew.threads(), pass * DIGIT_BITS);
    let mine = &from[from.len() * thread / threads..from.len() * (thread + 1) / threads];
    let digit = |key: u32| (key >> shift) as usize % DIGITS;
    let row = &counts[thread * DIGITS..(thread + 1) * DIGITS];
    row.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    for key in mine {
        let count = &row[digit(key.load(Ordering::Relaxed))];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    barrier.wait(crew);
    let mut places = first_places(thread, threads, counts);
    for key in mine {
        let key = key.load(Ordering::Relaxed);
        let place = &mut places[digit(key)];
        to[*place as usize].store(key, Ordering::Relaxed);
        *place += 1;
    }
    barrier.wait(crew);
}

/// Where this thread's first key of each digit goes: behind all keys of smaller digits, and those of the same digit of
/// threads before it.
fn first_places(thread: usize, threads: usize, counts: &[AtomicU32]) -> Vec<u32> {
    let mut place = 0;
    let of_digit = |digit: usize| {
        let mut mine = place;
        for other in 0..threads {
            let count = counts[other * DIGITS + digit].load(Ordering::Relaxed);
            mine += if other < thread { count } else { 0 };
            place += count;
        }
        mine
    };
    (0..DIGITS).map(of_digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::tests::HostCrew;

    #[test]
    fn keys_are_sorted_as_the_library_sorts() {
        for threads in [1, 3] {
            let mut random = Random::new(5);
            let mut keys: Vec<u32> = (0..10_007).map(|_| random.draw() as u32).collect();
            let sorted = sort(&HostCrew(threads), keys.iter().copied().map(AtomicU32::new).collect());
            keys.sort_unstable();
            assert!(sorted.into_iter().map(AtomicU32::into_inner).eq(keys));
        }
    }

    #[test]
    fn results_are_the_known_ones() {
        for size in [Size::Small, Size::Full] {
            assert_eq!(run(&HostCrew(3), size), expected(size), "{size:?}");
        }
    }
}
