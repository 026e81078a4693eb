//! The commit of the tree, written into the flat monitor image: after the link, so that a commit alone does not make the
//! compiler work again.

use anyhow::{Context, Result, ensure};
use image::command::output_of;

use crate::tree::Tree;

/// By this text the place is found; `monitor/src/version.rs` has the same.
const MARK: &[u8; 16] = b"\x7fmirrorball-at\x7f:";
/// Room after it.
const ROOM: usize = 48;
/// Digits of a commit: more than any tree of this size needs to tell its commits apart.
const DIGITS: &str = "--short=12";

/// The commit that the tree is at, with `-dirty` if something in it differs; nothing where there is no git or no commit.
pub fn commit(tree: &Tree) -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        output_of(git.current_dir(tree.root()).args(arguments)).ok()
    };
    let commit = git(&["rev-parse", DIGITS, "HEAD"])?;
    // New files count: the compiler may read them.
    let is_dirty = git(&["status", "--porcelain"]).is_none_or(|changes| !changes.trim().is_empty());
    Some(format!("{}{}", commit.trim(), if is_dirty { "-dirty" } else { "" }))
}

/// Writes it to its place in the image.
///
/// # Errors
/// The image has no such place, or more than one.
pub fn write(image: &mut [u8], commit: &str) -> Result<()> {
    let mut places = image.windows(MARK.len()).enumerate().filter(|(_, bytes)| bytes == MARK).map(|(at, _)| at);
    let place = places.next().context("the monitor's image has no place for its commit")?;
    ensure!(places.next().is_none(), "the monitor's image has two places for its commit");
    let start = place + MARK.len();
    let room = image.get_mut(start..start + ROOM).context("the monitor's image ends within its commit")?;
    // One zero stays behind it.
    ensure!(commit.len() < ROOM, "the commit's name {commit:?} is too long");
    room.fill(0);
    room[..commit.len()].copy_from_slice(commit.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_goes_to_its_place() {
        let mut image = [b"code".as_slice(), MARK, &[b'x'; ROOM], b"more"].concat();
        write(&mut image, "0123456789ab-dirty").expect("there is a place");
        let room = &image[4 + MARK.len()..][..ROOM];
        assert!(room.starts_with(b"0123456789ab-dirty\0") && room.ends_with(&[0]));
        assert!(image.ends_with(b"more"));
    }

    #[test]
    fn images_without_one_place_are_refused() {
        assert!(write(&mut [0; 100], "a").is_err());
        assert!(write(&mut MARK.to_vec(), "a").is_err());
        assert!(write(&mut [MARK.as_slice(), &[0; ROOM]].concat().repeat(2), "a").is_err());
        assert!(write(&mut [MARK.as_slice(), &[0; ROOM]].concat(), &"a".repeat(ROOM)).is_err());
    }
}
