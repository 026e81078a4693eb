//! Everything that a result depends on, and the key made of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use machine::Emulator;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::LabError;

/// Raised when what the values of workloads mean changes, or how results are stored.
const FORMAT: u32 = 1;

/// Everything that a result depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    format: u32,
    /// The trial as data: its name, workload, machine, system, meter, seed.
    trial: serde_json::Value,
    /// The emulator's version.
    emulator: String,
    /// Digests of files, by what they are.
    files: BTreeMap<String, String>,
}

impl Configuration {
    /// A trial on an emulator.
    #[must_use]
    pub const fn new(trial: serde_json::Value, emulator: String) -> Self {
        Self { format: FORMAT, trial, emulator, files: BTreeMap::new() }
    }

    /// It depends on a file of this digest, too.
    pub fn depend(&mut self, what: &str, digest: String) {
        self.files.insert(what.to_owned(), digest);
    }

    /// It depends on a text, too.
    pub fn depend_on_text(&mut self, what: &str, text: &str) {
        self.depend(what, hex(&Sha256::digest(text)));
    }

    /// The key: equal only for equal configurations.
    #[must_use]
    pub fn key(&self) -> String {
        // Maps of JSON values are sorted, so equal configurations have equal texts.
        hex(&Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
    }

    /// The trial's name.
    #[must_use]
    pub fn trial(&self) -> &str {
        self.trial.get("name").and_then(serde_json::Value::as_str).unwrap_or("trial")
    }

    /// The trial's seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.trial.get("seed").and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    /// How another one differs, in words that follow "measured with".
    #[must_use]
    pub fn difference(&self, other: &Self) -> String {
        let mut differs = Vec::new();
        if self.format != other.format {
            differs.push("another version of the lab".to_owned());
        }
        if self.emulator != other.emulator {
            differs.push(format!("{} (now {})", other.emulator, self.emulator));
        }
        let names = self.files.keys().chain(other.files.keys().filter(|name| !self.files.contains_key(*name)));
        differs.extend(
            names.filter(|name| self.files.get(*name) != other.files.get(*name)).map(|name| format!("another {name}")),
        );
        if self.trial != other.trial {
            let parts = changed(&self.trial, &other.trial);
            differs.push(format!("other options ({})", parts.join(", ")));
        }
        differs.join(", ")
    }
}

/// The top-level keys in which two objects differ.
fn changed(one: &serde_json::Value, other: &serde_json::Value) -> Vec<String> {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return vec!["all".to_owned()] };
    let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
    keys.filter(|key| one.get(*key) != other.get(*key)).cloned().collect()
}

/// The emulator's version, as results know it.
///
/// # Errors
/// [`LabError::Emulator`] if there is none that can be used.
pub fn emulator() -> Result<String, LabError> {
    Ok(format!("QEMU {}", Emulator::find(None)?.version))
}

/// Digests of files, each read once.
#[derive(Debug, Default)]
pub struct Digests(Mutex<BTreeMap<PathBuf, String>>);

impl Digests {
    /// The digest of a file's content.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn of(&self, path: &Path) -> Result<String, LabError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(path) {
            return Ok(digest.clone());
        }
        let digest = digest(path).map_err(LabError::io(path.display().to_string()))?;
        known.insert(path.to_owned(), digest.clone());
        Ok(digest)
    }
}

fn digest(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut part) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut part)?;
        let Some(read @ [_, ..]) = part.get(..count) else { return Ok(hex(&hash.finalize())) };
        hash.update(read);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_configurations_apart() {
        let base = || Configuration::new(serde_json::json!({"name": "a", "seed": 0}), "QEMU 10.0.2".into());
        let mut with_file = base();
        with_file.depend("kernel", "00".into());
        let others = [
            Configuration::new(serde_json::json!({"name": "a", "seed": 1}), "QEMU 10.0.2".into()),
            Configuration::new(serde_json::json!({"name": "a", "seed": 0}), "QEMU 10.1.0".into()),
            Configuration { format: 2, ..base() },
            with_file,
        ];
        assert_eq!(base().key(), base().key());
        for (other, what) in others.iter().zip(["seed", "QEMU 10.0.2 (now", "version of the lab", "another kernel"]) {
            assert_ne!(base().key(), other.key());
            let difference = other.difference(&base());
            assert!(difference.contains(what), "{difference:?} does not tell {what}");
        }
    }

    #[test]
    fn digests_are_of_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, digests) = (dir.path().join("f"), Digests::default());
        std::fs::write(&path, "abc").expect("room");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digests.of(&path).expect("it can be read"), known);
        assert!(digests.of(&dir.path().join("absent")).is_err());
    }
}
