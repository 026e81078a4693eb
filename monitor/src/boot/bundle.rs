//! The boot bundle: a cpio archive ("newc") with the boot configuration and the modules that VMs boot from.
//!
//! It comes as the machine's initrd, so any boot loader can provide it. Its bytes stay where the loader put them;
//! modules are slices of them.

use alloc::{string::String, vec::Vec};
use control::{ArchiveFile, BOOT_CONFIG_NAME, BootConfig, OnFailure, TRAILER, VmSpec};

/// A file of the bundle.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Its content, in machine memory for good.
    pub bytes: &'static [u8],
}

/// What the bundle holds.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The configuration; `None` when it is absent or wrong (said in the log).
    pub config: Option<BootConfig>,
    /// Everything else.
    pub modules: Vec<Module>,
}

impl Bundle {
    /// Reads an archive. A damaged one gives what stands before the damage.
    #[must_use]
    pub fn parse(archive: &'static [u8]) -> Self {
        let mut bundle = Self::default();
        let mut rest = archive;
        while let Some(file) = ArchiveFile::first(rest) {
            if file.name == TRAILER {
                return bundle;
            }
            bundle.add(file.name, file.content);
            rest = file.rest;
        }
        log::warn!("boot bundle: not a complete cpio archive; {} modules found", bundle.modules.len());
        bundle
    }

    fn add(&mut self, name: &[u8], bytes: &'static [u8]) {
        let Ok(name) = core::str::from_utf8(name) else {
            log::warn!("boot bundle: a file name is not UTF-8, left out");
            return;
        };
        if name == BOOT_CONFIG_NAME {
            match BootConfig::from_bytes(bytes) {
                Ok(config) => self.config = Some(config),
                Err(why) => log::error!("boot bundle: {name}: {why}"),
            }
        } else if !bytes.is_empty() {
            self.modules.push(Module { name: name.into(), bytes });
        }
    }
}

/// The files of `archive` that a cell needs, as they stand there: one after the other they are an archive. The second cell, which
/// leads when the first is lost, also has what VMs of that one start again from.
#[must_use]
pub fn files_of(archive: &'static [u8], config: &BootConfig, cell: usize) -> Vec<&'static [u8]> {
    let needed = |name: &[u8]| {
        let starts_again = |vm: &VmSpec| cell == 1 && vm.cell == 0 && vm.on_failure == OnFailure::Restart;
        let mut own = config.vms.iter().filter(|vm| usize::from(vm.cell) == cell || starts_again(vm));
        let always = [BOOT_CONFIG_NAME.as_bytes(), TRAILER];
        always.contains(&name) || own.any(|vm| vm.boot.modules().any(|module| module.as_str().as_bytes() == name))
    };
    let mut files = Vec::new();
    let mut rest = archive;
    while let Some(file) = ArchiveFile::first(rest) {
        if needed(file.name) {
            files.push(file.whole);
        }
        if file.name == TRAILER {
            break;
        }
        rest = file.rest;
    }
    files
}
