//! Parts of a trial's result: what a long trial has measured so far, so that it goes on there if it is interrupted.

use std::io;
use std::path::PathBuf;

use super::{Measured, write_whole};
use crate::LabError;

/// The parts of one trial of one configuration. They are there until its result is stored.
#[derive(Clone, Debug)]
pub struct Parts {
    dir: PathBuf,
}

impl Parts {
    pub(super) const fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// What was measured of this part; `None` if it was not, or was not written as a whole.
    #[must_use]
    pub fn find(&self, part: &str) -> Option<Measured> {
        serde_json::from_slice(&std::fs::read(self.path(part)).ok()?).ok()
    }

    /// Keeps what was measured of a part.
    ///
    /// # Errors
    /// [`LabError::Store`].
    pub fn keep(&self, part: &str, measured: &Measured) -> Result<(), LabError> {
        let text =
            serde_json::to_vec_pretty(measured).map_err(|error| LabError::io("a part of a result")(error.into()))?;
        write_whole(&self.path(part), &text)
    }

    /// Forgets all of them.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn forget(&self) -> Result<(), LabError> {
        match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LabError::io("parts of a result")(error)),
            _ => Ok(()),
        }
    }

    fn path(&self, part: &str) -> PathBuf {
        self.dir.join(format!("{part}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Value;

    #[test]
    fn parts_are_kept_until_they_are_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let parts = Parts::at(dir.path().join("trial").join("s0-aa.parts"));
        assert_eq!(parts.find("one"), None);
        parts.forget().expect("there is nothing");
        let one = Measured { values: vec![Value::new("kill", 3.0, "ms", 1)], ..Measured::default() };
        parts.keep("one", &one).expect("room");
        parts.keep("two", &Measured::default()).expect("room");
        assert_eq!((parts.find("one"), parts.find("three")), (Some(one), None));
        std::fs::write(parts.path("two"), "{").expect("room");
        assert_eq!(parts.find("two"), None, "half a part is none");
        parts.forget().expect("they are there");
        assert_eq!(parts.find("one"), None);
    }
}
