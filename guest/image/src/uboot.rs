//! S-mode U-Boot from Debian's package, for guests that start from their disk as they would on QEMU.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::debian;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

const PACKAGE: &str = "u-boot-qemu";
const FILE: &str = "usr/lib/u-boot/qemu-riscv64_smode/u-boot.bin";

/// The firmware artifact.
#[derive(Clone, Debug)]
pub struct UBoot {
    dir: PathBuf,
}

impl UBoot {
    /// The recipe that decides what the artifact contains.
    pub fn recipe() -> RecipeKey {
        Recipe::new("u-boot").with("suite", debian::GUEST_SUITE).with("package", PACKAGE).with("file", FILE).key()
    }

    /// Finds it in the cache, or downloads it.
    ///
    /// # Errors
    /// The download failed, or the package has no such file.
    pub fn get_or_build(cache: &Cache) -> Result<Self> {
        let dir = cache.get_or_build(&Self::recipe(), |dir| build(cache, dir))?;
        Ok(Self { dir })
    }

    /// The flat binary, started in S-mode like a kernel.
    pub fn binary(&self) -> PathBuf {
        self.dir.join("u-boot.bin")
    }
}

fn build(cache: &Cache, dir: &Path) -> Result<()> {
    let apt = debian::guest_apt(cache)?;
    let scratch = cache.scratch("u-boot-package")?;
    let step = Step::begin(PACKAGE);
    for package in apt.download(&[PACKAGE], &scratch.path.join("debs"))? {
        debian::unpack(&package, &scratch.path)?;
    }
    fs::copy(scratch.path.join(FILE), dir.join("u-boot.bin")).with_context(|| format!("{PACKAGE} has no {FILE}"))?;
    step.finish("unpacked");
    Ok(())
}
