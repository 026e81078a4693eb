//! A small ordered table.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Values by number, in the order of their numbers. Numbers rise, so that new ones go to the end; the table holds what is
/// under way, or some hundred layers. (B-trees would do, and be a good part of the monitor's image.)
#[derive(Debug)]
pub struct Table<K, V> {
    rows: Vec<(K, Box<V>)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<K: Ord + Copy, V> Table<K, V> {
    pub fn get(&self, key: K) -> Option<&V> {
        let at = self.place(key).ok()?;
        Some(&self.rows[at].1)
    }

    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = self.place(key).ok()?;
        Some(&mut self.rows[at].1)
    }

    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.rows.iter().map(|(key, value)| (*key, &**value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.rows.iter_mut().map(|(key, value)| (*key, &mut **value))
    }

    /// Puts a value in the place of the one with its number, if there is one.
    pub fn insert(&mut self, key: K, value: Box<V>) {
        match self.place(key) {
            Ok(at) => self.rows[at].1 = value,
            Err(at) => self.rows.insert(at, (key, value)),
        }
    }

    pub fn remove(&mut self, key: K) -> Option<Box<V>> {
        let at = self.place(key).ok()?;
        Some(self.rows.remove(at).1)
    }

    fn place(&self, key: K) -> Result<usize, usize> {
        // Most often it is the last one.
        match self.rows.last() {
            Some((last, _)) if *last < key => Err(self.rows.len()),
            _ => self.rows.binary_search_by_key(&key, |(key, _)| *key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn rows_stay_in_order() {
        let mut table = Table::default();
        for key in [3, 9, 1, 9, 5] {
            table.insert(key, Box::new(key * 10));
        }
        assert_eq!(
            table.iter().map(|(key, value)| (key, *value)).collect::<Vec<_>>(),
            [(1, 10), (3, 30), (5, 50), (9, 90)]
        );
        assert_eq!((table.remove(3), table.remove(3), table.remove(10)), (Some(Box::new(30)), None, None));
        assert_eq!((table.get(5), table.get(2), table.len()), (Some(&50), None, 3));
        table.iter_mut().for_each(|(_, value)| *value += 1);
        assert_eq!(table.iter().map(|(_, value)| *value).collect::<Vec<_>>(), vec![11, 51, 91]);
    }
}
