//! Writing cpio archives in the "newc" format, which Linux takes as an initial file system and the monitor as its boot
//! bundle. Owners are root and times zero, so equal contents give equal archives.

use std::path::Path;

use anyhow::{Context, Result};

/// File type bits of a mode.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// An archive with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder; its parents must have been added before.
    pub fn directory(&mut self, name: &str) -> &mut Self {
        self.entry(name, DIRECTORY | 0o755, (0, 0), &[])
    }

    /// Adds a regular file with the given permissions.
    pub fn file(&mut self, name: &str, permissions: u32, content: &[u8]) -> &mut Self {
        self.entry(name, REGULAR | permissions, (0, 0), content)
    }

    /// Adds a regular file whose content is that of a file on this machine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn file_from(&mut self, name: &str, permissions: u32, path: &Path) -> Result<&mut Self> {
        let content = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(self.file(name, permissions, &content))
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, name: &str, target: &str) -> &mut Self {
        self.entry(name, SYMLINK | 0o777, (0, 0), target.as_bytes())
    }

    /// Adds a character device.
    pub fn character_device(&mut self, name: &str, major: u32, minor: u32) -> &mut Self {
        self.entry(name, CHARACTER_DEVICE | 0o600, (major, minor), &[])
    }

    /// Closes the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entries = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> &mut Self {
        // Inode numbers only need to differ, so that no two files are taken for hard links of each other.
        self.entries += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        let size = u32::try_from(content.len()).expect("newc files are smaller than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_newc() {
        let mut archive = Archive::new();
        archive.directory("d").file("d/f", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("07070100000001000041ED"), "{text}");
        assert_eq!(text.matches("070701").count(), 3);
        assert!(text.contains("d/f\0") && text.contains("hello\0\0\0"), "{text}");
        assert!(text.trim_end_matches('\0').ends_with("TRAILER!!!"));
    }

    #[test]
    fn devices_and_links_keep_their_type() {
        let mut archive = Archive::new();
        archive.character_device("console", 5, 1).symlink("sh", "busybox");
        let text = String::from_utf8(archive.finish()).unwrap();
        assert!(text.contains("00002180") && text.contains("0000A1FF"), "{text}");
        assert!(text.contains("busybox"));
    }
}
