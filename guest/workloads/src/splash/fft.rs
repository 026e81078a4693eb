//! A complex Fourier transform in six steps: the numbers are a square matrix; threads transpose it, transform rows, and so on. A
//! transposition reads the parts of all other threads.

use super::memory::{Numbers, part};
use crate::random::Random;
use crate::{Barrier, Crew, Size};
use alloc::vec::Vec;

type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// A root of unity: e to the power of -2 pi i `of` / `n`.
fn root(of: usize, n: usize) -> Complex {
    let angle = -2.0 * core::f64::consts::PI * of as f64 / n as f64;
    (libm::cos(angle), libm::sin(angle))
}

/// A square matrix of complex numbers, row by row.
struct Square {
    numbers: Numbers,
    side: usize,
}

impl Square {
    fn new(side: usize) -> Self {
        Self { numbers: Numbers::zeros(2 * side * side), side }
    }

    fn get(&self, at: usize) -> Complex {
        (self.numbers.get(2 * at), self.numbers.get(2 * at + 1))
    }

    fn set(&self, at: usize, (re, im): Complex) {
        self.numbers.set(2 * at, re);
        self.numbers.set(2 * at + 1, im);
    }

    fn row(&self, row: usize) -> Vec<Complex> {
        (row * self.side..(row + 1) * self.side).map(|at| self.get(at)).collect()
    }

    /// This thread's rows of the transposed matrix, by squares that fit into a cache.
    fn transpose_to(&self, to: &Self, rows: core::ops::Range<usize>) {
        const TILE: usize = 8;
        for first in (0..self.side).step_by(TILE) {
            for row in rows.clone() {
                for column in first..(first + TILE).min(self.side) {
                    to.set(row * self.side + column, self.get(column * self.side + row));
                }
            }
        }
    }
}

/// What the input is, number by number.
fn input(at: usize) -> Complex {
    let mut random = Random::after(4, 2 * at as u64);
    (random.unit(), random.unit())
}

/// Runs the program: there, and back again.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let side = size.pick(64, 512_usize);
    let (data, other) = (Square::new(side), Square::new(side));
    let barrier = Barrier::new();
    let roots: Vec<Complex> = (0..side / 2).map(|of| root(of, side)).collect();
    crew.each(&|thread| {
        for at in part(side, thread, crew.threads()).flat_map(|row| row * side..(row + 1) * side) {
            data.set(at, input(at));
        }
        barrier.wait(crew);
        transform((&data, &other), thread, crew, &barrier, &roots);
    });
    let digest = other.numbers.digest();
    // The transform of the conjugate's is the conjugate, times the count.
    crew.each(&|thread| {
        for at in part(side, thread, crew.threads()).flat_map(|row| row * side..(row + 1) * side) {
            let (re, im) = other.get(at);
            other.set(at, (re, -im));
        }
        barrier.wait(crew);
        transform((&other, &data), thread, crew, &barrier, &roots);
    });
    let count = (side * side) as f64;
    let is_back = |at: usize| {
        let ((re, im), wanted) = (data.get(at), input(at));
        libm::fabs(re / count - wanted.0) < 1e-11 && libm::fabs(-im / count - wanted.1) < 1e-11
    };
    if (0..side * side).all(is_back) { digest } else { 0 }
}

/// All threads call it; `data` is lost.
fn transform((data, to): (&Square, &Square), thread: usize, crew: &dyn Crew, barrier: &Barrier, roots: &[Complex]) {
    let side = data.side;
    let rows = part(side, thread, crew.threads());
    data.transpose_to(to, rows.clone());
    barrier.wait(crew);
    for row in rows.clone() {
        let mut line = to.row(row);
        transform_line(&mut line, roots);
        for (column, number) in line.into_iter().enumerate() {
            to.set(row * side + column, times(number, root(row * column, side * side)));
        }
    }
    barrier.wait(crew);
    to.transpose_to(data, rows.clone());
    barrier.wait(crew);
    for row in rows.clone() {
        let mut line = data.row(row);
        transform_line(&mut line, roots);
        line.into_iter().enumerate().for_each(|(column, number)| data.set(row * side + column, number));
    }
    barrier.wait(crew);
    data.transpose_to(to, rows);
    barrier.wait(crew);
}

/// The transform of a line whose length is a power of two.
fn transform_line(line: &mut [Complex], roots: &[Complex]) {
    let n = line.len();
    let shift = usize::BITS - n.trailing_zeros();
    for at in 0..n {
        let mirrored = at.reverse_bits() >> shift;
        if at < mirrored {
            line.swap(at, mirrored);
        }
    }
    let mut half = 1;
    while half < n {
        let stride = n / (2 * half);
        for group in line.chunks_exact_mut(2 * half) {
            let (low, high) = group.split_at_mut(half);
            for (k, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let turned = times(*b, roots[k * stride]);
                (*a, *b) = ((a.0 + turned.0, a.1 + turned.1), (a.0 - turned.0, a.1 - turned.1));
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_transformed_as_by_definition() {
        let n = 16;
        let roots: Vec<_> = (0..n / 2).map(|of| root(of, n)).collect();
        let before: Vec<_> = (0..n).map(input).collect();
        let mut line = before.clone();
        transform_line(&mut line, &roots);
        for (k, number) in line.into_iter().enumerate() {
            let sum = before.iter().enumerate().fold((0.0, 0.0), |sum, (at, value)| {
                let term = times(*value, root(at * k, n));
                (sum.0 + term.0, sum.1 + term.1)
            });
            assert!((sum.0 - number.0).abs() < 1e-12 && (sum.1 - number.1).abs() < 1e-12);
        }
    }
}
