//! Machines at the edges of what there is: the largest, uneven ones, memory with holes.

use lab::rig::{Rig, Running};
use system_tests::tree::{Range, with_nodes};
use system_tests::{assert_all_returned, assert_passed, ok, probe};

/// 64 harts on eight nodes, and VMs as large as VMs can be.
fn largest(cpu: &str) {
    let rig = ok(ok(Rig::new("largest", 8, 256)).with_probe()).hardware(|hardware| hardware.cpu = cpu.into());
    let rig = (1..8).fold(rig, |rig, _| rig.node(8, 128));
    let machine = ok(rig.boot());
    let stats = ok(machine.stats());
    assert_eq!((stats.harts.len(), stats.nodes.len()), (64, 8));
    let before = ok(machine.free_bytes());
    let specs = ["a", "b"].map(|vm| probe(vm, 32, "probe=all-harts,hsm,ipi,rfence,fp,vector,memory,sbi-errors"));
    for spec in &specs {
        ok(machine.start(spec));
    }
    for spec in &specs {
        assert_passed(&ok(machine.end_of(&spec.name)));
    }
    assert_all_returned(&machine, before);
}

#[test]
fn sixty_four_harts_on_eight_nodes() {
    largest("rva23s64");
}

/// Sv57 and hardware that updates accessed and dirty bits.
#[test]
fn sixty_four_harts_of_the_largest_cpu() {
    largest("max");
}

/// A small node and a large one, each in two pieces, with holes between them.
fn with_holes(rig: Rig) -> (Rig, tempfile::TempDir) {
    let pieces = [(0, 192, 0), (224, 352, 1), (352, 416, 0), (481, 768, 1)];
    let memory = pieces.map(|(start_mib, end_mib, node)| Range { start_mib, end_mib, node });
    with_nodes(rig, &memory, &[0, 1, 1])
}

/// Nobody uses what is not there: VMs that need more than the first node has find the rest behind the holes.
#[test]
fn memory_may_have_holes() {
    let rig = ok(ok(Rig::new("holes", 1, 256)).with_probe()).node(2, 512);
    let (rig, _dir) = with_holes(rig);
    let machine: Running = ok(rig.boot());
    let totals: Vec<_> = ok(machine.stats()).nodes.iter().map(|node| node.total_bytes >> 20).collect();
    assert!(totals.len() == 2 && totals[0] <= 192 + 64 && totals[1] <= 128 + 287, "{totals:?} MiB");
    assert!(totals[0] > 192 && totals[1] > 287, "a piece is missing: {totals:?} MiB");
    let before = ok(machine.free_bytes());
    let mut spec = probe("vm", 2, "probe=memory,all-harts,rfence,reporting");
    spec.memory_mib = 416;
    assert_passed(&ok(machine.run(&spec)));
    assert_all_returned(&machine, before);
}
