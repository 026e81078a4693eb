//! The floors inside the monitor: a room uses rooms below its own. `docs/architecture.md` says what each is for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Where the rooms are.
const MONITOR: &str = "monitor/src";
/// The rooms of the monitor, from the bottom up.
const ROOMS: [&str; 11] =
    ["version", "machine", "hart", "trace", "io", "vm", "vcpu", "services", "control", "run", "boot"];
/// The crate's root: its panic handler may name any room.
const ROOT: &str = "main";

/// Every use of a room above, as a message.
///
/// # Errors
/// A file cannot be read, or there is none: then this check looks in the wrong place.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let mut seen = 0;
    for file in files {
        let Ok(inside) = file.strip_prefix(MONITOR) else { continue };
        let Some(room) = inside.iter().next().and_then(|first| Path::new(first).file_stem()?.to_str()) else {
            continue;
        };
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        seen += 1;
        broken.extend(refuse(room, &text).into_iter().map(|reason| format!("{}: {reason}", file.display())));
    }
    ensure!(seen > 0, "no files in {MONITOR}");
    Ok(broken)
}

fn refuse(room: &str, text: &str) -> Vec<String> {
    if room == ROOT {
        return Vec::new();
    }
    let Some(own) = floor(room) else { return vec![format!("{room} is no room that the check knows")] };
    let mut used = used_rooms(text);
    used.sort();
    used.dedup();
    let climbs = |other: &String| floor(other).is_some_and(|floor| floor > own);
    used.iter()
        .filter(|other| climbs(other))
        .map(|other| format!("{room} must not use {other}, a room above"))
        .collect()
}

fn floor(room: &str) -> Option<usize> {
    ROOMS.iter().position(|known| *known == room)
}

/// The first name of each path that begins at the crate; comments do not count.
fn used_rooms(text: &str) -> Vec<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let mut rooms = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        // `$crate::` and names that end in "crate" are others'.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            Some(group) => rooms.extend(first_names(group)),
            None => rooms.push(name_at(rest)),
        }
    }
    rooms
}

/// The first name of each member of a use group, whose opening brace has been read.
fn first_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut is_start) = (Vec::new(), 1, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => is_start = true,
            _ if is_start && !c.is_whitespace() => {
                names.push(name_at(&group[at..]));
                is_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_groups_are_seen() {
        let text = "use crate::{\n    hart::{self, Hart},\n    vm::Vm, // crate::boot\n};\nfn f() { crate::run::g() }";
        assert_eq!(used_rooms(text), ["hart", "vm", "run"]);
        assert!(used_rooms("$crate::boot::x; mycrate::run::y; //! see [`crate::boot`]").is_empty());
    }

    #[test]
    fn rooms_above_are_refused() {
        assert_eq!(refuse("vm", "use crate::services::registry;").len(), 1);
        assert_eq!(refuse("machine", "use crate::{hart::Hart, machine::irq};").len(), 1);
        assert!(refuse("services", "use crate::{hart::Hart, vm::Vm, services::mail};").is_empty());
        assert!(refuse("main", "crate::boot::boot()").is_empty());
    }

    #[test]
    fn unknown_rooms_are_refused() {
        assert_eq!(refuse("attic", "").len(), 1);
    }
}
