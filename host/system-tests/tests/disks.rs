//! Machine disks with partitions, and who may write them.

use std::path::Path;

use config::{Backing, DiskPlan, ImageFormat};
use control::{DiskMode, DiskSpec, StopReason, VmSpec};
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use lab::rig::{Rig, Running, name};
use system_tests::{assert_passed, ok, probe};

const MIB: usize = 1 << 20;
const DISK_MIB: usize = 16;
const SECTOR: usize = 512;

/// Writes an image with a partition table, every other byte set; where the named partitions lie in it.
fn write_image(path: &Path, partitions: &[&str]) -> Vec<std::ops::Range<usize>> {
    ok(std::fs::write(path, vec![0xa5; DISK_MIB * MIB]));
    let mut file = ok(std::fs::OpenOptions::new().read(true).write(true).open(path));
    ok(ProtectiveMBR::with_lb_size((DISK_MIB * MIB / SECTOR - 1) as u32).overwrite_lba0(&mut file));
    let config = gpt::GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut disk = ok(config.create_from_device(&mut file, None));
    for partition in partitions {
        ok(disk.add_partition(partition, 4 * MIB as u64, gpt::partition_types::LINUX_FS, 0, None));
    }
    let of = |partition: &gpt::partition::Partition| {
        partition.first_lba as usize * SECTOR..(partition.last_lba as usize + 1) * SECTOR
    };
    let ranges = disk.partitions().values().map(of).collect();
    ok(disk.write());
    ranges
}

fn on_partition(vm: &str, partition: &str, mode: DiskMode) -> VmSpec {
    let disk = DiskSpec {
        name: ok(name("data")),
        source: ok(name("disk")),
        partition: Some(partition.into()),
        mode,
        overlay: None,
        limit_mib: None,
    };
    VmSpec { disks: vec![disk], ..probe(vm, 1, "probe=vector-disk") }
}

fn start(machine: &Running, spec: &VmSpec) -> Result<(), String> {
    machine.start(spec).map_err(|error| error.to_string())
}

/// A VM that may write a partition writes there and nowhere else, one VM at a time; another partition of the same disk is
/// another VM's.
#[test]
fn a_partition_is_one_guests_own() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("disk.img");
    let ranges = write_image(&image, &["first", "second"]);
    let before = ok(std::fs::read(&image));
    let backing = Backing::File { path: image.clone(), format: ImageFormat::Raw };
    let disk = DiskPlan { name: ok(name("disk")), backing, read_only: false, model: None };
    let rig = ok(ok(Rig::new("disks", 2, 512)).with_probe()).hardware(|hardware| hardware.disks.push(disk));
    let machine = ok(rig.boot());

    let refusal = start(&machine, &on_partition("lost", "third", DiskMode::Persistent)).expect_err("no such partition");
    assert!(refusal.contains("third"), "it does not say what is missing: {refusal}");

    // The holder keeps its partition for as long as it runs.
    let mut holder = on_partition("holder", "first", DiskMode::Persistent);
    holder.boot = probe("holder", 1, "figure=idle").boot;
    ok(machine.start(&holder));
    ok(machine.wait_text(&holder.name, "IDLE"));
    for mode in [DiskMode::Persistent, DiskMode::CopyOnWrite] {
        let refusal = start(&machine, &on_partition("second", "first", mode)).expect_err("two VMs have one partition");
        assert!(refusal.contains("disk \"disk\""), "it does not say which disk: {refusal}");
        assert!(refusal.contains("VM \"holder\""), "it does not say who has it: {refusal}");
        let _ = machine.client().destroy_vm(&ok(name("second")));
    }
    let ended = ok(machine.run(&on_partition("other", "second", DiskMode::Persistent)));
    assert_passed(&ended);
    assert!(ended.console.contains("PROBE vector-disk ok"), "{}", ended.console);
    ok(machine.client().kill_vm(&holder.name));
    assert_eq!(ok(machine.end_of(&holder.name)).summary.reason, Some(StopReason::Killed));

    // Copy-on-write leaves the disk alone.
    assert_passed(&ok(machine.run(&on_partition("reader", "first", DiskMode::CopyOnWrite))));
    let after = ok(std::fs::read(&image));
    let changed: Vec<_> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
    assert!(!changed.is_empty(), "nothing was written");
    let second = &ranges[1];
    assert!(changed.iter().all(|at| second.contains(at)), "written beside the partition {second:x?}");
}
