//! `/cpus`, and what else a guest learns about its processors.

use super::{PlatformSpec, phandle, write::NodeWriter};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// `/cpus`.
pub(super) fn cpus(spec: &PlatformSpec<'_>) -> NodeWriter {
    let isa = isa_string(spec.extensions);
    NodeWriter::new("cpus")
        .cell("#address-cells", 1)
        .cell("#size-cells", 0)
        .cell("timebase-frequency", spec.timebase_hz)
        .children((0..spec.vcpus).map(|vcpu| cpu(spec, vcpu, &isa)))
        .child(cpu_map(spec))
}

fn cpu(spec: &PlatformSpec<'_>, vcpu: u16, isa: &str) -> NodeWriter {
    let blocks = [
        ("riscv,cbom-block-size", spec.cache_blocks.management),
        ("riscv,cbop-block-size", spec.cache_blocks.prefetch),
        ("riscv,cboz-block-size", spec.cache_blocks.zero),
    ];
    let mut node = NodeWriter::new(format!("cpu@{vcpu:x}"))
        .with("device_type", "cpu")
        .cell("reg", u32::from(vcpu))
        .with("status", "okay")
        .with("compatible", "riscv")
        .with("riscv,isa", isa)
        .with("riscv,isa-base", "rv64i")
        .with("riscv,isa-extensions", spec.extensions)
        .with("mmu-type", spec.mmu.name())
        .cell("phandle", phandle::cpu(vcpu));
    for (name, size) in blocks {
        if let Some(size) = size {
            node = node.cell(name, size);
        }
    }
    if let Some(node_of) = spec.numa.and_then(|numa| numa.vcpu_nodes.get(usize::from(vcpu)).copied()) {
        node = node.cell("numa-node-id", node_of);
    }
    let interrupts = NodeWriter::new("interrupt-controller")
        .with("compatible", "riscv,cpu-intc")
        .cell("#address-cells", 0)
        .cell("#interrupt-cells", 1)
        .flag("interrupt-controller")
        .cell("phandle", phandle::cpu_interrupts(vcpu));
    node.child(interrupts)
}

/// `/cpus/cpu-map`: one cluster per node that has vCPUs.
fn cpu_map(spec: &PlatformSpec<'_>) -> NodeWriter {
    let node_of = |vcpu: u16| {
        let node = spec.numa.and_then(|numa| numa.vcpu_nodes.get(usize::from(vcpu)).copied());
        node.unwrap_or(0)
    };
    let mut nodes: Vec<u32> = (0..spec.vcpus).map(node_of).collect();
    order::ascending(&mut nodes);
    nodes.dedup();
    let clusters = nodes.into_iter().enumerate().map(|(cluster, node)| {
        let members = (0..spec.vcpus).filter(|vcpu| node_of(*vcpu) == node);
        let cores = members
            .enumerate()
            .map(|(core, vcpu)| NodeWriter::new(format!("core{core}")).cell("cpu", phandle::cpu(vcpu)));
        NodeWriter::new(format!("cluster{cluster}")).children(cores)
    });
    NodeWriter::new("cpu-map").children(clusters)
}

/// `riscv,isa`: single letters in one word, then the rest separated by underscores.
fn isa_string(extensions: &[&str]) -> String {
    let mut isa = String::from("rv64");
    let (letters, names): (Vec<&str>, Vec<&str>) = extensions.iter().copied().partition(|name| name.len() == 1);
    isa.extend(letters);
    for name in names {
        isa.push('_');
        isa.push_str(name);
    }
    isa
}
