//! What is wrong in a file, and where.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thiserror::Error;

/// Everything that is wrong with a description: at least one error, and the warnings found on the way.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// What was found, in the order of files and lines.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong in a file.
///
/// `{}` prints `FILE:LINE:COLUMN: error: KEY: MESSAGE` and a line of help; `{:#}` adds the line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the description can be used nevertheless.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 if the whole file is meant.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The key, with the names of the tables around it.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
    /// The text of the line.
    pub text: String,
    /// How many characters are meant.
    pub width: usize,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The description cannot be used.
    Error,
    /// It is possible, but looks wrong.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}: ", self.severity)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if f.alternate() && self.line > 0 {
            let number = self.line.to_string();
            let marks = "^".repeat(self.width.max(1));
            let indent = " ".repeat(self.column.saturating_sub(1));
            write!(f, "\n {number} | {}\n {:w$} | {indent}{marks}", self.text, "", w = number.len())?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fmt::Display::fmt(problem, f)?;
        }
        Ok(())
    }
}

/// Something that a machine file asks of the host beyond reading what lies beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The line, from 1.
    pub line: usize,
    /// The key, with the names of the tables around it.
    pub key: String,
    /// What it asks for, as "runs a program".
    pub what: String,
}

/// A file's text.
#[derive(Debug)]
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

/// Some characters of a file.
#[derive(Clone, Debug)]
pub struct Place {
    pub source: Rc<Source>,
    pub span: Range<usize>,
}

impl Place {
    /// The directory from which relative paths count here.
    pub fn directory(&self) -> &Path {
        self.source.path.parent().unwrap_or_else(|| Path::new(""))
    }

    fn problem(&self, severity: Severity, key: String, message: String, help: Option<String>) -> Problem {
        let text = &self.source.text;
        let start = self.span.start.min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let meant = text.get(start..self.span.end.min(line_start + line.len()).max(start)).unwrap_or_default();
        Problem {
            severity,
            file: self.source.path.clone(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            key,
            message,
            help,
            text: line.to_owned(),
            width: meant.chars().count(),
        }
    }
}

/// Collects problems, so that a user sees all at once.
#[derive(Debug, Default)]
pub struct Report {
    problems: RefCell<Vec<Problem>>,
    grants: RefCell<Vec<Grant>>,
    /// Errors so far, those told twice counted twice.
    errors: Cell<usize>,
    /// The folder whose files a description may use; `None` if that does not matter.
    home: Option<PathBuf>,
    /// Whether what would be a grant is an error.
    is_restricted: bool,
}

impl Report {
    /// For a machine file: what it asks for beyond files of its own folder is a grant, or an error.
    pub fn of_machine(file: &Path, is_restricted: bool) -> Self {
        let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or_else(|| Path::new("."));
        let home = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self { home: Some(home), is_restricted, ..Self::default() }
    }

    /// The folder whose files may be used, where that matters.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Notes what the file asks of the host.
    pub fn grant(&self, place: &Place, key: impl Into<String>, what: impl Into<String>) {
        let (key, what) = (key.into(), what.into());
        if self.is_restricted {
            let help = Some("a machine file that is not trusted may not: this is what --restricted refuses".to_owned());
            self.error(place, key, what, help);
            return;
        }
        let before = place.source.text.get(..place.span.start).unwrap_or_default();
        let grant = Grant { line: before.matches('\n').count() + 1, key, what };
        let mut grants = self.grants.borrow_mut();
        if !grants.contains(&grant) {
            grants.push(grant);
        }
    }

    /// What was noted so far, in the order of lines.
    pub fn grants(&self) -> Vec<Grant> {
        let mut grants = self.grants.borrow().clone();
        grants.sort_by_key(|grant| grant.line);
        grants
    }

    pub fn error(&self, place: &Place, key: impl Into<String>, message: impl Into<String>, help: Option<String>) {
        self.push(place.problem(Severity::Error, key.into(), message.into(), help));
    }

    pub fn warning(&self, place: &Place, key: impl Into<String>, message: impl Into<String>, help: Option<String>) {
        self.push(place.problem(Severity::Warning, key.into(), message.into(), help));
    }

    /// A problem with a whole file.
    pub fn file_error(&self, file: &Path, message: impl Into<String>, help: Option<String>) {
        self.push(Problem {
            severity: Severity::Error,
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: String::new(),
            message: message.into(),
            help,
            text: String::new(),
            width: 0,
        });
    }

    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// How often something was wrong until now.
    pub const fn errors(&self) -> usize {
        self.errors.get()
    }

    /// The warnings, or all problems as an error.
    pub fn finish(self) -> Result<Vec<Problem>, ConfigError> {
        let is_bad = self.has_errors();
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        if is_bad { Err(ConfigError { problems }) } else { Ok(problems) }
    }

    /// Defaults are read once per VM that inherits them; their problems are told once.
    fn push(&self, problem: Problem) {
        if problem.severity == Severity::Error {
            self.errors.set(self.errors.get() + 1);
        }
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}
