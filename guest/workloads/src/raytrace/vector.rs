//! Vectors of three numbers. Sums and products are in a fixed order and no operation is fused, so every machine gives the
//! same bits.

use core::ops::{Add, Sub};

/// A vector, or a colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vector {
    /// To the right, or red.
    pub x: f64,
    /// Up, or green.
    pub y: f64,
    /// Ahead, or blue.
    pub z: f64,
}

impl Vector {
    /// The origin.
    pub const ZERO: Self = Self::new(0.0, 0.0, 0.0);

    /// A vector.
    pub const fn new(x: f64, y: f64, z: f64) -> Self {
        Self { x, y, z }
    }

    /// Scaled.
    pub fn times(self, factor: f64) -> Self {
        Self::new(self.x * factor, self.y * factor, self.z * factor)
    }

    /// The scalar product.
    pub fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    /// The same direction with length 1.
    pub fn unit(self) -> Self {
        self.times(1.0 / libm::sqrt(self.dot(self)))
    }

    /// The coordinates in order.
    pub fn axes(self) -> [f64; 3] {
        [self.x, self.y, self.z]
    }

    /// Each coordinate by `choose` of both.
    pub fn zip(self, other: Self, choose: fn(f64, f64) -> f64) -> Self {
        Self::new(choose(self.x, other.x), choose(self.y, other.y), choose(self.z, other.z))
    }
}

impl Add for Vector {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.x + other.x, self.y + other.y, self.z + other.z)
    }
}

impl Sub for Vector {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::new(self.x - other.x, self.y - other.y, self.z - other.z)
    }
}

/// A ray that starts on a sphere does not meet it there.
pub const NEAR: f64 = 1e-9;

/// The distance at which a ray of length 1 enters a sphere, or leaves it if it began inside; `offset` leads from the sphere's centre
/// to where the ray begins.
#[inline]
pub fn sphere_met_at(offset: Vector, radius: f64, along: Vector) -> Option<f64> {
    let half = offset.dot(along);
    let under = half * half - (offset.dot(offset) - radius * radius);
    if under < 0.0 {
        return None;
    }
    let root = libm::sqrt(under);
    [-half - root, -half + root].into_iter().find(|distance| *distance > NEAR)
}
