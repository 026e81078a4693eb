//! Workload `compute`: a mix that needs a processor and little memory. Each job hashes, multiplies matrices, sorts and
//! looks for primes; the threads take jobs until there are none.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::random::Random;
use crate::{Crew, Size};

/// What one job consists of.
#[derive(Clone, Copy, Debug)]
struct Job {
    hashed_bytes: usize,
    matrix: usize,
    sorted: usize,
    primes_below: u32,
}

const JOB: Job = Job { hashed_bytes: 128 << 10, matrix: 64, sorted: 1 << 14, primes_below: 6000 };

/// Runs the workload.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    run_jobs(crew, size.pick(16, 256), JOB)
}

/// The result that it must have.
pub const fn expected(size: Size) -> u64 {
    size.pick(0xfd51_d3f9_9004_7ed9, 0xacee_e454_ac8b_b0b1)
}

fn run_jobs(crew: &dyn Crew, jobs: usize, job: Job) -> u64 {
    let (next, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
    crew.each(&|_| {
        loop {
            // Relaxed: only the numbers themselves are shared; `each` orders the end.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= jobs {
                return;
            }
            sum.fetch_add(run_job(job, number as u64), Ordering::Relaxed);
        }
    });
    sum.into_inner()
}

fn run_job(job: Job, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut digest = Digest::default();
    digest.add(hash(&mut random, job.hashed_bytes));
    digest.add(multiply(&mut random, job.matrix));
    digest.add(sort(&mut random, job.sorted));
    digest.add(count_primes(job.primes_below));
    digest.value()
}

fn hash(random: &mut Random, bytes: usize) -> u64 {
    let block: Vec<u8> = (0..4096).map(|_| random.draw() as u8).collect();
    let mut hasher = Sha256::new();
    for _ in 0..bytes / block.len() {
        hasher.update(&block);
    }
    hasher.finalize().iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn multiply(random: &mut Random, order: usize) -> u64 {
    let mut matrix = || -> Vec<f64> { (0..order * order).map(|_| random.unit()).collect() };
    let (left, right) = (matrix(), matrix());
    let mut product = vec![0.0_f64; order * order];
    for (row, out) in left.chunks_exact(order).zip(product.chunks_exact_mut(order)) {
        for (factor, line) in row.iter().zip(right.chunks_exact(order)) {
            for (sum, value) in out.iter_mut().zip(line) {
                *sum += factor * value;
            }
        }
    }
    let mut digest = Digest::default();
    product.iter().for_each(|value| digest.add(value.to_bits()));
    digest.value()
}

fn sort(random: &mut Random, count: usize) -> u64 {
    let mut values: Vec<u64> = (0..count).map(|_| random.draw()).collect();
    values.sort_unstable();
    let mut digest = Digest::default();
    values.iter().for_each(|value| digest.add(*value));
    digest.value()
}

/// By trial division, as sysbench does it.
fn count_primes(limit: u32) -> u64 {
    let is_prime = |number: &u32| (2..).take_while(|t| t * t <= *number).all(|t| !number.is_multiple_of(t));
    (3..limit).filter(is_prime).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::tests::HostCrew;

    #[test]
    fn results_are_the_known_ones_however_many_threads_there_are() {
        for size in [Size::Small, Size::Full] {
            assert_eq!(run(&HostCrew(3), size), expected(size), "{size:?}");
        }
        assert_eq!(run(&HostCrew(1), Size::Small), expected(Size::Small));
    }

    #[test]
    fn primes_are_counted() {
        // 2 is left out, as sysbench does.
        assert_eq!(count_primes(100), 24);
    }
}
