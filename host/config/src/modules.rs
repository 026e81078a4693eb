//! The files that VMs boot from, each under one name.

use std::path::Path;
use std::time::UNIX_EPOCH;

use control::{Label, MAX_LABEL};

use crate::paths::Loader;
use crate::plan::ModuleFile;
use crate::problem::Place;
use crate::reader::{At, Section};

/// What a module is to be, and how its first bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// A RISC-V Linux `Image`.
    Kernel,
    /// Anything.
    Initrd,
    /// Anything.
    Firmware,
}

/// The modules found so far.
#[derive(Debug, Default)]
pub struct Modules(Vec<ModuleFile>);

impl Modules {
    pub fn into_files(self) -> Vec<ModuleFile> {
        self.0
    }

    /// The label of the file that `text` names, which becomes a module if it is not one yet.
    pub fn add(
        &mut self,
        loader: &Loader,
        section: &Section<'_>,
        key: &'static str,
        text: &At<String>,
        kind: ModuleKind,
    ) -> Option<Label> {
        let path = loader.resolve(section, key, &text.value, &text.place)?;
        if let Some(known) = self.0.iter().find(|module| module.path == path) {
            return Some(known.label.clone());
        }
        let mut bytes = 0;
        if loader.check_files {
            let (size, head) = loader.inspect(section, key, &path, &text.place)?;
            check_kind(section, key, &text.place, kind, &head)?;
            bytes = size;
        }
        let label = label_of(&path);
        self.0.push(ModuleFile { label: label.clone(), path, bytes });
        Some(label)
    }
}

/// Refuses what cannot boot, before a machine is started for it.
fn check_kind(section: &Section<'_>, key: &str, place: &Place, kind: ModuleKind, head: &[u8]) -> Option<()> {
    if head.is_empty() {
        section.error(place, key, "the file is empty", None);
        return None;
    }
    // Linux, "Boot image header in RISC-V Linux": magic2 at byte 56.
    if kind != ModuleKind::Kernel || head.get(56..60) == Some(b"RSC\x05") {
        return Some(());
    }
    let help = match head {
        [0x1f, 0x8b, ..] => "it is compressed: unpack it with gunzip",
        [0x7f, b'E', b'L', b'F', ..] => "it is an ELF file: use the `Image` of the same build",
        _ => "Debian has it as /boot/vmlinux-* in the package linux-image-*-riscv64",
    };
    section.error(place, key, "this is no RISC-V Linux kernel image", Some(help.to_owned()));
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
