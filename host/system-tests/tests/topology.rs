//! Nodes that a guest asked for.

use control::{VmMemory, VmSpec};
use lab::rig::Rig;
use system_tests::debian::{Shell, debian, with_debian};
use system_tests::ok;

/// An unmodified guest sees two nodes with their processors and memory, and what its programs take on one of them comes from
/// the node of the machine that this one lies on.
#[test]
fn a_guest_sees_the_nodes_that_it_asked_for() {
    let machine = ok(with_debian(ok(Rig::new("topology", 2, 768)).node(2, 768)).boot());
    let spec = VmSpec { nodes: 2, memory_mib: 512, ..debian("two", 4) };
    ok(machine.client().create_vm(spec.clone()));
    let mut shell = Shell::start(&machine, &spec);
    let of_nodes = "cd /sys/devices/system/node; cat online node0/cpulist node1/cpulist node0/distance node1/distance";
    assert_eq!(shell.run(of_nodes), "0-1\n0-1\n2-3\n10 20\n20 10");
    let sizes = shell.run("sed -n 's/.*MemTotal: *//p' /sys/devices/system/node/node*/meminfo");
    let kib: Vec<u64> = sizes.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert!(kib.len() == 2 && kib.iter().all(|kib| *kib > 180 << 10), "{sizes}");

    let pages = |node: usize| {
        let memory = ok(machine.client().vm_stats(&spec.name)).memory;
        memory.get(node).map_or(0, VmMemory::guest_pages)
    };
    let before = [pages(0), pages(1)];
    // Processors of node 1 write 80 MiB.
    shell.run("taskset -c 2 dd if=/dev/urandom of=/dev/shm/there bs=1M count=80 status=none");
    let taken = [0, 1].map(|node| pages(node).saturating_sub(before[node]));
    assert!(taken[1] > 60 * 256 && taken[0] < 20 * 256, "{taken:?} pages");
    shell.stop(&machine);
}
