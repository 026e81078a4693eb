//! Sorting of short lists, in few bytes of code.
//!
//! The library's sort is made for a million elements and costs about 5 KiB of instructions for every type that it is
//! used with. A monitor sorts harts, nodes and ranges of memory, some tens of each, and counts its bytes.
//!
//! Both functions are stable, in place, quadratic at worst and linear on what is sorted already. For lists whose
//! length a guest or a client decides use the library's sort.
#![no_std]
#![forbid(unsafe_code)]

/// Sorts `list` in ascending order.
pub fn ascending<T: Ord>(list: &mut [T]) {
    insertion(list, |a, b| a < b);
}

/// Sorts `list` so that `key` ascends.
pub fn by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    insertion(list, |a, b| key(a) < key(b));
}

fn insertion<T>(list: &mut [T], goes_before: impl Fn(&T, &T) -> bool) {
    for end in 1..list.len() {
        let mut at = end;
        while at > 0 && goes_before(&list[at], &list[at - 1]) {
            list.swap(at, at - 1);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_are_ordered() {
        let mut list = [5, 1, 4, 1, 5, 9, 2, 6];
        ascending(&mut list);
        assert_eq!(list, [1, 1, 2, 4, 5, 5, 6, 9]);
        let mut none: [u8; 0] = [];
        ascending(&mut none);
    }

    #[test]
    fn equal_keys_keep_their_order() {
        let mut list = [(2, 'a'), (1, 'b'), (2, 'c'), (1, 'd')];
        by_key(&mut list, |pair| pair.0);
        assert_eq!(list, [(1, 'b'), (1, 'd'), (2, 'a'), (2, 'c')]);
    }
}
