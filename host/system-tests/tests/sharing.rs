//! One copy of what several Debian guests read: blocks of the disk cache mapped into them, and what a write does to that.

use std::time::{Duration, Instant};

use config::{ModelPlan, Preset};
use control::{Event, EventKind, Name, PageKind, PlacementAction, VmMemory, VmSpec};
use lab::rig::{Rig, Running, WATCHDOG};
use machine::SharedModel;
use machine_model::CacheShape;
use model_file::Request;
use system_tests::debian::{Shell, debian, net, with_debian};
use system_tests::ok;

const MIB: u64 = 1 << 20;
/// Many programs and libraries of the image, read whole and in the same order.
const SUM_OF_ALL: &str =
    "find /usr/bin /usr/lib -xdev -type f | LC_ALL=C sort | sed -n 1,350p | xargs -d '\\n' cat | md5sum";
/// A few of them.
const SUM_OF_SOME: &str = "find /usr/bin -xdev -type f | LC_ALL=C sort | sed -n 1,40p | xargs -d '\\n' cat | md5sum";
/// Forgets what the guest has read, writes back first.
const FORGET: &str = "sync; echo 3 > /proc/sys/vm/drop_caches";

/// Pages that a VM shares.
fn shared_pages(machine: &Running, vm: &Name) -> u64 {
    ok(machine.client().vm_stats(vm)).memory.iter().map(|on: &VmMemory| on.shared_pages).sum()
}

/// Bytes shared on all nodes, and bytes that they stand for.
fn sharing(machine: &Running) -> (u64, u64) {
    let nodes = ok(machine.stats()).nodes;
    (nodes.iter().map(|node| node.shared_bytes).sum(), nodes.iter().map(|node| node.sharing_bytes).sum())
}

/// Two guests on two nodes read the whole system, write to parts of what they have read, read again with little memory and
/// all vCPUs at once: each sees its own disk, most of what they hold is there once, and all comes back when they end.
#[test]
fn guests_have_one_copy_of_what_they_read() {
    let rig = ok(Rig::new("sharing", 2, 1024)).node(2, 768);
    let machine = ok(with_debian(rig).boot());
    let specs = [debian("left", 2), debian("right", 3)];
    specs.iter().for_each(|spec| ok(machine.client().create_vm(spec.clone())));
    let [mut left, mut right] = Shell::start_all(&machine, specs.each_ref());

    let before = left.run(SUM_OF_ALL);
    assert_eq!(right.run(SUM_OF_ALL), before);
    let (once, in_all) = sharing(&machine);
    assert!(in_all > once + 40 * MIB && in_all * 10 > once * 16, "{once} bytes stand for {in_all}");
    for spec in &specs {
        let pages = shared_pages(&machine, &spec.name);
        assert!(pages > 40 * 256, "{} shares {pages} pages", spec.name);
    }
    for disk in ok(machine.stats()).disks {
        let served = disk.mapped_bytes + disk.unaligned_bytes + disk.refused_bytes;
        assert!(disk.mapped_bytes * 100 >= served * 95, "{disk:?}");
    }

    // A page in the middle of a file that both have read: in memory first, then from the disk.
    let target = left.run("find /usr/lib -xdev -type f -size +900k -name '*.so*' | LC_ALL=C sort | sed -n 1p");
    let of_target = "md5sum < $1";
    let whole = right.run_with(of_target, &[&target]);
    assert_eq!(left.run_with(of_target, &[&target]), whole);
    let change =
        "cp $1 /var/tmp/kept; dd if=/dev/urandom of=$1 bs=5000 seek=31 count=3 conv=notrunc status=none; md5sum < $1";
    let changed = left.run_with(change, &[&target]);
    assert_ne!(changed, whole);
    assert_eq!(right.run_with(of_target, &[&target]), whole);
    left.run(FORGET);
    assert_eq!(left.run_with(of_target, &[&target]), changed);
    assert_eq!(left.run("md5sum < /var/tmp/kept"), whole);
    assert_eq!(right.run_with(of_target, &[&target]), whole);
    left.run_with("cp /var/tmp/kept $1; rm /var/tmp/kept", &[&target]);

    // Everything at once, again and again, while memory runs short: pages that were shared are written as other memory.
    let storm = format!(
        "for round in 1 2; do {FORGET}; for n in $(seq $(nproc)); do {SUM_OF_ALL} & done; \
         head -c 90M /dev/zero | tail -c 1 | wc -c; wait; done | sort | uniq -c | awk '{{print $1, $2}}'"
    );
    let sum = before.split(' ').next().unwrap_or_default();
    let mut want = ["2 1".to_owned(), format!("4 {sum}")];
    want.sort();
    let mut got: Vec<_> = left.run(&storm).lines().map(str::to_owned).collect();
    got.sort();
    assert_eq!(got, want);
    assert_eq!(right.run(SUM_OF_ALL), before);
    let unshared: u64 = specs.iter().map(|spec| ok(machine.client().vm_stats(&spec.name)).pages_unshared).sum();
    assert!(unshared > 100, "only {unshared} pages were written to");

    left.stop(&machine);
    right.stop(&machine);
    assert_eq!((sharing(&machine), ok(machine.lost_pages())), ((0, 0), 0));
    let refused = ok(machine.events()).into_iter().any(|event| matches!(event.kind, EventKind::SharingRefused { .. }));
    assert!(!refused, "something was copied that could have been shared");
}

/// Longest wait for a pass over a VM's memory: the first comes 15 s after its start.
const PASS: Duration = Duration::from_secs(240);

/// Waits until a pass over a VM has merged `merged` pages and got `zeroes` back, in all.
#[track_caller]
fn wait_merged(machine: &Running, vm: &Name, merged: u64, zeroes: u64) {
    let begin = Instant::now();
    loop {
        let stats = ok(machine.client().vm_stats(vm));
        if stats.pages_merged >= merged && stats.zero_pages_returned >= zeroes {
            return;
        }
        let (got, back) = (stats.pages_merged, stats.zero_pages_returned);
        assert!(begin.elapsed() < PASS, "{vm}: {got} pages merged, {back} of zeroes came back");
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Two guests of one kernel on two nodes: what their kernels still have in common after they have patched themselves is
/// there once, large tables that they have cleared and never used are not there at all, and writing to what was merged
/// changes nothing for the other. A third one, which may share nothing, has all for itself.
#[test]
fn equal_kernels_become_one() {
    let rig = ok(Rig::new("merging", 2, 1024)).node(2, 1024);
    let machine = ok(with_debian(rig).boot());
    let alone = VmSpec { sharing: false, ..debian("alone", 1) };
    let specs = [debian("left", 2), debian("right", 2), alone];
    specs.iter().for_each(|spec| ok(machine.client().create_vm(spec.clone())));
    let [mut left, mut right, mut alone] = Shell::start_all(&machine, specs.each_ref());
    let [first, second, third] = specs.each_ref().map(|spec| &spec.name);
    // 10 MiB of code and 10 MiB of constants, less what each has patched in its own way; 10 MiB of modules, most of them tables
    // of symbols, if they happen to be at the same addresses; Linux' table of memory sections is 32 MiB, with one entry.
    let modules = "cut -d ' ' -f 1,2,6 /proc/modules";
    let is_alike = left.run(modules) == right.run(modules);
    let merged = if is_alike { 25 * 256 } else { 16 * 256 };
    wait_merged(&machine, second, merged, 20 * 256);
    wait_merged(&machine, first, 0, 20 * 256);
    let on = |vm| ok(machine.client().vm_stats(vm));
    assert_eq!((on(third).pages_merged, on(third).zero_pages_returned, on(third).pages_mapped), (0, 0, 0));
    assert_eq!(shared_pages(&machine, third), 0);
    let map = |vm| ok(machine.client().page_map(vm));
    let shared = |map: &[PageKind]| map.iter().filter(|kind| **kind == PageKind::Shared).count();
    assert_eq!((map(third).len(), shared(&map(third))), (320 * 256, 0));
    assert!(shared(&map(second)) as u64 > merged && shared(&map(first)) as u64 > merged);

    // Switching a static key makes the kernel patch its text: in one guest only, then in the other.
    let schedstats = "echo $1 > /proc/sys/kernel/sched_schedstats; for n in $(seq 200); do :; done; \
                      cat /proc/sys/kernel/sched_schedstats";
    for (on_left, on_right) in [("1", "0"), ("1", "1"), ("0", "1")] {
        assert_eq!(left.run_with(schedstats, &[on_left]), on_left);
        assert_eq!(right.run_with(schedstats, &[on_right]), on_right);
    }
    // The table that went is still a table: the kernel looks through it for every page of memory.
    let look = "head -c 1M /proc/kpagecount | wc -c; md5sum /proc/modules /proc/version | wc -l";
    assert_eq!(left.run(look), right.run(look));
    assert!(on(second).pages_unshared > 0);
    let want = alone.run(SUM_OF_SOME);
    assert_eq!(left.run(SUM_OF_SOME), want);
    assert_eq!(right.run(SUM_OF_SOME), want);
    assert_eq!(on(third).pages_mapped, 0);

    // The one that had the pages first goes first.
    left.stop(&machine);
    assert_eq!(right.run(SUM_OF_SOME), want);
    right.stop(&machine);
    alone.stop(&machine);
    assert_eq!((sharing(&machine), ok(machine.lost_pages())), ((0, 0), 0));
}

/// Kernels that are one lie on one node: a guest of another node gets copies of the blocks that it uses, with large leaves, and
/// what it patches in its kernel is its own all the same.
#[test]
fn merged_kernels_have_copies_on_each_node() {
    let mut model = ModelPlan::new(Preset::Flash);
    // Booting is no part of it; a kernel would fit FLASH's own cache.
    (model.starts_on, model.l2) = (false, Some(CacheShape { bytes: 128 << 10, ways: 2 }));
    let rig = ok(Rig::new("kernels", 1, 768)).node(1, 768);
    let machine = ok(with_debian(rig).hardware(|hardware| hardware.model = Some(model)).boot());
    let specs = [debian("near", 1), debian("far", 1)];
    specs.iter().for_each(|spec| ok(machine.client().create_vm(spec.clone())));
    let [mut near, mut far] = Shell::start_all(&machine, specs.each_ref());
    let far_name = &specs[1].name;
    wait_merged(&machine, far_name, 16 * 256, 0);
    let placed = || ok(machine.client().vm_stats(far_name)).placement;
    assert_eq!(placed().replicated_pages, 0, "nobody counts misses yet");

    let switch = |request| ok(ok(SharedModel::of(machine.machine().dir())).request(request, WATCHDOG));
    switch(Request::On);
    far.run("(while [ ! -e /tmp/enough ]; do find /usr/lib > /dev/null; done) > /dev/null 2>&1 &");
    let begin = Instant::now();
    while !copied_whole(&machine, far_name) {
        assert!(begin.elapsed() < PASS, "{:?}", placed());
        std::thread::sleep(Duration::from_secs(1));
    }
    switch(Request::Off);
    far.run("touch /tmp/enough");
    let schedstats = "echo $1 > /proc/sys/kernel/sched_schedstats; cat /proc/sys/kernel/sched_schedstats";
    for (here, there) in [("0", "1"), ("1", "0")] {
        assert_eq!(
            (near.run_with(schedstats, &[here]), far.run_with(schedstats, &[there])),
            (here.into(), there.into())
        );
    }
    assert_eq!(near.run(SUM_OF_SOME), far.run(SUM_OF_SOME));
    near.stop(&machine);
    far.stop(&machine);
    assert_eq!(ok(machine.lost_pages()), 0);
}

/// Whether an event says that the VM got a copy of a whole 2 MiB block.
fn copied_whole(machine: &Running, vm: &Name) -> bool {
    let is_its = |event: &Event| event.vm.as_ref().is_some_and(|label| label.name.as_ref() == Some(vm));
    let is_whole = |kind: &EventKind| {
        matches!(kind, EventKind::PagesPlaced { action: PlacementAction::Replicated, pages: 512, .. })
    };
    ok(machine.events()).iter().any(|event| is_its(event) && is_whole(&event.kind))
}

/// Sends a file whole with `sendfile`, as an NFS server hands out pages of its page cache, to each of `$2` that connect.
const SERVE: &str = r#"cat > /tmp/serve.c <<'END'
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7000)};
    int file = open(words[1], O_RDONLY), door = socket(AF_INET, SOCK_STREAM, 0);
    if (file < 0 || bind(door, (void *)&here, sizeof here) || listen(door, 4) || daemon(0, 0)) return 1;
    for (int left = atoi(words[2]); left > 0; left--) {
        int peer = accept(door, 0, 0);
        off_t at = 0;
        while (sendfile(peer, file, &at, 1 << 20) > 0) {}
        close(peer);
    }
    return 0;
}
END
gcc -o /tmp/serve /tmp/serve.c && /tmp/serve $1 $2"#;
/// Fetches that into a file in memory, from host `$1` into `$2`.
const FETCH: &str = "for n in $(seq 50); do exec 3<>/dev/tcp/10.9.0.$1/7000 && break; sleep 0.2; done; cat <&3 >$2";
const SUM: &str = "md5sum < $1; wc -c < $1";

/// One guest has a large file of its disk in its page cache and sends it to two others, which keep it in memory: soon after
/// hardly any of it is there twice for the one that shares, all of it for the one that does not. What the receiver then
/// writes to it is its own.
#[test]
fn what_went_over_the_wire_is_there_once() {
    let rig = ok(ok(Rig::new("wire", 2, 2048)).subnet("lan", false));
    let machine = ok(with_debian(rig).boot());
    let on_lan = |vm| VmSpec { nets: vec![net("lan", None)], ..debian(vm, 1) };
    let specs = [on_lan("server"), on_lan("client"), VmSpec { sharing: false, ..on_lan("apart") }];
    specs.iter().for_each(|spec| ok(machine.client().create_vm(spec.clone())));
    let [mut server, mut client, mut apart] = Shell::start_all(&machine, specs.each_ref());
    let up = "nic=$(ls /sys/class/net | grep -v lo); ip addr add 10.9.0.$1/24 dev $nic; ip link set $nic up";
    for (shell, host) in [(&mut server, "1"), (&mut client, "2"), (&mut apart, "3")] {
        shell.run_with(up, &[host]);
    }
    // What the one that does not share sends is not looked for either.
    apart.run_with(SERVE, &["/usr/bin/bash", "1"]);
    client.run_with(FETCH, &["3", "/dev/shm/bash"]);

    let file = server.run("find /usr -xdev -name cc1 -type f");
    let sum = server.run_with(SUM, &[&file]);
    let pages = sum.lines().nth(1).and_then(|bytes| bytes.parse::<u64>().ok()).expect("a length") / 4096;
    server.run_with(SERVE, &[&file, "2"]);
    apart.run_with(FETCH, &["1", "/dev/shm/got"]);
    let on = |vm: usize| ok(machine.client().vm_stats(&specs[vm].name));
    let before = on(1).pages_merged;
    client.run_with(FETCH, &["1", "/dev/shm/got"]);
    // Two rounds on an idle machine; how long that takes here depends on who else is at work.
    wait_merged(&machine, &specs[1].name, before + pages * 95 / 100, 0);
    assert_eq!(client.run_with(SUM, &["/dev/shm/got"]), sum);
    assert_eq!(apart.run_with(SUM, &["/dev/shm/got"]), sum);
    assert_eq!((shared_pages(&machine, &specs[2].name), on(2).pages_merged), (0, 0), "it shares nothing");

    let changed =
        client.run("printf x | dd of=/dev/shm/got bs=1 seek=1M conv=notrunc status=none; md5sum < /dev/shm/got");
    assert_ne!(Some(changed.as_str()), sum.lines().next());
    assert_eq!(server.run_with(SUM, &[&file]), sum);
    server.stop(&machine);
    assert_eq!(client.run("md5sum < /dev/shm/got"), changed);
    client.stop(&machine);
    apart.stop(&machine);
    assert_eq!((sharing(&machine), ok(machine.lost_pages())), ((0, 0), 0));
}
