//! Workload `web`: Debian's nginx, and pages made by rule, so that the clients know what they must get.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use workloads::{Size, web};

use super::base;
use super::files::{Packages, Selection};
use crate::cache::Cache;
use crate::cpio::Archive;
use crate::debian;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

const PACKAGES: [&str; 1] = ["nginx"];
const SCRIPT: &str = include_str!("../../files/loads/web.sh");
const CONFIGURATION: &str = include_str!("../../files/loads/nginx.conf");
/// Changed when the pages' rule or the number of requests is.
const PAGES_VERSION: &str = "1";

/// The recipe that decides what the archive contains.
pub fn recipe() -> RecipeKey {
    let recipe = Recipe::new("loads-web").with("format", "1").with("base", base::recipe().to_string());
    let recipe = recipe.with("suite", debian::GUEST_SUITE).with_list("packages", &PACKAGES).with("script", SCRIPT);
    let recipe = recipe.with("configuration", CONFIGURATION).with("pages", PAGES_VERSION);
    recipe.key()
}

/// The archive, built if it is not in the cache.
pub fn get_or_build(cache: &Cache) -> Result<PathBuf> {
    let dir = cache.get_or_build(&recipe(), |dir| build(cache, dir))?;
    Ok(dir.join("web.cpio"))
}

fn build(cache: &Cache, dir: &Path) -> Result<()> {
    let packages = Packages::fetch(cache, &PACKAGES, "loads-web")?;
    let step = Step::begin("initial file system of workload web");
    let mut archive = Archive::new();
    let mut selection = Selection::new(packages.root());
    // The base has /usr/sbin as a link to this folder.
    selection.file_as("usr/sbin/nginx", "usr/bin/nginx")?;
    selection.write(&mut archive)?;
    for folder in ["loads", "usr/share", "usr/share/web"] {
        archive.directory(folder);
    }
    for number in 0..web::PAGES {
        archive.file(&format!("usr/share/web/{number:02}.html"), 0o644, &web::page(number));
    }
    for (size, name) in [(Size::Small, "small"), (Size::Full, "full")] {
        let expected = format!("{:016x}\n", web::expected(size));
        archive.file(&format!("loads/web.{name}.expected"), 0o644, expected.as_bytes());
    }
    archive.file("loads/web", 0o755, SCRIPT.as_bytes()).file("loads/nginx.conf", 0o644, CONFIGURATION.as_bytes());
    fs::write(dir.join("web.cpio"), archive.finish()).context("cannot write the archive")?;
    step.finish("made");
    Ok(())
}
