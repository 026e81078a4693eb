//! Machines that the emulator does not have: its own device tree, changed. It gives all its memory the same latency, so
//! what the tree says about nodes is as true as what it says itself.

use std::path::Path;
use std::process::Command;

use config::Hardware;
use dtoolkit::Node as _;
use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use lab::rig::Rig;
use tempfile::TempDir;

use crate::ok;

/// First byte of memory.
const RAM: u64 = 0x8000_0000;

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
        dump(hardware, &file);
        let blob = ok(std::fs::read(&file));
        let mut tree = DeviceTree::from_fdt(&ok(Fdt::new(&blob)));
        set_memory(&mut tree.root, memory);
        set_harts(&mut tree.root, harts);
        set_distances(&mut tree.root, memory, harts);
        ok(std::fs::write(&file, tree.to_dtb()));
        hardware.qemu_args = vec!["-dtb".into(), file.display().to_string()];
    });
    (rig, dir)
}

/// Writes the tree that the emulator would give this hardware.
#[track_caller]
fn dump(hardware: &Hardware, to: &Path) {
    const OF_INTEREST: [&str; 6] = ["-M", "-cpu", "-smp", "-m", "-object", "-numa"];
    let wiring = machine::Wiring {
        payload: machine::Payload::Linux { kernel: "kernel".into(), initrd: None, cmdline: String::new() },
        log: "log".into(),
        faults: None,
        scratch: "scratch".into(),
        model: None,
    };
    let words = machine::arguments(hardware, &wiring);
    let of_interest = words.windows(2).filter(|pair| OF_INTEREST.iter().any(|flag| pair[0] == *flag));
    let emulator = ok(machine::Emulator::find(hardware.qemu.as_deref()));
    let output = Command::new(&emulator.program)
        .args(of_interest.flatten())
        .args(["-display", "none", "-bios", "none", "-machine", &format!("dumpdtb={}", to.display())])
        .output();
    let output = ok(output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn set_memory(root: &mut DeviceTreeNode, memory: &[Range]) {
    let old: Vec<_> =
        root.children().map(|child| child.name().to_owned()).filter(|name| name.starts_with("memory@")).collect();
    old.iter().for_each(|name| drop(root.remove_child(name)));
    for range in memory {
        let (start, bytes) = (RAM + (range.start_mib << 20), (range.end_mib - range.start_mib) << 20);
        let mut node = DeviceTreeNode::new_unchecked(format!("memory@{start:x}"));
        set(&mut node, "device_type", b"memory\0");
        set(&mut node, "reg", &[start.to_be_bytes(), bytes.to_be_bytes()].concat());
        set(&mut node, "numa-node-id", &range.node.to_be_bytes());
        root.add_child(node);
    }
}

fn set_harts(root: &mut DeviceTreeNode, harts: &[u32]) {
    let cpus = root.child_mut("cpus").expect("a machine has harts");
    for (hart, node) in harts.iter().enumerate() {
        let cpu = cpus.child_mut(&format!("cpu@{hart}")).expect("the emulator numbers harts from 0");
        set(cpu, "numa-node-id", &node.to_be_bytes());
    }
}

/// All nodes are equally far from each other.
fn set_distances(root: &mut DeviceTreeNode, memory: &[Range], harts: &[u32]) {
    let nodes = memory.iter().map(|range| range.node).chain(harts.iter().copied()).max().map_or(1, |last| last + 1);
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    let triples = pairs.flat_map(|(from, to)| [from, to, if from == to { 10 } else { 20 }]);
    let matrix: Vec<u8> = triples.flat_map(u32::to_be_bytes).collect();
    root.remove_child("distance-map");
    let mut map = DeviceTreeNode::new_unchecked("distance-map");
    set(&mut map, "compatible", b"numa-distance-map-v1\0");
    set(&mut map, "distance-matrix", &matrix);
    root.add_child(map);
}

fn set(node: &mut DeviceTreeNode, name: &str, value: &[u8]) {
    node.remove_property(name);
    node.add_property(DeviceTreeProperty::new_unchecked(name, value.to_vec()));
}
