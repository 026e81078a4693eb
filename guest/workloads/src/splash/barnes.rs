//! The N-body problem by Barnes and Hut: bodies far away act as one. Space is cut into 64 cells; a thread makes the trees of some of
//! them, and all threads walk all trees. A tree depends on where bodies are and not on who came first.

use alloc::vec::Vec;

use spin::RwLock;

use super::memory::{Numbers, part};
use crate::random::Random;
use crate::{Barrier, Crew, Size};

const AXES: usize = 3;
/// Cells of space along each axis, each with a tree of its own.
const CELLS: usize = 4;
const TREES: usize = CELLS * CELLS * CELLS;
/// A node acts as one body if it is this much smaller than it is far.
const THETA: f64 = 0.6;
const STEP: f64 = 0.01;
/// Keeps bodies that meet from flying away.
const SOFTENING: f64 = 0.05;
/// Trees are not deeper: bodies that lie closer than that share a leaf.
const DEPTH: u32 = 24;
const NONE: u32 = u32::MAX;

type Vector = [f64; AXES];

/// A part of space, with all that is in it.
#[derive(Clone)]
struct Node {
    mass: f64,
    centre: Vector,
    size: f64,
    children: [u32; 8],
    /// Bodies of a leaf.
    bodies: Vec<u32>,
}

type Tree = Vec<Node>;

struct Space {
    places: Numbers,
    speeds: Numbers,
    forces: Numbers,
    count: usize,
    /// From here on, along all axes, so far.
    from: f64,
    width: f64,
    trees: Vec<RwLock<Tree>>,
}

/// Runs the program: what bodies do to each other must nearly be in balance.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let (count, steps) = size.pick((1024, 2), (4096, 3));
    let zeros = || Numbers::zeros(count * AXES);
    let (places, speeds, forces) = (zeros(), zeros(), zeros());
    let trees = (0..TREES).map(|_| RwLock::new(Vec::new())).collect();
    let space = Space { places, speeds, forces, count, from: -4.0, width: 8.0, trees };
    let barrier = Barrier::new();
    crew.each(&|thread| {
        let mine = part(count, thread, crew.threads());
        mine.clone().for_each(|body| space.prepare(body));
        barrier.wait(crew);
        for _ in 0..steps {
            for tree in (thread..TREES).step_by(crew.threads()) {
                space.make_tree(tree);
            }
            barrier.wait(crew);
            space.act(mine.clone());
            barrier.wait(crew);
            mine.clone().for_each(|body| space.advance(body));
            barrier.wait(crew);
        }
    });
    let sums = |axis: usize| {
        let of = (0..count).map(|body| space.forces.get(body * AXES + axis));
        of.fold((0.0, 0.0), |sums: (f64, f64), force| (sums.0 + force, sums.1 + libm::fabs(force)))
    };
    let is_balanced = (0..AXES).map(sums).all(|(sum, all)| all > 0.0 && libm::fabs(sum) < 0.01 * all);
    if is_balanced { space.places.digest() } else { 0 }
}

impl Space {
    /// Two clusters that move through each other.
    fn prepare(&self, body: usize) {
        let mut random = Random::after(8, 16 * body as u64);
        let side = if body.is_multiple_of(2) { 1.0 } else { -1.0 };
        for at in body * AXES..(body + 1) * AXES {
            let spread = (0..3).fold(0.0, |sum, _| sum + random.unit() - 0.5);
            self.places.set(at, side + spread);
            self.speeds.set(at, -0.2 * side);
        }
    }

    fn place(&self, body: u32) -> Vector {
        core::array::from_fn(|axis| self.places.get(body as usize * AXES + axis))
    }

    fn make_tree(&self, number: usize) {
        let cell = self.width / CELLS as f64;
        let index = [number / CELLS / CELLS, number / CELLS % CELLS, number % CELLS];
        let middle = index.map(|at| self.from + (at as f64 + 0.5) * cell);
        // Bodies outside belong to the cells at the border.
        let along = |place: f64| ((place - self.from) / cell).clamp(0.0, (CELLS - 1) as f64) as usize;
        let is_inside = |body: &u32| self.place(*body).map(along) == index;
        let bodies = (0..self.count as u32).filter(is_inside).collect();
        let mut tree = self.trees[number].write();
        tree.clear();
        self.make_node(&mut tree, bodies, middle, cell, 0);
    }

    /// A node of these bodies, its children behind it; its number.
    fn make_node(&self, tree: &mut Tree, bodies: Vec<u32>, middle: Vector, size: f64, depth: u32) -> u32 {
        let number = tree.len() as u32;
        tree.push(Node {
            mass: bodies.len() as f64,
            centre: [0.0; AXES],
            size,
            children: [NONE; 8],
            bodies: Vec::new(),
        });
        let mut sum = [0.0; AXES];
        if bodies.len() <= 1 || depth == DEPTH {
            for body in &bodies {
                sum.iter_mut().zip(self.place(*body)).for_each(|(sum, place)| *sum += place);
            }
            tree[number as usize].bodies = bodies;
        } else {
            let mut octants: [Vec<u32>; 8] = Default::default();
            for body in bodies {
                let place = self.place(body);
                octants[(0..AXES).fold(0, |octant, axis| octant << 1 | usize::from(place[axis] >= middle[axis]))]
                    .push(body);
            }
            for (octant, bodies) in octants.into_iter().enumerate().filter(|(_, bodies)| !bodies.is_empty()) {
                let sign = |axis: usize| if octant >> (AXES - 1 - axis) & 1 != 0 { 0.25 } else { -0.25 };
                let child_middle = core::array::from_fn(|axis| middle[axis] + sign(axis) * size);
                let child = self.make_node(tree, bodies, child_middle, size * 0.5, depth + 1);
                tree[number as usize].children[octant] = child;
                let Node { mass, centre, .. } = &tree[child as usize];
                sum.iter_mut().zip(centre).for_each(|(sum, place)| *sum += mass * place);
            }
        }
        let node = &mut tree[number as usize];
        if node.mass > 0.0 {
            node.centre = sum.map(|sum| sum / node.mass);
        }
        number
    }

    /// What all others do to these bodies.
    fn act(&self, mine: core::ops::Range<usize>) {
        let trees: Vec<_> = self.trees.iter().map(RwLock::read).collect();
        let mut stack = Vec::new();
        for body in mine {
            let here = self.place(body as u32);
            let mut force = [0.0; AXES];
            for tree in trees.iter().filter(|tree| !tree.is_empty()) {
                stack.push(0);
                while let Some(number) = stack.pop() {
                    let node: &Node = &tree[number as usize];
                    let apart: Vector = core::array::from_fn(|axis| node.centre[axis] - here[axis]);
                    let square = apart.iter().fold(0.0, |sum, part| sum + part * part);
                    let is_leaf = node.children == [NONE; 8];
                    if !is_leaf && node.size * node.size > THETA * THETA * square {
                        stack.extend(node.children.iter().rev().copied().filter(|child| *child != NONE));
                    } else if is_leaf {
                        for other in node.bodies.iter().filter(|other| **other != body as u32) {
                            let there = self.place(*other);
                            pull(&mut force, core::array::from_fn(|axis| there[axis] - here[axis]), 1.0);
                        }
                    } else {
                        pull(&mut force, apart, node.mass);
                    }
                }
            }
            force.iter().enumerate().for_each(|(axis, force)| self.forces.set(body * AXES + axis, *force));
        }
    }

    fn advance(&self, body: usize) {
        for at in body * AXES..(body + 1) * AXES {
            self.speeds.add(at, STEP * self.forces.get(at) / self.count as f64);
            self.places.add(at, STEP * self.speeds.get(at));
        }
    }
}

fn pull(force: &mut Vector, apart: Vector, mass: f64) {
    let square = apart.iter().fold(SOFTENING * SOFTENING, |sum, part| sum + part * part);
    let strength = mass / (square * libm::sqrt(square));
    force.iter_mut().zip(apart).for_each(|(force, part)| *force += strength * part);
}
