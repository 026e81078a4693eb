//! Repeatable random numbers: SplitMix64.

/// What the state grows by with each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator of a seed once it has drawn `count` numbers.
    pub const fn after(seed: u64, count: u64) -> Self {
        Self(seed.wrapping_add(count.wrapping_mul(STEP)))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        // The upper half of a product: no division, and even enough for workloads.
        ((u64::from((self.draw() >> 32) as u32) * u64::from(limit)) >> 32) as u32
    }

    /// A number of [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_may_begin_anywhere() {
        let mut all = Random::new(3);
        for count in 0..100 {
            assert_eq!(Random::after(3, count).draw(), all.draw());
        }
    }

    #[test]
    fn numbers_repeat_and_keep_their_bounds() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            assert_eq!(one.draw(), other.draw());
            assert!(one.below(10) < 10 && other.below(10) < 10);
            assert!((0.0..1.0).contains(&one.unit()) && other.unit() >= 0.0);
        }
    }
}
