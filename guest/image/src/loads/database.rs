//! Workload `database`: Debian's PostgreSQL with tables that are filled once, on a plain emulated machine, when the archive
//! is built: a guest only starts the server.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::base;
use super::files::{Packages, Selection};
use super::reference::{self, join};
use crate::cache::Cache;
use crate::cpio::Archive;
use crate::debian;
use crate::emulator::PlainMachine;
use crate::kernel::Kernel;
use crate::modules::ModuleTree;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

const PACKAGES: [&str; 1] = ["postgresql-17"];
const PROGRAMS: &str = "usr/lib/postgresql/17/bin";
const MODULES: &str = "usr/lib/postgresql/17/lib";
const SHARE: &str = "usr/share/postgresql/17";

/// What the guest needs in `/loads`: name and content.
const SCRIPTS: [(&str, &str); 3] = [
    ("database", include_str!("../../files/loads/database.sh")),
    ("database.lib", include_str!("../../files/loads/database.lib")),
    ("database.conf", include_str!("../../files/loads/database.conf")),
];
/// What only the making of the database needs.
const MAKING: [(&str, &str); 3] = [
    ("database-make", include_str!("../../files/loads/database-make.sh")),
    ("database-functions.sql", include_str!("../../files/loads/database-functions.sql")),
    ("database-tables.sql", include_str!("../../files/loads/database-tables.sql")),
];
const QUERIES: [(&str, &str); 8] = [
    ("q01", include_str!("../../files/loads/queries/q01.sql")),
    ("q03", include_str!("../../files/loads/queries/q03.sql")),
    ("q04", include_str!("../../files/loads/queries/q04.sql")),
    ("q05", include_str!("../../files/loads/queries/q05.sql")),
    ("q06", include_str!("../../files/loads/queries/q06.sql")),
    ("q10", include_str!("../../files/loads/queries/q10.sql")),
    ("q12", include_str!("../../files/loads/queries/q12.sql")),
    ("q14", include_str!("../../files/loads/queries/q14.sql")),
];

/// The disk that the database leaves the emulated machine on.
const DISK_BYTES: u64 = 512 << 20;
const MEMORY_MIB: u32 = 2048;

/// The recipe that decides what the archive contains.
pub fn recipe() -> RecipeKey {
    let recipe = Recipe::new("loads-database").with("format", "1").with("base", base::recipe().to_string());
    let mut recipe = recipe.with("suite", debian::GUEST_SUITE).with_list("packages", &PACKAGES);
    for (name, content) in SCRIPTS.iter().chain(&MAKING).chain(&QUERIES) {
        recipe = recipe.with(name, content);
    }
    recipe.key()
}

/// The archive, built if it is not in the cache.
pub fn get_or_build(cache: &Cache, kernel: &Kernel, base: &Path) -> Result<PathBuf> {
    let dir = cache.get_or_build(&recipe(), |dir| build(cache, kernel, base, dir))?;
    Ok(dir.join("database.cpio"))
}

fn build(cache: &Cache, kernel: &Kernel, base: &Path, dir: &Path) -> Result<()> {
    let packages = Packages::fetch(cache, &PACKAGES, "loads-database")?;
    let step = Step::begin("initial file system of workload database");
    let mut archive = Archive::new();
    server(&packages)?.write(&mut archive)?;
    for folder in ["loads", "loads/database.queries", "var", "var/lib"] {
        archive.directory(folder);
    }
    for (name, content) in SCRIPTS {
        archive.file(&format!("loads/{name}"), 0o755, content.as_bytes());
    }
    for (name, content) in QUERIES {
        archive.file(&format!("loads/database.queries/{name}"), 0o644, content.as_bytes());
    }
    let bytes = archive.finish();
    step.finish("made");
    let data = make_data(kernel, base, &bytes, dir)?;
    reference::finish(kernel, base, [bytes, data].concat(), "database", dir)
}

fn server(packages: &Packages) -> Result<Selection> {
    let mut selection = Selection::new(packages.root());
    selection.files(PROGRAMS, &["postgres", "psql", "initdb"])?;
    selection.files(MODULES, &["dict_snowball.so", "plpgsql.so"])?;
    let is_wanted = |name: &str| {
        let is_foreign = name.contains("/extension/") && !name.contains("/plpgsql");
        !is_foreign && !name.contains("/man/") && !name.contains("/tsearch_data/")
    };
    selection.below(SHARE, is_wanted)?.below(&format!("{SHARE}/tsearch_data"), |name| name.ends_with(".stop"))?;
    selection.file("usr/share/zoneinfo/UTC")?;
    Ok(selection)
}

/// Runs the script that makes the database, and gives the archive that it left on the disk.
fn make_data(kernel: &Kernel, base: &Path, server: &[u8], dir: &Path) -> Result<Vec<u8>> {
    let step = Step::begin("filling the database on a plain emulated machine (minutes)");
    let (parts, initrd, disk) = (dir.join("make.part"), dir.join("make.cpio"), dir.join("data.disk"));
    fs::write(&parts, [server, &making(kernel)?].concat())?;
    join(&[base, &parts], &initrd)?;
    File::create(&disk)?.set_len(DISK_BYTES)?;
    let machine = PlainMachine {
        kernel,
        initrd: initrd.clone(),
        disk: Some(&disk),
        memory_mib: MEMORY_MIB,
        log: &dir.join("make.log"),
        command_line: "workload=database-make unchecked=1",
        limit: Duration::from_secs(1800),
    };
    let log = machine.run(&step, |_, _| ())?;
    let size = reference::result_of(&log, "database-make")?;
    let bytes: usize = size.parse().with_context(|| format!("`{size}` is not the database's size"))?;
    let mut data = fs::read(&disk)?;
    data.truncate(bytes);
    [parts, initrd, disk].iter().try_for_each(fs::remove_file).context("cannot remove what was temporary")?;
    step.finish(format!("{} MiB", bytes >> 20));
    Ok(data)
}

fn making(kernel: &Kernel) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for (name, content) in MAKING {
        archive.file(&format!("loads/{name}"), 0o755, content.as_bytes());
    }
    // The disk's drivers are among the modules that the root image has.
    for module in ModuleTree::scan(&kernel.module_overlay())?.load_order(&["virtio_mmio", "virtio_blk"])? {
        archive.file(&format!("modules/{}.ko", module.name), 0o644, &module.content);
    }
    Ok(archive.finish())
}
