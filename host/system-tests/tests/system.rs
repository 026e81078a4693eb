//! Whole Debian guests, with disks that stay, networks and boot loaders.

use config::MachineInterrupts;
use control::{DiskMode, VmSpec};
use lab::rig::{Rig, Running};
use system_tests::debian::{Shell, assert_clean_file_system, debian, debian_by_firmware, disk, net, with_debian};
use system_tests::network::{exchange, exchange_with_outside};
use system_tests::ok;

#[track_caller]
fn create(machine: &Running, spec: &VmSpec) {
    ok(machine.client().create_vm(spec.clone()));
}

/// One, two and eight vCPUs on four nodes, far more in all than there are harts; a checksum in each, computed by all its vCPUs at
/// once. Two of them reach each other and the outside, the links between them as wide as links can be.
#[test]
fn guests_of_1_2_and_8_vcpus_share_four_nodes_and_a_subnet() {
    let rig = ok(Rig::new("four", 1, 512)).node(1, 512).node(1, 512).node(1, 512);
    let machine = ok(ok(with_debian(rig).subnet("lan", true)).boot());
    let on_lan = |vm, vcpus| VmSpec { nets: vec![net("lan", Some(65_535))], ..debian(vm, vcpus) };
    let specs = [on_lan("one", 1), on_lan("two", 2), debian("eight", 8)];
    specs.iter().for_each(|spec| create(&machine, spec));
    let mut shells = Shell::start_all(&machine, specs.each_ref());
    for (shell, spec) in shells.iter_mut().zip(&specs) {
        assert_eq!(shell.run("nproc"), spec.vcpus.to_string());
        let sums = shell.run("seq $(nproc) | xargs -P 8 -I{} sh -c 'seq 20000 | sha256sum' | sort -u");
        assert_eq!(sums, "f6351f5ead9a700e34275480b3856ea738122a7c57bdeb744a631251c069587a  -", "{}", spec.name);
    }
    let [mut one, mut two, eight] = shells;
    exchange(&mut one, &mut two, 24);
    exchange_with_outside(&mut one, 8);
    exchange_with_outside(&mut two, 8);
    [one, two, eight].into_iter().for_each(|shell| shell.stop(&machine));
    // The disk cache keeps its pages; no guest has any.
    assert_eq!(ok(machine.lost_pages()), 0);
}

/// Without AIA, on the largest CPU: network and disks through the PLIC.
#[test]
fn network_and_disk_work_through_a_plic() {
    let rig = with_debian(ok(Rig::new("plic-net", 2, 1024))).hardware(|hardware| {
        hardware.interrupts = MachineInterrupts::Plic;
        hardware.cpu = "max".into();
    });
    let rig = ok(ok(rig.scratch("data", 128)).subnet("lan", true));
    let machine = ok(rig.boot());
    let mut spec = VmSpec { nets: vec![net("lan", None)], ..debian("plic", 2) };
    spec.disks.push(disk("data", "data", DiskMode::Persistent));
    create(&machine, &spec);
    let mut shell = Shell::start(&machine, &spec);
    exchange_with_outside(&mut shell, 8);
    shell.run(
        "head -c 48M /dev/urandom >/run/data; dd if=/run/data of=/dev/vdb bs=64k oflag=direct; \
               dd if=/dev/vdb bs=64k count=768 iflag=direct | cmp - /run/data",
    );
    shell.stop(&machine);
}

/// A file on a persistent disk is there when the guest, which started from its disk by U-Boot, starts again; the file
/// system on it is clean although it was in use when the guest was stopped.
#[test]
fn a_persistent_disk_outlives_its_guest() {
    let rig = ok(with_debian(ok(Rig::new("disks", 2, 1024))).scratch("data", 256));
    let machine = ok(rig.boot());
    let image = machine.machine().dir().path().join("disk-data.img");
    let mut spec = debian_by_firmware("writer", 2);
    spec.disks.push(disk("data", "data", DiskMode::Persistent));
    create(&machine, &spec);
    let mut shell = Shell::start(&machine, &spec);
    shell.run(
        "mke2fs -q -t ext4 /dev/vdb; mount /dev/vdb /mnt; cp -r /usr/lib/gcc /mnt/copy; cd /mnt/copy; \
               find . -type f -exec md5sum {} + >/mnt/sums",
    );
    let files = shell.run("wc -l </mnt/sums");
    let second = VmSpec { name: ok(lab::rig::name("second")), ..spec.clone() };
    let refused = machine.client().create_vm(second.clone()).and_then(|()| machine.client().start_vm(&second.name));
    let refusal = refused.expect_err("two VMs write one disk").to_string();
    assert!(refusal.contains("data"), "it does not say which disk: {refusal}");
    shell.stop(&machine);
    assert_clean_file_system(&image);
    let mut shell = Shell::start(&machine, &spec);
    assert_eq!(shell.run("mount /dev/vdb /mnt; wc -l </mnt/sums"), files);
    shell.run("cd /mnt/copy; md5sum --quiet -c /mnt/sums");
    shell.stop(&machine);
    assert_clean_file_system(&image);
}
