//! LU factorization of a dense matrix by blocks, without pivots. A block lies together in memory, belongs to one thread, and all
//! its updates come in the order of the steps.

use super::memory::Numbers;
use crate::random::Random;
use crate::{Barrier, Crew, Size};

/// Rows and columns of a block.
const B: usize = 16;
/// A block's numbers.
const BB: usize = B * B;

/// A matrix of `blocks` by `blocks` blocks.
struct Matrix {
    numbers: Numbers,
    blocks: usize,
}

type Block = [[f64; B]; B];

impl Matrix {
    fn place(&self, row: usize, column: usize) -> usize {
        (row * self.blocks + column) * BB
    }

    fn load(&self, row: usize, column: usize) -> Block {
        let at = self.place(row, column);
        core::array::from_fn(|i| core::array::from_fn(|j| self.numbers.get(at + i * B + j)))
    }

    fn store(&self, row: usize, column: usize, block: &Block) {
        let at = self.place(row, column);
        for (i, line) in block.iter().enumerate() {
            line.iter().enumerate().for_each(|(j, number)| self.numbers.set(at + i * B + j, *number));
        }
    }

    fn get(&self, row: usize, column: usize) -> f64 {
        self.numbers.get(self.place(row / B, column / B) + row % B * B + column % B)
    }
}

/// What the matrix is before.
fn original(n: usize, row: usize, column: usize) -> f64 {
    let random = Random::after(9, (row * n + column) as u64).unit();
    // Large on the diagonal: no pivots are needed.
    if row == column { n as f64 + random } else { random }
}

/// Runs the program.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let n = size.pick(192, 512);
    let (blocks, threads) = (n / B, crew.threads());
    let matrix = Matrix { numbers: Numbers::zeros(n * n), blocks };
    let barrier = Barrier::new();
    let owner = |row: usize, column: usize| (row + column * 3) % threads;
    crew.each(&|thread| {
        let mine = |row: usize, column: usize| owner(row, column) == thread;
        let own = (0..blocks).flat_map(|row| (0..blocks).map(move |column| (row, column)));
        for (row, column) in own.filter(|(row, column)| mine(*row, *column)) {
            let block = core::array::from_fn(|i| core::array::from_fn(|j| original(n, row * B + i, column * B + j)));
            matrix.store(row, column, &block);
        }
        barrier.wait(crew);
        for step in 0..blocks {
            if mine(step, step) {
                matrix.store(step, step, &factor(matrix.load(step, step)));
            }
            barrier.wait(crew);
            let diagonal = matrix.load(step, step);
            for other in step + 1..blocks {
                if mine(other, step) {
                    matrix.store(other, step, &divide_right(matrix.load(other, step), &diagonal));
                }
                if mine(step, other) {
                    matrix.store(step, other, &divide_left(matrix.load(step, other), &diagonal));
                }
            }
            barrier.wait(crew);
            for row in step + 1..blocks {
                for column in (step + 1..blocks).filter(|column| mine(row, *column)) {
                    let (left, upper) = (matrix.load(row, step), matrix.load(step, column));
                    matrix.store(row, column, &less_product(matrix.load(row, column), &left, &upper));
                }
            }
            barrier.wait(crew);
        }
    });
    if error(&matrix, n) > 1e-9 * n as f64 { 0 } else { matrix.numbers.digest() }
}

/// L and U of a block, in its place.
fn factor(mut block: Block) -> Block {
    for k in 0..B {
        for i in k + 1..B {
            block[i][k] /= block[k][k];
            for j in k + 1..B {
                block[i][j] -= block[i][k] * block[k][j];
            }
        }
    }
    block
}

/// X where X U is the block.
fn divide_right(mut block: Block, diagonal: &Block) -> Block {
    for line in &mut block {
        for k in 0..B {
            line[k] /= diagonal[k][k];
            for j in k + 1..B {
                line[j] -= line[k] * diagonal[k][j];
            }
        }
    }
    block
}

/// X where L X is the block.
fn divide_left(mut block: Block, diagonal: &Block) -> Block {
    for k in 0..B {
        let (above, below) = block.split_at_mut(k + 1);
        for (line, factors) in below.iter_mut().zip(&diagonal[k + 1..]) {
            line.iter_mut().zip(&above[k]).for_each(|(number, other)| *number -= factors[k] * other);
        }
    }
    block
}

fn less_product(mut block: Block, left: &Block, upper: &Block) -> Block {
    for (line, factors) in block.iter_mut().zip(left) {
        for (factor, row) in factors.iter().zip(upper) {
            line.iter_mut().zip(row).for_each(|(number, other)| *number -= factor * other);
        }
    }
    block
}

/// How far L (U x) is from A x, at most, for an x of ones and twos.
fn error(matrix: &Matrix, n: usize) -> f64 {
    let x = |at: usize| 1.0 + (at % 2) as f64;
    let upper: alloc::vec::Vec<f64> =
        (0..n).map(|row| (row..n).fold(0.0, |sum, column| sum + matrix.get(row, column) * x(column))).collect();
    (0..n).fold(0.0, |worst, row| {
        let product = (0..row).fold(upper[row], |sum, column| sum + matrix.get(row, column) * upper[column]);
        let wanted = (0..n).fold(0.0, |sum, column| sum + original(n, row, column) * x(column));
        f64::max(worst, libm::fabs(product - wanted))
    })
}
