//! What a modelled machine is started with: the plugin, the file that it shares with monitor and tools, and guest RAM
//! that the plugin can read.
//!
//! | file | what |
//! | --- | --- |
//! | `model.bin` | shared by plugin, monitor (as a PCI device) and tools; see the crate of its layout |
//! | `model.json` | the machine, for the plugin: `machine_model::Description` |
//! | `ram` | a link to the machine's RAM, one file without a name that goes when the last process that has it ends |
//! | `disk-*.sock`, `disks.log` | where a disk with a model is served; what went wrong with that |
//! | `marks.log` | a line of JSON per mark that a program on the machine has set |

mod disks;
mod room;
mod shared;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use config::{Hardware, ModelError, ModelPlan};
use control::Name;
use disk_server::{DiskServer, ServerError};
use model_file::{Header, LayoutError};
use thiserror::Error;

use crate::emulator::{Emulator, EmulatorError, ModelWiring, Wiring};
use crate::ram::SharedRam;
pub use room::RoomError;
pub use shared::{HartState, ModelState, PageMisses, SharedError, SharedModel};

/// The plugin's file.
pub const PLUGIN_FILE: &str = "libnuma_model.so";
/// The version of the emulator that the plugin knows: it reaches into its clock, so a near one will not do. The plugin
/// looks at the very build.
pub const MODELLED_VERSION: (u32, u32) = (10, 0);

/// Why a machine cannot be started with the model.
#[derive(Debug, Error)]
pub enum ModelStartError {
    /// The plugin was not found.
    #[error(
        "the machine model's plugin {PLUGIN_FILE} is not built: run `./x build` in the source tree of Mirrorball, or leave out [model]"
    )]
    NoPlugin,
    /// It is not where it was said to be.
    #[error("there is no plugin {path}: run `./x build` in the source tree of Mirrorball, or leave out [model]")]
    MissingPlugin {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The machine cannot be modelled.
    #[error("this machine cannot be modelled: {0}")]
    Machine(#[from] ModelError),
    /// The shared file has no place for this machine.
    #[error("this machine cannot be modelled: {0}")]
    Layout(#[from] LayoutError),
    /// There is no room for the shared file.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// A disk wants the time of a model that the machine does not have.
    #[error("disk {name:?} has a model, whose time only a machine with [model] keeps")]
    DiskAlone {
        /// The disk.
        name: Name,
    },
    /// A disk cannot be served.
    #[error(transparent)]
    Disk(#[from] ServerError),
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The files of a modelled machine. RAM lives as long as this, or as the emulator.
#[derive(Debug)]
pub struct ModelFiles {
    wiring: ModelWiring,
    header: Header,
    disks: Vec<DiskServer>,
    _ram: SharedRam,
}

impl ModelFiles {
    /// The shared file in a machine's directory.
    #[must_use]
    pub fn shared_file(dir: &Path) -> PathBuf {
        dir.join("model.bin")
    }

    /// The lines that marks leave, in a machine's directory.
    #[must_use]
    pub fn marks(dir: &Path) -> PathBuf {
        dir.join("marks.log")
    }

    /// Makes the files of this machine in `dir`.
    ///
    /// # Errors
    /// Says what is missing, and what to do.
    pub fn prepare(
        plan: &ModelPlan,
        hardware: &Hardware,
        plugin: Option<&Path>,
        dir: &Path,
    ) -> Result<Self, ModelStartError> {
        let description = plan.describe(hardware)?;
        let plugin = plugin.ok_or(ModelStartError::NoPlugin)?.to_owned();
        if !plugin.is_file() {
            return Err(ModelStartError::MissingPlugin { path: plugin });
        }
        let shared = Self::shared_file(dir);
        let header = description.machine.header()?;
        let shared_bytes = header.file_bytes();
        room::reserve(&shared, shared_bytes)?;
        let text = dir.join("model.json");
        write(&text, &serde_json::to_vec_pretty(&description).unwrap_or_default())?;
        let marks = Self::marks(dir);
        write(&marks, b"")?;
        let ram =
            SharedRam::make(hardware, dir).map_err(|source| ModelStartError::Io { path: dir.join("ram"), source })?;
        let wiring = ModelWiring {
            plugin,
            shared,
            shared_bytes,
            description: text,
            marks,
            ram: ram.path().to_owned(),
            seed: description.seed,
        };
        Ok(Self { wiring, header, disks: Vec::new(), _ram: ram })
    }

    /// Serves the disks that take the model's time, from now on. Their images are there already.
    ///
    /// # Errors
    /// An image cannot be used.
    pub fn serve_disks(&mut self, hardware: &Hardware, wiring: &Wiring) -> Result<(), ModelStartError> {
        let log = wiring.scratch.join("disks.log");
        self.disks = disks::serve(hardware, wiring, &self.wiring.shared, &self.header, &log)?;
        Ok(())
    }

    /// How the emulator is told.
    #[must_use]
    pub const fn wiring(&self) -> &ModelWiring {
        &self.wiring
    }
}

/// Refuses an emulator that the plugin does not know.
///
/// # Errors
/// [`EmulatorError::NotModelled`].
pub fn check_emulator(emulator: &Emulator) -> Result<(), EmulatorError> {
    let version = emulator.version;
    if (version.major, version.minor) == MODELLED_VERSION {
        return Ok(());
    }
    Err(EmulatorError::NotModelled { program: emulator.program.clone(), version })
}

fn write(path: &Path, content: &[u8]) -> Result<(), ModelStartError> {
    let written = File::create(path).and_then(|mut file| file.write_all(content));
    written.map_err(|source| ModelStartError::Io { path: path.to_owned(), source })
}
