//! Molecular dynamics: every molecule acts on every other one. Each thread moves its part of them and reads the places of all; energies
//! are added up under a lock, as whole numbers, for which the order does not matter.

use spin::Mutex;

use super::memory::{Numbers, part};
use crate::digest::Digest;
use crate::random::Random;
use crate::{Barrier, Crew, Size};

/// Three numbers of each molecule.
const AXES: usize = 3;
const STEP: f64 = 0.001;
/// Energies are counted in parts of this size.
const UNIT: f64 = 1e-9;

struct Molecules {
    places: Numbers,
    speeds: Numbers,
    forces: Numbers,
    count: usize,
}

type Vector = [f64; AXES];

fn vector(numbers: &Numbers, of: usize) -> Vector {
    core::array::from_fn(|axis| numbers.get(of * AXES + axis))
}

/// Potential and kinetic energy.
#[derive(Clone, Copy, Default)]
struct Energy {
    potential: i64,
    kinetic: i64,
}

impl Energy {
    fn total(self) -> f64 {
        (self.potential + self.kinetic) as f64 * UNIT
    }
}

/// Runs the program: the total energy must stay what it is.
pub fn run(crew: &dyn Crew, size: Size) -> u64 {
    let (side, steps) = size.pick((6, 8), (10, 12));
    let count = side * side * side;
    let zeros = || Numbers::zeros(count * AXES);
    let molecules = Molecules { places: zeros(), speeds: zeros(), forces: zeros(), count };
    let (barrier, energies) = (Barrier::new(), [const { Mutex::new(Energy { potential: 0, kinetic: 0 }) }; 2]);
    crew.each(&|thread| {
        let mine = part(count, thread, crew.threads());
        mine.clone().for_each(|molecule| molecules.prepare(molecule, side));
        barrier.wait(crew);
        let add = |to: &Mutex<Energy>, potential: i64| {
            let kinetic = mine.clone().map(|molecule| molecules.kinetic(molecule)).sum::<i64>();
            let mut sum = to.lock();
            *sum = Energy { potential: sum.potential + potential, kinetic: sum.kinetic + kinetic };
        };
        add(&energies[0], molecules.act(mine.clone()));
        barrier.wait(crew);
        for step in 1..=steps {
            mine.clone().for_each(|molecule| molecules.move_half(molecule, true));
            barrier.wait(crew);
            let potential = molecules.act(mine.clone());
            mine.clone().for_each(|molecule| molecules.move_half(molecule, false));
            if step == steps {
                add(&energies[1], potential);
            }
            barrier.wait(crew);
        }
    });
    let [before, after] = energies.map(|energy| energy.into_inner());
    let is_kept = libm::fabs(before.total() - after.total()) < 1e-3 * libm::fabs(before.total());
    let has_moved = before.kinetic != after.kinetic;
    let mut digest = Digest::default();
    digest.add(molecules.places.digest());
    digest.add(after.potential as u64);
    if is_kept && has_moved { digest.value() } else { 0 }
}

impl Molecules {
    /// On a lattice, a little off it, with some speed.
    fn prepare(&self, molecule: usize, side: usize) {
        let mut random = Random::after(6, 8 * molecule as u64);
        for (axis, cell) in [molecule / side / side, molecule / side % side, molecule % side].into_iter().enumerate() {
            self.places.set(molecule * AXES + axis, 1.2 * cell as f64 + 0.1 * random.unit());
            self.speeds.set(molecule * AXES + axis, random.unit() - 0.5);
        }
    }

    /// What all others do to these molecules; their half of the potential energy.
    fn act(&self, mine: core::ops::Range<usize>) -> i64 {
        let mut energy = 0;
        for molecule in mine {
            let here = vector(&self.places, molecule);
            let (mut force, mut potential) = ([0.0; AXES], 0.0);
            for other in (0..self.count).filter(|other| *other != molecule) {
                let there = vector(&self.places, other);
                let apart: Vector = core::array::from_fn(|axis| here[axis] - there[axis]);
                let square = apart.iter().fold(0.0, |sum, part| sum + part * part);
                // Lennard-Jones.
                let sixth = 1.0 / (square * square * square);
                potential += 2.0 * sixth * (sixth - 1.0);
                let strength = 24.0 * sixth * (2.0 * sixth - 1.0) / square;
                force.iter_mut().zip(apart).for_each(|(force, part)| *force += strength * part);
            }
            force.iter().enumerate().for_each(|(axis, force)| self.forces.set(molecule * AXES + axis, *force));
            energy += (potential / UNIT) as i64;
        }
        energy
    }

    /// Half a step of speed, and then a whole one of place.
    fn move_half(&self, molecule: usize, has_place: bool) {
        for at in molecule * AXES..(molecule + 1) * AXES {
            self.speeds.add(at, 0.5 * STEP * self.forces.get(at));
            if has_place {
                self.places.add(at, STEP * self.speeds.get(at));
            }
        }
    }

    fn kinetic(&self, molecule: usize) -> i64 {
        let square = vector(&self.speeds, molecule).iter().fold(0.0, |sum, speed| sum + speed * speed);
        (0.5 * square / UNIT) as i64
    }
}
