//! apt with folders of its own: the machine's lists, caches and configuration stay as they were.
//!
//! Two uses: fetching packages of another architecture (dpkg's status file is then an empty one, so that every dependency
//! counts as missing), and installing packages on this machine from a suite that its own sources may not name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{output_of, tool, watch_lines};
use crate::progress::Step;
use crate::sources::Mirror;

/// One private apt: a mirror, some suites of it, one architecture.
pub struct PrivateApt {
    dir: PathBuf,
    options: Vec<String>,
}

impl PrivateApt {
    /// For packages of `architecture` from `suite`, sources included, that are only ever downloaded.
    ///
    /// # Errors
    /// Its folders cannot be made.
    pub fn foreign(dir: PathBuf, mirror: &Mirror, suite: &str, architecture: &str) -> Result<Self> {
        let mut apt = Self::with_suites(dir, mirror, &[suite], &format!("Architectures: {architecture}\n"))?;
        let status = apt.dir.join("status");
        fs::write(&status, "")?;
        apt.option("Dir::State::status", status.display());
        apt.option("APT::Architecture", architecture);
        apt.option("APT::Architectures::", architecture);
        Ok(apt)
    }

    /// For installing packages on this machine from `suites`.
    ///
    /// # Errors
    /// Its folders cannot be made.
    pub fn for_this_machine(dir: PathBuf, mirror: &Mirror, suites: &[&str]) -> Result<Self> {
        Self::with_suites(dir, mirror, suites, "")
    }

    fn with_suites(dir: PathBuf, mirror: &Mirror, suites: &[&str], more: &str) -> Result<Self> {
        let part = |name: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
            Ok(path)
        };
        let (parts, lists, archives) = (part("sources")?, part("lists/partial")?, part("cache/archives/partial")?);
        let types = if more.is_empty() { "deb" } else { "deb deb-src" };
        let text = format!(
            "Types: {types}\nURIs: {}\nSuites: {}\nComponents: main\nSigned-By: {}\n{more}",
            mirror.uri,
            suites.join(" "),
            mirror.keyring
        );
        fs::write(parts.join("mirrorball.sources"), text)?;
        let mut apt = Self { dir: dir.clone(), options: Vec::new() };
        apt.option("Dir::Etc::SourceList", "/dev/null");
        apt.option("Dir::Etc::SourceParts", parts.display());
        apt.option("Dir::State::Lists", lists.parent().unwrap_or(&lists).display());
        apt.option("Dir::Cache", dir.join("cache").display());
        apt.option("Dir::Cache::archives", archives.parent().unwrap_or(&archives).display());
        // Translations and desktop metadata are not needed.
        apt.option("Acquire::Languages", "none");
        apt.option("Acquire::Retries", "3");
        apt.option("APT::Install-Recommends", "false");
        if rustix::process::geteuid().is_root() {
            // The folders may lie in a home folder that apt's sandbox user cannot enter.
            apt.option("APT::Sandbox::User", "root");
        }
        Ok(apt)
    }

    fn option(&mut self, name: &str, value: impl std::fmt::Display) {
        self.options.extend(["-o".into(), format!("{name}={value}")]);
    }

    fn command(&self, program: &str) -> Result<Command> {
        let mut command = tool(program)?;
        command.args(&self.options).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        Ok(command)
    }

    /// Fetches the lists of packages.
    ///
    /// # Errors
    /// There is no network, or the mirror's lists do not verify.
    pub fn update(&self) -> Result<()> {
        output_of(self.command("apt-get")?.args(["-q", "update", "-o", "APT::Update::Error-Mode=any"]))
            .context("cannot fetch the package lists: this first run needs the network")?;
        Ok(())
    }

    /// Downloads `packages` with all that they depend on into `dir`; returns the package files, sorted by name.
    ///
    /// # Errors
    /// A package does not exist or cannot be downloaded.
    pub fn download_with_dependencies(&self, packages: &[&str], dir: &Path, title: &str) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir.join("partial"))?;
        let mut install = self.command("apt-get")?;
        install.args(["-o", &format!("Dir::Cache::archives={}", dir.display()), "-o", "Debug::NoLocking=true"]);
        install.args(["-q", "-y", "--download-only", "install"]).args(packages);
        self.fetch(install, packages, title)?;
        files_with_extension(dir, "deb")
    }

    /// Downloads just `packages` into `dir`; returns the package files, sorted by name.
    ///
    /// # Errors
    /// A package does not exist or cannot be downloaded.
    pub fn download(&self, packages: &[&str], dir: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir)?;
        output_of(self.command("apt-get")?.args(["-q", "download"]).args(packages).current_dir(dir))?;
        files_with_extension(dir, "deb")
    }

    /// Downloads the source package `name` into `dir`, packed: its `.dsc` and archives.
    ///
    /// # Errors
    /// It does not exist or cannot be downloaded.
    pub fn download_source(&self, name: &str, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        output_of(self.command("apt-get")?.args(["-q", "source", "--download-only", name]).current_dir(dir))?;
        Ok(())
    }

    /// The newest version of `package` that these sources offer.
    ///
    /// # Errors
    /// They offer none.
    pub fn candidate_version(&self, package: &str) -> Result<String> {
        let text = output_of(self.command("apt-cache")?.args(["policy", package]))?;
        let version = text.lines().find_map(|line| line.trim().strip_prefix("Candidate:"));
        match version.map(str::trim) {
            Some(version) if version != "(none)" => Ok(version.to_owned()),
            _ => bail!("the mirror offers no package `{package}`"),
        }
    }

    /// The packages that `package` depends on directly, alternatives left out.
    ///
    /// # Errors
    /// There is no such package.
    pub fn direct_dependencies(&self, package: &str) -> Result<Vec<String>> {
        let text = output_of(self.command("apt-cache")?.args(["depends", "--important", package]))?;
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// The command that installs `packages` on this machine; `suite` wins over others that offer them.
    ///
    /// # Errors
    /// apt is not installed.
    pub fn install_command(&self, packages: &[&str], suite: &str) -> Result<Command> {
        let mut command = self.command("apt-get")?;
        command.args(["-q", "-y", "--no-install-recommends", "-t", suite, "install"]).args(packages);
        Ok(command)
    }

    /// Runs a download with a bar: the number of files is asked for first, then apt's `Get:` lines are counted.
    fn fetch(&self, mut command: Command, packages: &[&str], title: &str) -> Result<()> {
        let planned =
            output_of(self.command("apt-get")?.args(["-qq", "-y", "--print-uris", "install"]).args(packages))?;
        let step = Step::begin_counted(title, planned.lines().filter(|line| line.starts_with('\'')).count() as u64);
        watch_lines(&mut command, |line| {
            if line.starts_with("Get:") {
                step.advance(line.split_whitespace().nth(4).unwrap_or_default());
            }
        })
        .context("cannot download the packages")?;
        step.finish("done");
        Ok(())
    }
}

/// Files in `dir` with the given extension, sorted.
///
/// # Errors
/// The folder cannot be read.
pub fn files_with_extension(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
