//! Launched VMs: each has a folder with all that makes it, and a machine of its own while it runs.
//!
//! | file | what |
//! | --- | --- |
//! | `vm.json` | [`Definition`] |
//! | `machine.toml` | the machine, as any machine file; `edit` changes it |
//! | `disk.qcow2` | what the VM has written, over the image |
//! | `seed.img` | what cloud-init reads |
//! | `id_ed25519`, `id_ed25519.pub` | the key that opens its door |
//! | `known_hosts` | its host key |
//!
//! The folders are in `mirrorball/vms` below `XDG_STATE_HOME` or `~/.local/state`, and their owner's alone: who has the key is root in the VM.

mod compose;
mod keys;
mod wait;

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use control::Name;
use images::{HostKey, ImageError, Seed};
use machine::{RunDir, RunRoot};
use serde::{Deserialize, Serialize};

use crate::args::PortMap;
use crate::failure::Failure;

pub use compose::{Shape, machine_file};
pub use keys::{make as make_keys, missing};
pub use wait::until_up;

/// Where SSH listens in a VM.
const SSH: u16 = 22;

/// What a launched VM is, besides its machine file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Definition {
    /// Its image's name in the store.
    pub image: String,
    /// The raw disk of that image.
    pub base: PathBuf,
    /// What cloud-init is told.
    pub seed: Seed,
}

/// The folder of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    name: Name,
    path: PathBuf,
}

/// The folder of all.
#[derive(Clone, Debug)]
pub struct Homes {
    path: PathBuf,
}

impl Homes {
    /// Where the environment says.
    ///
    /// # Errors
    /// It says nothing.
    pub fn from_env() -> Result<Self, Failure> {
        Ok(Self { path: state_folder()?.join("vms") })
    }

    /// All VMs, by name.
    pub fn list(&self) -> Vec<Home> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| Name::new(entry.file_name().to_str()?).ok());
        let mut homes: Vec<Home> = names.map(|name| self.of(&name)).filter(|home| home.exists()).collect();
        homes.sort_by(|one, other| one.name.cmp(&other.name));
        homes
    }

    fn of(&self, name: &Name) -> Home {
        Home { name: name.clone(), path: self.path.join(name.as_str()) }
    }

    /// The VM of this name, if it was launched.
    pub fn find(&self, name: &Name) -> Option<Home> {
        Some(self.of(name)).filter(Home::exists)
    }

    /// The VM of this name.
    ///
    /// # Errors
    /// It was not launched.
    pub fn get(&self, name: &Name) -> Result<Home, Failure> {
        self.find(name).ok_or_else(|| {
            Failure::Other(format!("there is no launched VM {name:?}; `mirrorball ls --all` shows those that exist"))
        })
    }

    /// Makes the folder of a new VM.
    ///
    /// # Errors
    /// There is one already, or it cannot be made.
    pub fn create(&self, name: &Name) -> Result<Home, Failure> {
        let home = self.of(name);
        if home.exists() {
            let what = format!(
                "a VM {name:?} is defined already: `mirrorball start {name}` starts it, `mirrorball rm {name}` forgets it"
            );
            return Err(Failure::Other(format!("{what}; or choose another name with --name")));
        }
        // What is there is what an interrupted launch has left.
        let _ = fs::remove_dir_all(&home.path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&home.path);
        made.map_err(|source| Failure::File { path: home.path.clone(), source })?;
        Ok(home)
    }
}

impl Home {
    fn exists(&self) -> bool {
        self.definition_file().is_file()
    }

    pub const fn name(&self) -> &Name {
        &self.name
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn definition_file(&self) -> PathBuf {
        self.path.join("vm.json")
    }

    pub fn machine_file(&self) -> PathBuf {
        self.path.join("machine.toml")
    }

    pub fn disk(&self) -> PathBuf {
        self.path.join("disk.qcow2")
    }

    pub fn key(&self) -> PathBuf {
        self.path.join("id_ed25519")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.path.join("known_hosts")
    }

    /// The run directory of its machine.
    pub fn run_dir(&self) -> RunDir {
        RunRoot::from_env().machine(&self.name)
    }

    /// Whether its machine runs, and is the one of its machine file.
    pub fn is_running(&self) -> bool {
        let dir = self.run_dir();
        let file = self.machine_file().canonicalize().ok();
        dir.is_running() && dir.state().is_none_or(|state| state.config.is_none() || state.config == file)
    }

    /// What it is.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn definition(&self) -> Result<Definition, Failure> {
        let path = self.definition_file();
        let parsed = fs::read(&path).and_then(|text| serde_json::from_slice(&text).map_err(io::Error::other));
        parsed.map_err(|source| Failure::File { path, source })
    }

    /// Writes what it is, and what cloud-init reads. The definition comes last: with it the VM exists.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, definition: &Definition) -> Result<(), Failure> {
        let seed = definition.seed.volume().map_err(|source| self.file_error("seed.img", source))?;
        self.replace("seed.img", &seed)?;
        if let Some(HostKey { public, .. }) = &definition.seed.host_key {
            self.replace("known_hosts", format!("{} {public}\n", self.name).as_bytes())?;
        }
        self.replace("vm.json", &serde_json::to_vec_pretty(definition).unwrap_or_default())
    }

    /// Replaces a file at once: a reader sees the old or the new content.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let new = self.path.join(format!("{name}.new"));
        let written = fs::write(&new, content).and_then(|()| fs::rename(&new, self.path.join(name)));
        written.map_err(|source| self.file_error(name, source))
    }

    fn file_error(&self, name: &str, source: io::Error) -> Failure {
        let path = self.path.join(name);
        match source.kind() {
            io::ErrorKind::StorageFull => ImageError::NoRoom { path, need_mib: 16 }.into(),
            _ => Failure::File { path, source },
        }
    }

    /// The ports of this host that lead to it, as its machine file says.
    ///
    /// # Errors
    /// That file cannot be read.
    pub fn ports(&self) -> Result<Vec<PortMap>, Failure> {
        let path = self.machine_file();
        let text = fs::read_to_string(&path).map_err(|source| Failure::File { path: path.clone(), source })?;
        compose::ports(&text).map_err(|source| Failure::File { path, source: io::Error::other(source) })
    }

    /// The port of this host that leads to its SSH.
    ///
    /// # Errors
    /// There is none: somebody edited it away.
    pub fn ssh_port(&self) -> Result<u16, Failure> {
        let port = self.ports()?.into_iter().find(|port| port.guest == SSH).map(|port| port.host);
        port.ok_or_else(|| Failure::Other(format!("no port of this host leads to port {SSH} of VM {}", self.name)))
    }

    /// Gives it another name: the folder, the machine, the VM and what cloud-init calls it.
    ///
    /// # Errors
    /// It runs, the name is taken, or a file cannot be written.
    pub fn rename(&self, homes: &Homes, to: &Name) -> Result<Self, Failure> {
        self.check_stopped("rename")?;
        let new = homes.of(to);
        if new.path.exists() || new.run_dir().is_running() {
            return Err(Failure::Other(format!("there is a VM or machine {to:?} already")));
        }
        let mut definition = self.definition()?;
        definition.seed.hostname = to.to_string();
        let file = self.machine_file();
        let text = fs::read_to_string(&file).map_err(|source| Failure::File { path: file.clone(), source })?;
        let text = compose::renamed(&text, &self.name, to)
            .map_err(|source| Failure::File { path: file, source: io::Error::other(source) })?;
        fs::rename(&self.path, &new.path).map_err(|source| Failure::File { path: new.path.clone(), source })?;
        new.replace("machine.toml", text.as_bytes())?;
        new.write(&definition)?;
        Ok(new)
    }

    /// Forgets it.
    ///
    /// # Errors
    /// It runs, or its folder cannot be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        self.check_stopped("forget")?;
        // Without this it does not exist, whatever becomes of the rest.
        let _ = fs::remove_file(self.definition_file());
        fs::remove_dir_all(&self.path).map_err(|source| Failure::File { path: self.path.clone(), source })
    }

    fn check_stopped(&self, verb: &str) -> Result<(), Failure> {
        match self.is_running() {
            true => Err(Failure::Other(format!("VM {0} runs: `mirrorball stop {0}` first, then {verb} it", self.name))),
            false => Ok(()),
        }
    }
}

/// Where this user's definitions are.
///
/// # Errors
/// The environment names no place.
pub fn state_folder() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let states = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let states = states.ok_or_else(|| Failure::Other("set HOME: no place for definitions of VMs".into()))?;
    Ok(states.join("mirrorball"))
}

/// Refuses ports of this host that somebody listens on.
///
/// # Errors
/// The first such port.
pub fn check_free(ports: &[PortMap]) -> Result<(), Failure> {
    for port in ports {
        if let Err(source) = TcpListener::bind((Ipv4Addr::LOCALHOST, port.host)) {
            return Err(Failure::Port { port: port.host, source });
        }
    }
    Ok(())
}

/// A port that nobody listens on now, and that is none of `taken`.
///
/// # Errors
/// The host has none.
pub fn free_port(taken: &[PortMap]) -> Result<u16, Failure> {
    for _ in 0..100 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let address = listener.and_then(|listener| listener.local_addr());
        let port = address.map_err(Failure::system("cannot find a free port"))?.port();
        if taken.iter().all(|other| other.host != port) {
            return Ok(port);
        }
    }
    Err(Failure::Other("cannot find a free port".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn definition() -> Definition {
        let seed = Seed {
            instance: "i".into(),
            hostname: "web".into(),
            user: "me".into(),
            authorized_keys: Vec::new(),
            host_key: Some(HostKey { private: "p".into(), public: "ssh-ed25519 AAAA".into() }),
            packages: Vec::new(),
        };
        Definition { image: "debian".into(), base: "/base.img".into(), seed }
    }

    #[test]
    fn a_vm_is_there_once_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let homes = Homes { path: dir.path().join("vms") };
        assert!(homes.list().is_empty() && homes.get(&name("web")).is_err());
        let home = homes.create(&name("web")).expect("it is new");
        assert!(homes.find(&name("web")).is_none(), "not yet");
        home.write(&definition()).expect("it can be written");
        assert_eq!(homes.list(), std::slice::from_ref(&home));
        assert!(homes.create(&name("web")).unwrap_err().to_string().contains("defined already"));
        let hosts = fs::read_to_string(home.known_hosts()).expect("it is there");
        assert_eq!(hosts, "web ssh-ed25519 AAAA\n");
        home.remove().expect("it does not run");
        assert!(homes.list().is_empty());
    }

    #[test]
    fn a_name_changes_everywhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let homes = Homes { path: dir.path().join("vms") };
        let home = homes.create(&name("web")).expect("it is new");
        home.replace("machine.toml", b"name = \"web\"\n[[vm]]\nname = \"web\"\n").expect("it can be written");
        home.write(&definition()).expect("it can be written");
        let new = home.rename(&homes, &name("shop")).expect("it is free");
        assert_eq!(homes.list(), std::slice::from_ref(&new));
        assert_eq!(new.definition().expect("whole").seed.hostname, "shop");
        assert!(fs::read_to_string(new.known_hosts()).expect("it is there").starts_with("shop "));
        let text = fs::read_to_string(new.machine_file()).expect("it is there");
        assert!(!text.contains("web"), "{text}");
        assert!(new.rename(&homes, &name("shop")).is_err(), "taken");
    }

    #[test]
    fn ports_in_use_are_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let host = listener.local_addr().expect("bound").port();
        let busy = check_free(&[PortMap { host, guest: 80 }]).unwrap_err();
        assert!(busy.to_string().contains(&host.to_string()), "{busy}");
        assert_eq!(busy.status(), 7);
        drop(listener);
        let free = free_port(&[]).expect("there is one");
        assert!(check_free(&[PortMap { host: free, guest: 80 }]).is_ok());
    }
}
