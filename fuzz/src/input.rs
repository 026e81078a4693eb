//! Bytes as a source of decisions.

/// What is left of an input. Behind its end everything is zero, so a target can ask for as much as it likes and stops at
/// [`Input::is_empty`].
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all has been used.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, as many as there are.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `end`, from a byte.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// One of these, which are some.
    ///
    /// # Panics
    /// If they are none.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// A register's value: a small number, a number near a power of two, or anything.
    pub fn register(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=127 => u64::from(small),
            power @ 128..=191 => 1 << (power - 128),
            192..=223 => u64::MAX << self.below(64),
            _ => self.u64(),
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_ends_in_zeroes() {
        let mut input = Input::new(&[1, 2, 3]);
        assert_eq!((input.byte(), input.u32(), input.is_empty(), input.u64()), (1, 0x0302, true, 0));
        assert_eq!(Input::new(&[192, 65]).register(), u64::MAX << 1);
    }
}
