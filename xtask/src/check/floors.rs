//! The floors of the house: a package uses only packages of floors below its own or of its own, never above; policy uses
//! floor 0 alone, so that it never names hardware.

use std::path::Path;

use crate::tree::Package;

/// The floor of each top-level folder.
const FLOORS: [(&str, u8); 13] = [
    ("abi", 0),
    ("support", 0),
    ("arch", 1),
    ("hw", 1),
    ("mech", 2),
    ("policy", 3),
    ("dev", 3),
    ("monitor", 4),
    ("guest", 4),
    ("host", 4),
    ("machine", 4),
    ("xtask", 4),
    ("fuzz", 4),
];

/// Every dependency that climbs, as a message.
pub fn check(packages: &[Package]) -> Vec<String> {
    let edges = packages.iter().flat_map(|package| package.dependencies.iter().map(move |to| (package, to)));
    edges.filter_map(|(package, to)| refuse(&package.name, &package.folder, to)).collect()
}

fn refuse(name: &str, from: &Path, to: &Path) -> Option<String> {
    let (Some((from_room, from_floor)), Some((_, to_floor))) = (room(from), room(to)) else {
        return Some(format!("{name}: {} or {} is in no room of the house", from.display(), to.display()));
    };
    if from_room == "policy" && to_floor > 0 {
        return Some(format!("{name}: policy uses floor 0 only, not {}", to.display()));
    }
    let text = || format!("{name} ({from_room}, floor {from_floor}) must not use {} (floor {to_floor})", to.display());
    (to_floor > from_floor).then(text)
}

fn room(folder: &Path) -> Option<(&'static str, u8)> {
    let first = folder.components().next()?.as_os_str().to_str()?;
    FLOORS.into_iter().find(|(name, _)| *name == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(from: &str, to: &str) -> bool {
        let package = Package { name: "p".into(), folder: from.into(), dependencies: vec![to.into()] };
        !check(&[package]).is_empty()
    }

    #[test]
    fn downward_and_level_edges_pass() {
        assert!(!broken("monitor", "dev/virtio"));
        assert!(!broken("dev/virtio", "dev/device"));
        assert!(!broken("dev/virtio", "mech/storage"));
        assert!(!broken("policy/sched", "support/addr"));
    }

    #[test]
    fn upward_edges_are_refused() {
        assert!(broken("support/addr", "arch/rv"));
        assert!(broken("mech/pmap", "dev/device"));
        assert!(broken("dev/virtio", "monitor"));
    }

    #[test]
    fn policy_names_no_hardware() {
        assert!(broken("policy/sched", "arch/rv"));
        assert!(broken("policy/sched", "mech/pmap"));
        assert!(broken("policy/sched", "policy/placement"));
    }

    #[test]
    fn unknown_rooms_are_refused() {
        assert!(broken("attic/thing", "support/addr"));
    }
}
