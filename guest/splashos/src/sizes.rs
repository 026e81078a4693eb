//! Sizes of small things of the heap: powers of two.

use core::alloc::Layout;

/// The smallest, by its logarithm: room for the link of a list.
const LEAST: u32 = 4;
/// The largest; what is larger gets blocks of its own.
const MOST: u32 = 20;
/// How many there are.
pub const CLASSES: usize = (MOST - LEAST + 1) as usize;

/// The class that fits a layout, or none for a large one. Things are as aligned as they are long.
pub fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << LEAST);
    let log = bytes.checked_next_power_of_two()?.trailing_zeros();
    (log <= MOST).then(|| (log - LEAST) as usize)
}

/// How many bytes things of a class have.
pub const fn bytes_of(class: usize) -> usize {
    1 << (class + LEAST as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_room_and_alignment() {
        for (bytes, align) in [(1, 1), (16, 16), (17, 8), (24, 64), (4096, 8), (1 << 20, 8), (5, 4096)] {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            let room = bytes_of(class_of(layout).unwrap());
            assert!(room >= bytes && room.is_multiple_of(align) && room < 2 * bytes.max(align).max(9));
        }
        assert_eq!(bytes_of(CLASSES - 1), 1 << 20);
    }

    #[test]
    fn large_things_have_none() {
        for (bytes, align) in [((1 << 20) + 1, 8), (8, 2 << 20), (isize::MAX as usize, 1)] {
            assert_eq!(class_of(Layout::from_size_align(bytes, align).unwrap()), None);
        }
    }
}
