//! The plugin's arguments.

use std::fs;
use std::path::PathBuf;

use machine_model::Description;

/// What the plugin is told.
pub struct Options {
    /// The machine.
    pub description: Description,
    /// The shared file.
    pub file: Option<PathBuf>,
    /// Where marks go.
    pub marks: Option<PathBuf>,
}

impl Options {
    /// Reads `key=value` arguments.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let (mut description, mut file, mut marks) = (None, None, None);
        for argument in arguments {
            match argument.split_once('=') {
                Some(("machine", path)) => description = Some(read_machine(path)?),
                Some(("shared", path)) => file = Some(path.into()),
                Some(("marks", path)) => marks = Some(path.into()),
                // RAM is found in the emulator itself.
                Some(("ram", _)) => {}
                _ => return Err(format!("unknown argument {argument:?}: it takes machine=, shared= and marks=")),
            }
        }
        let description = description.ok_or("say machine=FILE, the description of the machine")?;
        Ok(Self { description, file, marks })
    }
}

fn read_machine(path: &str) -> Result<Description, String> {
    let text = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let description: Description = serde_json::from_slice(&text).map_err(|error| format!("{path}: {error}"))?;
    description.check().map_err(|error| format!("{path}: {error}"))?;
    Ok(description)
}
