//! Where a VM is at home.

use addr::NodeId;

/// Pages that are not worth a move of a vCPU, whatever their node: 4 MiB.
const FEW: u64 = 1024;

/// The node of a VM that has `pages` by node, if three quarters of them are on one: it is cheaper to move a vCPU there than
/// them to it.
#[must_use]
pub fn home_of(pages: &[u64]) -> Option<NodeId> {
    let all: u64 = pages.iter().sum();
    let (node, most) = (0..).zip(pages).max_by_key(|(_, pages)| **pages)?;
    (all >= FEW && *most >= all - all / 4).then_some(NodeId(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_the_memory_is_a_home() {
        assert_eq!(home_of(&[1000, 3000]), Some(NodeId(1)));
        assert_eq!(home_of(&[1001, 3000]), None, "too much elsewhere");
        assert_eq!(home_of(&[0, 1023]), None, "too little in all");
        assert_eq!(home_of(&[0, 0, 1024]), Some(NodeId(2)));
        assert_eq!((home_of(&[]), home_of(&[0; 8])), (None, None));
    }
}
