//! The files that VMs boot from, each under one name.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use control::{Label, MAX_LABEL};

use crate::paths::{Loader, plain};
use crate::plan::ModuleFile;
use crate::problem::Place;
use crate::program::{self, Program};
use crate::reader::{At, Section};

/// What a module is to be, and how its first bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// A RISC-V Linux `Image`, or an ELF file.
    Kernel,
    /// Anything but an ELF file, which has addresses of its own.
    Flat,
    /// Anything.
    Initrd,
    /// Anything.
    Firmware,
}

/// A module that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub label: Label,
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes; 0 if files are not looked at.
    pub bytes: u64,
    /// Whether it is an ELF file.
    pub is_elf: bool,
}

/// The modules found so far.
#[derive(Debug, Default)]
pub struct Modules {
    files: Vec<ModuleFile>,
    /// Where ELF files go: several VMs may boot one.
    programs: Vec<(Label, Program)>,
}

impl Modules {
    pub fn into_files(self) -> Vec<ModuleFile> {
        self.files
    }

    /// The file that `text` names, which becomes a module if it is not one yet.
    pub fn add(
        &mut self,
        loader: &Loader,
        section: &Section<'_>,
        key: &'static str,
        text: &At<String>,
        kind: ModuleKind,
    ) -> Option<Found> {
        let path = loader.resolve(section, key, &text.value, &text.place)?;
        let (mut bytes, mut is_elf) = (0, false);
        if loader.check_files {
            let (size, head) = loader.inspect(section, key, &path, &text.place)?;
            check_kind(section, key, &text.place, kind, &head)?;
            if u32::try_from(size).is_err() {
                // The bundle's format has 32 bits for it. A file may say any size and take no room.
                let message = format!("{} MiB are more than a boot bundle holds of a file (4095)", size >> 20);
                section.error(&text.place, key, message, None);
                return None;
            }
            (bytes, is_elf) = (size, program::is_elf(&head));
        }
        let known = self.files.iter().find(|module| module.path == path).map(|module| module.label.clone());
        let label = known.unwrap_or_else(|| {
            let label = label_of(&path);
            self.files.push(ModuleFile { label: label.clone(), path: path.clone(), bytes });
            label
        });
        Some(Found { label, path, bytes, is_elf })
    }

    /// Where an ELF file goes.
    pub fn program(&mut self, section: &Section<'_>, key: &str, place: &Place, found: &Found) -> Option<Program> {
        if let Some((_, program)) = self.programs.iter().find(|(label, _)| *label == found.label) {
            return Some(program.clone());
        }
        match read_program(found) {
            Ok(program) => {
                self.programs.push((found.label.clone(), program.clone()));
                Some(program)
            }
            Err(why) => {
                section.error(place, key, why, None);
                None
            }
        }
    }
}

fn read_program(found: &Found) -> Result<Program, String> {
    if found.bytes > program::MAX_BYTES {
        return Err(format!(
            "{} MiB are more than the monitor takes ({})",
            found.bytes >> 20,
            program::MAX_BYTES >> 20
        ));
    }
    let file = std::fs::read(&found.path).map_err(|error| format!("{}: {}", found.path.display(), plain(&error)))?;
    program::elf(&file).map_err(|error| error.to_string())
}

/// Refuses what cannot boot, before a machine is started for it.
fn check_kind(section: &Section<'_>, key: &str, place: &Place, kind: ModuleKind, head: &[u8]) -> Option<()> {
    if head.is_empty() {
        section.error(place, key, "the file is empty", None);
        return None;
    }
    let (message, help) = match kind {
        // Linux, "Boot image header in RISC-V Linux": magic2 at byte 56.
        ModuleKind::Kernel if head.get(56..60) != Some(b"RSC\x05") && !program::is_elf(head) => {
            let help = match head {
                [0x1f, 0x8b, ..] => "it is compressed: unpack it with gunzip",
                _ => {
                    "Debian has one as /boot/vmlinux-* in the package linux-image-*-riscv64; a flat binary needs \
                      load_address = 0x8020_0000 or another"
                }
            };
            ("this is neither a RISC-V Linux kernel image nor an ELF file", help)
        }
        ModuleKind::Flat if program::is_elf(head) => {
            ("this is an ELF file, which says itself where it goes", "leave load_address out")
        }
        _ => return Some(()),
    };
    section.error(place, key, message, Some(help.to_owned()));
    None
}

/// The file's name and eight digits that tell its path, length and time: two files never share a label, and a file
/// that was changed gets another.
fn label_of(path: &Path) -> Label {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let clean = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let mut text: String = file_name.chars().map(clean).take(MAX_LABEL - 9).collect();
    if text.is_empty() || text.starts_with(['.', '-']) {
        text.replace_range(..text.len().min(1), "_");
    }
    let label = Label::new(format!("{text}.{:08x}", identity(&path)));
    label.expect("cleaned characters, a good start and at most 64 of them")
}

fn identity(path: &Path) -> u32 {
    let metadata = path.metadata().ok();
    let length = metadata.as_ref().map_or(0, std::fs::Metadata::len);
    let time = metadata.and_then(|metadata| metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let time = time.unwrap_or_default().as_nanos();
    let text = path.as_os_str().as_encoded_bytes();
    let all = text.iter().copied().chain(length.to_le_bytes()).chain(time.to_le_bytes());
    // FNV-1a: the same in every build, unlike the standard library's hashers.
    all.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
