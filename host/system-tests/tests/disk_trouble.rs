//! Disks in trouble and drivers that abuse their requests: who needs what cannot be had sees its device's error, events say
//! why, nobody else notices.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use control::{DiskMode, DiskSpec, EventKind, OverlaySpec, Pages, StopReason, VmSpec};
use lab::rig::{Rig, Running, WATCHDOG, name};
use system_tests::debian::disk;
use system_tests::{assert_all_returned, assert_passed, checksum, ok, probe};

const BLOCK: u64 = 4096;
/// Blocks of the images.
const BLOCKS: u64 = 16 << 8;
const DISK: &str = "sick";

/// Writes an image in which each word of a block is the block's number and a mark.
fn write_image(path: &Path) {
    let words = (0..BLOCKS).flat_map(|block| std::iter::repeat_n(word(block), BLOCK as usize / 8));
    ok(std::fs::write(path, words.flat_map(u64::to_le_bytes).collect::<Vec<_>>()));
}

const fn word(block: u64) -> u64 {
    0x1a00_0000_0000 | block
}

/// What the probe writes into a block.
const fn written(block: u64) -> u64 {
    0x7700_0000_0000 | block
}

/// A machine with the disk [`DISK`], on which the emulator fails what `faults` say: kind of operation, and sector.
fn boot(machine: &str, image: &Path, faults: &[(&str, u64)], more: &[String]) -> Running {
    let mut rules = String::new();
    for (number, (kind, sector)) in faults.iter().enumerate() {
        let rule = format!("file.inject-error.{number}");
        rules += &format!(",{rule}.event=none,{rule}.iotype={kind},{rule}.sector={sector}");
    }
    boot_with(machine, image, &rules, more)
}

/// A machine with the disk [`DISK`] and these options of its drive, each after a comma.
fn boot_with(machine: &str, image: &Path, options: &str, more: &[String]) -> Running {
    let drive = format!(
        "if=none,id=sick,driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={}{options}",
        image.display()
    );
    let device = format!("virtio-blk-pci,drive=sick,serial={DISK},disable-legacy=on");
    let args = ["-drive".to_owned(), drive, "-device".to_owned(), device];
    let rig = ok(ok(Rig::new(machine, 2, 512)).with_probe());
    ok(rig.hardware(|hardware| hardware.qemu_args.extend(args.into_iter().chain(more.iter().cloned()))).boot())
}

fn with_disk(vm: &str, mode: DiskMode, script: &str) -> VmSpec {
    VmSpec { disks: vec![disk("data", DISK, mode)], ..probe(vm, 1, &format!("disk={script}")) }
}

/// What an operation of the script has printed.
fn answer<'a>(console: &'a str, op: &str) -> &'a str {
    let start = format!("DISK {op} ");
    let line = console.lines().find_map(|line| line.trim_end().strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no answer to {op} in:\n{console}"))
}

fn good(block: u64) -> String {
    format!("status=0 word={:#x} uniform=true", word(block))
}

fn disk_errors(machine: &Running) -> Vec<(u64, bool)> {
    let errors = ok(machine.events()).into_iter().filter_map(|event| match event.kind {
        EventKind::DiskError { disk, sector, write } if disk.as_str() == DISK => Some((sector, write)),
        _ => None,
    });
    errors.collect()
}

/// One block that cannot be read and one that cannot be written: who asks for them is told, blocks beside them are read and
/// written, and a neighbour on the same disk does not notice.
#[test]
fn a_bad_block_is_the_trouble_of_who_needs_it() {
    const UNREADABLE: u64 = 1_000;
    const UNWRITABLE: u64 = 2_000;
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("sick.img");
    write_image(&image);
    let faults = [("read", UNREADABLE * 8 + 3), ("write", UNWRITABLE * 8)];
    let machine = boot("bad-block", &image, &faults, &[]);
    let before = ok(machine.free_bytes());

    let reader = with_disk("reader", DiskMode::CopyOnWrite, "r999,r1000,r1001,r1000,w1000,r1000,k,r1");
    ok(machine.start(&reader));
    ok(machine.wait_text(&reader.name, "DISK k"));
    // The window in which the disk reads ahead holds the bad block, too.
    let neighbour = ok(machine.run(&with_disk("neighbour", DiskMode::CopyOnWrite, "r990,r998,r1002,w1001,r1001")));
    for block in [990, 998, 1002] {
        assert_eq!(answer(&neighbour.console, &format!("r{block}")), good(block));
    }
    assert!(answer(&neighbour.console, "r1001").contains(&format!("{:#x}", written(1001))), "{}", neighbour.console);
    let (_, keys) = ok(machine.client().console(&reader.name, 0));
    ok(keys.send_all(b"\n", WATCHDOG));
    let ended = ok(machine.end_of(&reader.name));
    let console = &ended.console;
    for block in [999, 1001, 1] {
        assert_eq!(answer(console, &format!("r{block}")), good(block), "{console}");
    }
    let of_bad: Vec<_> = console.lines().filter(|line| line.starts_with("DISK r1000 ")).collect();
    assert_eq!(of_bad.len(), 3, "{console}");
    // Again the same; then the guest has put something of its own in its place.
    assert!(of_bad[..2].iter().all(|line| line.contains("status=1 ")), "{console}");
    assert!(of_bad[2].contains(&format!("status=0 word={:#x}", written(1000))), "{console}");
    let errors = disk_errors(&machine);
    assert!(!errors.is_empty() && errors.iter().all(|(_, is_write)| !is_write), "{errors:?}");

    let script = "w1999,w2000,w2001,r2000,r1999,r2001,f";
    let writer = ok(machine.run(&with_disk("writer", DiskMode::Persistent, script)));
    let statuses = ["w1999", "w2000", "w2001", "f"].map(|op| answer(&writer.console, op));
    assert_eq!(statuses, ["status=0", "status=1", "status=0", "status=0"], "{}", writer.console);
    assert!(disk_errors(&machine).contains(&(UNWRITABLE * 8, true)));
    assert_eq!(answer(&writer.console, "r2000"), good(2000));
    for ended in [&neighbour, &ended, &writer] {
        assert_eq!(ended.summary.reason, Some(StopReason::PowerOff));
    }
    assert_all_returned(&machine, before);
    drop(machine);
    let bytes = ok(std::fs::read(&image));
    for block in 0..BLOCKS {
        let wanted = if [1999, 2001].contains(&block) { written(block) } else { word(block) };
        let found = bytes[(block * BLOCK) as usize..][..BLOCK as usize].chunks(8);
        assert!(found.into_iter().all(|bytes| bytes == wanted.to_le_bytes()), "block {block}");
    }
}

/// Asks the emulator for something, as an operator of the machine would.
fn tell_emulator(socket: &Path, command: &str) {
    let mut stream = ok(UnixStream::connect(socket));
    ok(stream.set_read_timeout(Some(Duration::from_secs(60))));
    let mut lines = BufReader::new(ok(stream.try_clone())).lines();
    let mut next = || ok(lines.next().unwrap_or_else(|| panic!("the emulator has gone")));
    assert!(next().contains("QMP"));
    for command in ["{\"execute\":\"qmp_capabilities\"}", command] {
        ok(writeln!(stream, "{command}"));
        // Events may come first.
        let answer = loop {
            let line = next();
            if !line.contains("\"event\"") {
                break line;
            }
        };
        assert!(answer.contains("\"return\""), "{answer}");
    }
}

/// A disk that becomes half as large while guests use it: what is gone is an error, what is left stays.
#[test]
fn a_disk_that_shrinks_keeps_what_is_left() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("shrinking.img");
    let socket = dir.path().join("emulator.sock");
    write_image(&image);
    let qmp = ["-qmp".to_owned(), format!("unix:{},server=on,wait=off", socket.display())];
    let machine = boot("shrinking", &image, &[], &qmp);
    let spec = with_disk("holder", DiskMode::Persistent, "r3000,r10,k,r2047,r2048,r3000,r4095,w4095,w10,f,r100,r10");
    ok(machine.start(&spec));
    ok(machine.wait_text(&spec.name, "DISK k"));
    let half = BLOCKS / 2 * BLOCK;
    tell_emulator(
        &socket,
        &format!("{{\"execute\":\"block_resize\",\"arguments\":{{\"device\":\"sick\",\"size\":{half}}}}}"),
    );
    let (_, keys) = ok(machine.client().console(&spec.name, 0));
    ok(keys.send_all(b"\n", WATCHDOG));
    let ended = ok(machine.end_of(&spec.name));
    let console = &ended.console;
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{console}");
    for op in ["r2048", "r4095", "w4095"] {
        assert!(answer(console, op).starts_with("status=1"), "{op}: {console}");
    }
    // What the machine had read stays known.
    for block in [2047, 100, 3000] {
        assert_eq!(answer(console, &format!("r{block}")), good(block), "{console}");
    }
    assert_eq!([answer(console, "w10"), answer(console, "f")], ["status=0", "status=0"]);
    let errors = disk_errors(&machine);
    assert!(errors.contains(&(4095 * 8, false)) && errors.contains(&(4095 * 8, true)), "{errors:?}");
    drop(machine);
    let bytes = ok(std::fs::read(&image));
    assert_eq!(bytes.len() as u64, half);
    assert_eq!(bytes[(10 * BLOCK) as usize..][..8], written(10).to_le_bytes());
}

/// A store whose log cannot be written: the flush fails and all later writes do, reads go on, events say so; what was flushed
/// before is found again.
#[test]
fn a_log_that_cannot_be_written_ends_writing_and_nothing_else() {
    /// Position in the first log whose block is bad: the first commit takes two blocks, each later one another.
    const BAD: u64 = 4;
    /// A store begins with two superblocks, then comes the first log.
    const FIRST_LOG: u64 = 2;
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("store.img");
    ok(ok(std::fs::File::create(&image)).set_len(BLOCKS * BLOCK));
    let on_store = |vm: &str, script: &str| {
        let overlay = OverlaySpec { disk: ok(name(DISK)), partition: None, snapshot: None };
        let kept = DiskSpec { overlay: Some(overlay), ..disk("data", "base", DiskMode::CopyOnWrite) };
        VmSpec { disks: vec![kept], ..probe(vm, 1, &format!("disk={script}")) }
    };
    let below = dir.path().join("base.img");
    write_image(&below);
    let base = [
        "-drive".to_owned(),
        format!("if=none,id=base,driver=raw,read-only=on,file.driver=file,file.filename={}", below.display()),
        "-device".to_owned(),
        "virtio-blk-pci,drive=base,serial=base,disable-legacy=on".to_owned(),
    ];
    let machine = boot("bad-log", &image, &[("write", (FIRST_LOG + BAD) * 8)], &base);
    let script = "w1,f,w2,f,w3,f,w4,f,r1,r4,r50,w5,k";
    let keeper = on_store("keeper", script);
    ok(machine.start(&keeper));
    let console = ok(machine.wait_text(&keeper.name, "DISK k"));
    let flushes: Vec<_> = console.lines().filter(|line| line.starts_with("DISK f")).map(str::trim_end).collect();
    assert_eq!(flushes, ["DISK f status=0", "DISK f status=0", "DISK f status=0", "DISK f status=1"], "{console}");
    assert_eq!(answer(&console, "w5"), "status=1");
    assert!(answer(&console, "r1").contains(&format!("{:#x}", written(1))), "{console}");
    assert!(answer(&console, "r4").contains("status=0"), "{console}");
    assert_eq!(answer(&console, "r50"), good(50));
    let told = ok(machine.events()).into_iter().any(|event| matches!(event.kind, EventKind::StoreFailed { .. }));
    assert!(told, "no event says that the store has failed");
    // A neighbour on the disk below, not on the store.
    let neighbour =
        VmSpec { disks: vec![disk("data", "base", DiskMode::CopyOnWrite)], ..probe("neighbour", 1, "disk=w7,r7,r8") };
    let ended = ok(machine.run(&neighbour));
    assert_eq!(answer(&ended.console, "w7"), "status=0");
    assert_eq!(answer(&ended.console, "r8"), good(8));
    ok(machine.client().kill_vm(&keeper.name));
    drop(machine);

    let machine = boot("bad-log-2", &image, &[], &base);
    let ended = ok(machine.run(&on_store("keeper", "r1,r2,r3,r5,w5,f")));
    for block in [1, 2, 3] {
        assert!(
            answer(&ended.console, &format!("r{block}")).contains(&format!("{:#x}", written(block))),
            "{}",
            ended.console
        );
    }
    assert_eq!(answer(&ended.console, "r5"), good(5));
    assert_eq!([answer(&ended.console, "w5"), answer(&ended.console, "f")], ["status=0", "status=0"]);
}

/// Drivers that change descriptors, give pages back, reset the device or offer a request twice while it is under way: only
/// their own requests suffer, and a neighbour that reads and writes the same disk meanwhile gets what it should.
#[test]
fn requests_under_way_are_out_of_the_guests_reach() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("disk.img");
    write_image(&image);
    // Five requests a second: one that follows another at once is under way for 0.1 s at least, however busy the host is.
    let machine = boot_with("under-way", &image, ",throttling.iops-total=5", &[]);
    let before = ok(machine.free_bytes());
    let busy = probe("busy", 1, "figure=checksum n=8");
    ok(machine.start(&busy));

    let script = "r600,x100,r700,b200,r800,z300,r100,r301,w302,r302";
    let ended = ok(machine.run(&with_disk("abuser", DiskMode::CopyOnWrite, script)));
    let console = &ended.console;
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{console}");
    assert_eq!(answer(console, "x100"), good(100) + " pending=true clean=true", "{console}");
    let given = answer(console, "b200");
    let in_page = format!("word={:#x} ", word(200));
    assert!(given.contains("pending=true given=true"), "{console}");
    assert!(given.contains(&in_page) || given.contains("word=0x0 "), "{console}");
    assert_eq!(answer(console, "z300"), "pending=true clean=true");
    for block in [100, 301] {
        assert_eq!(answer(console, &format!("r{block}")), good(block), "{console}");
    }
    let twice = ok(machine.run(&with_disk("twice", DiskMode::CopyOnWrite, "t400")));
    assert!(!twice.console.contains("survived"), "{}", twice.console);
    match &twice.summary.reason {
        Some(StopReason::GuestFault { device, reason, .. }) => {
            assert_eq!(device, "virtio-blk");
            assert!(reason.contains("twice"), "{reason:?}");
        }
        other => panic!("stopped with {other:?}"),
    }
    // The disk and its cache are as they were.
    let ended = ok(machine.run(&with_disk("after", DiskMode::Persistent, "r100,r200,r300,r302,r400,w1,f")));
    for block in [100, 200, 300, 302, 400] {
        assert_eq!(answer(&ended.console, &format!("r{block}")), good(block), "{}", ended.console);
    }
    let ended = ok(machine.end_of(&busy.name));
    assert!(ended.console.contains(&checksum(8)), "the neighbour was disturbed:\n{}", ended.console);
    assert_all_returned(&machine, before);
}

/// All memory used: the VM that needs a page more ends with that reason, its neighbour goes on with its disk, and memory comes
/// back.
#[test]
fn a_vm_that_takes_all_memory_ends_alone() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("disk.img");
    write_image(&image);
    let machine = boot("exhausted", &image, &[], &[]);
    let before = ok(machine.free_bytes());
    let neighbour = with_disk("neighbour", DiskMode::CopyOnWrite, "r1,w1,k,r1,r2,w3,r3,r500,f");
    ok(machine.start(&neighbour));
    ok(machine.wait_text(&neighbour.name, "DISK k"));
    let hog = VmSpec { memory_mib: 640, promised_mib: Some(0), ..probe("hog", 1, "figure=touch n=600") };
    let ended = ok(machine.run(&hog));
    assert!(!ended.console.contains("TOUCHED"), "{}", ended.console);
    assert!(matches!(ended.summary.reason, Some(StopReason::OutOfMemory { .. })), "{:?}", ended.summary.reason);
    let (_, keys) = ok(machine.client().console(&neighbour.name, 0));
    ok(keys.send_all(b"\n", WATCHDOG));
    let ended = ok(machine.end_of(&neighbour.name));
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{}", ended.console);
    assert_eq!(answer(&ended.console, "r500"), good(500));
    assert!(answer(&ended.console, "r3").contains(&format!("{:#x}", written(3))), "{}", ended.console);
    assert_all_returned(&machine, before);
}

/// A guest that makes the monitor remember more and more, on a machine without memory: its disk is full, and the machine lives.
#[test]
fn the_monitor_outlives_memory() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("disk.img");
    // As if it were full: the file has no blocks.
    ok(ok(std::fs::File::create(&image)).set_len(1 << 40));
    let machine = boot("outlived", &image, &[], &[]);
    // Nobody is promised anything, and the disk's limit is no reason.
    let disks = vec![DiskSpec { limit_mib: Some(1024), ..disk("data", DISK, DiskMode::CopyOnWrite) }];
    let scatter = VmSpec { promised_mib: Some(0), disks, ..probe("scatter", 1, "disk=r1,k,e16000,w1,r1,k") };
    ok(machine.start(&scatter));
    ok(machine.wait_text(&scatter.name, "DISK k"));
    let touched = (ok(machine.free_bytes()) >> 20) - 8;
    let hog = VmSpec {
        memory_mib: 1024,
        promised_mib: Some(0),
        pages: Pages::Base,
        ..probe("hog", 1, &format!("figure=touch n={touched}"))
    };
    ok(machine.start(&hog));
    ok(machine.wait_text(&hog.name, "TOUCHED"));
    let (_, keys) = ok(machine.client().console(&scatter.name, 0));
    ok(keys.send_all(b"\n", WATCHDOG));
    let text = ok(machine.wait_text(&scatter.name, "DISK w1 "));
    let done: u64 = ok(answer(&text, "e16000").trim_start_matches("done=").parse());
    assert!((1_000..15_000).contains(&done), "{text}");
    let told =
        ok(machine.events()).into_iter().any(|event| matches!(event.kind, EventKind::DiskFull { store: None, .. }));
    assert!(told, "no event says that the disk is full");
    // Nothing more can be built meanwhile; with the hog's memory all goes on.
    let more = VmSpec { promised_mib: Some(0), ..probe("more", 1, "probe=memory") };
    let refusal = machine.start(&more).expect_err("there is no memory").to_string();
    assert!(refusal.contains("memory"), "{refusal}");
    ok(machine.client().kill_vm(&hog.name));
    ok(machine.end_of(&hog.name));
    ok(machine.client().start_vm(&more.name));
    assert_passed(&ok(machine.end_of(&more.name)));
    ok(machine.client().kill_vm(&scatter.name));
    ok(machine.end_of(&scatter.name));
    assert_eq!(ok(machine.lost_pages()), 0);
}
