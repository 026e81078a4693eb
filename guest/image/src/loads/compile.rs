//! Workload `compile`: Debian's gcc, make and binutils, and two source packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::base;
use super::files::{Packages, Selection};
use super::reference;
use crate::cache::Cache;
use crate::cpio::Archive;
use crate::debian;
use crate::kernel::Kernel;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};
use crate::root::{patched_source, upstream_source};

const SCRIPT: &str = include_str!("../../files/loads/compile.sh");
const PACKAGES: [&str; 3] = ["gcc", "make", "libc6-dev"];
/// The small source, with Debian's patches as in the root image: the results are the same.
const SMALL: &str = "bzip2";
/// The full source, as upstream has it: Debian's patches make its build need libtool.
const FULL: &str = "lua5.4";

const GCC: &str = "usr/lib/gcc/riscv64-linux-gnu/14";
const GCC_PROGRAMS: &str = "usr/libexec/gcc/riscv64-linux-gnu/14";
const LIBRARIES: &str = "usr/lib/riscv64-linux-gnu";

/// Kernel headers that the C library's own headers use; all of them would be most of the archive's files.
const KERNEL_HEADERS: [&str; 10] = [
    "errno.h",
    "falloc.h",
    "limits.h",
    "posix_types.h",
    "sched",
    "stat.h",
    "stddef.h",
    "types.h",
    "close_range.h",
    "openat2.h",
];

/// The recipe that decides what the archive contains.
pub fn recipe() -> RecipeKey {
    let recipe = Recipe::new("loads-compile").with("format", "3").with("base", base::recipe().to_string());
    let recipe = recipe.with("suite", debian::GUEST_SUITE).with_list("packages", &PACKAGES).with("script", SCRIPT);
    let recipe = recipe.with_list("sources", &[SMALL, FULL]);
    recipe.key()
}

/// The archive, built if it is not in the cache.
pub fn get_or_build(cache: &Cache, kernel: &Kernel, base: &Path) -> Result<PathBuf> {
    let dir = cache.get_or_build(&recipe(), |dir| build(cache, kernel, base, dir))?;
    Ok(dir.join("compile.cpio"))
}

fn build(cache: &Cache, kernel: &Kernel, base: &Path, dir: &Path) -> Result<()> {
    let packages = Packages::fetch(cache, &PACKAGES, "loads-compile")?;
    let apt = debian::guest_apt(cache)?;
    let mut archive = Archive::new();
    let step = Step::begin("initial file system of workload compile");
    compiler(&packages)?.write(&mut archive)?;
    let sources = packages.work("sources");
    fs::create_dir_all(sources.join("usr/src"))?;
    fs::rename(patched_source(&apt, SMALL, &packages.work(SMALL))?, sources.join("usr/src/bzip2"))?;
    fs::rename(upstream_source(&apt, FULL, &packages.work(FULL))?, sources.join("usr/src/lua"))?;
    let mut selection = Selection::new(sources);
    // Tests, manuals and Debian's own files are not compiled.
    selection.below("usr/src", |name| {
        let last = name.rsplit('/').next().unwrap_or(name);
        last == "Makefile" || [".c", ".h", ".hpp"].iter().any(|suffix| last.ends_with(suffix))
    })?;
    selection.write(&mut archive)?;
    archive.directory("loads").file("loads/compile", 0o755, SCRIPT.as_bytes());
    step.finish("made");
    reference::finish(kernel, base, archive.finish(), "compile", dir)
}

fn compiler(packages: &Packages) -> Result<Selection> {
    let mut selection = Selection::new(packages.root());
    selection.files("usr/bin", &["gcc", "make", "as", "ld", "ar", "ranlib"])?;
    selection.files(GCC_PROGRAMS, &["cc1", "collect2", "lto-wrapper", "liblto_plugin.so"])?;
    let startup = ["crtbegin.o", "crtbeginS.o", "crtend.o", "crtendS.o", "libgcc.a", "libgcc_s.so"];
    selection.files(GCC, &startup)?.below(&format!("{GCC}/include"), |name| name.ends_with(".h"))?;
    let library = ["Scrt1.o", "crt1.o", "crti.o", "crtn.o", "libc.so", "libc_nonshared.a", "libm.so", "libgcc_s.so.1"];
    selection.files(LIBRARIES, &library)?;
    selection.below("usr/include", |name| {
        let kernel = name.strip_prefix("usr/include/linux/");
        let foreign = ["drm", "mtd", "rdma", "scsi", "sound", "video", "xen", "misc", "cxl", "fwctl", "regulator"];
        let other = foreign.iter().any(|folder| name.starts_with(&format!("usr/include/{folder}/")));
        !other && kernel.is_none_or(|rest| KERNEL_HEADERS.iter().any(|header| rest.starts_with(header)))
    })?;
    Ok(selection)
}
