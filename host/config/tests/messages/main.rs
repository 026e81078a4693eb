//! Wrong descriptions and the whole messages that they get.

mod together;

use std::fs;
use std::ops::Add;
use std::path::Path;

use config::{ConfigError, Loader, MachinePlan};

/// A good machine to make wrong.
const GOOD: &str = r#"name = "test"

[[node]]
harts = 2
memory_mib = 1024

[[disk]]
name = "debian"
file = "debian.img"

[[subnet]]
name = "lan"

[[vm]]
name = "one"
vcpus = 2
memory_mib = 256
kernel = "Image"
disk = [{ source = "debian" }]
net = [{ subnet = "lan" }]
"#;

fn load(dir: &Path, text: &str) -> Result<MachinePlan, ConfigError> {
    let file = dir.join("m.toml");
    fs::write(&file, text).expect("the directory is writable");
    Loader { cache: Some("cache".into()), check_files: false, is_restricted: false }.load(&file)
}

/// The message for `text`, without the directory.
#[track_caller]
fn message(text: &str) -> String {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = load(dir.path(), text).expect_err("it is wrong");
    error.to_string().replace(&format!("{}/", dir.path().display()), "")
}

/// The message for the good machine with a change.
#[track_caller]
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the good machine");
    message(&GOOD.replacen(from, to, 1))
}

#[test]
fn the_good_machine_is_good() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plan = load(dir.path(), GOOD).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(plan.warnings, []);
}

#[test]
fn syntax() {
    assert_eq!(changed("vcpus = 2", "vcpus = = 2"), "m.toml:16:9: error: extra `=`, expected nothing");
}

#[test]
fn unknown_keys() {
    assert_eq!(
        changed("vcpus = 2", "vcpu = 2"),
        "m.toml:16:1: error: vm.vcpu: unknown key\n  help: did you mean `vcpus`?"
    );
    assert_eq!(
        changed("harts = 2", "harts = 2\ncolour = 1"),
        "m.toml:5:1: error: node.colour: unknown key\n  help: possible are `harts`, `memory_mib`"
    );
    assert_eq!(
        changed("[[subnet]]", "[[subnets]]"),
        "m.toml:11:3: error: subnets: unknown key\n  help: did you mean `subnet`?"
    );
}

#[test]
fn types_and_ranges() {
    assert_eq!(changed("vcpus = 2", "vcpus = 33"), "m.toml:16:9: error: vm.vcpus: 33 is not in 1 to 32");
    assert_eq!(changed("vcpus = 2", "vcpus = -1"), "m.toml:16:9: error: vm.vcpus: -1 is out of range");
    assert_eq!(
        changed("vcpus = 2", "vcpus = \"2\""),
        "m.toml:16:9: error: vm.vcpus: must be a whole number, this is a string"
    );
    assert_eq!(
        changed("memory_mib = 256", "memory_mib = 257"),
        "m.toml:17:14: error: vm.memory_mib: 257 is not a multiple of 2\n  help: 256 or 258 would do"
    );
    assert_eq!(changed("harts = 2", "harts = 0"), "m.toml:4:9: error: node.harts: 0 is not in 1 to 64");
    assert_eq!(
        changed("[[node]]", "[node]"),
        "m.toml:3:1: error: node: is a table, not an array of tables\n  help: write [[node]]"
    );
}

#[test]
fn missing_keys() {
    assert_eq!(
        changed("memory_mib = 256\n", ""),
        "m.toml:14:1: error: vm.memory_mib: is missing\n  help: for example memory_mib = 512"
    );
    assert_eq!(
        changed("kernel = \"Image\"\n", ""),
        "m.toml:14:1: error: vm.kernel: is missing\n  \
         help: say `kernel = \"cache:kernel/Image\"`, or `firmware = ...` to boot from a disk"
    );
    assert_eq!(
        message("name = \"a\"\n"),
        "m.toml:1:1: error: node: is missing\n  \
         help: a machine has at least one [[node]] with harts and memory_mib"
    );
}

#[test]
fn names() {
    assert_eq!(
        changed("name = \"one\"", "name = \"One\""),
        "m.toml:15:8: error: vm.name: \"One\": a name has only a-z, 0-9 and '-', not 'O'"
    );
    assert_eq!(
        changed("[[vm]]", "[[vm]]\nname = \"one\"\nmemory_mib = 64\nkernel = \"Image\"\n[[vm]]"),
        "m.toml:18:1: error: vm: \"one\" is used twice"
    );
    assert_eq!(
        changed("subnet = \"lan\"", "subnet = \"wan\""),
        "m.toml:20:19: error: vm.net.subnet: there is no subnet \"wan\"\n  help: describe it with [[subnet]]"
    );
    assert_eq!(
        changed("source = \"debian\"", "source = \"debain\""),
        "m.toml:19:20: error: vm.disk.source: the machine has no disk \"debain\"\n  help: did you mean `debian`?"
    );
}

#[test]
fn choices() {
    assert_eq!(
        changed("{ source = \"debian\" }", "{ source = \"debian\", mode = \"copyonwrite\" }"),
        "m.toml:19:37: error: vm.disk.mode: \"copyonwrite\" is not known here\n  \
         help: did you mean `copy-on-write`?"
    );
    assert_eq!(
        changed("vcpus = 2", "interrupts = \"pic\""),
        "m.toml:16:14: error: vm.interrupts: \"pic\" is not known here\n  help: did you mean `plic`?"
    );
}

#[test]
fn a_persistent_disk_has_one_user() {
    let two = GOOD.replace("source = \"debian\"", "source = \"debian\", mode = \"persistent\"")
        + "[[vm]]\nname = \"two\"\nmemory_mib = 64\nkernel = \"Image\"\ndisk = [{ source = \"debian\" }]\n";
    assert_eq!(
        message(&two),
        "m.toml:25:20: error: vm.disk.source: disk \"debian\" cannot be shared with \"one\": \
         one of them mounts it persistent\n  help: mount it copy-on-write in both, or give each a partition"
    );
    let read_only = GOOD
        .replace("source = \"debian\"", "source = \"debian\", mode = \"persistent\"")
        .replace("file = \"debian.img\"", "file = \"debian.img\"\nread_only = true");
    assert_eq!(
        message(&read_only),
        "m.toml:10:13: error: disk.read_only: disk \"debian\" is mounted persistent by a VM\n  \
         help: leave read_only out, or mount it copy-on-write"
    );
}

#[test]
fn the_machine_must_have_what_vms_want() {
    assert_eq!(
        changed("memory_mib = 256", "memory_mib = 2048"),
        "m.toml:17:14: error: vm.memory_mib: 2048 MiB are more than the machine has (1024 MiB)"
    );
    assert_eq!(
        changed("name = \"lan\"", "name = \"lan\"\ngateway = true"),
        "m.toml:13:11: error: subnet.gateway: the machine has no network card\n  help: say [network] uplink = true"
    );
    let aia = GOOD.replace("[[node]]", "[machine]\ninterrupts = \"plic\"\n[[node]]");
    assert_eq!(
        message(&aia.replace("vcpus = 2", "interrupts = \"aia\"")),
        "m.toml:16:1: error: vm: VM \"one\" wants AIA, the machine has only a PLIC\n  \
         help: say interrupts = \"auto\", or give the machine interrupts = \"aia\""
    );
}

#[test]
fn kernel_or_firmware() {
    assert_eq!(
        changed("kernel = \"Image\"", "kernel = \"Image\"\nfirmware = \"u-boot.bin\""),
        "m.toml:19:12: error: vm.firmware: there is a kernel already\n  \
         help: a VM boots either a kernel or a firmware"
    );
    assert_eq!(
        changed("kernel = \"Image\"", "firmware = \"u-boot.bin\"\ncmdline = \"quiet\""),
        "m.toml:19:11: error: vm.cmdline: goes with a kernel, not with a firmware\n  \
         help: the firmware finds its own on the disk"
    );
}

#[test]
fn distances() {
    let two = |matrix: &str| {
        GOOD.replace("[[disk]]", "[[node]]\nharts = 1\nmemory_mib = 64\n[[disk]]")
            .replace("[[node]]\nharts = 2", &format!("[machine]\ndistances = {matrix}\n[[node]]\nharts = 2"))
    };
    assert_eq!(
        message(&two("[[10]]")),
        "m.toml:4:13: error: machine.distances: must have 2 rows of 2 numbers, one per node"
    );
    assert_eq!(
        message(&two("[[10, 10], [20, 10]]")),
        "m.toml:4:13: error: machine.distances: 10 from node 0 to node 1 is not possible\n  \
         help: 10 from a node to itself, 11 to 255 to others (255: no way)"
    );
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plan = load(dir.path(), &two("[[10, 30], [20, 10]]")).expect("it is good");
    assert_eq!(plan.hardware.distances, Some(vec![vec![10, 30], vec![20, 10]]));
}

#[test]
fn several_vms_from_one() {
    assert_eq!(
        changed("name = \"one\"", "name = \"one\"\ncount = 2"),
        "m.toml:16:9: error: vm.count: several VMs need `{n}` in their name\n  \
         help: for example name = \"build-{n}\" gives build-1, build-2, ..."
    );
    assert_eq!(
        changed("name = \"one\"", "name = \"one-{n}\"\ncount = 100"),
        "m.toml:16:9: error: vm.count: 100 is not in 1 to 64"
    );
}

#[test]
fn cpus() {
    let with = |cpu: &str| message(&GOOD.replace("[[node]]", &format!("[machine]\ncpu = \"{cpu}\"\n[[node]]")));
    assert_eq!(
        with("rva23s65"),
        "m.toml:4:7: error: machine.cpu: \"rva23s65\" is no 64-bit CPU model of QEMU that is known here\n  \
         help: did you mean `rva23s64`?"
    );
    assert!(with("max,h=off").contains("error: machine.cpu: \"max\" comes without h, which the monitor needs"));
}

#[test]
fn the_long_form_shows_the_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = load(dir.path(), &GOOD.replace("vcpus = 2", "vcpus = 33")).expect_err("it is wrong");
    let text = format!("{error:#}").replace(&format!("{}/", dir.path().display()), "");
    assert_eq!(text, "m.toml:16:9: error: vm.vcpus: 33 is not in 1 to 32\n 16 | vcpus = 33\n    |         ^^");
}

#[test]
fn a_missing_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = Loader::from_env().load(&dir.path().join("no.toml")).expect_err("it is not there");
    assert!(error.to_string().ends_with("no.toml: error: no such file or directory"), "{error}");
}

/// A machine with a key of every kind.
const RICH: &str = r#"[machine]
cpu = "max,h=on"
distances = [[10, 20], [20, 10]]
[[node]]
harts = 1
memory_mib = 512
[[node]]
harts = 1
memory_mib = 512
[[cell]]
name = "a"
nodes = [0, 1]
[model]
preset = "flash"
[[disk]]
name = "d"
size_mib = 8
model = "ssd"
[network]
uplink = true
[[subnet]]
name = "lan"
gateway = true
[options]
trace = true
[vm_defaults]
memory_mib = 64
load_address = 0x8020_0000
[[vm]]
name = "b-{n}"
count = 2
cell = "a"
kernel = "Image"
ports = ["p"]
disk = [{ name = "r", source = "d", partition = "p", overlay = "d", overlay_partition = "o" }]
net = [{ subnet = "lan", mtu = 1500 }]
"#;

/// Every file that is one character off gets an answer, and no panic; one that is taken is right for the monitor as well.
#[test]
fn no_damage_makes_it_panic() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    load(dir.path(), RICH).unwrap_or_else(|error| panic!("{error:#}"));
    for good in [GOOD, RICH] {
        for (place, old) in good.char_indices() {
            for new in ["", "=", "\"", "[", "9", "\u{e9}", "\n", "{n}"] {
                let text = format!("{}{new}{}", &good[..place], &good[place + old.len_utf8()..]);
                match load(dir.path(), &text) {
                    Ok(plan) => assert_eq!(plan.boot.validate(), Ok(()), "{text}"),
                    Err(error) => assert!(format!("{error:#}").contains("m.toml"), "{text}"),
                }
                let file = dir.path().join("m.toml");
                let _ = Loader { cache: None, check_files: false, is_restricted: false }.load_vm(&file, None);
            }
        }
    }
}

#[test]
fn overlays() {
    let with = |text: &str| changed("{ source = \"debian\" }", &format!("{{ source = \"debian\", {text} }}"));
    has_all(&with("overlay = \"data\""), &["overlay", "the machine has no disk \"data\""]);
    has_all(&with("overlay = \"debian\""), &["the overlay cannot be on the disk or partition that it lies over"]);
    has_all(&with("snapshot = \"golden\""), &["snapshot", "goes with an overlay", "say `overlay = ...`"]);
    has_all(&with("overlay_partition = \"a\""), &["overlay_partition", "goes with an overlay"]);
    has_all(&with("overlay = \"no name\""), &["overlay", "no name"]);
    let wrong_mode = "mode = \"read-only\", overlay = \"debian\", overlay_partition = \"a\", partition = \"b\"";
    has_all(&with(wrong_mode), &["an overlay is for a disk with mode copy-on-write"]);
    // A store is written: its disk cannot refuse that, and nobody else takes data from it.
    let two_disks = "file = \"debian.img\"\n\n[[disk]]\nname = \"data\"\nfile = \"data.img\"";
    let good = GOOD.replacen("file = \"debian.img\"", two_disks, 1);
    let kept = good.replacen("{ source = \"debian\" }", "{ source = \"debian\", overlay = \"data\" }", 1);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plan = load(dir.path(), &kept).unwrap_or_else(|error| panic!("{error:#}"));
    let read_only: Vec<_> = plan.hardware.disks.iter().map(|disk| disk.read_only).collect();
    assert_eq!(read_only, [true, false]);
    let text = kept.replacen("file = \"data.img\"", "file = \"data.img\"\nread_only = true", 1);
    has_all(&message(&text), &["read_only", "disk \"data\" keeps the overlay of a VM"]);
    let text = kept.replacen("overlay = \"data\" }", "overlay = \"data\" }, { source = \"data\" }", 1);
    has_all(&message(&text), &["disk \"data\" keeps overlays"]);
}

/// A message has all these parts.
#[track_caller]
fn has_all(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

/// A machine of three nodes with a VM that needs no device.
const NODES: &str = r#"name = "test"

[[node]]
harts = 2
memory_mib = 1024

[[node]]
harts = 1
memory_mib = 256

[[node]]
harts = 1
memory_mib = 256

[[vm]]
name = "one"
memory_mib = 64
kernel = "Image"
"#;

/// The message for that machine with these lines at its beginning and at its end (in the VM).
#[track_caller]
fn with_cells(first: &str, last: &str) -> String {
    message(&NODES.replacen("name = \"test\"\n", &format!("name = \"test\"\n{first}\n"), 1).add(last))
}

#[test]
fn cells() {
    assert_eq!(
        with_cells("[machine]\ncells = 4", ""),
        "m.toml:3:9: error: machine.cells: 4 cells are too many for 3 nodes, at most 3 are possible\n  help: a cell has one node or more"
    );
    assert_eq!(with_cells("[machine]\ncells = 9", ""), "m.toml:3:9: error: machine.cells: 9 is not in 1 to 8");
    assert_eq!(with_cells("[[cell]]\nnodes = [0, 1]", ""), "m.toml:2:1: error: cell: node 2 is in no cell");
    assert_eq!(
        with_cells("[[cell]]\nnodes = [0, 1]\n[[cell]]\nnodes = [2, 1]", ""),
        "m.toml:5:9: error: cell.nodes: node 1 is named twice"
    );
    assert_eq!(
        with_cells("[[cell]]\nnodes = [0, 1]\n[[cell]]\nnodes = [2, 3]", ""),
        "m.toml:5:9: error: cell.nodes: the machine has no node 3"
    );
    assert_eq!(
        with_cells("[[cell]]\nnodes = [1, 2]\n[[cell]]\nnodes = [0]", ""),
        "m.toml:3:9: error: cell.nodes: the first cell must have node 0, where the machine boots"
    );
    assert_eq!(
        with_cells("[machine]\ncells = 2\n[[cell]]\nnodes = [0, 1]", ""),
        "m.toml:4:1: error: cell: [machine] has said `cells` already\n  help: say either how many there are, or which"
    );
    assert_eq!(
        with_cells("[[cell]]\nnodes = [\"a\"]", ""),
        "m.toml:3:10: error: cell.nodes: must be a whole number, this is a string"
    );
}

#[test]
fn vms_in_cells() {
    // Some of the first lines of `NODES` are above these.
    let two = "[[cell]]\nname = \"a\"\nnodes = [0]\n[[cell]]\nname = \"far\"\nnodes = [1, 2]";
    assert_eq!(
        with_cells(two, "cell = \"fat\""),
        "m.toml:25:8: error: vm.cell: the machine has no cell \"fat\"\n  help: did you mean `far`?"
    );
    assert_eq!(with_cells(two, "cell = 2"), "m.toml:25:8: error: vm.cell: there is no cell 2");
    assert_eq!(with_cells("", "cell = 1"), "m.toml:20:8: error: vm.cell: there is no cell 1");
    assert_eq!(
        with_cells(
            two,
            "cell = \"far\"\ndisk = [{ source = \"d\", mode = \"persistent\" }]\n[[disk]]\nname = \"d\"\nsize_mib = 64"
        ),
        "m.toml:26:9: error: vm.disk: only a VM of the first cell can write a disk for good: the others do not drive it\n  \
         help: say `mode = \"copy-on-write\"` without an overlay, or `mode = \"read-only\"`; or leave `cell` out"
    );
    let large = NODES.replace("memory_mib = 64", "memory_mib = 514").add("cell = 1");
    assert_eq!(
        message(&large.replacen("name = \"test\"", two, 1)),
        "m.toml:22:14: error: vm.memory_mib: 514 MiB are more than cell \"far\" has (512 MiB)"
    );
}
