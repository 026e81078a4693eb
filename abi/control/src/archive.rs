//! The form of the boot bundle: a cpio archive ("newc").
//!
//! A file is a header of 110 bytes (the magic and 13 numbers of eight hex digits), its name with a zero behind it, and its content; the
//! name and the content are each filled up to a multiple of four bytes.

const HEADER: usize = 110;
const MAGIC: &[u8] = b"070701";
/// The number that is the content's length, and that of the name's.
const CONTENT: usize = 6;
const NAME: usize = 11;

/// The name of the last file of an archive, which is none.
pub const TRAILER: &[u8] = b"TRAILER!!!";

/// A file of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveFile<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its content.
    pub content: &'a [u8],
    /// All of it as it stands there, the filling behind it included.
    pub whole: &'a [u8],
    /// What follows.
    pub rest: &'a [u8],
}

impl<'a> ArchiveFile<'a> {
    /// The file at the beginning of `archive`; `None` if there is no whole one.
    #[must_use]
    pub fn first(archive: &'a [u8]) -> Option<Self> {
        let header = archive.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
        let (content_len, name_len) = (number(header, CONTENT)?, number(header, NAME)?);
        let name = archive.get(HEADER..HEADER.checked_add(name_len)?)?.strip_suffix(b"\0")?;
        let begin = HEADER.checked_add(name_len)?.checked_next_multiple_of(4)?;
        let end = begin.checked_add(content_len)?;
        let content = archive.get(begin..end)?;
        let (whole, rest) = archive.split_at(end.checked_next_multiple_of(4)?.min(archive.len()));
        Some(Self { name, content, whole, rest })
    }
}

/// Number `index` of a header. Eight digits: a sign, which `from_str_radix` takes as well, is none.
fn number(header: &[u8], index: usize) -> Option<usize> {
    let start = MAGIC.len() + 8 * index;
    let digits = header.get(start..start + 8).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    fn file(name: &str, content: &[u8]) -> Vec<u8> {
        let number = |index| match index {
            CONTENT => content.len(),
            NAME => name.len() + 1,
            _ => 0,
        };
        let numbers: String = (0..13).map(|index| format!("{:08X}", number(index))).collect();
        let mut bytes = format!("070701{numbers}{name}\0").into_bytes();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn files_stand_one_behind_the_other() {
        let (one, two) = (file("one", b"content"), file("two", b""));
        let archive = [one.clone(), two.clone()].concat();
        let first = ArchiveFile::first(&archive).expect("it is whole");
        assert_eq!(
            (first.name, first.content, first.whole, first.rest),
            (&b"one"[..], &b"content"[..], &one[..], &two[..])
        );
        let second = ArchiveFile::first(first.rest).expect("it is whole");
        assert_eq!((second.name, second.content, second.rest), (&b"two"[..], &b""[..], &b""[..]));
        assert_eq!(ArchiveFile::first(second.rest), None);
    }

    #[test]
    fn what_is_cut_or_wrong_is_none() {
        let good = file("one", b"content");
        // The filling behind the content may be missing.
        for length in 0..good.len() - 1 {
            assert_eq!(ArchiveFile::first(&good[..length]), None, "{length} bytes");
        }
        for (index, digits) in
            [(CONTENT, b"FFFFFFFF"), (NAME, b"FFFFFFFF"), (NAME, b"00000000"), (CONTENT, b"+0000007")]
        {
            let mut bad = good.clone();
            bad[6 + 8 * index..14 + 8 * index].copy_from_slice(digits);
            assert_eq!(ArchiveFile::first(&bad), None, "{index}");
        }
    }
}
