//! What every workload guest has: the first process, and busybox as shell and tools.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::cpio::Archive;
use crate::kernel::Kernel;
use crate::recipe::{Recipe, RecipeKey};

const INIT: &str = include_str!("../../files/loads/init.sh");

/// Names of busybox that scripts and makefiles use.
const TOOLS: [&str; 50] = [
    "sh",
    "awk",
    "basename",
    "cat",
    "chmod",
    "chown",
    "cmp",
    "cp",
    "cpio",
    "cut",
    "date",
    "dd",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "grep",
    "head",
    "hostname",
    "insmod",
    "ip",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mount",
    "mv",
    "nproc",
    "poweroff",
    "printf",
    "rm",
    "sed",
    "seq",
    "sha256sum",
    "sleep",
    "sort",
    "start-stop-daemon",
    "stty",
    "sync",
    "tail",
    "taskset",
    "test",
    "touch",
    "tr",
    "true",
    "uname",
    "usleep",
    "wc",
    "xargs",
];

/// Users that daemons of Debian run as.
const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\npostgres:x:100:100::/tmp:/bin/sh\nwww-data:x:33:33::/tmp:/bin/sh\n";
const GROUP: &str = "root:x:0:\npostgres:x:100:\nwww-data:x:33:\nnogroup:x:65534:\n";

/// Folders of an empty system; those of `/` are links into `/usr`, as Debian has it.
const FOLDERS: [&str; 16] = [
    "dev", "etc", "guest", "loads", "modules", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "usr/lib",
    "usr/src", "var", "var/tmp",
];

/// The recipe that decides what the archive contains.
pub fn recipe() -> RecipeKey {
    let recipe = Recipe::new("loads-base").with("format", "1").with("kernel", Kernel::recipe().to_string());
    let recipe = recipe.with("init", INIT).with("users", PASSWD).with("groups", GROUP).with_list("tools", &TOOLS);
    recipe.with_list("folders", &FOLDERS).key()
}

/// The archive, built if it is not in the cache.
pub fn get_or_build(cache: &Cache, kernel: &Kernel) -> Result<PathBuf> {
    let dir = cache.get_or_build(&recipe(), |dir| {
        fs::write(dir.join("base.cpio"), archive(&kernel.busybox(), INIT)?.finish()).context("cannot write the archive")
    })?;
    Ok(dir.join("base.cpio"))
}

/// A system of busybox alone whose first process is `init`.
pub fn archive(busybox: &Path, init: &str) -> Result<Archive> {
    let mut archive = Archive::new();
    for folder in FOLDERS {
        archive.directory(folder);
    }
    for (link, target) in [("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("usr/sbin", "bin")] {
        archive.symlink(link, target);
    }
    archive.character_device("dev/console", 5, 1).character_device("dev/null", 1, 3);
    archive.file_from("usr/bin/busybox", 0o755, busybox)?;
    for tool in TOOLS {
        archive.symlink(&format!("usr/bin/{tool}"), "busybox");
    }
    archive.file("etc/passwd", 0o644, PASSWD.as_bytes()).file("etc/group", 0o644, GROUP.as_bytes());
    archive.file("init", 0o755, init.as_bytes());
    Ok(archive)
}
