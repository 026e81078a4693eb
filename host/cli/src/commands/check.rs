//! `check`: tells whether a description is right, and what is wrong with it.

use std::process::ExitCode;

use config::{Backing, Grant, Loader, MachineInterrupts, MachinePlan, Problem, Severity};
use serde::Serialize;

use super::Context;
use crate::args::Check;
use crate::failure::Failure;
use crate::output::{Table, Tone, units};

/// `check --json`.
#[derive(Debug, Serialize)]
struct CheckView {
    /// Whether the description can be used.
    ok: bool,
    /// The machine's name, if it can.
    machine: Option<String>,
    /// What was found.
    problems: Vec<ProblemView>,
    /// What it asks of this host beyond reading its own folder and the cache.
    grants: Vec<GrantView>,
}

#[derive(Debug, Serialize)]
struct GrantView {
    /// From 1.
    line: usize,
    key: String,
    what: String,
}

#[derive(Debug, Serialize)]
struct ProblemView {
    /// `error` or `warning`.
    severity: String,
    file: String,
    /// From 1; 0 if the whole file is meant.
    line: usize,
    column: usize,
    key: String,
    message: String,
    help: Option<String>,
}

pub fn run(context: &Context, args: &Check) -> Result<ExitCode, Failure> {
    let loader = Loader { check_files: !args.no_files, is_restricted: args.restricted, ..Loader::from_env() };
    match (loader.load(&args.file), args.json.json) {
        (Ok(plan), true) => json(context, Some(plan.name.to_string()), &plan.warnings, &plan.grants),
        (Err(error), true) => json(context, None, &error.problems, &[]),
        (Err(error), false) => Err(error.into()),
        (Ok(plan), false) => {
            warn(context, &plan.warnings);
            describe(context, &plan)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints warnings on standard error.
pub fn warn(context: &Context, warnings: &[Problem]) {
    if !warnings.is_empty() {
        context.say(&problems_text(warnings, context.global.color.applies_to(&std::io::stderr())));
    }
}

/// Problems as a compiler prints them, and how many there are.
pub fn problems_text(problems: &[Problem], has_color: bool) -> String {
    let tone = |severity| if severity == Severity::Error { Tone::Bad } else { Tone::Notice };
    let paint = |problem: &Problem| {
        let word = format!(" {}:", problem.severity);
        let painted = format!(" {}", tone(problem.severity).paint(word.trim_start(), has_color));
        format!("{problem:#}").replacen(&word, &painted, 1)
    };
    let mut lines: Vec<String> = problems.iter().map(paint).collect();
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if errors > 0 {
        lines.push(Tone::Bad.paint(&format!("{errors} error{}", if errors == 1 { "" } else { "s" }), has_color));
    }
    lines.join("\n")
}

fn json(
    context: &Context,
    machine: Option<String>,
    problems: &[Problem],
    grants: &[Grant],
) -> Result<ExitCode, Failure> {
    let problems = problems.iter().map(ProblemView::from).collect();
    let view = |grant: &Grant| GrantView { line: grant.line, key: grant.key.clone(), what: grant.what.clone() };
    let grants = grants.iter().map(view).collect();
    let view = CheckView { ok: machine.is_some(), machine, problems, grants };
    context.output.json(&view)?;
    Ok(if view.ok { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        Self {
            severity: problem.severity.to_string(),
            file: problem.file.display().to_string(),
            line: problem.line,
            column: problem.column,
            key: problem.key.clone(),
            message: problem.message.clone(),
            help: problem.help.clone(),
        }
    }
}

/// What the description amounts to.
fn describe(context: &Context, plan: &MachinePlan) -> Result<(), Failure> {
    let hardware = &plan.hardware;
    let interrupts = match hardware.interrupts {
        MachineInterrupts::Plic => "PLIC".to_owned(),
        MachineInterrupts::Aia { guest_files } => format!("AIA with {guest_files} guest files per hart"),
    };
    let uneven = hardware.nodes.windows(2).any(|pair| matches!(pair, [a, b] if a != b));
    let nodes: Vec<String> =
        hardware.nodes.iter().map(|node| format!("{} x {} MiB", node.harts, node.memory_mib)).collect();
    let shape = if uneven { format!(" ({})", nodes.join(", ")) } else { String::new() };
    let memory = units::bytes(hardware.memory_mib() << 20);
    context.output.line(format!(
        "{}: machine {} is good: {}{shape}, {}, {memory}, cpu {}, {interrupts}",
        plan.file.display(),
        plan.name,
        units::things(hardware.nodes.len() as u64, "node"),
        units::things(u64::from(hardware.harts()), "hart"),
        hardware.cpu,
    ))?;
    context.output.table(&disk_table(plan))?;
    context.output.table(&vm_table(plan))?;
    describe_grants(context, &plan.grants)
}

/// What somebody should know who has the file from somebody else.
fn describe_grants(context: &Context, grants: &[Grant]) -> Result<(), Failure> {
    if grants.is_empty() {
        return Ok(());
    }
    context
        .output
        .line("This file asks for more than `run --restricted` allows; run it only if you trust its author:")?;
    for Grant { line, key, what } in grants {
        context.output.line(format!("  line {line}: {key} {what}"))?;
    }
    Ok(())
}

fn disk_table(plan: &MachinePlan) -> Table {
    let mut table = Table::new(&["DISK", "BACKING"]);
    for disk in &plan.hardware.disks {
        let backing = match &disk.backing {
            Backing::File { path, .. } => path.display().to_string(),
            Backing::Scratch { size_mib } => format!("scratch, {}", units::bytes(u64::from(*size_mib) << 20)),
        };
        table.row([disk.name.to_string().into(), backing.into()]);
    }
    table
}

fn vm_table(plan: &MachinePlan) -> Table {
    let mut table = Table::new(&["VM", ">VCPUS", ">MEMORY", "DISKS", "SUBNETS", "START"]);
    for vm in &plan.boot.vms {
        let list = |names: Vec<&str>| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
        table.row([
            vm.name.to_string().into(),
            vm.vcpus.to_string().into(),
            units::bytes(u64::from(vm.memory_mib) << 20).into(),
            list(vm.disks.iter().map(|disk| disk.name.as_str()).collect()).into(),
            list(vm.nets.iter().map(|net| net.subnet.as_str()).collect()).into(),
            if vm.autostart { "with the machine" } else { "by hand" }.into(),
        ]);
    }
    table
}
