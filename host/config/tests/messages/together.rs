//! Several problems at once: all are told, and none twice under another name.

use std::ops::Add;

use super::{GOOD, NODES, load, message};

#[test]
fn all_problems_are_told_at_once() {
    let text = GOOD.replace("harts = 2", "harts = 0").replace("vcpus = 2", "vcups = 2");
    assert_eq!(message(&text).matches("error:").count(), 2);
}

/// The places of the errors in `text`: each as `LINE KEY`.
#[track_caller]
fn places(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = load(dir.path(), text).expect_err("it is wrong");
    error.problems.iter().map(|problem| format!("{} {}", problem.line, problem.key)).collect()
}

/// A machine in which something of every kind is wrong: a type, a range, a key, a name that leads nowhere, what harts need, and what
/// several parts must agree on.
#[test]
fn problems_of_all_kinds_are_told_at_once() {
    let text = r#"name = "Test"
[machine]
cpu = "rva22s64"
[[node]]
harts = 2
memory_mib = "much"
[[node]]
harts = 1
memory_mib = 257
[[disk]]
name = "debian"
[[subnet]]
name = "lan"
gateway = true
[options]
time_slice_us = 1
[[vm]]
name = "one"
vcpus = 33
weight = 0
memory_mib = 256
kernel = "Image"
disk = [{ source = "debain", mode = "copyonwrite" }, { source = "debian" }]
net = [{ subnet = "wan" }]
[[vm]]
name = "Two"
memory_mib = "small"
cell = "far"
colour = 1
net = [{ subnet = "man" }]
[[vm]]
name = "one"
memory_mib = 64
kernel = "Image"
"#;
    let wanted = [
        "1 name",
        "3 machine.cpu",
        "6 node.memory_mib",
        "9 node.memory_mib",
        "10 disk.file",
        "14 subnet.gateway",
        "16 options.time_slice_us",
        "19 vm.vcpus",
        "20 vm.weight",
        "23 vm.disk.source",
        "23 vm.disk.mode",
        "24 vm.net.subnet",
        "25 vm.kernel",
        "26 vm.name",
        "27 vm.memory_mib",
        "28 vm.cell",
        "29 vm.colour",
        "30 vm.net.subnet",
        "31 vm",
    ];
    assert_eq!(places(text), wanted);
}

/// One mistake, one problem: nothing is told that would be right once that one is mended.
#[test]
fn what_follows_from_a_problem_is_not_told() {
    let cells = |text: &str| NODES.replacen("name = \"test\"\n", &format!("name = \"test\"\n{text}\n"), 1);
    let one = [
        // Nodes that cannot be counted, or measured.
        cells("[machine]\ncells = 3").replace("[[node]]", "[[nodes]]"),
        cells("[machine]\ncells = 3").replacen("harts = 2", "harts = 0", 1),
        NODES.replacen("memory_mib = 1024", "memory_mib = 63", 1).replace("memory_mib = 64", "memory_mib = 512"),
        cells("[machine]\ndistances = [[10]]").replace("[[node]]", "[[nodes]]"),
        // Cells that are not known.
        cells("[machine]\ncells = 9").add("cell = 1"),
        cells("[[cells]]\nname = \"far\"\nnodes = [0, 1, 2]").add("cell = \"far\""),
        cells("[[cell]]\nname = \"Far\"\nnodes = [0, 1, 2]").add("cell = \"far\""),
        cells("[[cell]]\nnodes = [0, \"a\"]"),
        cells("[machine]\ncells = 3").add("cell = \"fat\"\n").replace("memory_mib = 64", "memory_mib = 1000"),
        // Names that are not known.
        GOOD.replace("[[disk]]", "[[disks]]"),
        GOOD.replace("name = \"debian\"", "name = \"Debian\""),
        GOOD.replace("[[subnet]]", "[[subnets]]"),
        GOOD.replace("name = \"lan\"", "name = \"Lan\""),
        GOOD.replace("name = \"lan\"", "name = \"lan\"\ngateway = true\n[networks]\nuplink = true"),
        GOOD.replace("file = \"debian.img\"", "size_mib = \"large\""),
        GOOD.replace("file = \"debian.img\"", "size_mib = 8\nmodel = \"ssd\"\n[model]\npreset = \"flush\""),
        // A VM whose file, defaults or numbers are wrong.
        GOOD.replace("memory_mib = 256\nkernel = \"Image\"", "file = \"no such file\""),
        GOOD.replace("memory_mib = 256\n", "").add("[vm_default]\nmemory_mib = 256\n"),
        GOOD.replace("vcpus = 2", "vcpus = \"2\"\nnodes = 2"),
        GOOD.replace("vcpus = 2", "vcpus = 0\nnodes = 2"),
        GOOD.replace("memory_mib = 256\n", "memory_mib = \"256\"\nload_address = 0x9000_0000\n"),
        GOOD.replace("memory_mib = 256\n", "memory_mib = 4\nload_address = 0x8020_0000\n"),
        GOOD.replace("name = \"one\"", "name = \"one\"\ncount = 3"),
        GOOD.replace("name = \"one\"", "name = \"one-{n}\"\ncount = 3")
            .replace("subnet = \"lan\"", "subnet = \"lan\", mac = \"02:00:00:00:00:01\""),
        GOOD.replace("disk = [", "disk = [{ source = \"debian\", mode = \"persistent\", partition = 1 }, ")
            .replace("{ source = \"debian\" }", "{ source = \"debian\", name = \"b\", partition = \"b\" }"),
    ];
    for text in one {
        assert_eq!(places(&text).len(), 1, "{}\n{text}", message(&text));
    }
    // Two VMs without a name are not two of one name, and what else is wrong with them is told.
    let nameless = "[[vm]]\nname = \"No\"\nmemory_mib = 64\nkernel = \"Image\"\n\
                    disk = [{ source = \"debian\", mode = \"persistent\" }]\n";
    let text = GOOD.replace("{ source = \"debian\" }", "{ source = \"debain\" }")
        + nameless
        + &nameless.replace("debian", "debien");
    assert_eq!(places(&text), ["19 vm.disk.source", "22 vm.name", "27 vm.name", "30 vm.disk.source"]);
}

#[test]
fn twins_are_told_where_the_second_stands() {
    let twins = GOOD.replace("[[subnet]]", "[[subnet]]\nname = \"lan\"\n[[subnet]]");
    assert_eq!(places(&twins), ["13 subnet"]);
    let net = |mac: &str| format!("net = [{{ subnet = \"lan\", mac = \"{mac}\" }}]");
    let one = GOOD.replace("net = [{ subnet = \"lan\" }]", &net("02:00:00:00:00:01"));
    let twins = one.add("[[vm]]\nname = \"two\"\nmemory_mib = 64\nkernel = \"Image\"\n").add(&net("02:00:00:00:00:01"));
    assert_eq!(places(&twins), ["25 vm.net.mac"]);
}

/// Of a file that is no TOML, all lines that are none.
#[test]
fn syntax_errors_are_told_by_line() {
    let text = GOOD
        .replace("vcpus = 2", "vcpus = = 2")
        .replace("name = \"one\"", "name = \"one")
        .replace("[[subnet]]", "[[subnet]");
    assert_eq!(places(&text), ["11 ", "15 ", "16 "]);
    // What is open over lines is the only problem of which one can be sure.
    assert_eq!(places(&GOOD.replace("{ source = \"debian\" }]", "{ source = \"debian\", [")).len(), 1);
}
