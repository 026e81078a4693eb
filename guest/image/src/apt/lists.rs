//! Which package lists are used: young ones as they are, else new ones, else older ones with a warning.
//!
//! A mirror in the middle of an update offers lists that do not fit its own signed index, for hours at times. Two things
//! help then. The archive shows each release under two names (its code name, and `stable` or `oldstable`), and a mirror may
//! have one of them whole. And lists that were fetched before stay good: packages are verified by them as ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

/// Lists younger than this are not fetched again unless a package has gone missing.
const YOUNG: Duration = Duration::from_secs(24 * 3600);

/// Names of releases that stand for a code name, in the order in which they are tried.
const ALIASES: [&str; 3] = ["stable", "oldstable", "testing"];

/// Its modification time says when the lists beside it were fetched whole.
const STAMP: &str = "fetched";

/// The lists of one release under one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// The suites by this name, for example `trixie`, or `oldstable oldstable-backports`.
    pub suites: Vec<String>,
    /// The folder with apt's sources and lists.
    pub dir: PathBuf,
}

/// When lists are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// When those that are there are old.
    IfOld,
    /// In any case.
    Always,
}

impl Lists {
    /// All names that `suites` of the release `codename` may have, each with a folder of its own below `dir`; the code
    /// name first.
    pub fn of(dir: &Path, codename: &str, suites: &[&str]) -> Vec<Self> {
        let named = |name: &str| {
            let suites = suites.iter().map(|suite| suite.replacen(codename, name, 1)).collect();
            Self { suites, dir: dir.join(name) }
        };
        std::iter::once(codename).chain(ALIASES).map(named).collect()
    }

    /// apt's list files.
    pub fn files(&self) -> PathBuf {
        self.dir.join("lists")
    }

    /// When they were fetched whole; `None` if never.
    fn fetched_at(&self) -> Option<SystemTime> {
        fs::metadata(self.dir.join(STAMP)).ok()?.modified().ok()
    }

    /// They were fetched whole, now.
    fn stamp(&self) -> Result<()> {
        fs::write(self.dir.join(STAMP), "").with_context(|| format!("cannot write in {}", self.dir.display()))
    }

    /// Every release that the fetched index files are of has a code name that begins with `codename`: an alias may stand
    /// for another release.
    fn are_of(&self, codename: &str) -> Result<()> {
        let mut releases = 0;
        for entry in fs::read_dir(self.files())?.flatten() {
            let name = entry.file_name();
            if !name.to_string_lossy().ends_with("Release") {
                continue;
            }
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            let found = text.lines().find_map(|line| line.strip_prefix("Codename:")).unwrap_or_default().trim();
            if found != codename && found.strip_prefix(codename).is_none_or(|rest| !rest.starts_with('-')) {
                bail!("`{}` is the release {found}", self.suites.join(" "));
            }
            releases += 1;
        }
        if releases == 0 {
            bail!("the mirror gave no index of `{}`", self.suites.join(" "));
        }
        Ok(())
    }
}

/// Lists to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// Them.
    pub lists: &'a Lists,
    /// Whether they were fetched just now.
    pub is_new: bool,
}

/// The lists to use, the first of `names` that can be had; `fetch` fetches those that it is given. What went wrong where
/// older ones have to do is told to `warn`.
///
/// # Errors
/// None can be fetched and none are there: why the first could not.
pub fn choose<'a>(
    names: &'a [Lists],
    codename: &str,
    (now, when): (SystemTime, Fetch),
    mut fetch: impl FnMut(&Lists) -> Result<()>,
    mut warn: impl FnMut(&str),
) -> Result<Chosen<'a>> {
    let age = |at: SystemTime| now.duration_since(at).unwrap_or_default();
    let newest = names.iter().filter_map(|lists| Some((lists.fetched_at()?, lists))).max_by_key(|(at, _)| *at);
    if let Some((at, lists)) = newest
        && when == Fetch::IfOld
        && age(at) < YOUNG
    {
        return Ok(Chosen { lists, is_new: false });
    }
    let mut first = None;
    for lists in names {
        match fetch(lists).and_then(|()| lists.are_of(codename)) {
            Ok(()) => {
                lists.stamp()?;
                if let Some(why) = first {
                    let name = lists.suites.first().map_or("", String::as_str);
                    warn(&format!("the mirror's lists of {codename} cannot be used ({why}); those of `{name}` can"));
                }
                return Ok(Chosen { lists, is_new: true });
            }
            Err(why) => first = first.or(Some(why)),
        }
    }
    let why = first.context("a release has a name")?;
    let Some((at, lists)) = newest else {
        return Err(why.context(format!("cannot fetch the package lists of Debian {codename}, and none are here")));
    };
    let hours = age(at).as_secs() / 3600;
    warn(&format!("cannot fetch the package lists of Debian {codename} ({why}); those of {hours} h ago are used"));
    Ok(Chosen { lists, is_new: false })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A mirror whose releases by name are of this code name, or broken.
    struct Mirror<'a>(&'a [(&'a str, &'a str)]);

    impl Mirror<'_> {
        fn fetch(&self, lists: &Lists) -> Result<()> {
            let name = lists.suites[0].as_str();
            let Some((_, codename)) = self.0.iter().find(|(offered, _)| *offered == name) else {
                bail!("{name} is torn")
            };
            fs::create_dir_all(lists.files())?;
            Ok(fs::write(lists.files().join(format!("{name}_InRelease")), format!("Codename: {codename}\n"))?)
        }
    }

    struct Outcome {
        suite: Result<String>,
        fetched: Vec<String>,
        warnings: Vec<String>,
    }

    fn choose_from(dir: &Path, mirror: &Mirror<'_>, hours_later: u64, when: Fetch) -> Outcome {
        let names = Lists::of(dir, "trixie", &["trixie"]);
        let (fetched, mut warnings) = (RefCell::new(Vec::new()), Vec::new());
        let now = SystemTime::now() + Duration::from_secs(hours_later * 3600);
        let fetch = |lists: &Lists| {
            fetched.borrow_mut().push(lists.suites[0].clone());
            mirror.fetch(lists)
        };
        let chosen = choose(&names, "trixie", (now, when), fetch, |text| warnings.push(text.to_owned()));
        Outcome { suite: chosen.map(|chosen| chosen.lists.suites[0].clone()), fetched: fetched.into_inner(), warnings }
    }

    const WHOLE: Mirror<'_> = Mirror(&[("trixie", "trixie"), ("stable", "trixie")]);
    const TORN: Mirror<'_> = Mirror(&[]);

    #[test]
    fn young_lists_are_used_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(choose_from(dir.path(), &WHOLE, 0, Fetch::IfOld).fetched, ["trixie"]);
        let again = choose_from(dir.path(), &TORN, 23, Fetch::IfOld);
        assert_eq!((again.suite.unwrap().as_str(), again.fetched.len()), ("trixie", 0));
        let asked_for = choose_from(dir.path(), &WHOLE, 0, Fetch::Always);
        assert_eq!(asked_for.fetched, ["trixie"]);
    }

    #[test]
    fn a_torn_update_falls_back_to_older_lists_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        choose_from(dir.path(), &WHOLE, 0, Fetch::IfOld).suite.unwrap();
        for when in [Fetch::IfOld, Fetch::Always] {
            let outcome = choose_from(dir.path(), &TORN, 50, when);
            assert_eq!(outcome.suite.unwrap(), "trixie");
            assert!(outcome.warnings[0].contains("trixie is torn") && outcome.warnings[0].contains("50 h"));
        }
    }

    #[test]
    fn a_release_is_found_under_its_other_name() {
        let dir = tempfile::tempdir().unwrap();
        let outcome =
            choose_from(dir.path(), &Mirror(&[("stable", "forky"), ("oldstable", "trixie")]), 0, Fetch::IfOld);
        assert_eq!(outcome.suite.unwrap(), "oldstable");
        assert_eq!((outcome.fetched.len(), outcome.warnings.len()), (3, 1));
        // The name that could be used is the one whose lists are young.
        assert_eq!(choose_from(dir.path(), &TORN, 1, Fetch::IfOld).suite.unwrap(), "oldstable");
    }

    #[test]
    fn with_no_lists_at_all_the_first_cause_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let error = choose_from(dir.path(), &TORN, 0, Fetch::IfOld).suite.unwrap_err();
        assert!(format!("{error:#}").ends_with("none are here: trixie is torn"), "{error:#}");
    }

    #[test]
    fn suites_beside_the_release_have_the_same_names() {
        let names = Lists::of(Path::new("/d"), "bookworm", &["bookworm", "bookworm-backports"]);
        assert_eq!(names[0].suites, ["bookworm", "bookworm-backports"]);
        assert_eq!(
            names[2],
            Lists { suites: vec!["oldstable".into(), "oldstable-backports".into()], dir: "/d/oldstable".into() }
        );
    }
}
