//! Running other programs: their output is kept and shown only when they fail.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs `command` to its end with no standard input and returns what it printed.
///
/// # Errors
/// The program is missing or exits with a failure; the error carries the tail of its output.
pub fn output_of(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}):\n{}\n{}", output.status, tail(&text, 20), tail(&errors, 30));
    }
    Ok(text)
}

/// Runs `command` to its end with no standard input and hands on each line of its output as it comes.
///
/// # Errors
/// The program is missing or exits with a failure; the error carries the tail of its error output.
pub fn watch_lines(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<()> {
    let shown = shown(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Read by a thread of its own: a full pipe would stop the program, and with it the lines.
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.map(|mut stderr| stderr.read_to_end(&mut text)).transpose().map(|_| text)
    });
    for line in BufReader::new(stdout.context("the standard output was piped")?).lines() {
        on_line(&line?);
    }
    let status = child.wait()?;
    if !status.success() {
        let errors = errors.join().ok().and_then(Result::ok).unwrap_or_default();
        bail!("`{shown}` failed ({status}):\n{}", tail(&String::from_utf8_lossy(&errors), 30));
    }
    Ok(())
}

/// Runs `command` with its output shown to the user as it comes.
///
/// # Errors
/// The program is missing or exits with a failure.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Looks for `program` on the PATH, and in the folders of system tools that a user's PATH may lack.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|file| is_executable(file))
}

/// A command for `program`, found by [`find_program`].
///
/// # Errors
/// The program is not installed.
pub fn tool(program: &str) -> Result<Command> {
    let file = find_program(program).with_context(|| format!("`{program}` is not installed: run `./x setup`"))?;
    Ok(Command::new(file))
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_reported_with_its_last_words() {
        let error = output_of(Command::new("sh").args(["-c", "echo woe >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("woe"), "{error}");
    }

    #[test]
    fn lines_are_handed_on_and_failures_reported() {
        let mut lines = Vec::new();
        watch_lines(Command::new("sh").args(["-c", "echo a; echo b"]), |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["a", "b"]);
        let error = watch_lines(Command::new("sh").args(["-c", "echo woe >&2; exit 3"]), |_| ()).unwrap_err();
        assert!(error.to_string().contains("woe"), "{error}");
    }

    #[test]
    fn missing_programs_are_named() {
        let error = tool("no-such-program-here").unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }
}
