//! Copy-on-write disks that last: Debian on an overlay, machines that lose their power, snapshots, clones, full stores.

use std::path::{Path, PathBuf};

use config::{Backing, DiskPlan, ImageFormat};
use control::{DiskMode, DiskSpec, EventKind, OverlaySpec, StoreInfo, VmSpec};
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use lab::rig::{Rig, Running, name};
use system_tests::debian::{ROOT, Shell, debian, disk, with_debian};
use system_tests::ok;

const MIB: u64 = 1 << 20;
const STORE: &str = "data/overlays";

/// An image with a partition `overlays` of so many MiB.
fn write_image(path: &Path, mib: u64) {
    let mut file = ok(std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path));
    let bytes = (mib + 4) * MIB;
    ok(file.set_len(bytes));
    ok(ProtectiveMBR::with_lb_size((bytes / 512 - 1) as u32).overwrite_lba0(&mut file));
    let config = gpt::GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut disk = ok(config.create_from_device(&mut file, None));
    ok(disk.add_partition("overlays", mib * MIB, gpt::partition_types::LINUX_FS, 0, Some(2048)));
    ok(disk.write());
}

fn boot(machine: &str, image: &Path) -> Running {
    let backing = Backing::File { path: PathBuf::from(image), format: ImageFormat::Raw };
    let disk = DiskPlan { name: ok(name("data")), backing, read_only: false, model: None };
    let rig = with_debian(ok(Rig::new(machine, 2, 1024))).hardware(|hardware| hardware.disks.push(disk));
    ok(rig.boot())
}

/// A disk over the root image, which begins as `snapshot` if that is given.
fn kept(disk_name: &str, snapshot: Option<&str>) -> DiskSpec {
    let snapshot = snapshot.map(|text| ok(name(text)));
    let overlay = OverlaySpec { disk: ok(name("data")), partition: Some("overlays".into()), snapshot };
    DiskSpec { overlay: Some(overlay), ..disk(disk_name, ROOT, DiskMode::CopyOnWrite) }
}

fn on_overlay(vm: &str) -> VmSpec {
    VmSpec { disks: vec![kept("root", None)], ..debian(vm, 2) }
}

fn the_store(machine: &Running) -> StoreInfo {
    let mut stores = ok(machine.client().stores());
    assert_eq!(stores.len(), 1, "{stores:?}");
    stores.remove(0)
}

fn start(machine: &Running, spec: &VmSpec) -> Shell {
    ok(machine.client().create_vm(spec.clone()));
    Shell::start(machine, spec)
}

/// What a guest has synced is there after the machine's power has gone, with a file system that its journal makes whole; so
/// is a snapshot taken meanwhile. A clone of a disk that was left in order is clean.
#[test]
fn files_outlive_the_machine() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("data.img");
    write_image(&image, 256);
    let spec = on_overlay("debian");
    let sums = "cd /var/kept && md5sum $(ls | sort -n) | md5sum";

    let machine = boot("volumes-1", &image);
    let mut shell = start(&machine, &spec);
    shell.run("mkdir /var/kept; for n in $(seq 60); do head -c $((n * 4321)) /dev/urandom >/var/kept/$n; done; sync");
    let before = shell.run(sums);
    // The disk is busy when the snapshot is taken, and when the power goes.
    shell.run("nohup sh -c 'while :; do for n in 1 2 3 4 5 6; do head -c 3M /dev/urandom >/var/busy-$n; done; sync; done' >/dev/null 2>&1 &");
    ok(machine.client().snapshot(&spec.name, &ok(name("root")), &ok(name("golden"))));
    let refusal =
        machine.client().snapshot(&spec.name, &ok(name("root")), &ok(name("golden"))).expect_err("it is there");
    assert!(refusal.to_string().contains("golden"), "{refusal}");
    let store = the_store(&machine);
    assert_eq!((store.name.as_str(), store.failed, store.volumes.len()), (STORE, false, 2));
    assert!(store.volumes[0].snapshot && store.volumes[0].own_bytes > 4 * MIB, "{store:?}");
    shell.run("sleep 3");
    drop((shell, machine));

    let machine = boot("volumes-2", &image);
    let store = the_store(&machine);
    assert_eq!(store.volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), ["golden", "debian/root"]);
    let mut shell = start(&machine, &spec);
    assert_eq!(shell.run(sums), before);
    shell.run("rm /var/busy-*; echo done >/var/kept/done");
    shell.stop(&machine);
    ok(machine.client().snapshot(&spec.name, &ok(name("root")), &ok(name("orderly"))));

    let mut checker = debian("checker", 2);
    checker.disks.extend([kept("golden", Some("golden")), kept("orderly", Some("orderly"))]);
    let mut shell = start(&machine, &checker);
    shell.run("e2fsck -f -n /dev/vdc1");
    // As after a power failure: the journal first, then all is in order.
    shell.run("e2fsck -p /dev/vdb1 >/dev/null || test $? = 1; e2fsck -f -n /dev/vdb1");
    shell.run("mkdir -p /mnt/b /mnt/c; mount /dev/vdb1 /mnt/b; mount /dev/vdc1 /mnt/c");
    assert_eq!(shell.run("cd /mnt/b/var/kept && md5sum $(ls | sort -n) | md5sum"), before);
    assert_eq!(shell.run("cat /mnt/c/var/kept/done"), "done");
    shell.run("umount /mnt/b /mnt/c");
    shell.stop(&machine);

    let refusal = machine.client().remove_volume(None, "golden").expect_err("others continue it");
    assert!(refusal.to_string().contains("continues"), "{refusal}");
    let free = the_store(&machine).free_bytes;
    for volume in ["debian/root", "checker/golden", "checker/orderly", "orderly", "golden"] {
        ok(machine.client().remove_volume(Some(STORE), volume));
    }
    let store = the_store(&machine);
    assert!(store.volumes.is_empty() && store.free_bytes >= free, "{store:?}");
    assert_eq!(ok(machine.lost_pages()), 0);
}

/// A store without room: the guest that needs it sees I/O errors, an event says why; a neighbour on the same store goes on
/// with what it has, and goes on writing when there is room again.
#[test]
fn a_full_store_is_its_users_trouble() {
    let dir = ok(tempfile::tempdir());
    let image = dir.path().join("data.img");
    write_image(&image, 64);
    let machine = boot("volumes-full", &image);
    // Roots in memory, so that the guests themselves live.
    let with_data = |vm: &str| {
        let spec = debian(vm, 1);
        VmSpec { disks: vec![spec.disks[0].clone(), kept("data", None)], ..spec }
    };
    let specs = [with_data("greedy"), with_data("modest")];
    specs.iter().for_each(|spec| ok(machine.client().create_vm(spec.clone())));
    let [mut greedy, mut modest] = Shell::start_all(&machine, specs.each_ref());
    let mine = "dd if=/dev/urandom of=/dev/vdb bs=1M count=4 seek=2 oflag=direct conv=fsync status=none; \
                dd if=/dev/vdb bs=1M count=4 skip=2 iflag=direct status=none | md5sum";
    let sum = modest.run(mine);
    let failed = greedy.run("dd if=/dev/urandom of=/dev/vdb bs=1M count=100 oflag=direct 2>&1 || echo failed");
    assert!(failed.contains("Input/output error") && failed.ends_with("failed"), "{failed}");
    let told = ok(machine.events()).into_iter().filter_map(|event| match event.kind {
        EventKind::DiskFull { disk, store, limit_mib: None } => {
            Some((disk.to_string(), store.unwrap_or_default().into_owned()))
        }
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [("data".to_owned(), STORE.to_owned())]);
    let again = "dd if=/dev/vdb bs=1M count=4 skip=2 iflag=direct status=none | md5sum";
    assert_eq!(modest.run(again), sum);
    // Over what is there, and into what the other gives back.
    let sum = modest.run(mine);
    greedy.run("blkdiscard -o 0 -l 33554432 /dev/vdb; sync /dev/vdb");
    modest.run("dd if=/dev/urandom of=/dev/vdb bs=1M count=8 seek=64 oflag=direct conv=fsync status=none");
    assert_eq!(modest.run(again), sum);
    greedy.stop(&machine);
    modest.stop(&machine);
}
