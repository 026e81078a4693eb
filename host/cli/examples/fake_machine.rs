//! A pretended machine, to try commands and the live view without booting anything:
//!
//! ```text
//! export MIRRORBALL_RUNTIME_DIR=$(mktemp -d)
//! cargo run -p cli --example fake_machine [NODES HARTS_PER_NODE VMS VCPUS] &
//! mirrorball top
//! mirrorball shutdown
//! ```

#[path = "../tests/fake/mod.rs"]
mod fake;

use fake::{DEMO, FakeMachine, Size};

fn main() {
    let directory = std::env::var_os("MIRRORBALL_RUNTIME_DIR").expect("MIRRORBALL_RUNTIME_DIR names a directory");
    let numbers: Vec<u16> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let size = match numbers.as_slice() {
        [nodes, harts_per_node, vms, vcpus] => Size {
            nodes: u8::try_from(*nodes).expect("at most 255 nodes"),
            harts_per_node: *harts_per_node,
            vms: *vms,
            vcpus: *vcpus,
        },
        _ => DEMO,
    };
    FakeMachine::start(directory.as_ref(), size, true).wait();
}
