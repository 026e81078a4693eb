//! Which monitor this is: its version, and the commit of the tree that it was built from.
//!
//! The commit is written into the flat image after the link (`xtask/src/stamp.rs`), so that a new commit alone does not
//! make the compiler work again.

use alloc::{format, string::String};
use core::fmt;

/// By this text the place of the commit is found in the image; `xtask` has the same.
const MARK: &[u8; 16] = b"\x7fmirrorball-at\x7f:";
/// Room for a commit, zeroes after it.
const ROOM: usize = 48;

static STAMP: [u8; MARK.len() + ROOM] = {
    let mut stamp = [0; MARK.len() + ROOM];
    let mut index = 0;
    while index < MARK.len() {
        stamp[index] = MARK[index];
        index += 1;
    }
    stamp
};

/// `0.1.0 (0123456789ab)`, or the version alone if nobody has told the commit.
pub fn text() -> String {
    format!("{Version}")
}

/// The same, for whoever may take no memory.
#[derive(Clone, Copy, Debug)]
pub struct Version;

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(env!("CARGO_PKG_VERSION"))?;
        match commit() {
            "" => Ok(()),
            commit => write!(f, " ({commit})"),
        }
    }
}

fn commit() -> &'static str {
    // The compiler must not answer from what it knows of the bytes: they change after it has run.
    let stamp: &'static [u8] = core::hint::black_box(&STAMP);
    let room = stamp.get(MARK.len()..).unwrap_or_default();
    let commit = room.split(|byte| *byte == 0).next().and_then(|text| core::str::from_utf8(text).ok());
    commit.unwrap_or_default()
}
