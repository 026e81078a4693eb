//! apt with folders of its own: the machine's lists, caches and configuration stay as they were.
//!
//! Two uses: fetching packages of another architecture (dpkg's status file is then an empty one, so that every dependency
//! counts as missing), and installing packages on this machine from a suite that its own sources may not name.

mod lists;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use self::lists::{Fetch, Lists};
use crate::command::{output_of, tool, watch_lines};
use crate::progress::Step;
use crate::sources::Mirror;

/// One private apt: a mirror, some suites of it, one architecture.
pub struct PrivateApt {
    mirror: Mirror,
    codename: String,
    /// The release's names on the mirror, and the one whose lists are in use.
    names: Vec<Lists>,
    in_use: RefCell<InUse>,
    /// The lists of the machine's own apt, for packages that are installed on it.
    machine: Option<MachineLists>,
    /// Whether lists were fetched since this was made: once is enough for a package that has gone missing.
    is_new: Cell<bool>,
    /// More lines of its sources.
    more: String,
    options: Vec<String>,
}

/// Whose lists are in use.
#[derive(Clone)]
enum InUse {
    /// Our own.
    Private(Lists),
    /// Those that the machine's own apt has, which are only read.
    Machine,
}

/// Where the machine's own apt has its lists.
struct MachineLists {
    files: PathBuf,
    /// How apt is told; empty for the machine's own configuration.
    options: Vec<String>,
}

impl PrivateApt {
    /// For packages of `architecture` from `suite`, sources included, that are only ever downloaded.
    ///
    /// # Errors
    /// Its folders cannot be made.
    pub fn foreign(dir: &Path, mirror: &Mirror, suite: &str, architecture: &str) -> Result<Self> {
        let more = format!("Architectures: {architecture}\n");
        let mut apt = Self::with_suites(dir, mirror, suite, &[suite], more)?;
        let status = dir.join("status");
        fs::write(&status, "")?;
        apt.option("Dir::State::status", status.display());
        apt.option("APT::Architecture", architecture);
        apt.option("APT::Architectures::", architecture);
        Ok(apt)
    }

    /// For installing packages on this machine from `suites` of its release `codename`.
    ///
    /// # Errors
    /// Its folders cannot be made.
    pub fn for_this_machine(dir: &Path, mirror: &Mirror, codename: &str, suites: &[&str]) -> Result<Self> {
        let mut apt = Self::with_suites(dir, mirror, codename, suites, String::new())?;
        apt.machine = Some(MachineLists { files: "/var/lib/apt/lists".into(), options: Vec::new() });
        Ok(apt)
    }

    fn with_suites(dir: &Path, mirror: &Mirror, codename: &str, suites: &[&str], more: String) -> Result<Self> {
        let archives = dir.join("cache/archives");
        make(&archives.join("partial"))?;
        let names = Lists::of(dir, codename, suites);
        let mut apt = Self {
            mirror: mirror.clone(),
            codename: codename.to_owned(),
            in_use: RefCell::new(InUse::Private(names.first().context("a release has a name")?.clone())),
            names,
            machine: None,
            is_new: Cell::new(false),
            more,
            options: Vec::new(),
        };
        apt.option("Dir::Cache", dir.join("cache").display());
        apt.option("Dir::Cache::archives", archives.display());
        // Translations are not needed.
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
        match (&*self.in_use.borrow(), &self.machine) {
            (InUse::Private(lists), _) => self.command_with(program, lists),
            (InUse::Machine, machine) => {
                let options = machine.iter().flat_map(|machine| &machine.options);
                let mut command = self.bare_command(program)?;
                command.args(options);
                Ok(command)
            }
        }
    }

    fn command_with(&self, program: &str, lists: &Lists) -> Result<Command> {
        let mut command = self.bare_command(program)?;
        command.args(["-o", "Dir::Etc::SourceList=/dev/null"]);
        command.args(["-o", &format!("Dir::Etc::SourceParts={}", lists.dir.join("sources").display())]);
        command.args(["-o", &format!("Dir::State::Lists={}", lists.files().display())]);
        Ok(command)
    }

    fn bare_command(&self, program: &str) -> Result<Command> {
        let mut command = tool(program)?;
        command.args(&self.options).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        Ok(command)
    }

    /// Sees to it that there are lists of packages: those that are young as they are, else new ones, else older ones, else those
    /// of the machine's own apt where packages are installed on it.
    ///
    /// # Errors
    /// There are none, and they cannot be fetched: no network, or the mirror's lists do not verify.
    pub fn update(&self) -> Result<()> {
        self.update_lists(Fetch::IfOld).map(drop)
    }

    /// The same; whether they were fetched just now.
    fn update_lists(&self, when: Fetch) -> Result<bool> {
        let warn = |text: &str| eprintln!("warning: {text}");
        let now = SystemTime::now();
        match lists::choose(&self.names, &self.codename, (now, when), |lists| self.fetch_lists(lists), warn) {
            Ok(chosen) => {
                *self.in_use.borrow_mut() = InUse::Private(chosen.lists.clone());
                self.is_new.set(self.is_new.get() || chosen.is_new);
                Ok(chosen.is_new)
            }
            Err(why) if self.machine.as_ref().is_some_and(MachineLists::are_there) => {
                warn(&format!("{why:#}; those of this machine's own apt are used"));
                *self.in_use.borrow_mut() = InUse::Machine;
                Ok(false)
            }
            Err(why) => Err(why),
        }
    }

    fn fetch_lists(&self, lists: &Lists) -> Result<()> {
        make(&lists.files().join("partial"))?;
        let sources = make(&lists.dir.join("sources"))?;
        let text = format!(
            "Types: {}\nURIs: {}\nSuites: {}\nComponents: main\nSigned-By: {}\n{}",
            if self.more.is_empty() { "deb" } else { "deb deb-src" },
            self.mirror.uri,
            lists.suites.join(" "),
            self.mirror.keyring,
            self.more,
        );
        fs::write(sources.join("mirrorball.sources"), text)?;
        let mut update = self.command_with("apt-get", lists)?;
        run(update.args(["-q", "update", "-o", "APT::Update::Error-Mode=any"]))
    }

    /// Does what needs packages; if one has gone missing from the mirror, once more with new lists.
    fn with_packages<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        work().or_else(|why| {
            if self.is_new.get()
                || !may_be_gone(&format!("{why:#}"))
                || !self.update_lists(Fetch::Always).unwrap_or(false)
            {
                return Err(why);
            }
            work()
        })
    }

    /// Downloads `packages` with all that they depend on into `dir`; returns the package files, sorted by name.
    ///
    /// # Errors
    /// A package does not exist or cannot be downloaded.
    pub fn download_with_dependencies(&self, packages: &[&str], dir: &Path, title: &str) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir.join("partial"))?;
        self.with_packages(|| {
            let mut install = self.command("apt-get")?;
            install.args(["-o", &format!("Dir::Cache::archives={}", dir.display()), "-o", "Debug::NoLocking=true"]);
            install.args(["-q", "-y", "--download-only", "install"]).args(packages);
            self.fetch(install, packages, title)
        })?;
        files_with_extension(dir, "deb")
    }

    /// Downloads just `packages` into `dir`; returns the package files, sorted by name.
    ///
    /// # Errors
    /// A package does not exist or cannot be downloaded.
    pub fn download(&self, packages: &[&str], dir: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir)?;
        self.with_packages(|| run(self.command("apt-get")?.args(["-q", "download"]).args(packages).current_dir(dir)))?;
        files_with_extension(dir, "deb")
    }

    /// Downloads the source package `name` into `dir`, packed: its `.dsc` and archives.
    ///
    /// # Errors
    /// It does not exist or cannot be downloaded.
    pub fn download_source(&self, name: &str, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        self.with_packages(|| {
            run(self.command("apt-get")?.args(["-q", "source", "--download-only", name]).current_dir(dir))
        })
    }

    /// The newest version of `package` that these sources offer.
    ///
    /// # Errors
    /// They offer none.
    pub fn candidate_version(&self, package: &str) -> Result<String> {
        self.with_packages(|| {
            let text = output_of(self.command("apt-cache")?.args(["policy", package])).map_err(one_cause)?;
            let version = text.lines().find_map(|line| line.trim().strip_prefix("Candidate:"));
            match version.map(str::trim) {
                Some(version) if version != "(none)" => Ok(version.to_owned()),
                _ => bail!("the mirror offers no package `{package}`"),
            }
        })
    }

    /// The packages that `package` depends on directly, alternatives left out.
    ///
    /// # Errors
    /// There is no such package.
    pub fn direct_dependencies(&self, package: &str) -> Result<Vec<String>> {
        let mut depends = self.command("apt-cache")?;
        let text = output_of(depends.args(["depends", "--important", package])).map_err(one_cause)?;
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Installs `packages` on this machine; `suite` wins over others that offer them. `as_root` makes root run a command.
    ///
    /// # Errors
    /// Those of `as_root`, or apt cannot install them.
    pub fn install(&self, packages: &[&str], suite: &str, as_root: impl Fn(Command) -> Result<Command>) -> Result<()> {
        self.with_packages(|| {
            let mut command = self.command("apt-get")?;
            command.args(["-q", "-y", "--no-install-recommends", "-t", suite, "install"]).args(packages);
            run(&mut as_root(command)?)
        })
    }

    /// Runs a download with a bar: the number of files is asked for first, then apt's `Get:` lines are counted.
    fn fetch(&self, mut command: Command, packages: &[&str], title: &str) -> Result<()> {
        let planned = output_of(self.command("apt-get")?.args(["-qq", "-y", "--print-uris", "install"]).args(packages))
            .map_err(one_cause)?;
        let step = Step::begin_counted(title, planned.lines().filter(|line| line.starts_with('\'')).count() as u64);
        watch_lines(&mut command, |line| {
            if line.starts_with("Get:") {
                step.advance(line.split_whitespace().nth(4).unwrap_or_default());
            }
        })
        .map_err(one_cause)
        .context("cannot download the packages")?;
        step.finish("done");
        Ok(())
    }
}

impl MachineLists {
    /// Whether its apt has any lists.
    fn are_there(&self) -> bool {
        let entries = fs::read_dir(&self.files).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    }
}

/// Whether this error says that a package is no longer where the lists say, or that they do not know it.
fn may_be_gone(error: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "Unable to locate package",
        "Unable to find a source package",
        "no installation candidate",
        "offers no package",
        "Not Found",
        "No such file",
        "not found",
        "unexpected size",
        "mismatch",
    ];
    SIGNS.iter().any(|sign| error.contains(sign))
}

/// Runs apt; an error is one line: what apt says first is wrong.
fn run(command: &mut Command) -> Result<()> {
    output_of(command).map(|_| ()).map_err(one_cause)
}

fn one_cause(why: anyhow::Error) -> anyhow::Error {
    cause(&why.to_string()).map_or(why, anyhow::Error::msg)
}

/// What apt's output gives as its first error, with what it was about: `E: Failed to fetch ADDRESS  REASON` and the like.
fn cause(output: &str) -> Option<String> {
    let errors = || output.lines().filter_map(|line| line.strip_prefix("E: "));
    let fetch = errors().find_map(|line| line.strip_prefix("Failed to fetch "));
    match fetch.and_then(|line| line.split_once(char::is_whitespace)) {
        Some((address, reason)) => {
            let file =
                address.rsplit_once("/dists/").or_else(|| address.rsplit_once('/')).map_or(address, |(_, file)| file);
            Some(format!("{file}: {}", reason.trim()))
        }
        None => errors().next().map(str::to_owned),
    }
}

fn make(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir.to_owned())
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
