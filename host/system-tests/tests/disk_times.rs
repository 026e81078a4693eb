//! Disks that take the machine model's time, seen by Linux on the bare machine.

use std::time::Duration;

use config::Loader;
use image::Archive;
use lab::artifacts;
use machine::{BareBoot, BareMachine};
use system_tests::ok;

const WATCHDOG: Duration = Duration::from_secs(300);
/// Pages that are read one after the other, and pages far from each other.
const NEAR: u64 = 1024;
const FAR: u64 = 32;

/// Disks of 64 MiB, in the order in which Linux names them: as it was built, with seeks that take hardly any time, and of flash.
const DISKS: [&str; 3] = ["model = \"hp97560\"", "model = \"hp97560\"\nscale = 100", "model = \"ssd\""];

/// Loads the drivers and reads pages past Linux's cache. Times are the machine's, in hundredths of a second.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
while read -r module; do /bin/busybox insmod "/modules/$module.ko"; done </modules/order
while [ ! -b /dev/vdc ]; do /bin/busybox usleep 10000; done
now() { read -r up rest </proc/uptime; echo "${up%.*}${up#*.}"; }
pages() { /bin/busybox dd if="$1" of=/dev/null bs=4096 count="$2" skip="$3" $4 2>/dev/null; }
far() { at=0; while [ $at -lt 32 ]; do pages "$1" 1 $((at * 7919 % 16000)) $2; at=$((at + 1)); done; }
timed() { what=$1; shift; begin=$(now); "$@"; echo "$what $(($(now) - begin))"; }
timed NONE far /dev/zero
for disk in vda vdb vdc; do
    pages /dev/$disk 1 0 iflag=direct
    timed NEAR-$disk pages /dev/$disk 1024 16 iflag=direct
    timed FAR-$disk far /dev/$disk iflag=direct
done
/bin/busybox poweroff -f
"#;

/// What Linux measured, in milliseconds.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    near_ms: u64,
    far_ms: u64,
}

/// Runs Linux on a machine with all disks.
fn run() -> [Times; 3] {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut initrd = ok(std::fs::read(ok(artifacts::cached("kernel/initrd.cpio"))));
    let mut archive = Archive::new();
    archive.file("init", 0o755, INIT.as_bytes());
    initrd.resize(initrd.len().next_multiple_of(512), 0);
    initrd.extend(archive.finish());
    ok(std::fs::write(dir.path().join("initrd.cpio"), initrd));
    let mut text = "[[node]]\nharts = 1\nmemory_mib = 256\n".to_owned();
    for (disk, number) in DISKS.iter().zip(1..) {
        text += &format!("[[disk]]\nname = \"d{number}\"\nsize_mib = 64\n{disk}\n");
    }
    ok(std::fs::write(dir.path().join("m.toml"), text + "[model]\n"));
    let plan = ok(Loader::from_env().load(&dir.path().join("m.toml")));
    let boot = BareBoot {
        kernel: ok(artifacts::cached("kernel/Image")),
        initrd: Some(dir.path().join("initrd.cpio")),
        cmdline: "console=ttyS0 quiet".into(),
        dir: dir.path().to_owned(),
        plugin: Some(ok(artifacts::numa_plugin())),
        firmware: None,
        faults: Vec::new(),
    };
    let machine = ok(BareMachine::launch(&plan.hardware, &boot));
    let outcome = machine.wait_timeout(WATCHDOG);
    let console = machine.console();
    let log = std::fs::read_to_string(dir.path().join("qemu.log")).unwrap_or_default();
    assert!(outcome.is_some_and(|outcome| outcome.is_orderly()), "{console}\n{log}");
    let time = |what: &str| {
        let line = console.lines().find_map(|line| line.strip_prefix(what)?.trim().parse::<u64>().ok());
        line.unwrap_or_else(|| panic!("no {what} in {console}\n{log}")) * 10
    };
    let none = time("NONE ");
    let times = ["vda", "vdb", "vdc"].map(|disk| Times {
        near_ms: time(&format!("NEAR-{disk} ")),
        far_ms: time(&format!("FAR-{disk} ")).saturating_sub(none),
    });
    println!("{times:?}");
    times
}

/// Reading in order comes from the mechanical disk's buffer: the controller's 2.2 ms, 0.4 ms on the bus and what Linux does. A page
/// elsewhere takes a seek of some 40 cylinders (5.8 ms), half a turn (7.5 ms) and 1.7 ms under the head as well. Flash takes 66 us
/// for a page wherever it is, and what Linux does for it.
#[test]
fn disks_take_the_time_of_their_kind() {
    let [mechanical, scaled, flash] = run();
    let near_us = mechanical.near_ms * 1000 / NEAR;
    assert!((2600..3200).contains(&near_us), "2,800 us a page were expected: {mechanical:?}");
    assert!((13..23).contains(&(mechanical.far_ms / FAR)), "about 18 ms were expected: {mechanical:?}");
    let saved = mechanical.far_ms.saturating_sub(scaled.far_ms) / FAR;
    assert!((2..9).contains(&saved), "seeks take no time any more: {scaled:?} {mechanical:?}");
    assert!((NEAR * 66 / 1000..NEAR).contains(&flash.near_ms), "{flash:?}");
    assert!(flash.far_ms / FAR <= 2, "{flash:?}");
}
