//! `./x fuzz`: coverage-guided rounds of the targets in `fuzz/`.
//!
//! The compiler's coverage pass is LLVM's, and stable Rust lets one name it; libFuzzer comes as a crate. So nothing has to be
//! installed but a C++ compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use image::command::{output_of, run_shown};

use crate::tree::Tree;

/// What the instrumented targets are compiled with: edges counted in 8 bits each, compared values told to libFuzzer, arithmetic and
/// assertions checked as in a debug build.
const FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
    "-Awarnings",
];
/// Where the record is, and the marks around it.
const PAGE: &str = "docs/fuzzing.md";
const BEGIN: &str = "<!-- begin: fuzz -->\n";
const END: &str = "<!-- end: fuzz -->\n";
/// The longest input is between these, in bytes, unless the corpus has longer ones.
const LEAST_BYTES: u32 = 256;
const MOST_BYTES: u32 = 4096;
/// Longest run of one input, in seconds, and most memory, in MiB: more is a finding.
const MOST_SECONDS: u32 = 5;
const MOST_MIB: u32 = 1024;

/// What a round is to be like.
pub struct Round {
    /// The target; all in turn, if none is named.
    pub target: Option<String>,
    /// An input to run once, in the place of a round.
    pub input: Option<PathBuf>,
    /// How long, of each target.
    pub time: Option<Duration>,
    /// How many executions of each target at most.
    pub runs: Option<u64>,
    /// Whether the outcome is written into the tree.
    pub record: bool,
}

/// What came of one target's round.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    executions: u64,
    edges: u64,
    inputs: u64,
    seconds: u64,
    /// Inputs that break it, in its folder.
    findings: usize,
}

/// Runs it.
///
/// # Errors
/// A target does not build, or has found something.
pub fn run(tree: &Tree, round: &Round) -> Result<()> {
    let all = targets(tree)?;
    let chosen: Vec<&String> = match &round.target {
        Some(name) => vec![
            all.iter()
                .find(|target| *target == name)
                .with_context(|| format!("there is no target {name:?}; there are {}", all.join(", ")))?,
        ],
        None => all.iter().collect(),
    };
    let mut found = Vec::new();
    for name in chosen {
        let program = build(tree, name)?;
        if let Some(input) = &round.input {
            return run_shown(Command::new(&program).arg(input));
        }
        let outcome = one(tree, name, &program, round)?;
        println!(
            "{name:<13} {:>12} executions in {} s, {} edges, {} inputs, {} findings",
            outcome.executions, outcome.seconds, outcome.edges, outcome.inputs, outcome.findings
        );
        if round.record {
            record(tree, name, &outcome)?;
        }
        if outcome.findings > 0 {
            found.push(format!("{name}: {}", folder(tree, name)?.display()));
        }
    }
    ensure!(found.is_empty(), "inputs that break a target are in\n  {}", found.join("\n  "));
    Ok(())
}

/// The targets: each has a folder with its corpus.
fn targets(tree: &Tree) -> Result<Vec<String>> {
    let folder = corpora(tree);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

fn corpora(tree: &Tree) -> PathBuf {
    tree.root().join("fuzz/corpus")
}

/// Where a round keeps what it finds, and the inputs that reach something new.
fn folder(tree: &Tree, name: &str) -> Result<PathBuf> {
    Ok(tree.target_dir()?.join("fuzz").join(name))
}

/// The target's program. Each has its own name, so that one can be built while another runs.
fn build(tree: &Tree, name: &str) -> Result<PathBuf> {
    let host = host_triple(tree)?;
    let built = tree.target_dir()?.join("fuzz-build");
    let mut cargo = tree.cargo();
    // With a target named, the flags are not those of build scripts and macros.
    cargo.args(["build", "-q", "--release", "-p", "fuzz", "--bin", "fuzz-target", "--features", "libfuzzer"]);
    cargo.args(["--target", &host, "--target-dir"]).arg(&built);
    cargo.env("RUSTFLAGS", FLAGS.join(" ")).env("MIRRORBALL_FUZZ_TARGET", name);
    run_shown(&mut cargo)?;
    let program = built.join(format!("fuzz-{name}"));
    fs::copy(built.join(host).join("release/fuzz-target"), &program).context("the target's program is not there")?;
    Ok(program)
}

fn host_triple(tree: &Tree) -> Result<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = output_of(rustc.current_dir(tree.root()).arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say what machine this is")?.to_owned())
}

fn one(tree: &Tree, name: &str, program: &Path, round: &Round) -> Result<Outcome> {
    let folder = folder(tree, name)?;
    let grown = folder.join("corpus");
    fs::create_dir_all(&grown).with_context(|| format!("cannot make {}", grown.display()))?;
    let seeds = corpora(tree).join(name);
    // Long inputs take long and seldom say more: twice what the tree has of them is enough.
    let most = (2 * longest(&seeds)?).clamp(LEAST_BYTES, MOST_BYTES.max(longest(&seeds)?));
    let mut fuzzer = Command::new(program);
    fuzzer.arg(&grown).arg(&seeds);
    fuzzer.arg(format!("-artifact_prefix={}/", folder.display()));
    fuzzer.arg(format!("-max_len={most}")).arg(format!("-timeout={MOST_SECONDS}"));
    fuzzer.arg(format!("-rss_limit_mb={MOST_MIB}")).args(["-print_final_stats=1", "-use_value_profile=0"]);
    if let Some(time) = round.time {
        fuzzer.arg(format!("-max_total_time={}", time.as_secs().max(1)));
    }
    if let Some(runs) = round.runs {
        fuzzer.arg(format!("-runs={runs}"));
    }
    let log = folder.join("log");
    let errors = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let start = Instant::now();
    let status = fuzzer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let findings = findings(&folder)?;
    if !status.success() && findings == 0 {
        bail!("{name} ended with {status}; it said in {}:\n{}", log.display(), last_lines(&text));
    }
    let mut outcome = outcome_of(&text).with_context(|| format!("no figures in {}", log.display()))?;
    outcome.seconds = start.elapsed().as_secs();
    outcome.findings = findings;
    Ok(outcome)
}

fn longest(folder: &Path) -> Result<u32> {
    let mut most = 0;
    for entry in fs::read_dir(folder)? {
        most = most.max(entry?.metadata()?.len());
    }
    Ok(u32::try_from(most)?)
}

/// How many inputs libFuzzer has kept because they break the target.
fn findings(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        count += usize::from(["crash-", "timeout-", "oom-", "leak-"].iter().any(|kind| name.starts_with(kind)));
    }
    Ok(count)
}

/// What libFuzzer said at its end: `stat::NAME: N`, and before that lines as `#123 NEW cov: 45 ft: 67 corp: 8/90b`.
fn outcome_of(text: &str) -> Option<Outcome> {
    let executions = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?.trim();
    let last = |key: &str| {
        let number = |line: &str| {
            let rest = line.split_once(key)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        text.lines().filter(|line| line.starts_with('#')).filter_map(number).next_back()
    };
    Some(Outcome {
        executions: executions.parse().ok()?,
        edges: last(" cov: ")?,
        inputs: last(" corp: ")?,
        seconds: 0,
        findings: 0,
    })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Puts a target's row into the record.
fn record(tree: &Tree, name: &str, outcome: &Outcome) -> Result<()> {
    let path = tree.root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let date = output_of(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let mut git = Command::new("git");
    let commit = output_of(git.current_dir(tree.root()).args(["rev-parse", "--short=12", "HEAD"]))?;
    let page = with_row(&page, name, outcome, commit.trim(), date.trim()).context("the record has lost its marks")?;
    fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))
}

fn with_row(page: &str, name: &str, outcome: &Outcome, commit: &str, date: &str) -> Option<String> {
    const HEAD: &str = "| target | executions | time | edges | inputs | open findings | commit | date |\n\
                        | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    let (before, rest) = page.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    let Outcome { executions, edges, inputs, seconds, findings } = outcome;
    let row = format!(
        "| `{name}` | {} | {seconds} s | {edges} | {inputs} | {findings} | {commit} | {date} |",
        grouped(*executions)
    );
    let mut rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    rows.retain(|line| !line.starts_with(&format!("| `{name}` |")));
    rows.push(&row);
    rows.sort_unstable();
    Some(format!("{before}{BEGIN}{HEAD}{}\n{END}{after}", rows.join("\n")))
}

/// With a comma between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time as `30s`, `5m` or `2h`.
///
/// # Errors
/// What is wrong with it.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{unit:?} is no unit; s, m and h are")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no time; for example 30s, 5m or 1h"))?;
    Ok(Duration::from_secs(number.saturating_mul(factor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "INFO: seed corpus: files: 3\n#4\tINITED cov: 120 ft: 121 corp: 3/90b\n\
                        #2048\tpulse  cov: 150 ft: 200 corp: 12/3kb lim: 99\nDone 5000 runs in 1 second(s)\n\
                        stat::number_of_executed_units: 5000\nstat::peak_rss_mb: 40\n";

    fn outcome() -> Outcome {
        Outcome { executions: 5000, edges: 150, inputs: 12, seconds: 0, findings: 0 }
    }

    #[test]
    fn figures_are_what_the_fuzzer_said_last() {
        assert_eq!(outcome_of(SAID), Some(outcome()));
        assert_eq!(outcome_of("nothing"), None);
    }

    #[test]
    fn the_record_has_one_row_for_each_target() {
        let page = format!("head\n{BEGIN}{END}tail\n");
        let once = with_row(&page, "b", &outcome(), "c0", "2026-01-01").expect("it has marks");
        let both = with_row(&once, "a", &outcome(), "c1", "2026-01-02").expect("it has marks");
        let more = Outcome { executions: 12_345_678, ..outcome() };
        let again = with_row(&both, "b", &more, "c2", "2026-01-03").expect("it has marks");
        let rows: Vec<&str> = again.lines().filter(|line| line.starts_with("| `")).collect();
        let second = "| `b` | 12,345,678 | 0 s | 150 | 12 | 0 | c2 | 2026-01-03 |";
        assert_eq!(rows, ["| `a` | 5,000 | 0 s | 150 | 12 | 0 | c1 | 2026-01-02 |", second]);
        assert!(again.starts_with("head\n") && again.ends_with("tail\n"));
        assert_eq!(with_row("no marks", "a", &outcome(), "c", "d"), None);
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_time("1h"), Ok(Duration::from_secs(3600)));
        assert!(parse_time("5d").is_err() && parse_time("m").is_err() && parse_time("-1s").is_err());
    }
}
