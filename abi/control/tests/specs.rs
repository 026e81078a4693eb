//! Descriptions: what is refused, and with which words.

use addr::NodeId;
use control::{
    Boot, BootConfig, BootConfigError, CellSpec, DiskMode, DiskSpec, Label, MacAddress, Name, NetSpec, OverlaySpec,
    Segment, SubnetSpec, VmSpec,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn vm(text: &str) -> VmSpec {
    let kernel = Label::new("kernel").expect("a good label");
    VmSpec::new(name(text), 2, 256, Boot::Kernel { kernel, initrd: None, cmdline: "console=ttyS0".into() })
}

fn disk(disk_name: &str, source: &str, mode: DiskMode) -> DiskSpec {
    DiskSpec { name: name(disk_name), source: name(source), partition: None, mode, overlay: None, limit_mib: None }
}

fn net(subnet: &str) -> NetSpec {
    NetSpec { subnet: name(subnet), mac: None, mtu: 1500 }
}

fn config(vms: Vec<VmSpec>) -> BootConfig {
    BootConfig { vms, subnets: vec![SubnetSpec { name: name("lan"), gateway: true }], ..BootConfig::new(name("test")) }
}

fn complaint(spec: &VmSpec) -> String {
    spec.validate().expect_err("it is wrong").to_string()
}

#[test]
fn a_good_configuration_survives_the_trip() {
    let mut one = vm("one");
    one.disks.push(disk("root", "debian", DiskMode::CopyOnWrite));
    one.nets.push(net("lan"));
    let config = config(vec![one.clone(), VmSpec { name: name("two"), ..one }]);
    let bytes = config.to_bytes().expect("it is good");
    assert_eq!(BootConfig::from_bytes(&bytes), Ok(config));
}

#[test]
fn numbers_have_ranges() {
    assert_eq!(complaint(&VmSpec { vcpus: 0, ..vm("a") }), "vcpus: 0 is not in 1 to 32");
    assert_eq!(complaint(&VmSpec { vcpus: 33, ..vm("a") }), "vcpus: 33 is not in 1 to 32");
    assert_eq!(complaint(&VmSpec { memory_mib: 257, ..vm("a") }), "memory_mib: 257 is not a multiple of 2");
    assert_eq!(complaint(&VmSpec { memory_mib: 8, ..vm("a") }), "memory_mib: 8 is not in 32 to 1048576");
    assert_eq!(complaint(&VmSpec { weight: 0, ..vm("a") }), "weight: 0 is not in 1 to 10000");
}

#[test]
fn a_command_line_has_no_nul_and_an_end() {
    let mut spec = vm("a");
    let kernel = Label::new("k").expect("a good label");
    spec.boot = Boot::Kernel { kernel: kernel.clone(), initrd: None, cmdline: "a\0b".into() };
    assert_eq!(complaint(&spec), "boot.cmdline: it must not contain control characters");
    spec.boot = Boot::Kernel { kernel, initrd: None, cmdline: "x".repeat(2049) };
    assert_eq!(complaint(&spec), "boot.cmdline: 2049 bytes are too long, at most 2048 fit");
}

#[test]
fn devices_fit_into_the_slots() {
    let mut spec = vm("a");
    spec.disks = (0..6).map(|n| disk(&format!("d{n}"), "s", DiskMode::ReadOnly)).collect();
    assert!(complaint(&spec).contains("9 virtio slots are needed"));
    spec.rng = false;
    assert_eq!(spec.validate(), Ok(()));
}

#[test]
fn a_disk_name_fits_a_virtio_serial() {
    let mut spec = vm("a");
    spec.disks = vec![disk("a-name-of-21-bytes-xx", "s", DiskMode::ReadOnly)];
    assert_eq!(complaint(&spec), "disks[0].name: 21 bytes are too long, at most 20 fit");
}

#[test]
fn a_persistent_disk_has_one_user() {
    let mut one = vm("one");
    one.disks = vec![disk("root", "debian", DiskMode::Persistent)];
    let mut two = vm("two");
    two.disks = vec![disk("root", "debian", DiskMode::CopyOnWrite)];
    let error = config(vec![one.clone(), two.clone()]).validate().expect_err("they clash");
    assert_eq!(
        error.to_string(),
        "vms[1].disks[0].source: disk \"debian\" cannot be shared with \"one\": one of them mounts it persistent"
    );
    // Two partitions of one disk do not clash, a partition and the whole do.
    one.disks[0].partition = Some("a".into());
    assert!(config(vec![one.clone(), two.clone()]).validate().is_err());
    two.disks[0].partition = Some("b".into());
    assert_eq!(config(vec![one.clone(), two]).validate(), Ok(()));
    // Not even a VM with itself.
    one.disks.push(DiskSpec { name: name("again"), ..one.disks[0].clone() });
    assert!(complaint(&one).contains("cannot be shared with \"one\""));
}

#[test]
fn names_are_unique_and_known() {
    let error = config(vec![vm("a"), vm("a")]).validate().expect_err("the name is double");
    assert_eq!(error.to_string(), "vms: \"a\" is used twice");
    let mut spec = vm("a");
    spec.nets = vec![net("wan")];
    let error = config(vec![spec.clone()]).validate().expect_err("there is no such subnet");
    assert_eq!(error.to_string(), "vms[0].nets[0].subnet: there is no subnet \"wan\"");
    spec.nets = vec![NetSpec { mac: Some(MacAddress([3, 0, 0, 0, 0, 1])), ..net("lan") }];
    assert_eq!(complaint(&spec), "nets[0].mac: a multicast address cannot belong to one interface");
    let same = NetSpec { mac: Some(MacAddress([2, 0, 0, 0, 0, 1])), ..net("lan") };
    let twins = ["a", "b"].map(|text| VmSpec { nets: vec![same.clone()], ..vm(text) });
    let error = config(twins.into()).validate().expect_err("the address is double");
    assert_eq!(error.to_string(), "vms.nets.mac: \"02:00:00:00:00:01\" is used twice");
}

#[test]
fn nodes_are_at_most_one_per_vcpu() {
    for (vcpus, nodes, most) in [(2, 3, 2), (2, 0, 2), (32, 9, 8)] {
        let mut vm = vm("a");
        (vm.vcpus, vm.nodes) = (vcpus, nodes);
        let error = vm.validate().expect_err("no such machine");
        assert_eq!(error.to_string(), format!("nodes: {nodes} is not in 1 to {most}"));
    }
}

#[test]
fn one_gateway() {
    let mut config = config(vec![]);
    config.subnets.push(SubnetSpec { name: name("wan"), gateway: true });
    let error = config.validate().expect_err("there are two");
    assert_eq!(error.to_string(), "subnets[1].gateway: subnet \"lan\" has the gateway already");
}

#[test]
fn another_version_and_damage_are_told_apart() {
    let mut bytes = config(vec![vm("a")]).to_bytes().expect("it is good");
    bytes.pop();
    assert_eq!(BootConfig::from_bytes(&bytes), Err(BootConfigError::Damaged));
    let ours = control::BOOT_CONFIG_VERSION;
    bytes[0] = ours as u8 + 1;
    let error = BootConfig::from_bytes(&bytes).expect_err("it is another version");
    let text = format!("the boot configuration has version {}, this monitor reads version {ours}", ours + 1);
    assert_eq!(error.to_string(), text);
}

#[test]
fn mac_addresses_are_read_strictly() {
    assert_eq!("02:00:00:00:00:0a".parse(), Ok(MacAddress([2, 0, 0, 0, 0, 10])));
    for bad in ["", "02:00:00:00:00", "02:00:00:00:00:0a:0b", "2:0:0:0:0:1", "02:00:00:00:00:+1"] {
        let _ = bad.parse::<MacAddress>().expect_err(bad);
    }
}

/// A VM of 64 MiB with a program of these pieces: (address, bytes of the file, bytes of memory).
fn program(entry: u64, pieces: &[(u64, u64, u64)]) -> VmSpec {
    let piece = |&(address, file_bytes, memory_bytes)| Segment { offset: 0, file_bytes, address, memory_bytes };
    let boot = Boot::Program {
        program: Label::new("program").expect("a good label"),
        entry,
        segments: pieces.iter().map(piece).collect(),
        initrd: None,
        cmdline: String::new(),
    };
    VmSpec::new(name("a"), 1, 64, boot)
}

#[test]
fn a_program_lies_in_the_guests_memory() {
    assert_eq!(program(0x8020_0000, &[(0x8020_0000, 4096, 8192), (0x8020_2000, 0, 4096)]).validate(), Ok(()));
    // Right up to the device tree.
    assert_eq!(program(0x8000_0000, &[(0x8000_0000, 1, 62 << 20)]).validate(), Ok(()));
    let outside = [
        (0x7fff_f000, 4096, 8192),
        (0x83df_f000, 4096, 4097),
        (0, 1, 1),
        (u64::MAX - 1, 2, 8),
        (0x8020_0000, 0, u64::MAX),
    ];
    for piece in outside {
        let complaint = complaint(&program(piece.0, &[piece]));
        assert!(
            complaint.starts_with("boot.segments[0]: 0x") && complaint.contains("0x80000000 to 0x83e00000"),
            "{complaint}"
        );
    }
}

#[test]
fn pieces_of_a_program_lie_apart() {
    let wrong = program(0x8020_0000, &[(0x8020_0000, 16, 4096), (0x8030_0000, 1, 1), (0x8020_0fff, 1, 1)]);
    assert_eq!(complaint(&wrong), "boot.segments[2]: the pieces at 0x80200fff and 0x80200000 overlap");
    let around = program(0x8020_0000, &[(0x8020_0000, 1, 1), (0x8000_0000, 0, 4 << 20)]);
    assert!(complaint(&around).ends_with("overlap"));
    assert_eq!(complaint(&program(0, &[])), "boot.segments: it must not be empty");
    assert_eq!(complaint(&program(0x8020_0000, &[(0x8020_0000, 0, 0)])), "boot.segments[0]: it must not be empty");
    let small = program(0x8020_0000, &[(0x8020_0000, 17, 16)]);
    assert_eq!(
        complaint(&small),
        "boot.segments[0]: the piece at 0x80200000 brings 17 bytes of the file and has room for 16"
    );
    let many: Vec<_> = (0..17).map(|n| (0x8020_0000 + n * 16, 1, 1)).collect();
    assert_eq!(complaint(&program(0x8020_0000, &many)), "boot.segments: 17 are too many, at most 16 are possible");
}

#[test]
fn a_program_is_entered_where_it_is() {
    for entry in [0x801f_fffe, 0x8020_1000, 0, u64::MAX - 1] {
        let complaint = complaint(&program(entry, &[(0x8020_0000, 16, 4096)]));
        assert_eq!(complaint, format!("boot.entry: the entry {entry:#x} is in no piece of the program"));
    }
}

/// Bytes of a program may lie anywhere, but no instruction begins at an odd address.
#[test]
fn a_program_is_not_entered_at_an_odd_address() {
    let odd = program(0x8020_0001, &[(0x8020_0001, 16, 16)]);
    let why = "boot.entry: a program cannot be entered at 0x80200001: instructions begin at multiples of 2";
    assert_eq!(complaint(&odd), why);
    assert_eq!(complaint(&program(0x8020_0003, &[(0x8020_0000, 16, 16)])), why.replace("200001", "200003"));
    assert_eq!(program(0x8020_0002, &[(0x8020_0001, 16, 16)]).validate(), Ok(()));
}

fn cells(parts: &[&[u8]], vms: Vec<VmSpec>) -> BootConfig {
    let cell = |(at, nodes): (usize, &&[u8])| CellSpec {
        name: name(&format!("c{at}")),
        nodes: nodes.iter().copied().map(NodeId).collect(),
    };
    BootConfig { cells: parts.iter().enumerate().map(cell).collect(), ..config(vms) }
}

#[test]
fn a_node_is_in_one_cell() {
    let complaint = |parts: &[&[u8]]| cells(parts, vec![]).validate().expect_err("it is wrong").to_string();
    assert_eq!(complaint(&[&[0], &[]]), "cells[1].nodes: it must not be empty");
    assert_eq!(complaint(&[&[1], &[0]]), "cells[0].nodes: the first cell must have node 0, where the machine boots");
    assert_eq!(complaint(&[&[0, 1], &[2, 1]]), "cells[1].nodes: node 1 is named twice");
    assert_eq!(complaint(&[&[0, 3, 3]]), "cells[0].nodes: node 3 is named twice");
    assert_eq!(complaint(&[&[0_u8] as &[u8]; 9]), "cells: 9 are too many, at most 8 are possible");
    let mut twins = cells(&[&[0], &[1]], vec![]);
    twins.cells[1].name = name("c0");
    assert_eq!(twins.validate().expect_err("two c0").to_string(), "cells: \"c0\" is used twice");
}

#[test]
fn cells_share_the_machines_nodes_out() {
    let nodes = |parts: &[&[u8]], count| cells(parts, vec![]).nodes_by_cell(count).map_err(|error| error.to_string());
    assert_eq!(nodes(&[], 2), Ok(vec![vec![NodeId(0), NodeId(1)]]));
    assert_eq!(nodes(&[&[0, 2], &[1]], 3), Ok(vec![vec![NodeId(0), NodeId(2)], vec![NodeId(1)]]));
    assert_eq!(nodes(&[&[0, 2], &[1]], 2), Err("cells[0].nodes: the machine has no node 2".into()));
    assert_eq!(nodes(&[&[0], &[1]], 3), Err("cells: node 2 is in no cell".into()));
}

#[test]
fn disks_that_are_written_are_the_first_cells() {
    let bare = VmSpec { ports: vec![], ..vm("a") };
    let complaint = |spec: VmSpec| {
        let error = cells(&[&[0], &[1]], vec![spec]).validate();
        error.expect_err("it is wrong").to_string()
    };
    assert_eq!(cells(&[&[0], &[1]], vec![VmSpec { cell: 1, ..bare.clone() }, vm("b")]).validate(), Ok(()));
    assert_eq!(complaint(VmSpec { cell: 2, ..bare.clone() }), "vms[0].cell: there is no cell 2");
    let why = "only a VM of the first cell can write a disk for good: the others do not drive it";
    let read = || vec![disk("root", "debian", DiskMode::CopyOnWrite), disk("data", "other", DiskMode::ReadOnly)];
    let elsewhere = VmSpec { cell: 1, disks: read(), nets: vec![net("lan")], ..vm("a") };
    let subnet = || SubnetSpec { name: name("lan"), gateway: false };
    let with_net = |vm| BootConfig { subnets: vec![subnet()], ..cells(&[&[0], &[1]], vec![vm]) };
    assert_eq!(with_net(elsewhere.clone()).validate(), Ok(()));
    let disks = [read(), vec![disk("kept", "third", DiskMode::Persistent)]].concat();
    assert_eq!(complaint(VmSpec { cell: 1, disks, ..bare.clone() }), format!("vms[0].disks[2]: {why}"));
    let mut kept = disk("root", "debian", DiskMode::CopyOnWrite);
    kept.overlay = Some(OverlaySpec { disk: name("store"), partition: None, snapshot: None });
    assert_eq!(complaint(VmSpec { cell: 1, disks: vec![kept], ..bare.clone() }), format!("vms[0].disks[0]: {why}"));
    // Without cells there is one.
    assert_eq!(config(vec![bare.clone()]).validate(), Ok(()));
    let lost = config(vec![VmSpec { cell: 1, ..bare }]).validate().expect_err("no such cell");
    assert_eq!(lost.to_string(), "vms[0].cell: there is no cell 1");
}

/// Whoever explains a description to people wants all that is wrong with it, and not what follows from something else that is.
#[test]
fn all_problems_are_told_with_their_places() {
    let mut first = vm("a");
    (first.vcpus, first.nodes, first.memory_mib, first.weight) = (0, 2, 0, 0);
    first.boot = program(0x8020_0001, &[(0x8020_0001, 1, 1)]).boot;
    let second = VmSpec { nets: vec![net("wan"), net("man")], memory_mib: 65, ..vm("a") };
    let mut config = config(vec![first, second, vm("b"), vm("b")]);
    config.options.time_slice_us = 1;
    config.options.console_kib = 1;
    let places: Vec<String> = config.problems().iter().map(|error| error.field.clone()).collect();
    // No nodes without vCPUs, and no place for a program without memory.
    let wanted = [
        "options.time_slice_us",
        "options.console_kib",
        "vms",
        "vms",
        "vms[0].vcpus",
        "vms[0].memory_mib",
        "vms[0].weight",
        "vms[0].boot.entry",
        "vms[1].memory_mib",
        "vms[1].nets[0].subnet",
        "vms[1].nets[1].subnet",
    ];
    assert_eq!(places, wanted);
    assert_eq!(config.validate().map_err(|error| error.field), Err("options.time_slice_us".to_owned()));
    assert_eq!(config.vms[2].problems(), []);
}
