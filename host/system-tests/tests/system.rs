//! Whole Debian guests, with disks that stay, networks and boot loaders.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use config::{Forward, MachineInterrupts};
use control::{DiskMode, VmSpec};
use lab::rig::{Rig, Running};
use machine::{ExecStatus, GuestAgent, RunningCommand};
use md5::{Digest, Md5};
use system_tests::debian::{Shell, assert_clean_file_system, debian, debian_by_firmware, disk, net, with_debian};
use system_tests::network::{GUEST_PORT, call_outside_in_vain, exchange, exchange_through, exchange_with_outside};
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
    let machine = ok(ok(with_debian(rig).subnet("lan", true)).reach_host().boot());
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

/// The network leads nowhere unless the machine file opens it; what the file forwards comes in all the same.
#[test]
fn a_closed_network_leads_in_but_not_out() {
    // Free now; nobody else on this host asks for just this one a moment later.
    let host_port = ok(ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).local_addr()).port();
    let guest = SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 15), GUEST_PORT);
    let rig = ok(with_debian(ok(Rig::new("closed", 2, 1024))).subnet("lan", true));
    let rig = rig.hardware(|hardware| {
        hardware.uplink.get_or_insert_default().forwards.push(Forward { host_port, guest });
    });
    let machine = ok(rig.boot());
    let spec = VmSpec { nets: vec![net("lan", None)], ..debian("alone", 1) };
    create(&machine, &spec);
    let mut shell = Shell::start(&machine, &spec);
    call_outside_in_vain(&mut shell);
    exchange_through(host_port, &mut shell, 2);
    shell.stop(&machine);
}

/// Without AIA, on the largest CPU: network and disks through the PLIC.
#[test]
fn network_and_disk_work_through_a_plic() {
    let rig = with_debian(ok(Rig::new("plic-net", 2, 1024))).hardware(|hardware| {
        hardware.interrupts = MachineInterrupts::Plic;
        hardware.cpu = "max".into();
    });
    let rig = ok(ok(rig.scratch("data", 128)).subnet("lan", true)).reach_host();
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

/// Looks until a command has printed this.
#[track_caller]
fn wait_for_output(command: &mut RunningCommand<'_>, text: &str) {
    let mut seen = String::new();
    while seen != text {
        let progress = ok(command.look());
        seen.push_str(&String::from_utf8_lossy(&progress.stdout));
        assert!(text.starts_with(&seen) && progress.ended.is_none(), "{seen:?} {progress:?}");
    }
}

/// How a command without input ends, and what it says on both outputs.
#[track_caller]
fn run_to_end(agent: &mut GuestAgent, program: &str, arguments: &[&str]) -> (ExecStatus, String) {
    let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let command = ok(agent.start(program, &arguments, false));
    let (ended, said) = last_words(command);
    (ended, String::from_utf8_lossy(&said).into_owned())
}

#[track_caller]
fn last_words(mut command: RunningCommand<'_>) -> (ExecStatus, Vec<u8>) {
    let mut said = Vec::new();
    loop {
        let progress = ok(command.look());
        said.extend(progress.stdout);
        said.extend(progress.stderr);
        if let Some(ended) = progress.ended {
            ok(command.finish());
            return (ended, said);
        }
    }
}

/// Input and output of a command in a real guest flow while it runs, its end tells its own from other failures, and nothing of it
/// is left.
#[test]
fn commands_flow_through_the_guests_agent() {
    let machine = ok(with_debian(ok(Rig::new("exec", 2, 768))).boot());
    let spec = debian("guest", 2);
    create(&machine, &spec);
    let mut shell = Shell::start(&machine, &spec);
    let words = ["-c".to_owned(), "while read -r word; do echo got $word; done; exit 7".to_owned()];
    let mut command = ok(shell.agent().start("sh", &words, true));
    for word in ["one", "two"] {
        assert!(ok(command.offer(format!("{word}\n").as_bytes())));
        wait_for_output(&mut command, &format!("got {word}\n"));
    }
    ok(command.end_input());
    assert_eq!(last_words(command).0, ExecStatus::Exited(7));

    let bytes: Vec<u8> = (0..1_500_000_u32).map(|number| (number % 241) as u8).collect();
    let mut command = ok(shell.agent().start("md5sum", &[], true));
    for piece in bytes.chunks(machine::MAX_INPUT) {
        while !ok(command.offer(piece)) {
            assert_eq!(ok(command.look()).ended, None);
        }
    }
    ok(command.end_input());
    let (ended, said) = last_words(command);
    let sum: String = Md5::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((ended, String::from_utf8_lossy(&said).trim()), (ExecStatus::Exited(0), format!("{sum}  -").as_str()));

    let agent = shell.agent();
    assert_eq!(run_to_end(agent, "cat", &["/proc/self/fd/0"]), (ExecStatus::Exited(0), String::new()));
    assert_eq!(run_to_end(agent, "no-such-program", &[]).0, ExecStatus::Exited(127));
    assert_eq!(run_to_end(agent, "/etc/passwd", &[]).0, ExecStatus::Exited(126));
    assert_eq!(run_to_end(agent, "sh", &["-c", "kill -TERM $$"]).0.code(), 128 + 15);
    // Larger than what is read at once, and than what the agent's own command keeps.
    let (ended, said) = run_to_end(agent, "sh", &["-c", "seq 400000"]);
    assert_eq!((ended, said.lines().count(), said.lines().last()), (ExecStatus::Exited(0), 400_000, Some("400000")));
    // A reader that goes away: its command ends, and the next one takes its files away.
    drop(ok(agent.start("sleep", &["0.1".to_owned()], true)));
    assert_eq!(shell.run("sleep 1; find /var/tmp -maxdepth 1 -name mirrorball-exec.'*' | wc -l"), "1");
    run_to_end(shell.agent(), "true", &[]);
    assert_eq!(shell.run("find /var/tmp -maxdepth 1 -name mirrorball-exec.'*' | wc -l"), "0");
    shell.stop(&machine);
}
