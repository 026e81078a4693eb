//! Reading the machine's apt sources, one-line (`sources.list`) and deb822 (`*.sources`), to learn which mirror and
//! which keys this machine uses. Only the Debian archive proper is looked for: other repositories are passed over.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Where the archive's signing keys are on every Debian system.
const ARCHIVE_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One repository of binary packages, as apt's sources describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Base address of the repository.
    pub uri: String,
    /// Suites, for example `bookworm` and `bookworm-updates`.
    pub suites: Vec<String>,
    /// Components, for example `main`.
    pub components: Vec<String>,
    /// The key file named for it, if a file is named.
    pub signed_by: Option<String>,
}

/// The Debian mirror that this machine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Base address, usable for every suite of the archive.
    pub uri: String,
    /// Key file that its releases are signed by.
    pub keyring: String,
}

impl Mirror {
    /// Finds the mirror in `/etc/apt`, for a system whose release is `codename`.
    ///
    /// # Errors
    /// No source there offers `main` of that release.
    pub fn of_this_machine(codename: &str) -> Result<Self> {
        Self::from_apt_folder(Path::new("/etc/apt"), codename)
    }

    /// Finds the mirror in an apt configuration folder.
    ///
    /// # Errors
    /// No source there offers `main` of that release.
    pub fn from_apt_folder(etc_apt: &Path, codename: &str) -> Result<Self> {
        let sources = read_sources(etc_apt)?;
        let archive = sources.into_iter().find(|source| source.offers_main_of(codename)).with_context(|| {
            format!(
                "no apt source in {} offers `main` of Debian {codename}: add one, then try again",
                etc_apt.display()
            )
        })?;
        Ok(Self { uri: archive.uri, keyring: archive.signed_by.unwrap_or_else(|| ARCHIVE_KEYRING.into()) })
    }
}

impl Source {
    /// Besides the code name, the names `stable` and the like may stand in a source; they serve the same mirror.
    fn offers_main_of(&self, codename: &str) -> bool {
        let names = [codename, "stable", "oldstable", "testing", "unstable"];
        let suite = self.suites.iter().any(|suite| names.contains(&suite.as_str()));
        suite && self.components.iter().any(|component| component == "main")
    }
}

/// Every binary source in `sources.list` and `sources.list.d`, in apt's own order.
fn read_sources(etc_apt: &Path) -> Result<Vec<Source>> {
    let mut files = vec![etc_apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc_apt.join("sources.list.d")) {
        let mut parts = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        parts.sort();
        files.extend(parts);
    }
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(text.lines().filter_map(parse_line)),
            Some("sources") => sources.extend(parse_deb822(&text)),
            _ => {}
        }
    }
    Ok(sources)
}

/// One line of the old format: `deb [ option=value ... ] uri suite component ...`.
fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb").filter(|rest| rest.starts_with(char::is_whitespace))?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    Some(Source { uri, suites: vec![suite], components: words.collect(), signed_by: signed_by.and_then(key_file) })
}

/// The stanzas of a deb822 file that are enabled and offer binary packages; a stanza with several addresses gives several
/// sources.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for stanza in stanzas(text) {
        let field = |name: &str| {
            let found = stanza.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let words = |name| field(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if field("Enabled").trim() == "no" || !words("Types").iter().any(|kind| kind == "deb") {
            continue;
        }
        for uri in words("URIs") {
            let (suites, components) = (words("Suites"), words("Components"));
            sources.push(Source { uri, suites, components, signed_by: key_file(field("Signed-By")) });
        }
    }
    sources
}

/// Splits deb822 text into stanzas of fields; continuation lines are joined with a line break.
fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut stanzas = vec![Vec::<(String, String)>::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let stanza = stanzas.last_mut().expect("never empty");
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
        } else if line.starts_with(char::is_whitespace) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push('\n');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(':') {
            stanza.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    stanzas
}

/// A key file by absolute path; keys given by fingerprint or inline fall back to the archive's keyring.
fn key_file(signed_by: &str) -> Option<String> {
    let first = signed_by.split([',', '\n', ' ']).next()?;
    first.starts_with('/').then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
Types: deb
# http://a.comment/debian
URIs: http://archive.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://archive.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://other.example/debian
Suites: bookworm
Components: main
";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn deb822_sources_are_read_and_security_is_passed_over() {
        let dir = folder(&[("sources.list.d/debian.sources", DEB822)]);
        let mirror = Mirror::from_apt_folder(dir.path(), "bookworm").unwrap();
        assert_eq!(mirror.uri, "http://archive.example/debian");
        assert_eq!(mirror.keyring, ARCHIVE_KEYRING);
        assert_eq!(parse_deb822(DEB822).len(), 2, "the disabled stanza does not count");
    }

    #[test]
    fn one_line_sources_are_read_with_and_without_options() {
        let list = "\
# deb http://no.example/debian trixie main
deb-src http://src.example/debian trixie main
deb [arch=amd64 signed-by=/k/other.gpg] https://tools.example/apt stable-tools main
deb [ arch=amd64 signed-by=/k/debian.gpg ] https://archive.example/debian trixie main contrib # ours
";
        let dir = folder(&[("sources.list", list)]);
        let mirror = Mirror::from_apt_folder(dir.path(), "trixie").unwrap();
        assert_eq!(mirror, Mirror { uri: "https://archive.example/debian".into(), keyring: "/k/debian.gpg".into() });
    }

    #[test]
    fn an_inline_key_falls_back_to_the_archive_keyring() {
        let text = "Types: deb\nURIs: http://a.example/debian\nSuites: trixie\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n";
        let dir = folder(&[("sources.list.d/debian.sources", text)]);
        assert_eq!(Mirror::from_apt_folder(dir.path(), "trixie").unwrap().keyring, ARCHIVE_KEYRING);
    }

    #[test]
    fn no_source_is_a_clear_error() {
        let dir = folder(&[("sources.list", "deb http://archive.example/ubuntu noble main\n")]);
        let error = Mirror::from_apt_folder(dir.path(), "trixie").unwrap_err();
        assert!(error.to_string().contains("Debian trixie"), "{error}");
    }

    #[test]
    fn files_that_apt_ignores_are_ignored() {
        let dir = folder(&[("sources.list.d/old.list.disabled", "deb http://archive.example/debian trixie main\n")]);
        assert!(Mirror::from_apt_folder(dir.path(), "trixie").is_err());
    }
}
