//! Sets of nodes.

use core::fmt;

/// Nodes that a set can hold.
pub const MAX_NODES: usize = 64;

/// A set of nodes: bit N is node N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(pub u64);

impl NodeSet {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// The nodes 0 to `count` - 1.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count >= MAX_NODES { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// One node.
    #[must_use]
    pub const fn one(node: usize) -> Self {
        if node < MAX_NODES { Self(1 << node) } else { Self::EMPTY }
    }

    /// Whether `node` is in the set; `false` from [`MAX_NODES`] on.
    #[must_use]
    pub const fn has(self, node: usize) -> bool {
        node < MAX_NODES && self.0 >> node & 1 != 0
    }

    /// Whether no node is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of nodes in the set.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Those in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Each of them, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_NODES).filter(move |node| self.has(*node))
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{node}")?;
        }
        if self.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::format;

    use super::*;

    #[test]
    fn sets_are_what_they_say() {
        let set = NodeSet::first(4).without(NodeSet::one(1));
        assert_eq!(format!("{set} {}", NodeSet::EMPTY), "0,2,3 none");
        assert!(set.has(3) && !set.has(1) && !set.has(64) && set.len() == 3);
        assert_eq!(NodeSet::first(64), NodeSet(u64::MAX));
        assert_eq!(NodeSet::one(64), NodeSet::EMPTY);
    }
}
