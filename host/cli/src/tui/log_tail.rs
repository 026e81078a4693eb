//! The end of a file that grows.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::output::strip_sequences;

/// Most lines kept.
const MAX_LINES: usize = 2_000;
/// Most bytes read from the end of a file that is there already.
const MAX_FIRST: u64 = 256 * 1024;
/// Longest line kept, in characters.
const MAX_LINE: usize = 1_000;

/// The end of a file that grows, as lines. The file may appear later.
#[derive(Debug)]
pub struct LogTail {
    path: PathBuf,
    file: Option<File>,
    partial: Vec<u8>,
    lines: VecDeque<String>,
}

impl LogTail {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, partial: Vec::new(), lines: VecDeque::new() }
    }

    pub const fn lines(&self) -> &VecDeque<String> {
        &self.lines
    }

    /// Reads what was added; gives the new whole lines. A file that cannot be read has none.
    pub fn poll(&mut self) -> Vec<String> {
        let mut added = Vec::new();
        if self.file.is_none() {
            self.file = open_near_end(&self.path);
        }
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file
            && (file.read_to_end(&mut bytes).is_err() || !is_at(file, &self.path))
        {
            // A machine that is started again begins another.
            self.file = None;
        }
        self.partial.extend_from_slice(&bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            added.push(clean(&line));
        }
        // A file without line ends must not grow without bound here.
        if self.partial.len() > MAX_LINE * 4 {
            let line = std::mem::take(&mut self.partial);
            added.push(clean(&line));
        }
        self.lines.extend(added.iter().cloned());
        let surplus = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..surplus);
        added
    }
}

fn open_near_end(path: &Path) -> Option<File> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_FIRST))).ok()?;
    Some(file)
}

/// Whether the path leads to this file still.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |open: Metadata, now: Metadata| (open.dev(), open.ino()) == (now.dev(), now.ino());
    file.metadata().and_then(|open| Ok(same(open, path.metadata()?))).unwrap_or(true)
}

fn clean(line: &[u8]) -> String {
    strip_sequences(&String::from_utf8_lossy(line)).chars().take(MAX_LINE).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_when_they_are_whole() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("log");
        let mut tail = LogTail::new(&path);
        assert!(tail.poll().is_empty());
        let mut file = File::create(&path).expect("it can be made");
        file.write_all(b"one\r\ntw").expect("it can be written");
        assert_eq!(tail.poll(), ["one"]);
        file.write_all(b"o\nthree\n").expect("it can be written");
        assert_eq!(tail.poll(), ["two", "three"]);
        assert_eq!(tail.lines().len(), 3);
    }

    #[test]
    fn a_log_that_begins_again_is_followed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("log");
        std::fs::write(&path, "one\n").expect("it can be written");
        let mut tail = LogTail::new(&path);
        assert_eq!(tail.poll(), ["one"]);
        let mut old = File::options().append(true).open(&path).expect("it is there");
        std::fs::rename(&path, dir.path().join("old")).expect("it can be renamed");
        old.write_all(b"two\n").expect("it can be written");
        assert_eq!(tail.poll(), ["two"]);
        std::fs::write(&path, "three\n").expect("it can be written");
        assert!(tail.poll().is_empty(), "this look ends the old file");
        assert_eq!(tail.poll(), ["three"]);
    }

    #[test]
    fn memory_is_bounded() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("log");
        std::fs::write(&path, "x\n".repeat(MAX_LINES + 500)).expect("it can be written");
        let mut tail = LogTail::new(&path);
        tail.poll();
        assert_eq!(tail.lines().len(), MAX_LINES);
        std::fs::write(&path, vec![b'y'; 1 << 20]).expect("it can be written");
        assert!(tail.poll().iter().all(|line| line.len() <= MAX_LINE));
    }
}
