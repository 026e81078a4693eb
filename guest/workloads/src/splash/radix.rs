//! A radix sort: each thread counts the digits of its part of the keys, all agree where each thread's keys of each digit go, and
//! each moves its own: scattered writes to memory of all nodes.

use core::sync::atomic::Ordering;

use super::memory::{part, words};
use crate::digest::Digest;
use crate::radix::{PASSES, sort_pass, tables};
use crate::random::Random;
use crate::{Barrier, Crew, Size};

/// Runs the program.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let count = size.pick(1 << 20, 4 << 20);
    let (keys, other, counts) = (words(count), words(count), tables(crew.threads()));
    let barrier = Barrier::new();
    crew.each(&|thread| {
        let mine = part(count, thread, crew.threads());
        let mut random = Random::after(1, mine.start as u64);
        keys[mine].iter().for_each(|key| key.store(random.draw() as u32, Ordering::Relaxed));
        barrier.wait(crew);
        let (mut from, mut to) = (&keys, &other);
        for pass in 0..PASSES {
            sort_pass(thread, crew, pass, (from, to), &counts, &barrier);
            core::mem::swap(&mut from, &mut to);
        }
    });
    let sorted = if PASSES.is_multiple_of(2) { &keys } else { &other };
    // In order, and with the sum that the keys have: a digest of the whole would be most of the program's time on one thread.
    let (disorder, sum) = (words(crew.threads()), [const { core::sync::atomic::AtomicU64::new(0) }; 2]);
    crew.each(&|thread| {
        let mine = part(count, thread, crew.threads());
        let mut random = Random::after(1, mine.start as u64);
        let before = sorted[mine.start.saturating_sub(1)].load(Ordering::Relaxed);
        let (mut last, mut of_sorted, mut of_keys) = (before, 0_u64, 0_u64);
        for (at, key) in mine.clone().zip(sorted[mine.clone()].iter()) {
            let key = key.load(Ordering::Relaxed);
            disorder[thread].fetch_add(u32::from(key < last), Ordering::Relaxed);
            last = key;
            of_sorted = of_sorted.wrapping_add(u64::from(key).wrapping_mul(at as u64 | 1));
            of_keys = of_keys.wrapping_add(u64::from(random.draw() as u32)).wrapping_sub(u64::from(key));
        }
        sum[0].fetch_add(of_sorted, Ordering::Relaxed);
        sum[1].fetch_add(of_keys, Ordering::Relaxed);
    });
    let [of_sorted, difference] = sum.map(|sum| sum.into_inner());
    if difference != 0 || disorder.iter().any(|count| count.load(Ordering::Relaxed) != 0) {
        return 0;
    }
    let mut digest = Digest::default();
    digest.add(of_sorted);
    digest.value()
}
