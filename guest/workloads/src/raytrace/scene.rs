//! The scene: spheres in a tree of boxes.

use alloc::vec::Vec;

use super::vector::{Vector, sphere_met_at};
use crate::random::Random;

/// Spheres in a leaf of the tree.
const LEAF: usize = 4;

/// A sphere.
#[derive(Clone, Debug)]
pub struct Sphere {
    /// Its centre.
    pub centre: Vector,
    /// Its radius.
    pub radius: f64,
    /// Its colour.
    pub colour: Vector,
    /// The part of what is seen that is mirrored.
    pub mirror: f64,
}

/// What a ray meets.
pub struct Hit<'a> {
    /// How far from the ray's start.
    pub distance: f64,
    /// The sphere.
    pub sphere: &'a Sphere,
}

/// A box around a part of the spheres.
struct Node {
    low: Vector,
    high: Vector,
    kind: Kind,
}

enum Kind {
    /// Spheres from, to.
    Leaf(usize, usize),
    /// Children.
    Inner(usize, usize),
}

/// Spheres, and a tree over them.
pub struct Scene {
    spheres: Vec<Sphere>,
    nodes: Vec<Node>,
    root: usize,
}

impl Scene {
    /// So many spheres, ahead of the eye.
    pub fn random(count: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = 4.0 / libm::cbrt(count as f64);
        let sphere = |random: &mut Random| Sphere {
            centre: Vector::new(random.unit() * 10.0 - 5.0, random.unit() * 8.0 - 4.0, 4.0 + random.unit() * 10.0),
            radius: size * (0.3 + 0.7 * random.unit()),
            colour: Vector::new(random.unit(), random.unit(), random.unit()),
            mirror: if random.below(3) == 0 { 0.6 } else { 0.0 },
        };
        let mut scene = Self { spheres: (0..count).map(|_| sphere(&mut random)).collect(), nodes: Vec::new(), root: 0 };
        scene.root = scene.build(0, count, 0);
        scene
    }

    /// The node over a range of spheres, which are put in order along one axis after the other.
    fn build(&mut self, from: usize, to: usize, axis: usize) -> usize {
        let part = &mut self.spheres[from..to];
        let kind = if part.len() <= LEAF {
            Kind::Leaf(from, to)
        } else {
            part.sort_by(|a, b| a.centre.axes()[axis].total_cmp(&b.centre.axes()[axis]));
            let middle = from.midpoint(to);
            Kind::Inner(self.build(from, middle, (axis + 1) % 3), self.build(middle, to, (axis + 1) % 3))
        };
        let (mut low, mut high) = (Vector::ZERO, Vector::ZERO);
        for (index, sphere) in self.spheres[from..to].iter().enumerate() {
            let reach = Vector::new(sphere.radius, sphere.radius, sphere.radius);
            let (bottom, top) = (sphere.centre - reach, sphere.centre + reach);
            low = if index == 0 { bottom } else { low.zip(bottom, f64::min) };
            high = if index == 0 { top } else { high.zip(top, f64::max) };
        }
        self.nodes.push(Node { low, high, kind });
        self.nodes.len() - 1
    }

    /// The first sphere that a ray meets.
    pub fn nearest(&self, from: Vector, along: Vector) -> Option<Hit<'_>> {
        let mut best: Option<Hit<'_>> = None;
        self.visit(from, along, |sphere, distance| {
            if best.as_ref().is_none_or(|hit| distance < hit.distance) {
                best = Some(Hit { distance, sphere });
            }
            (false, best.as_ref().map_or(f64::INFINITY, |hit| hit.distance))
        });
        best
    }

    /// Whether a ray meets anything.
    pub fn is_hidden(&self, from: Vector, along: Vector) -> bool {
        let mut hidden = false;
        self.visit(from, along, |_, _| {
            hidden = true;
            (true, 0.0)
        });
        hidden
    }

    /// Calls `meet` for spheres that the ray meets; it says whether that is enough, and beyond which distance nothing matters.
    fn visit<'a>(&'a self, from: Vector, along: Vector, mut meet: impl FnMut(&'a Sphere, f64) -> (bool, f64)) {
        let inverse = Vector::new(1.0 / along.x, 1.0 / along.y, 1.0 / along.z);
        // Halving 2^32 spheres does not go deeper.
        let mut stack = [0_usize; 40];
        let mut depth = 1;
        stack[0] = self.root;
        let mut limit = f64::INFINITY;
        while depth > 0 {
            depth -= 1;
            let node = &self.nodes[stack[depth]];
            if !node.is_met(from, inverse, limit) {
                continue;
            }
            match node.kind {
                Kind::Inner(left, right) => {
                    stack[depth] = left;
                    stack[depth + 1] = right;
                    depth += 2;
                }
                Kind::Leaf(first, end) => {
                    for sphere in &self.spheres[first..end] {
                        if let Some(distance) = sphere_met_at(from - sphere.centre, sphere.radius, along) {
                            let (is_enough, beyond) = meet(sphere, distance);
                            if is_enough {
                                return;
                            }
                            limit = beyond;
                        }
                    }
                }
            }
        }
    }
}

impl Node {
    /// Whether a ray goes through the box nearer than `limit`. A coordinate of 0 gives infinities, which compare as they
    /// should.
    fn is_met(&self, from: Vector, inverse: Vector, limit: f64) -> bool {
        let (mut enter, mut leave) = (0.0_f64, limit);
        let (low, high, from, inverse) = (self.low.axes(), self.high.axes(), from.axes(), inverse.axes());
        for axis in 0..3 {
            let one = (low[axis] - from[axis]) * inverse[axis];
            let other = (high[axis] - from[axis]) * inverse[axis];
            enter = enter.max(one.min(other));
            leave = leave.min(one.max(other));
        }
        enter <= leave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_finds_what_a_search_finds() {
        let scene = Scene::random(300, 9);
        let mut random = Random::new(2);
        let mut met = 0;
        for _ in 0..2000 {
            let along = Vector::new(random.unit() - 0.5, random.unit() - 0.5, 1.0).unit();
            let slow = scene
                .spheres
                .iter()
                .filter_map(|sphere| sphere_met_at(Vector::ZERO - sphere.centre, sphere.radius, along));
            let slow = slow.fold(f64::INFINITY, f64::min);
            let quick = scene.nearest(Vector::ZERO, along).map_or(f64::INFINITY, |hit| hit.distance);
            assert!(slow.to_bits() == quick.to_bits(), "{slow} is not {quick}");
            assert_eq!(scene.is_hidden(Vector::ZERO, along), quick.is_finite());
            met += u32::from(quick.is_finite());
        }
        assert!(met > 100, "only {met} rays met anything");
    }
}
