//! A solver of Poisson's equation on a square grid by red-black relaxation, as ocean models have one for their currents. Each thread
//! has a band of rows, and reads a row of each neighbour.

use super::memory::{Numbers, part};
use crate::{Barrier, Crew, Size};

/// A grid with a border.
struct Grid {
    numbers: Numbers,
    /// Points of a row, the border among them.
    width: usize,
}

impl Grid {
    fn new(width: usize) -> Self {
        Self { numbers: Numbers::zeros(width * width), width }
    }

    /// The four neighbours of a point, added up.
    fn around(&self, at: usize) -> f64 {
        let Self { numbers, width } = self;
        numbers.get(at - width) + numbers.get(at + width) + numbers.get(at - 1) + numbers.get(at + 1)
    }
}

/// The wind that drives the current.
fn force(row: usize, column: usize, width: usize) -> f64 {
    let at = |index: usize| index as f64 / (width - 1) as f64;
    (at(row) - 0.5) * (1.0 - at(column)) + if row * 7 % 13 == column % 13 { 0.25 } else { 0.0 }
}

/// Runs the program: so many sweeps, and the error must have shrunk.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    // Near the best over-relaxation for grids of these sizes.
    let (inner, sweeps, omega) = size.pick((128, 120, 1.95), (256, 400, 1.975));
    let width = inner + 2;
    let (grid, right) = (Grid::new(width), Grid::new(width));
    let errors = [Numbers::zeros(inner), Numbers::zeros(inner)];
    let barrier = Barrier::new();
    crew.each(&|thread| {
        let rows = part(inner, thread, crew.threads());
        let rows = rows.start + 1..rows.end + 1;
        for row in rows.clone() {
            for column in 1..width - 1 {
                right.numbers.set(row * width + column, force(row, column, width));
                grid.numbers.set(row * width + column, 0.0);
            }
        }
        barrier.wait(crew);
        measure(&grid, &right, rows.clone(), &errors[0]);
        for _ in 0..sweeps {
            for colour in 0..2 {
                for row in rows.clone() {
                    for column in (1 + (row + colour) % 2..width - 1).step_by(2) {
                        let at = row * width + column;
                        let old = grid.numbers.get(at);
                        let new = 0.25 * (grid.around(at) - right.numbers.get(at));
                        grid.numbers.set(at, old + omega * (new - old));
                    }
                }
                barrier.wait(crew);
            }
        }
        measure(&grid, &right, rows, &errors[1]);
    });
    let [before, after] = errors.map(|errors| errors.sum());
    if after < before * 0.5 { grid.numbers.digest() } else { 0 }
}

/// The error of each row: how far its points are from what their neighbours make of them.
fn measure(grid: &Grid, right: &Grid, rows: core::ops::Range<usize>, errors: &Numbers) {
    for row in rows {
        for column in 1..grid.width - 1 {
            let at = row * grid.width + column;
            errors.add(row - 1, libm::fabs(grid.around(at) - 4.0 * grid.numbers.get(at) - right.numbers.get(at)));
        }
    }
}
