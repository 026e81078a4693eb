//! Stored results: what each trial measured, in the cache, under a key of everything that it depends on.
//!
//! ```text
//! CACHE/lab/EXPERIMENT/SIZE/TRIAL/sSEED-KEY.json
//! CACHE/lab/EXPERIMENT/SIZE/TRIAL/sSEED-KEY.parts/PART.json    of a long trial that has not ended
//! ```
//! A result is written as a whole or not at all, so an experiment that is interrupted finds every trial that ended. A
//! result of another configuration has another key: it is never used, and [`Found::Other`] tells how it differs.

mod configuration;
mod parts;

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

pub use configuration::{Configuration, Digests, emulator};
pub use parts::Parts;

use crate::LabError;

/// What a trial measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The machine that it ran on.
    pub machine: String,
    /// The commit that the monitor was built from; empty where no monitor ran.
    pub commit: String,
    /// What was measured.
    pub values: Vec<Value>,
}

/// A measured value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Its name: `phase.part`, or the figure's.
    pub name: String,
    /// The number; `None` if it could not be measured, see `note`.
    pub number: Option<f64>,
    /// What it counts.
    pub unit: String,
    /// How many operations it is the mean of.
    pub samples: u64,
    /// Why there is no number, or what to know about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Value {
    /// A value.
    #[must_use]
    pub fn new(name: &str, number: f64, unit: &str, samples: u64) -> Self {
        Self { name: name.to_owned(), number: Some(number), unit: unit.to_owned(), samples, note: String::new() }
    }

    /// One that could not be measured.
    #[must_use]
    pub fn missing(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), note: why.into(), ..Self::default() }
    }
}

impl Measured {
    /// A value.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.name == name)
    }

    /// Its number.
    ///
    /// # Errors
    /// Why there is none.
    pub fn number(&self, name: &str) -> Result<f64, String> {
        let value = self.value(name).ok_or_else(|| format!("it has no {name}"))?;
        value.number.ok_or_else(|| value.note.clone())
    }

    /// Whether all that was to be measured was.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.values.iter().all(|value| value.number.is_some())
    }
}

/// A result as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    key: String,
    configuration: Configuration,
    measured: Measured,
}

/// What the store has of a trial.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// A result of this very configuration.
    Same(Measured),
    /// Only results that must not be used, and why not, for people.
    Other(String),
    /// None.
    Nothing,
}

/// The results of one experiment.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The results of an experiment in the user's cache.
    ///
    /// # Errors
    /// [`LabError::Io`] if there is no place for a cache.
    pub fn of(experiment: &str, size: &str) -> Result<Self, LabError> {
        let cache = config::cache_dir().ok_or_else(|| {
            LabError::io("results")(io::Error::new(
                io::ErrorKind::NotFound,
                "there is no place to keep them: set HOME or MIRRORBALL_CACHE",
            ))
        })?;
        Ok(Self::at(cache.join("lab").join(experiment).join(size)))
    }

    /// Results in this folder.
    #[must_use]
    pub const fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// What is there for this configuration.
    #[must_use]
    pub fn find(&self, wanted: &Configuration) -> Found {
        let path = self.path(wanted);
        match read(&path) {
            Ok(stored) if stored.key == wanted.key() && stored.configuration == *wanted => {
                return Found::Same(stored.measured);
            }
            Ok(_) => return Found::Other(format!("{} is not what its name says", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Found::Other(format!("{} cannot be used: {error}", path.display())),
        }
        self.newest_other(wanted).map_or(Found::Nothing, |other| Found::Other(wanted.difference(&other)))
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// [`LabError::Store`], which says so where the disk is full. What was there before is there still.
    pub fn keep(&self, configuration: &Configuration, measured: &Measured) -> Result<(), LabError> {
        let stored =
            Stored { key: configuration.key(), configuration: configuration.clone(), measured: measured.clone() };
        let mut text = serde_json::to_vec_pretty(&stored).map_err(|error| LabError::io("a result")(error.into()))?;
        text.push(b'\n');
        write_whole(&self.path(configuration), &text)
    }

    /// When the result of this configuration was kept.
    #[must_use]
    pub fn measured_at(&self, configuration: &Configuration) -> Option<SystemTime> {
        std::fs::metadata(self.path(configuration)).and_then(|data| data.modified()).ok()
    }

    /// What a trial of this configuration has measured so far.
    #[must_use]
    pub fn parts(&self, configuration: &Configuration) -> Parts {
        Parts::at(self.path(configuration).with_extension("parts"))
    }

    fn path(&self, configuration: &Configuration) -> PathBuf {
        let key = configuration.key();
        let file = format!("s{}-{}.json", configuration.seed(), key.get(..16).unwrap_or(&key));
        self.dir.join(configuration.trial()).join(file)
    }

    /// The newest result of the same trial and seed.
    fn newest_other(&self, wanted: &Configuration) -> Option<Configuration> {
        let entries = std::fs::read_dir(self.dir.join(wanted.trial())).ok()?;
        let start = format!("s{}-", wanted.seed());
        let others = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&start));
        let newest = others.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok())?;
        Some(read(&newest.path()).ok()?.configuration)
    }
}

fn read(path: &Path) -> io::Result<Stored> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// Writes a file so that a reader sees the old content or the new one, never a part, whenever this is interrupted.
///
/// # Errors
/// [`LabError::Store`].
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        // Readable as other files are: the umask still counts.
        let usual = std::fs::Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(usual).tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| LabError::Store { path: path.to_owned(), source: advised(error) })
}

/// With what to do about it, where that is known.
fn advised(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            io::Error::new(error.kind(), "the disk is full: make room and run it again, it goes on where it stopped")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(monitor: &str, options: u32) -> Configuration {
        let trial = serde_json::json!({"name": "compile.bare", "seed": 0, "options": options});
        let mut configuration = Configuration::new(trial, "QEMU 10.0.2".into());
        configuration.depend("monitor image", monitor.into());
        configuration
    }

    fn measured(number: f64) -> Measured {
        Measured { machine: "virt".into(), commit: "0123".into(), values: vec![Value::new("a.total", number, "ns", 1)] }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::at(dir.path().join("lab"));
        (dir, store)
    }

    #[test]
    fn a_result_is_found_again_only_under_its_own_configuration() {
        let (_dir, store) = store();
        let first = configuration("aa", 1);
        assert_eq!(store.find(&first), Found::Nothing);
        store.keep(&first, &measured(1.0)).expect("room");
        assert_eq!(store.find(&first), Found::Same(measured(1.0)));

        for (other, what) in [(configuration("bb", 1), "monitor image"), (configuration("aa", 2), "options")] {
            let Found::Other(why) = store.find(&other) else { panic!("a result of another configuration was used") };
            assert!(why.contains(what), "{why:?} does not name {what}");
        }
        // And both live beside each other: going back to a monitor finds its results.
        store.keep(&configuration("bb", 1), &measured(2.0)).expect("room");
        assert_eq!(store.find(&first), Found::Same(measured(1.0)));
        assert_eq!(store.find(&configuration("bb", 1)), Found::Same(measured(2.0)));
    }

    #[test]
    fn a_damaged_or_foreign_file_is_refused() {
        let (_dir, store) = store();
        let (first, second) = (configuration("aa", 1), configuration("bb", 1));
        store.keep(&first, &measured(1.0)).expect("room");
        let whole = std::fs::read(store.path(&first)).expect("it is there");
        std::fs::write(store.path(&first), &whole[..whole.len() / 2]).expect("room");
        let Found::Other(why) = store.find(&first) else { panic!("half a file was used") };
        assert!(why.contains("cannot be used"), "{why}");
        // A result under another one's name.
        std::fs::write(store.path(&second), &whole).expect("room");
        let Found::Other(why) = store.find(&second) else { panic!("another's result was used") };
        assert!(why.contains("not what its name says"), "{why}");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let (dir, store) = store();
        std::fs::write(dir.path().join("lab"), "a file where the folder should be").expect("room");
        let error = store.keep(&configuration("aa", 1), &measured(1.0)).expect_err("it is no folder").to_string();
        assert!(error.contains("compile.bare"), "{error}");
        // As `/dev/full` answers.
        let full = std::fs::write("/dev/full", [0]).expect_err("it is always full");
        assert!(advised(full).to_string().contains("make room and run it again"));
    }

    #[test]
    fn incomplete_results_are_known() {
        let mut result = measured(1.0);
        assert!(result.is_complete());
        result.values.push(Value::missing("b", "no disk"));
        assert!(!result.is_complete());
        assert_eq!((result.number("b"), result.number("a.total")), (Err("no disk".into()), Ok(1.0)));
        assert_eq!(result.number("c"), Err("it has no c".into()));
    }
}
