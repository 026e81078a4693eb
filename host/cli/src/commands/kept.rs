//! VMs that were created live and are made again with their machine: `create --keep`.
//!
//! What is kept is where the VM's file is, in `mirrorball/kept/MACHINE/VM.json` beside the folders of launched VMs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use control::Name;
use machine::Client;
use serde::{Deserialize, Serialize};

use super::{Context, vm};
use crate::failure::Failure;
use crate::launched::state_folder;

/// A VM that is made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its file.
    pub file: PathBuf,
    /// Whether it starts, if its file says so.
    pub starts: bool,
}

/// The kept VMs of one machine.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
}

impl Keeper {
    /// Those of this machine.
    ///
    /// # Errors
    /// The environment names no place for them.
    pub fn of(machine: &Name) -> Result<Self, Failure> {
        Ok(Self { folder: state_folder()?.join("kept").join(machine.as_str()) })
    }

    fn file(&self, vm: &Name) -> PathBuf {
        self.folder.join(format!("{vm}.json"))
    }

    /// Has a VM made again from now on.
    ///
    /// # Errors
    /// The file cannot be found, or nothing can be written.
    pub fn keep(&self, vm: &Name, file: &Path, starts: bool) -> Result<(), Failure> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Failure::File { path, source }
        };
        let kept = Kept { file: file.canonicalize().map_err(at(file))?, starts };
        let (place, text) = (self.file(vm), serde_json::to_vec_pretty(&kept).unwrap_or_default());
        fs::create_dir_all(&self.folder).and_then(|()| fs::write(&place, text)).map_err(at(&place))
    }

    /// Has it made again no longer; whether it was.
    pub fn forget(&self, vm: &Name) -> bool {
        fs::remove_file(self.file(vm)).is_ok()
    }

    /// All, by name.
    pub fn list(&self) -> Vec<(Name, Result<Kept, io::Error>)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| Name::new(entry.file_name().to_str()?.strip_suffix(".json")?).ok());
        let read = |name: &Name| {
            let text = fs::read(self.file(name))?;
            serde_json::from_slice(&text).map_err(io::Error::other)
        };
        let mut kept: Vec<_> = names.map(|name| (name.clone(), read(&name))).collect();
        kept.sort_by(|one, other| one.0.cmp(&other.0));
        kept
    }
}

/// Makes the kept VMs of a machine that has just started. One that cannot be made is told, and keeps the others from nothing.
pub fn restore(context: &Context, client: &Client, machine: &Name) {
    let Ok(keeper) = Keeper::of(machine) else { return };
    for (name, kept) in keeper.list() {
        let made = match kept {
            Ok(kept) => vm::create_from(context, client, &kept.file, Some(&name), kept.starts).map(drop),
            Err(source) => Err(Failure::File { path: keeper.file(&name), source }),
        };
        match made {
            Ok(()) => context.say(&format!("VM {name} is made again, as `create --keep` said")),
            Err(error) => context.say(&format!("mirrorball: kept VM {name} is not made again: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn what_is_kept_stays_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("vm.toml");
        fs::write(&file, "").expect("it can be written");
        let keeper = Keeper { folder: dir.path().join("kept/m") };
        assert!(keeper.list().is_empty() && !keeper.forget(&name("b")));
        keeper.keep(&name("b"), &file, true).expect("it is there");
        keeper.keep(&name("a"), &file, false).expect("it is there");
        fs::write(keeper.folder.join("c.json"), "{").expect("it can be written");
        let list = keeper.list();
        let names: Vec<_> = list.iter().map(|(name, kept)| (name.as_str(), kept.is_ok())).collect();
        assert_eq!(names, [("a", true), ("b", true), ("c", false)]);
        let place = file.canonicalize().expect("it is there");
        assert_eq!(list[1].1.as_ref().expect("good"), &Kept { file: place, starts: true });
        assert!(keeper.forget(&name("b")));
        assert_eq!(keeper.list().len(), 2);
        assert!(keeper.keep(&name("x"), &dir.path().join("none"), true).is_err());
    }
}
