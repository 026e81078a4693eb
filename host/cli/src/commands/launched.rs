//! `launch`, and the life of what it makes: `start`, `stop`, `inspect`, `edit`, `rename`, `rm`.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{env, fs};

use config::{Loader, cache_dir};
use control::{Name, VmState};
use images::{HostKey, Image, ImageError, Seed, Store, overlay};
use machine::{Client, wait_for_vm};
use serde::Serialize;

use super::check::warn;
use super::image::{DEFAULT_IMAGE, store, take_in};
use super::launch::Running;
use super::{Context, shutdown, ssh, vm};
use crate::args::{Launch, LaunchVm, PortMap, Rename};
use crate::failure::Failure;
use crate::launched::{self, Definition, Home, Homes, Shape};

/// Packages are unpacked into memory, and cloud-init is Python: less than this is swapping at best.
const LEAST_MEMORY_MIB: u64 = 256;

pub fn launch(context: &Context, args: &LaunchVm) -> Result<(), Failure> {
    let homes = Homes::from_env()?;
    // Before anything takes time: what can be refused is.
    let memory_mib = args.memory >> 20;
    if memory_mib < LEAST_MEMORY_MIB {
        return Err(Failure::Usage(format!("--memory: a cloud image needs {LEAST_MEMORY_MIB}M at least")));
    }
    if let Some(port) = repeated(&args.ports) {
        return Err(Failure::Usage(format!("--port: {port} leads somewhere already")));
    }
    launched::check_free(&args.ports)?;
    let keys = args.ssh_keys.iter().map(|file| public_keys(file)).collect::<Result<Vec<_>, _>>()?.concat();
    let (store, image) = find_image(context, args.image.as_deref())?;
    let name = args.name.clone().map_or_else(|| name_of(&image), Ok)?;
    if homes.find(&name).is_none() && machine::RunRoot::from_env().machine(&name).is_running() {
        return Err(Failure::Other(format!("a machine {name:?} runs already; choose another name with --name")));
    }
    let home = homes.create(&name)?;
    let made = define(args, &home, &store.disk(&image), &image, keys);
    if made.is_err() {
        // Nothing is left of what did not come to be.
        let _ = fs::remove_dir_all(home.path());
    }
    made?;
    boot(context, &home, &args.machine, (!args.no_wait).then_some(args.timeout))
}

fn repeated(ports: &[PortMap]) -> Option<u16> {
    let is_again = |(at, port): (usize, &PortMap)| ports.iter().take(at).any(|other| other.host == port.host);
    ports.iter().enumerate().find(|(at, port)| is_again((*at, *port))).map(|(_, port)| port.host)
}

/// The image meant: by name, or a file that is taken in.
fn find_image(context: &Context, wanted: Option<&str>) -> Result<(Store, Image), Failure> {
    let store = store()?;
    let image = match wanted {
        None => match store.get(DEFAULT_IMAGE) {
            Ok(image) => image,
            Err(_) => take_in(context, &store, &default_file()?, Some(DEFAULT_IMAGE))?,
        },
        Some(text) if text.contains('/') || Path::new(text).is_file() => {
            take_in(context, &store, Path::new(text), None)?
        }
        Some(text) => store.get(text)?,
    };
    Ok((store, image))
}

fn default_file() -> Result<PathBuf, Failure> {
    let file = cache_dir().map(|cache| cache.join("cloud/cloud.img"));
    file.filter(|file| file.is_file()).ok_or_else(|| {
        let what = "the project's own cloud image is not made yet: `./x image --cloud` makes it, in the source tree of Mirrorball";
        Failure::Other(format!("{what}; or name an image: `mirrorball launch FILE`"))
    })
}

/// The VM is called as its image, as far as that is a name.
fn name_of(image: &Image) -> Result<Name, Failure> {
    let text: String =
        image.name.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let short: String = text.chars().take(control::MAX_NAME).collect();
    Name::new(short.trim_matches('-')).map_err(|error| Failure::Usage(format!("{error}; choose a name with --name")))
}

fn public_keys(file: &Path) -> Result<Vec<String>, Failure> {
    let text = fs::read_to_string(file).map_err(|source| Failure::File { path: file.to_owned(), source })?;
    if text.contains("PRIVATE KEY") {
        return Err(Failure::Usage(format!(
            "{}: this is a private key; give the file that ends in .pub",
            file.display()
        )));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<String> = lines.map(str::to_owned).collect();
    if keys.is_empty() { Err(Failure::Usage(format!("{}: there is no key in it", file.display()))) } else { Ok(keys) }
}

/// Writes all that makes the VM; the definition last.
fn define(args: &LaunchVm, home: &Home, base: &Path, image: &Image, keys: Vec<String>) -> Result<(), Failure> {
    overlay(&home.disk(), base, args.disk.max(image.disk_bytes).next_multiple_of(512))?;
    let own = launched::make_keys(&home.key(), &format!("mirrorball-{}", home.name()))?;
    // Deleted at once: the VM has it, and nobody else needs it.
    let host_file = home.path().join("host_ed25519");
    let host = launched::make_keys(&host_file, home.name().as_str())?;
    for file in [host_file.clone(), host_file.with_extension("pub")] {
        let _ = fs::remove_file(file);
    }
    let ssh = PortMap { host: launched::free_port(&args.ports)?, guest: 22 };
    let ports: Vec<PortMap> = std::iter::once(ssh).chain(args.ports.iter().copied()).collect();
    let shape = Shape {
        name: home.name(),
        vcpus: args.cpus,
        memory_mib: args.memory >> 20,
        base,
        ports: &ports,
        mac: &mac_of(unique()),
        reaches_host: args.network,
    };
    home.replace("machine.toml", launched::machine_file(&shape).as_bytes())?;
    let seed = Seed {
        // Differs from that of any VM before, of this name, too.
        instance: format!("{}-{:016x}", home.name(), unique()),
        hostname: home.name().to_string(),
        user: args.user.clone(),
        authorized_keys: std::iter::once(own.public).chain(keys).collect(),
        host_key: Some(HostKey { private: host.private, public: host.public }),
        packages: args.packages.clone(),
    };
    home.write(&Definition { image: image.name.clone(), base: base.to_owned(), seed })
}

/// A number that no other launch has had.
fn unique() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

/// A hardware address in the range that QEMU uses.
fn mac_of(number: u64) -> String {
    let [a, b, c, ..] = number.to_le_bytes();
    format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
}

/// Boots its machine, and waits so long until one can log in.
fn boot(context: &Context, home: &Home, launch: &Launch, wait: Option<Duration>) -> Result<(), Failure> {
    launched::check_free(&home.ports()?)?;
    let plan = Running::plan(&home.machine_file(), launch)?;
    warn(context, &plan.warnings);
    let begin = Instant::now();
    let running = Running::start(&plan, launch, |step| context.say(step))?;
    running.release()?;
    let name = home.name();
    let Some(timeout) = wait else {
        return context.output.line(format!("VM {name} boots; `mirrorball ssh {name}` gets in once it is up"));
    };
    context
        .say(&format!("waiting until one can log in, some minutes; `mirrorball console {name}` shows how far it is"));
    let client = Client::connect_to(&home.run_dir())?;
    launched::until_up(home, &client, timeout)?;
    context.output.line(format!("VM {name} is up, after {} s", begin.elapsed().as_secs()))?;
    tell_ways_in(context, home)
}

fn tell_ways_in(context: &Context, home: &Home) -> Result<(), Failure> {
    let (name, user) = (home.name(), home.definition()?.seed.user);
    let output = &context.output;
    output.line(format!("  mirrorball ssh {name}        a shell as {user}, who may sudo"))?;
    output.line(format!("  mirrorball cp FILE {name}:   files to it, and from it"))?;
    for port in home.ports()?.iter().filter(|port| port.guest != 22) {
        output.line(format!("  127.0.0.1:{}       leads to its port {}", port.host, port.guest))?;
    }
    output.line(format!("  mirrorball stop {name}       shuts it down; `start` starts it again, `rm` forgets it"))
}

/// Starts a launched VM whose machine does not run. `None` if it is none.
pub fn start(context: &Context, vm: &Name) -> Option<Result<(), Failure>> {
    let home = Homes::from_env().ok()?.find(vm)?;
    if home.is_running() {
        return None;
    }
    let launch = Launch { monitor: None, boot_timeout: Duration::from_secs(120), restricted: false };
    Some(boot(context, &home, &launch, Some(Duration::from_secs(900))))
}

/// Shuts a launched VM down, and its machine with it. `None` if it is none that runs.
pub fn stop(context: &Context, vm: &Name, timeout: Duration) -> Option<Result<(), Failure>> {
    let home = Homes::from_env().ok()?.find(vm).filter(Home::is_running)?;
    Some(stop_home(context, &home, timeout))
}

fn stop_home(context: &Context, home: &Home, timeout: Duration) -> Result<(), Failure> {
    let (dir, name) = (home.run_dir(), home.name());
    let client = Client::connect_to(&dir)?;
    if client.vm(name)?.state == VmState::Running {
        // Not every image has a guest agent, and not every guest has its network.
        if vm::shut_down(&client, name, timeout).is_err() {
            let _ = ssh::run_quietly(home, &["sudo poweroff"]);
            wait_for_vm(&client, name, timeout, |summary| summary.state == VmState::Stopped).map_err(|error| {
                let advice = format!("`mirrorball -m {name} shutdown` takes its power");
                Failure::Other(format!("{error} although it was asked to shut down; {advice}"))
            })?;
        }
    }
    shutdown::power_off(&client, &dir)?;
    context.output.line(format!("VM {name} stopped"))
}

/// `inspect`.
#[derive(Debug, Serialize)]
struct InspectView {
    name: String,
    /// `running` or `defined`.
    state: &'static str,
    image: String,
    user: String,
    instance: String,
    machine_file: PathBuf,
    disk: PathBuf,
    /// What the disk takes on the host.
    disk_bytes: u64,
    base: PathBuf,
    ssh_key: PathBuf,
    ports: Vec<PortMap>,
}

pub fn inspect(context: &Context, vm: &Name) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let home = Homes::from_env()?.get(vm)?;
    let definition = home.definition()?;
    let disk = home.disk();
    context.output.json(&InspectView {
        name: home.name().to_string(),
        state: if home.is_running() { "running" } else { "defined" },
        image: definition.image,
        user: definition.seed.user,
        instance: definition.seed.instance,
        machine_file: home.machine_file(),
        disk_bytes: fs::metadata(&disk).map_or(0, |metadata| metadata.blocks() * 512),
        disk,
        base: definition.base,
        ssh_key: home.key(),
        ports: home.ports()?,
    })
}

/// Has the user change a copy, which replaces the file if it is right.
pub fn edit(context: &Context, vm: &Name) -> Result<(), Failure> {
    let home = Homes::from_env()?.get(vm)?;
    let draft = home.path().join("draft.toml");
    fs::copy(home.machine_file(), &draft).map_err(|source| Failure::File { path: draft.clone(), source })?;
    let status = editor(&draft)?;
    if !status.success() {
        let _ = fs::remove_file(&draft);
        return Err(Failure::Other(format!("the editor ended with {status}; nothing is changed")));
    }
    let plan = Loader::from_env().load(&draft)?;
    warn(context, &plan.warnings);
    if plan.name != *vm {
        return Err(Failure::Other(format!("the machine's name must stay {vm}; `mirrorball rename` changes it")));
    }
    fs::rename(&draft, home.machine_file()).map_err(|source| Failure::File { path: draft, source })?;
    let when = if home.is_running() { "counts from its next start on" } else { "is changed" };
    context.output.line(format!("VM {vm} {when}"))
}

/// As git has it: a command line of the shell.
fn editor(file: &Path) -> Result<ExitStatus, Failure> {
    let chosen = ["VISUAL", "EDITOR"].iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    let line = format!("{} \"$1\"", chosen.as_deref().unwrap_or("vi"));
    let status = Command::new("sh").args(["-c", &line, "editor"]).arg(file).status();
    status.map_err(Failure::system("cannot start the editor"))
}

pub fn rename(context: &Context, args: &Rename) -> Result<(), Failure> {
    let homes = Homes::from_env()?;
    homes.get(&args.vm)?.rename(&homes, &args.to)?;
    context.output.line(format!("VM {} is {} now", args.vm, args.to))
}

pub fn remove(context: &Context, vm: &Name) -> Result<(), Failure> {
    Homes::from_env()?.get(vm)?.remove()?;
    context.output.line(format!("VM {vm} is forgotten"))
}

/// The launched VMs that lie over an image.
///
/// # Errors
/// The environment names no place for them.
pub fn users_of(image: &str) -> Result<Vec<Name>, Failure> {
    let homes = Homes::from_env()?.list();
    let uses = |home: &Home| home.definition().is_ok_and(|definition| definition.image == image);
    Ok(homes.into_iter().filter(uses).map(|home| home.name().clone()).collect())
}

/// Refuses to remove what VMs lie over.
///
/// # Errors
/// The first few of them.
pub fn check_unused(image: &str) -> Result<(), Failure> {
    let users: Vec<String> = users_of(image)?.iter().map(Name::to_string).collect();
    if users.is_empty() {
        return Ok(());
    }
    let what = format!("the disks of these VMs lie over image {image}: {}", users.join(", "));
    Err(Failure::Other(format!("{what}; `mirrorball rm` forgets them")))
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::Image { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> Image {
        Image {
            name: name.into(),
            source: "/x".into(),
            source_bytes: 1,
            source_modified: 1,
            format: "raw".into(),
            disk_bytes: 512,
            partitions: Vec::new(),
        }
    }

    #[test]
    fn a_vm_is_called_as_its_image() {
        let of = |name: &str| name_of(&image(name)).map(|name| name.to_string()).map_err(|error| error.status());
        assert_eq!(of("debian"), Ok("debian".into()));
        assert_eq!(of("Fedora_Cloud.riscv64"), Ok("fedora-cloud-riscv64".into()));
        assert_eq!(of(&format!("{}-x", "a".repeat(31))), Ok("a".repeat(31)));
        assert_eq!(of("__"), Err(2));
    }

    #[test]
    fn private_keys_are_not_given_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("key");
        fs::write(&file, "-----BEGIN OPENSSH PRIVATE KEY-----\n").expect("it can be written");
        assert_eq!(public_keys(&file).unwrap_err().status(), 2);
        fs::write(&file, "# mine\nssh-ed25519 AAAA me\n\n").expect("it can be written");
        assert_eq!(public_keys(&file).expect("keys"), ["ssh-ed25519 AAAA me"]);
        fs::write(&file, "\n").expect("it can be written");
        assert!(public_keys(&file).is_err());
    }

    #[test]
    fn a_port_leads_to_one_place() {
        let map = |host, guest| PortMap { host, guest };
        assert_eq!(repeated(&[map(1, 80), map(2, 80)]), None);
        assert_eq!(repeated(&[map(1, 80), map(2, 80), map(1, 81)]), Some(1));
    }
}
