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
        let reasons = refuse(room, &text).into_iter().chain(refuse_supers(depth_of(inside), &text));
        broken.extend(reasons.map(|reason| format!("{}: {reason}", file.display())));
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

/// Modules above a file, the crate among them: 1 for the root of a room.
fn depth_of(inside: &Path) -> usize {
    let is_root = inside.file_stem().is_some_and(|stem| stem == "mod");
    inside.iter().count() - usize::from(is_root)
}

/// Paths that climb to the crate by `super`, and so to any room without naming it as others do.
fn refuse_supers(depth: usize, text: &str) -> Vec<String> {
    let code = code_of(text);
    let climbs = |(at, _): &(usize, &str)| {
        let is_start = !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        is_start && supers(&code[*at..]) >= depth + open_modules(&code[..*at])
    };
    let found = code.match_indices("super::").filter(climbs).map(|(at, _)| 1 + code[..at].matches('\n').count());
    found.map(|line| format!("line {line}: a path reaches the crate by `super`: name it from `crate::`")).collect()
}

/// How many modules up a path goes at least; inside a group, its members too.
fn supers(path: &str) -> usize {
    match path.strip_prefix("super::") {
        Some(rest) => 1 + supers(rest),
        None => path.strip_prefix('{').map_or(0, |group| {
            let up = |name: &String| usize::from(name == "super");
            first_names(group).iter().map(up).max().unwrap_or(0)
        }),
    }
}

/// Modules with a body that are open at the end of `code`; braces in texts come in pairs.
fn open_modules(code: &str) -> usize {
    let mut open = Vec::new();
    for (at, c) in code.char_indices() {
        match c {
            '{' => open.push(is_module(&code[..at])),
            '}' => drop(open.pop()),
            _ => {}
        }
    }
    open.into_iter().filter(|is_module| *is_module).count()
}

/// Whether a brace behind `code` begins a module.
fn is_module(code: &str) -> bool {
    let mut words = code.trim_end().rsplit(char::is_whitespace);
    words.next().is_some_and(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        && words.next() == Some("mod")
}

/// Without comments; as many lines.
fn code_of(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The first name of each path that begins at the crate; comments do not count.
fn used_rooms(text: &str) -> Vec<String> {
    let code = code_of(text);
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
    fn climbing_to_the_crate_is_refused() {
        let depth = |file: &str| depth_of(Path::new(file));
        assert_eq!([depth("vm.rs"), depth("vm/mod.rs"), depth("vm/file.rs"), depth("vm/a/mod.rs")], [1, 1, 2, 2]);
        // In the root of a room, `super` is the crate; a level below it is the room.
        assert_eq!(refuse_supers(1, "use super::services;").len(), 1);
        assert!(refuse_supers(2, "use super::services;\nuse super::{a, b::c};").is_empty());
        assert_eq!(
            refuse_supers(2, "fn f() {}\nuse super::super::services::x;"),
            ["line 2: a path reaches the crate by `super`: name it from `crate::`"]
        );
        assert_eq!(refuse_supers(2, "use super::{a, super::services};").len(), 1);
        assert!(refuse_supers(3, "use super::super::find;").is_empty());
        // A module in the file is one more; comments and other names do not count.
        let tests = "fn f() { g() }\n#[cfg(test)]\nmod tests {\n    use super::*; // super::super\n";
        assert!(refuse_supers(1, tests).is_empty());
        assert_eq!(refuse_supers(1, &format!("{tests}    use super::super::vm;\n}}")).len(), 1);
        assert_eq!(refuse_supers(1, &format!("{tests}}}\nuse super::vm;")).len(), 1);
        assert!(refuse_supers(1, "use mysuper::vm; pub(super) fn f() {}").is_empty());
    }

    #[test]
    fn unknown_rooms_are_refused() {
        assert_eq!(refuse("attic", "").len(), 1);
    }
}
