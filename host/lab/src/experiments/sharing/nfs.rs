//! A file server and its clients, each in a VM of its own. [`compile`] is the paper's last configuration: all compile what the first
//! one serves. [`serve`] tells how much of what went through NFS is in memory twice: guests say which pages of the files they have in
//! their page caches, the monitor says of each whether it is shared.

use std::thread;
use std::time::{Duration, Instant};

use control::{DEFAULT_MTU, DiskMode, DiskSpec, NetSpec, PageKind, VmSpec};
use machine::Client;

use super::footprint::{self, Look};
use super::guests::{MIB_BYTES, PAGE, finish, mib, rest, vms};
use super::resident::{self, Resident};
use crate::compare::ratio;
use crate::experiments::debian::{self, COMPILE, run_all, shell};
use crate::plan::Trial;
use crate::rig::{Running, name as named};
use crate::run::Progress;
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// The disk with Debian's NFS programs and the kernel's modules, and where guests mount it.
pub const TOOLS: &str = "loads-nfs/nfs.img";
const TOOLS_DISK: &str = "nfs";
const SUBNET: &str = "lan";
/// What a compile over NFS is judged by.
pub const FOOTPRINT: &str = "shared_footprint_8_nfs";
/// What is served: the compiler proper, which every compiling client needs.
const SERVED: &str = "/usr/libexec/gcc";
/// Where clients see it.
const MOUNTED: &str = "/srv";
/// Clients that compile believe for an hour what the server has told them of its files. What it served seven of them at less was
/// mostly that again and again: two thirds of its time, and nobody was done after forty minutes.
const WORKING: &str = "rw,nocto,actimeo=3600";
/// After this long, idle, a file should be there once.
const SETTLED: Duration = Duration::from_secs(5);
/// Looked at once more after this: on a host that is busy with other things a machine does less in five seconds.
const LATER: Duration = Duration::from_secs(25);

/// The same in a client as the server does it for itself: compiler, headers, sources and objects, all are the server's.
/// Only device files and `/tmp` are its own.
const COMPILE_THERE: &str = "set -e; mkdir -p /srv/var/tmp/$(hostname); mount --bind /dev /srv/dev; mount -t tmpfs tmp /srv/tmp; \
                             mount --bind /srv/var/tmp/$(hostname) /srv/var/tmp; chroot /srv sh -c";

/// The first VM serves its whole disk by NFS and compiles, alone at first, and then with all others, which take everything from it.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest does not do its work.
pub fn compile(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let (machine, vms) = boot(trial, "bench-sharing-nfs-compile")?;
    let Some((server, clients)) = vms.split_first() else {
        return finish(&machine, vec![Value::missing(FOOTPRINT, "there are no VMs")]);
    };
    let alone = std::slice::from_ref(server);
    machine.start(server)?;
    export(machine.client(), server, "/", "rw")?;
    shell(machine.client(), server, COMPILE)?;
    let mut looks = vec![Look::take(&machine, alone, "1_nfs".to_owned(), progress)?];
    mount(&machine, clients, WORKING)?;
    progress.say(&format!("{} VMs compile", vms.len()));
    let there = format!("{COMPILE_THERE} '{}'", COMPILE.replace('\'', "\""));
    let of_clients = clients.iter().map(|vm| (vm, there.as_str()));
    run_all(machine.client(), of_clients.chain([(server, COMPILE)]))?;
    looks.push(Look::take(&machine, &vms, format!("{}_nfs", vms.len()), progress)?);
    let mut values: Vec<_> = looks.iter().flat_map(Look::values).collect();
    values.push(footprint::growth(FOOTPRINT, &looks));
    finish(&machine, values)
}

/// The machine, with its VMs made and not started.
fn boot(trial: &Trial, name: &str) -> Result<(Running, Vec<VmSpec>), LabError> {
    let rig = debian::rig(name, trial)?.subnet(SUBNET, false)?;
    let machine = rig.image(TOOLS_DISK, artifacts::cached(TOOLS)?)?.boot()?;
    let vms = vms(trial)?.into_iter().map(with_nfs).collect::<Result<Vec<_>, _>>()?;
    Ok((machine, vms))
}

/// A VM serves a folder with these rights.
fn export(client: &Client, server: &VmSpec, served: &str, rights: &str) -> Result<(), LabError> {
    shell(client, server, &format!("{} && /mnt/nfs serve {served} {rights}", attach(1))).map(drop)
}

/// Starts VMs in which is what the first one serves, with these rights. One after the other: many that boot at once take longer than
/// anybody waits for one, on a busy host.
fn mount(machine: &Running, clients: &[VmSpec], rights: &str) -> Result<(), LabError> {
    for (vm, number) in clients.iter().zip(2..) {
        machine.start(vm)?;
        let mount = format!("{} && /mnt/nfs mount 10.9.0.1 {MOUNTED} {rights}", attach(number));
        shell(machine.client(), vm, &mount)?;
    }
    Ok(())
}

fn attach(number: u64) -> String {
    format!("mount -o ro /dev/vdb /mnt && /mnt/nfs attach 10.9.0.{number}/24")
}

/// The first VM serves by NFS what it has on its disk; the others read all of it, one after the other.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest cannot serve or read.
pub fn serve(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let (machine, vms) = boot(trial, "bench-sharing-nfs")?;
    let Some((server, clients)) = vms.split_first() else {
        return finish(&machine, vec![Value::missing("nfs_double_share", "there are no VMs")]);
    };
    machine.start(server)?;
    let client = machine.client();
    export(client, server, SERVED, "ro")?;
    mount(&machine, clients, "ro")?;
    // Kernels are merged by then, and what is counted from here on went over the wire.
    rest(&machine)?;
    let (mut served, mut soon, mut later) = (0, [0; 2], [0; 2]);
    for (vm, number) in clients.iter().zip(1..) {
        progress.say(&format!("client {number}"));
        served += read_all(client, vm)?;
        let read = Instant::now();
        thread::sleep(SETTLED);
        let (pages, own) = held_twice(client, vm, server)?;
        progress.say(&format!("client {number}: {own} of {pages} pages are there twice"));
        soon = [soon[0] + own, soon[1] + pages];
        thread::sleep(LATER.saturating_sub(read.elapsed()));
        let (pages, own) = held_twice(client, vm, server)?;
        later = [later[0] + own, later[1] + pages];
    }
    let values = vec![
        Value::new("nfs_double_share", ratio(soon[0], soon[1]), "", 1),
        Value::new("nfs_double_share_later", ratio(later[0], later[1]), "", 1),
        Value::new("nfs_served_mib", mib(served), super::MIB, 1),
        Value::new("nfs_kept_mib", mib(soon[1] * PAGE), super::MIB, 1),
    ];
    finish(&machine, values)
}

fn with_nfs(vm: VmSpec) -> Result<VmSpec, LabError> {
    let tools = DiskSpec {
        name: named("tools")?,
        source: named(TOOLS_DISK)?,
        partition: None,
        mode: DiskMode::ReadOnly,
        overlay: None,
        limit_mib: None,
    };
    let net = NetSpec { subnet: named(SUBNET)?, mac: None, mtu: DEFAULT_MTU };
    Ok(VmSpec { disks: vm.disks.into_iter().chain([tools]).collect(), nets: vec![net], ..vm })
}

/// Pages of what was served that a client has in its page cache, and how many of them are in memory twice.
fn held_twice(client: &Client, vm: &VmSpec, server: &VmSpec) -> Result<(u64, u64), LabError> {
    // First what is what, for both: asking the guests takes a while.
    let kinds = [vm, server].map(|vm| client.page_map(&vm.name));
    let [at_client, at_server] = kinds;
    let has = resident_of(client, vm, MOUNTED, &at_client?)?;
    Ok((has.pages(), has.twice(&resident_of(client, server, SERVED, &at_server?)?)))
}

fn resident_of(client: &Client, vm: &VmSpec, root: &str, kinds: &[PageKind]) -> Result<Resident, LabError> {
    let said = shell(client, vm, &format!("root={root}{}", resident::SCRIPT))?;
    Resident::of(&said, kinds).ok_or_else(|| LabError::Guest {
        experiment: format!("sharing: {}", vm.name),
        reason: format!("of {} pages it says where files are: {said:.200}", kinds.len()),
        console: String::new(),
    })
}

/// Reads all that is served, whole; bytes of it.
fn read_all(client: &Client, vm: &VmSpec) -> Result<u64, LabError> {
    let said = shell(client, vm, &format!("find {MOUNTED} -type f -exec cat {{}} + | wc -c"))?;
    said.trim().parse::<u64>().ok().filter(|bytes| *bytes > MIB_BYTES).ok_or_else(|| LabError::Guest {
        experiment: format!("sharing: {}", vm.name),
        reason: format!("of the files that were served it could read {} bytes", said.trim()),
        console: String::new(),
    })
}
