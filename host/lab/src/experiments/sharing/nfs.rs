//! A file server and its clients, each in a VM of its own: how much of what went through NFS is in memory twice. Guests say which
//! pages of the files they have in their page caches, the monitor says of each whether it is shared.

use std::thread;
use std::time::{Duration, Instant};

use control::{DEFAULT_MTU, DiskMode, DiskSpec, NetSpec, PageKind, VmSpec};
use machine::Client;

use super::measure::{MIB_BYTES, PAGE, finish, mib, quick, rest, shell, start_all, vms};
use super::resident::{self, Resident};
use super::{DISK, INITRD};
use crate::compare::ratio;
use crate::plan::Trial;
use crate::rig::{Rig, name as named};
use crate::run::Progress;
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// The disk with Debian's NFS programs and the kernel's modules, and where guests mount it.
pub const TOOLS: &str = "loads-nfs/nfs.img";
const TOOLS_DISK: &str = "nfs";
const SUBNET: &str = "lan";
/// What is served: the compiler proper, which every compiling client needs.
const SERVED: &str = "/usr/libexec/gcc";
/// Where clients see it.
const MOUNTED: &str = "/srv";
/// After this long, idle, a file should be there once.
const SETTLED: Duration = Duration::from_secs(5);
/// Looked at once more after this: on a host that is busy with other things a machine does less in five seconds.
const LATER: Duration = Duration::from_secs(25);

/// The first VM serves by NFS what it has on its disk; the others read all of it, one after the other.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest cannot serve or read.
pub fn serve(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let rig = quick(Rig::of("bench-sharing-nfs", trial)?).with_debian(INITRD)?.subnet(SUBNET, false)?;
    let rig = rig.image(DISK, artifacts::cached("root/root.img")?)?;
    let machine = rig.image(TOOLS_DISK, artifacts::cached(TOOLS)?)?.boot()?;
    let vms = vms(trial)?.into_iter().map(with_nfs).collect::<Result<Vec<_>, _>>()?;
    let Some((server, clients)) = vms.split_first() else {
        return finish(&machine, vec![Value::missing("nfs_double_share", "there are no VMs")]);
    };
    start_all(&machine, &vms)?;
    let client = machine.client();
    for (vm, host) in vms.iter().zip(1..) {
        shell(client, vm, &attach(host))?;
    }
    shell(client, server, &format!("/mnt/nfs serve {SERVED}"))?;
    for vm in clients {
        shell(client, vm, &format!("/mnt/nfs mount 10.9.0.1 {MOUNTED}"))?;
    }
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
    };
    let net = NetSpec { subnet: named(SUBNET)?, mac: None, mtu: DEFAULT_MTU };
    Ok(VmSpec { disks: vm.disks.into_iter().chain([tools]).collect(), nets: vec![net], ..vm })
}

fn attach(host: u64) -> String {
    format!(
        "set -e; mount -o ro /dev/vdb /mnt; nic=$(ls /sys/class/net | grep -v lo); \
         ip addr add 10.9.0.{host}/24 dev $nic; ip link set $nic up"
    )
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
        reason: format!("of the files that were served it could read {said:?} bytes"),
        console: String::new(),
    })
}
