//! Trees no good firmware makes: each is refused with the node and property at fault, none makes the parser panic.

mod common;

use addr::{HartId, MachineAddr, NodeId};
use common::fixture;
use dtoolkit::{
    fdt::Fdt,
    model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty},
};
use machine_tree::{MAX_HARTS, MAX_NODES, MachineDescription, Problem, TreeError};
use proptest::prelude::*;

fn cells(cells: &[u32]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
}

fn node(name: &str, properties: &[(&str, Vec<u8>)]) -> DeviceTreeNode {
    let mut builder = DeviceTreeNode::builder(name).expect("legal node name");
    for (name, value) in properties {
        builder = builder.property(DeviceTreeProperty::new(*name, value.clone()).expect("legal property name"));
    }
    builder.build()
}

fn hart(id: u32, firmware_node: u32) -> DeviceTreeNode {
    node(
        &format!("cpu@{id:x}"),
        &[
            ("device_type", b"cpu\0".to_vec()),
            ("reg", cells(&[id])),
            ("riscv,isa", b"rv64imach_sstc\0".to_vec()),
            ("mmu-type", b"riscv,sv48\0".to_vec()),
            ("numa-node-id", cells(&[firmware_node])),
        ],
    )
}

fn memory(start: u32, bytes: u32, firmware_node: u32) -> DeviceTreeNode {
    node(
        &format!("memory@{start:x}"),
        &[
            ("device_type", b"memory\0".to_vec()),
            ("reg", cells(&[0, start, 0, bytes])),
            ("numa-node-id", cells(&[firmware_node])),
        ],
    )
}

/// A tree from its harts and the rest of the root's children.
fn tree(harts: Vec<DeviceTreeNode>, others: Vec<DeviceTreeNode>) -> DeviceTree {
    let mut tree = DeviceTree::new();
    for (name, value) in [("#address-cells", 2), ("#size-cells", 2)] {
        tree.root.add_property(DeviceTreeProperty::new(name, cells(&[value])).expect("legal property name"));
    }
    let mut cpus = node("cpus", &[("timebase-frequency", cells(&[1000])), ("#address-cells", cells(&[1]))]);
    harts.into_iter().for_each(|hart| cpus.add_child(hart));
    tree.root.add_child(cpus);
    others.into_iter().for_each(|other| tree.root.add_child(other));
    tree
}

fn parse(tree: &DeviceTree) -> Result<MachineDescription, TreeError> {
    MachineDescription::parse(&tree.to_dtb())
}

fn refused(tree: &DeviceTree, node: &str, property: &str, problem: Problem) {
    let want = TreeError { node: node.into(), property: property.into(), problem };
    assert_eq!(parse(tree).expect_err("a bad tree"), want);
}

#[test]
fn node_ids_become_dense_and_memory_may_have_holes() {
    let others = vec![memory(0xc000_0000, 0x1000_0000, 40), memory(0x8000_0000, 0x2000_0000, 7)];
    let machine = parse(&tree(vec![hart(9, 40), hart(3, 12), hart(4, 40)], others)).expect("odd but legal");
    assert_eq!(machine.nodes.count(), 3);
    assert_eq!(machine.nodes.firmware_id(NodeId(2)), Some(40));
    let harts: Vec<_> = machine.harts.iter().map(|hart| (hart.id.0, hart.node.0)).collect();
    assert_eq!(harts, [(3, 1), (4, 2), (9, 2)]);
    let starts: Vec<_> = machine.memory.iter().map(|m| (m.range.start().raw(), m.node.0)).collect();
    assert_eq!(starts, [(0x8000_0000, 0), (0xc000_0000, 2)]);
}

#[test]
fn disabled_harts_are_listed_apart() {
    let mut parked = hart(1, 0);
    parked.add_property(DeviceTreeProperty::new("status", b"disabled\0".to_vec()).expect("legal name"));
    let machine = parse(&tree(vec![hart(0, 0), parked], vec![memory(0x8000_0000, 0x1000, 0)])).expect("legal");
    assert_eq!(machine.harts.len(), 1);
    assert_eq!(machine.disabled_harts, [HartId(1)]);
}

#[test]
fn no_cpus_no_memory_no_timebase() {
    let memory = || vec![memory(0x8000_0000, 0x1000, 0)];
    refused(&tree(vec![], memory()), "/cpus", "cpu", Problem::Missing);
    refused(&tree(vec![hart(0, 0)], vec![]), "/", "memory", Problem::Missing);
    let mut stopped = tree(vec![hart(0, 0)], memory());
    let cpus = stopped.root.child_mut("cpus").expect("there");
    cpus.add_property(DeviceTreeProperty::new("timebase-frequency", cells(&[0])).expect("legal name"));
    refused(&stopped, "/cpus", "timebase-frequency", Problem::OutOfRange { value: 0 });
    refused(&DeviceTree::new(), "/", "cpus", Problem::Missing);
}

#[test]
fn too_much_of_a_good_thing() {
    let memory = || vec![memory(0x8000_0000, 0x1000, 0)];
    let many = (0..=MAX_HARTS as u32).map(|id| hart(id, 0)).collect();
    let problem = Problem::TooMany { found: MAX_HARTS + 1, limit: MAX_HARTS };
    refused(&tree(many, memory()), "/cpus", "cpu", problem);
    let scattered = (0..=MAX_NODES as u32).map(|id| hart(id, id)).collect();
    let problem = Problem::TooMany { found: MAX_NODES + 1, limit: MAX_NODES };
    refused(&tree(scattered, memory()), "/", "numa-node-id", problem);
}

#[test]
fn contradictions() {
    let mut twin = hart(1, 0);
    twin.add_property(DeviceTreeProperty::new("reg", cells(&[0])).expect("legal name"));
    let good = || memory(0x8000_0000, 0x1000, 0);
    refused(&tree(vec![hart(0, 0), twin], vec![good()]), "/cpus", "reg", Problem::Duplicate { value: 0 });
    let overlap = vec![good(), memory(0x8000_0800, 0x1000, 0)];
    refused(&tree(vec![hart(0, 0)], overlap), "/", "memory", Problem::Duplicate { value: 0x8000_0800 });
    let mut wraps = good();
    let reg = DeviceTreeProperty::new("reg", cells(&[u32::MAX, 0, 1, 0])).expect("legal name");
    wraps.add_property(reg);
    let problem = Problem::Wraps { start: 0xffff_ffff_0000_0000, bytes: 1 << 32 };
    refused(&tree(vec![hart(0, 0)], vec![wraps]), "/memory@80000000", "reg", problem);
}

#[test]
fn lengths_and_kinds() {
    let with = |name: &str, value: Vec<u8>| {
        let mut bad = hart(0, 0);
        bad.add_property(DeviceTreeProperty::new(name, value).expect("legal name"));
        tree(vec![bad], vec![memory(0x8000_0000, 0x1000, 0)])
    };
    let at = "/cpus/cpu@0";
    refused(&with("numa-node-id", vec![0; 3]), at, "numa-node-id", Problem::WrongLength { got: 3, unit: 4 });
    refused(&with("riscv,isa", b"rv64imac".to_vec()), at, "riscv,isa", Problem::NotText);
    refused(&with("riscv,isa", b"rv32imac\0".to_vec()), at, "riscv,isa", Problem::UnsupportedBase);
    let name = "riscv,cboz-block-size";
    refused(&with(name, cells(&[48])), at, name, Problem::OutOfRange { value: 48 });
}

#[test]
fn distances_are_checked() {
    let map = |matrix: &[u32]| {
        let compatible = b"numa-distance-map-v1\0".to_vec();
        let map = node("distance-map", &[("compatible", compatible), ("distance-matrix", cells(matrix))]);
        tree(vec![hart(0, 0), hart(1, 1)], vec![memory(0x8000_0000, 0x1000, 0), map])
    };
    let one_way = parse(&map(&[0, 1, 31])).expect("one direction is enough");
    assert_eq!(one_way.nodes.distance(NodeId(1), NodeId(0)), 31);
    let (at, name) = ("/distance-map", "distance-matrix");
    refused(&map(&[0, 1, 10]), at, name, Problem::OutOfRange { value: 10 });
    refused(&map(&[0, 0, 11]), at, name, Problem::OutOfRange { value: 11 });
    refused(&map(&[0, 1, 256]), at, name, Problem::OutOfRange { value: 256 });
    refused(&map(&[0, 1]), at, name, Problem::WrongLength { got: 8, unit: 12 });
}

#[test]
fn buses_translate_or_refuse() {
    let slot = |bus: &[(&str, Vec<u8>)]| {
        let mut bus = node("bus", bus);
        bus.add_child(node("virtio@100", &[("compatible", b"virtio,mmio\0".to_vec()), ("reg", cells(&[0x100, 0x10]))]));
        tree(vec![hart(0, 0)], vec![memory(0x8000_0000, 0x1000, 0), bus])
    };
    let one = || ("#address-cells", cells(&[1]));
    let mapped = slot(&[one(), ("ranges", cells(&[0, 0, 0x4000_0000, 0x1000]))]);
    let machine = parse(&mapped).expect("a translated bus");
    assert_eq!(machine.virtio_mmio[0].registers.start(), MachineAddr::new(0x4000_0100));
    assert_eq!(machine.virtio_mmio[0].interrupt, None);
    let problem = Problem::NotTranslatable { address: 0x100 };
    refused(&slot(&[one()]), "/bus/virtio@100", "reg", problem.clone());
    refused(&slot(&[one(), ("ranges", cells(&[0, 0, 0x4000_0000, 0x108]))]), "/bus/virtio@100", "reg", problem);
}

#[test]
fn dangling_interrupt_parents_are_named() {
    let device = |extra: (&str, Vec<u8>)| {
        let compatible = ("compatible", b"ns16550a\0".to_vec());
        let uart = node("uart@1000", &[compatible, ("reg", cells(&[0, 0x1000, 0, 0x100])), extra]);
        tree(vec![hart(0, 0)], vec![memory(0x8000_0000, 0x1000, 0), uart])
    };
    let dangling = device(("interrupts-extended", cells(&[77, 1])));
    refused(&dangling, "/uart@1000", "interrupts-extended", Problem::UnknownPhandle { phandle: 77 });
    refused(&device(("interrupts", cells(&[1]))), "/uart@1000", "interrupt-parent", Problem::Missing);
}

#[test]
fn bottomless_nesting_is_refused() {
    let mut deep = node("n", &[]);
    for _ in 0..100 {
        let mut outer = node("n", &[]);
        outer.add_child(deep);
        deep = outer;
    }
    let error = parse(&tree(vec![hart(0, 0)], vec![deep])).expect_err("too deep");
    assert!(matches!(error.problem, Problem::TooDeep { .. }), "{error}");
}

#[test]
fn errors_read_well() {
    let error = parse(&tree(vec![], vec![])).expect_err("no harts");
    assert_eq!(error.to_string(), "device tree: /cpus: property cpu: missing");
    let error = MachineDescription::parse(&[0; 64]).expect_err("no tree");
    assert!(error.to_string().starts_with("device tree: malformed blob: "), "{error}");
}

const FIXTURES: [&str; 4] = ["plic-1-hart", "plic-2-nodes", "aia-4-nodes-after-opensbi", "aplic-wired"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Bytes flipped anywhere in a good blob: an answer or an error, no panic.
    #[test]
    fn flipped_bytes_never_panic(
        which in 0..FIXTURES.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut blob = fixture(FIXTURES[which]);
        for (index, value) in flips {
            let at = index.index(blob.len());
            blob[at] = value;
        }
        if let Err(error) = MachineDescription::parse(&blob) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// Property values replaced by edge-case cells inside a structurally good tree reach deeper than flips do.
    #[test]
    fn hostile_properties_never_panic(
        which in 0..FIXTURES.len(),
        targets in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        value in prop::collection::vec(prop::sample::select(vec![0, 1, 2, 3, 4, 31, 255, 0x8000_0000, u32::MAX]), 0..12),
    ) {
        let blob = fixture(FIXTURES[which]);
        let mut tree = DeviceTree::from_fdt(&Fdt::new(&blob).expect("fixture"));
        for target in targets {
            let count = count_properties(&tree.root);
            replace_property(&mut tree.root, &mut target.index(count), &cells(&value));
        }
        let _ = parse(&tree);
    }

    /// Cut anywhere.
    #[test]
    fn truncation_never_panics(which in 0..FIXTURES.len(), keep in any::<prop::sample::Index>()) {
        let blob = fixture(FIXTURES[which]);
        let keep = keep.index(blob.len());
        prop_assert!(MachineDescription::parse(&blob[..keep]).is_err());
    }
}

fn count_properties(node: &DeviceTreeNode) -> usize {
    use dtoolkit::Node as _;
    node.properties().count() + node.children().map(count_properties).sum::<usize>()
}

/// Overwrites the `n`th property in document order; counts `n` down on the way.
fn replace_property(node: &mut DeviceTreeNode, n: &mut usize, value: &[u8]) -> bool {
    let own = node.properties_mut().count();
    if *n < own {
        if let Some(property) = node.properties_mut().nth(*n) {
            property.set_value(value.to_vec());
        }
        return true;
    }
    *n -= own;
    node.children_mut().any(|child| replace_property(child, n, value))
}
