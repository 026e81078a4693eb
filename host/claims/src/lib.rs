//! What the project says of itself. Records in `docs/results/*.json` are the only source; `docs/claims.md` and marked blocks
//! of other pages are made from them.
//!
//! # Key types
//! - [`Area`]: one file of records, with the sentences that introduce it. [`Record`]: one figure, with all that one needs to
//!   measure it again.
//! - [`Claims`]: all areas of a tree. [`Claims::write`] makes the pages, [`Claims::differences`] compares them.
//! - [`Found`]: what a finished run found; [`Claims::adopt`] puts it into the records of the same experiment and size.
//!
//! # Marked blocks
//! A page may have a block between `<!-- begin: results/NAME -->` and `<!-- end: results/NAME -->`. It contains the file
//! `docs/results/NAME`: a `.txt` file as it is, in a code block; an `.md` file with figures in place of `{ID}`, `{ID.peer}`,
//! `{ID.target}` and `{ID.paper}`; `{ID.time}` is a time in words, as "1 min 16 s".
//!
//! # What it refuses
//! To invent: a name without a record, a value that is no number, and a result of a tree that was not as committed are errors.
#![forbid(unsafe_code)]

mod adopt;
mod blocks;
mod date;
mod error;
mod page;
mod record;

use std::path::{Path, PathBuf};

pub use adopt::Found;
pub use date::day_of;
pub use error::ClaimsError;
pub use record::{Area, Comparand, Record, State, Target};

/// Where records are, under the tree's root.
const RESULTS: &str = "docs/results";
/// The page of all of them.
const PAGE: &str = "docs/claims.md";

/// All records of a tree.
#[derive(Debug)]
pub struct Claims {
    root: PathBuf,
    areas: Vec<(PathBuf, Area)>,
}

impl Claims {
    /// Reads the records of the tree at `root`.
    ///
    /// # Errors
    /// A file cannot be read, is not what it should be, or two records have one name.
    pub fn read(root: &Path) -> Result<Self, ClaimsError> {
        let mut areas = Vec::new();
        for path in files(&root.join(RESULTS), "json")? {
            let area = serde_json::from_str(&text(&path)?)
                .map_err(|source| ClaimsError::Json { path: path.clone(), source })?;
            areas.push((path, area));
        }
        areas.sort_by_key(|(_, area): &(PathBuf, Area)| area.order);
        let claims = Self { root: root.to_owned(), areas };
        claims.check()?;
        Ok(claims)
    }

    /// The records of the tree that `start` lies in.
    ///
    /// # Errors
    /// As [`Claims::read`], or there is no such tree.
    pub fn find(start: &Path) -> Result<Self, ClaimsError> {
        let root = start.ancestors().find(|folder| folder.join(RESULTS).is_dir());
        Self::read(root.ok_or_else(|| ClaimsError::NoTree { start: start.to_owned() })?)
    }

    /// Every record.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.areas.iter().flat_map(|(_, area)| &area.records)
    }

    /// The record of this name.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.records().find(|record| record.id == id)
    }

    /// The pages that records make, and what must be in them.
    fn pages(&self) -> Result<Vec<(PathBuf, String)>, ClaimsError> {
        let mut pages = vec![(self.root.join(PAGE), page::page(self.areas.iter().map(|(_, area)| area)))];
        let mut candidates = files(&self.root.join("docs"), "md")?;
        candidates.extend(["README.md", "CONTRIBUTING.md"].map(|name| self.root.join(name)));
        for path in candidates.into_iter().filter(|path| path.is_file() && *path != self.root.join(PAGE)) {
            let filled = blocks::fill(&text(&path)?, |name| self.block(name))
                .map_err(|why| ClaimsError::Block { path: path.clone(), why })?;
            pages.push((path, filled));
        }
        Ok(pages)
    }

    /// What a block of this name contains.
    fn block(&self, name: &str) -> Result<String, String> {
        let path = self.root.join(RESULTS).join(name);
        let content = text(&path).map_err(|error| error.to_string())?;
        if name.ends_with(".md") {
            return blocks::substitute(content.trim_end(), |wanted| self.number(wanted));
        }
        Ok(format!("```text\n{}\n```", content.trim_end()))
    }

    /// What `{ID}` and `{ID.part}` stand for.
    fn number(&self, wanted: &str) -> Option<String> {
        let (id, part) = wanted.split_once('.').unwrap_or((wanted, "value"));
        let record = self.record(id)?;
        match part {
            "value" => Some(record.shown()),
            "time" => record.time(),
            "target" => Some(record.target?.number().to_string()),
            "peer" => record.peer.as_ref().map(|peer| record.beside(peer.value)),
            "paper" => record.paper.as_ref().map(|paper| record.beside(paper.value)),
            _ => None,
        }
    }

    /// Each page that is not what the records make of it, in words. Empty if all are.
    ///
    /// # Errors
    /// A page cannot be read, or quotes what no record has.
    pub fn differences(&self) -> Result<Vec<String>, ClaimsError> {
        let mut different = Vec::new();
        for (path, wanted) in self.pages()? {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            if let Some(line) = first_difference(&found, &wanted) {
                let name = path.strip_prefix(&self.root).unwrap_or(&path).display();
                different.push(format!(
                    "{name}:{line}: is not what {RESULTS} makes of it; `./x mirrorball bench report --write` writes it"
                ));
            }
        }
        Ok(different)
    }

    /// Writes records and pages. Returns the files that changed.
    ///
    /// # Errors
    /// A file cannot be read or written, or a page quotes what no record has.
    pub fn write(&self) -> Result<Vec<PathBuf>, ClaimsError> {
        let mut all = self.pages()?;
        for (path, area) in &self.areas {
            let mut json = serde_json::to_string_pretty(area)
                .map_err(|source| ClaimsError::Json { path: path.clone(), source })?;
            json.push('\n');
            all.push((path.clone(), json));
        }
        all.retain(|(path, wanted)| std::fs::read_to_string(path).ok().as_deref() != Some(wanted));
        for (path, wanted) in &all {
            std::fs::write(path, wanted).map_err(|source| ClaimsError::File { path: path.clone(), source })?;
        }
        Ok(all.into_iter().map(|(path, _)| path).collect())
    }

    /// Takes over what was found. Returns the names of the records that have changed.
    pub fn adopt(&mut self, found: &Found) -> Vec<String> {
        let records = self.areas.iter_mut().flat_map(|(_, area)| &mut area.records);
        records.filter_map(|record| adopt::adopt(record, found).then(|| record.id.clone())).collect()
    }

    /// Takes over a finished run's own text, which pages show in a marked block, if it is of a tree as committed. `true` if it has
    /// changed.
    ///
    /// # Errors
    /// There is no such block, or it cannot be written.
    pub fn adopt_text(&self, name: &str, content: &str, commit: &str) -> Result<bool, ClaimsError> {
        let path = self.root.join(RESULTS).join(name);
        let before = text(&path)?;
        if !adopt::is_committed(commit) || before == content {
            return Ok(false);
        }
        std::fs::write(&path, content).map_err(|source| ClaimsError::File { path, source })?;
        Ok(true)
    }

    fn check(&self) -> Result<(), ClaimsError> {
        let mut names: Vec<&str> = self.records().map(|record| record.id.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ClaimsError::Twice { id: pair[0].to_owned() }),
            None => Ok(()),
        }
    }
}

/// The first line (from 1) in which two texts differ.
fn first_difference(found: &str, wanted: &str) -> Option<usize> {
    if found == wanted {
        return None;
    }
    let equal = found.lines().zip(wanted.lines()).take_while(|(left, right)| left == right).count();
    Some(equal + 1)
}

/// The files of a folder that end so, by name.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, ClaimsError> {
    let failed = |source| ClaimsError::File { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn text(path: &Path) -> Result<String, ClaimsError> {
    std::fs::read_to_string(path).map_err(|source| ClaimsError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
