//! A scene of many small spheres in a grid of cells, as SPLASH-2's ray tracer keeps its scenes.
//!
//! A ray that goes through the grid touches at each step a cell, its list and the spheres in it, all far apart in memory, and
//! computes little with them.

use alloc::vec;
use alloc::vec::Vec;

use super::vector::{NEAR, Vector, sphere_met_at};
use crate::random::Random;

/// Where centres are: the least and the greatest coordinates.
const LOW: Vector = Vector::new(-5.0, -4.0, 4.0);
const HIGH: Vector = Vector::new(5.0, 4.0, 14.0);

/// A sphere: four to a cache line of 128 bytes.
#[repr(align(32))]
#[derive(Clone, Debug)]
struct Ball {
    centre: Vector,
    radius: f64,
}

/// What a ray meets.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// How far from the ray's start.
    pub distance: f64,
    /// The sphere's centre.
    pub centre: Vector,
    /// Its radius.
    pub radius: f64,
}

/// Spheres, and which of them each cell of a grid touches.
pub struct Grid {
    balls: Vec<Ball>,
    /// Where each cell's list begins in `lists`; the next one's begins where it ends.
    starts: Vec<u32>,
    lists: Vec<u32>,
    /// Cells along each axis.
    count: usize,
    low: Vector,
    /// Size of a cell.
    cell: Vector,
}

impl Grid {
    /// So many spheres ahead of the eye, in `cells` cells along each axis. Most rays go about a fifth of the way through.
    pub fn random(count: u32, cells: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        // However many there are, rays go equally far.
        let size = 11.0 / libm::sqrt(f64::from(count));
        let mut ball = || {
            let place = Vector::new(random.unit(), random.unit(), random.unit());
            let reach = HIGH - LOW;
            let centre = LOW + Vector::new(place.x * reach.x, place.y * reach.y, place.z * reach.z);
            Ball { centre, radius: size * (0.5 + random.unit()) }
        };
        let balls: Vec<Ball> = (0..count).map(|_| ball()).collect();
        // No sphere reaches beyond the grid.
        let margin = 1.5 * size + NEAR;
        let margin = Vector::new(margin, margin, margin);
        let (low, reach) = (LOW - margin, HIGH - LOW + margin + margin);
        let mut grid = Self {
            balls,
            starts: vec![0; cells * cells * cells + 1],
            lists: Vec::new(),
            count: cells,
            low,
            cell: reach.times(1.0 / cells as f64),
        };
        grid.fill();
        grid
    }

    /// Makes the lists: counts them, finds where each begins, fills them from their ends.
    fn fill(&mut self) {
        let mut starts = core::mem::take(&mut self.starts);
        for ball in &self.balls {
            self.each_cell(ball, |cell| starts[cell] += 1);
        }
        let mut total = 0;
        for start in &mut starts {
            total += *start;
            *start = total;
        }
        let mut lists = vec![0; total as usize];
        for (number, ball) in (0..).zip(&self.balls) {
            self.each_cell(ball, |cell| {
                starts[cell] -= 1;
                lists[starts[cell] as usize] = number;
            });
        }
        (self.starts, self.lists) = (starts, lists);
    }

    /// Calls `visit` for every cell that the box around the sphere touches.
    fn each_cell(&self, ball: &Ball, mut visit: impl FnMut(usize)) {
        let reach = ball.radius + NEAR;
        let reach = Vector::new(reach, reach, reach);
        let (from, to) = (self.cell_of(ball.centre - reach), self.cell_of(ball.centre + reach));
        for z in from[2]..=to[2] {
            for y in from[1]..=to[1] {
                (from[0]..=to[0]).for_each(|x| visit(self.number([x, y, z])));
            }
        }
    }

    /// The cell at a place; of one outside the nearest.
    fn cell_of(&self, place: Vector) -> [usize; 3] {
        let (offset, cell) = ((place - self.low).axes(), self.cell.axes());
        // Negative numbers become 0.
        core::array::from_fn(|axis| ((offset[axis] / cell[axis]) as usize).min(self.count - 1))
    }

    const fn number(&self, cell: [usize; 3]) -> usize {
        (cell[2] * self.count + cell[1]) * self.count + cell[0]
    }

    /// The first sphere that a ray meets.
    pub fn nearest(&self, from: Vector, along: Vector) -> Option<Met> {
        let mut walk = Walk::new(self, from, along)?;
        let mut best: Option<(f64, u32)> = None;
        loop {
            let cell = self.number(walk.cell);
            for &number in &self.lists[self.starts[cell] as usize..self.starts[cell + 1] as usize] {
                let ball = &self.balls[number as usize];
                if let Some(distance) = sphere_met_at(from - ball.centre, ball.radius, along)
                    && best.is_none_or(|(least, _)| distance < least)
                {
                    best = Some((distance, number));
                }
            }
            // What a later cell's spheres are met at is farther than this cell's end.
            if best.is_some_and(|(distance, _)| distance <= walk.end()) || !walk.step(self.count) {
                break;
            }
        }
        let (distance, number) = best?;
        let Ball { centre, radius } = self.balls[number as usize];
        Some(Met { distance, centre, radius })
    }
}

/// A ray on its way from cell to cell (Amanatides and Woo, "A Fast Voxel Traversal Algorithm for Ray Tracing", 1987).
struct Walk {
    cell: [usize; 3],
    /// For each axis, whether the ray goes up along it.
    is_up: [bool; 3],
    /// Where on the ray the next cell along each axis begins, and how far it is from one to the next.
    next: [f64; 3],
    stride: [f64; 3],
}

impl Walk {
    /// `None` for a ray that misses the grid.
    fn new(grid: &Grid, from: Vector, along: Vector) -> Option<Self> {
        let (low, cell, start, way) = (grid.low.axes(), grid.cell.axes(), from.axes(), along.axes());
        let (mut enter, mut leave) = (0.0_f64, f64::INFINITY);
        for axis in 0..3 {
            let at = |place: f64| (place - start[axis]) / way[axis];
            let (one, other) = (at(low[axis]), at(low[axis] + cell[axis] * grid.count as f64));
            enter = enter.max(one.min(other));
            leave = leave.min(one.max(other));
        }
        if enter > leave {
            return None;
        }
        let first = grid.cell_of(from + along.times(enter));
        let is_up = way.map(|way| way > 0.0);
        let next = |axis: usize| {
            let border = low[axis] + cell[axis] * (first[axis] + usize::from(is_up[axis])) as f64;
            // Of a ray along another axis: never.
            if way[axis] == 0.0 { f64::INFINITY } else { (border - start[axis]) / way[axis] }
        };
        let stride = |axis: usize| (cell[axis] / way[axis]).max(-cell[axis] / way[axis]);
        Some(Self { cell: first, is_up, next: core::array::from_fn(next), stride: core::array::from_fn(stride) })
    }

    /// Where on the ray the cell ends.
    fn end(&self) -> f64 {
        self.next[0].min(self.next[1]).min(self.next[2])
    }

    /// On to the next cell of a grid with `count` cells along each axis; `false` if that was the last one.
    fn step(&mut self, count: usize) -> bool {
        let [x, y, z] = self.next;
        let axis = if x <= y && x <= z { 0 } else { 1 + usize::from(z < y) };
        self.next[axis] += self.stride[axis];
        let cell = if self.is_up[axis] { self.cell[axis] + 1 } else { self.cell[axis].wrapping_sub(1) };
        self.cell[axis] = cell;
        cell < count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_finds_what_a_search_finds() {
        let grid = Grid::random(500, 9, 4);
        let mut random = Random::new(2);
        let mut met = 0;
        for turn in 0..4000 {
            let mut one = || 2.0 * random.unit() - 1.0;
            let along = Vector::new(one(), one(), one()).unit();
            let inside = Vector::new(5.0 * one(), 4.0 * one(), 9.0 + 5.0 * one());
            let from = if turn % 2 == 0 { Vector::ZERO } else { inside };
            let slow = grid
                .balls
                .iter()
                .filter_map(|ball| sphere_met_at(from - ball.centre, ball.radius, along))
                .fold(f64::INFINITY, f64::min);
            let quick = grid.nearest(from, along).map_or(f64::INFINITY, |met| met.distance);
            assert!(slow.to_bits() == quick.to_bits(), "{slow} is not {quick}");
            met += u32::from(quick.is_finite());
        }
        assert!(met > 500, "only {met} rays met anything");
    }

    #[test]
    fn rays_along_an_axis_and_past_the_grid_end() {
        let grid = Grid::random(2000, 16, 1);
        for (from, along) in [
            (Vector::ZERO, Vector::new(0.0, 0.0, 1.0)),
            (Vector::new(0.0, 0.0, 20.0), Vector::new(0.0, 0.0, -1.0)),
            (Vector::new(-9.0, 0.1, 9.0), Vector::new(1.0, 0.0, 0.0)),
        ] {
            let slow = grid
                .balls
                .iter()
                .filter_map(|ball| sphere_met_at(from - ball.centre, ball.radius, along))
                .fold(f64::INFINITY, f64::min);
            assert!(grid.nearest(from, along).map_or(f64::INFINITY, |met| met.distance) == slow);
        }
        assert!(grid.nearest(Vector::ZERO, Vector::new(0.0, 0.0, -1.0)).is_none());
        assert!(grid.nearest(Vector::ZERO, Vector::new(0.0, 1.0, 0.0)).is_none());
    }
}
