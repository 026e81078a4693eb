//! Machines that the emulator does not have: its own device tree, changed.

use lab::rig::Rig;
use machine::tree::{self, MemoryRange, Topology};
use tempfile::TempDir;

use crate::ok;

/// A range of memory in MiB from the beginning of all memory, and its node.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Where it begins.
    pub start_mib: u64,
    /// Where it ends.
    pub end_mib: u64,
    /// The node that has it.
    pub node: u32,
}

/// Tells the machine that it has this memory, and that hart N belongs to node `harts[N]`. The files live in the folder.
///
/// # Panics
/// If the emulator refuses.
#[track_caller]
#[must_use]
pub fn with_nodes(rig: Rig, memory: &[Range], harts: &[u32]) -> (Rig, TempDir) {
    let dir = ok(tempfile::tempdir());
    let file = dir.path().join("machine.dtb");
    let rig = rig.hardware(|hardware| {
        assert_eq!(harts.len() as u64, u64::from(hardware.harts()), "each hart has a node");
        let wiring = machine::Wiring {
            payload: machine::Payload::Linux { kernel: "kernel".into(), initrd: None, cmdline: String::new() },
            log: "log".into(),
            faults: None,
            scratch: "scratch".into(),
            model: None,
        };
        let range = |range: &Range| MemoryRange {
            start: range.start_mib << 20,
            bytes: (range.end_mib - range.start_mib) << 20,
            node: range.node,
        };
        let topology = Topology { memory: memory.iter().map(range).collect(), harts: harts.to_vec(), distances: None };
        let emulator = ok(machine::Emulator::find(hardware.qemu.as_deref()));
        let old = ok(tree::of_emulator(&emulator, &machine::arguments(hardware, &wiring), &file));
        ok(std::fs::write(&file, ok(topology.write_into(&old))));
        hardware.qemu_args = vec!["-dtb".into(), file.display().to_string()];
    });
    (rig, dir)
}
