//! The file of marks.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use machine_model::MarkLine;

/// Where marks go.
pub struct Marks(Option<File>);

impl Marks {
    /// Appends to a file, if one is wanted.
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let open = |path: &Path| {
            let file = OpenOptions::new().append(true).create(true).open(path);
            file.map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self(path.map(open).transpose()?))
    }

    /// Whether anybody wants them.
    pub fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Adds a line.
    pub fn add(&mut self, line: &MarkLine) {
        let Some(file) = &mut self.0 else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            eprintln!("numa-model: a mark is lost: {error}");
        }
    }
}
