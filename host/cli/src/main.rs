//! The command `mirrorball`: runs emulated machines under the monitor, watches them, and manages their VMs.
//!
//! # Layers
//! - [`args`]: the command line, with its help.
//! - [`commands`]: one module per command; each turns arguments into calls of [`machine::Client`] and output.
//! - [`model`]: what is shown. The same types are the JSON, the rows of tables and the source of the live view.
//! - [`output`]: standard output, tables, colour, numbers for people. [`failure`]: one line and an exit status.
//! - [`console`]: a VM's console on a terminal or through pipes. [`tui`]: the live view. [`demo`]: one command in all
//!   VMs, with progress and a final table. [`launched`]: VMs made of cloud images.
//!
//! # What it refuses
//! Names and times that are none, before anything is done; machines of other users; to print control characters that
//! come from a guest anywhere but on its console.
//!
//! # Processes
//! `run` and `demo` start a second `mirrorball` (`supervise`, hidden) that leaves the terminal's session, owns the
//! emulator and serves clients. It powers the machine off when the first one goes without having released it
//! ([`commands::Running`]), so an interrupted `run` leaves nothing behind.
//!
//! No `unsafe`, no locks but the live view's pace. Tested by unit tests over a fixed machine (tables, JSON, pictures of
//! any size), by the binary against a fake monitor (`tests/`), and on the real one by the system tests.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod console;
mod demo;
mod failure;
mod launched;
mod model;
mod output;
mod tui;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;

use args::{Arguments, ColorChoice};
use failure::{EXEC_FAILED, Failure};
use output::Tone;

fn main() -> ExitCode {
    // Ends the program if a shell asks for completions.
    CompleteEnv::with_factory(Arguments::command).bin("mirrorball").complete();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let color = arguments.global.color;
    match commands::run(arguments) {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure, color);
            ExitCode::from(failure.status())
        }
    }
}

/// Says what is wrong with the command line, or helps. A wrong `exec` has a status that its command has not.
fn refuse(error: &clap::Error) -> ExitCode {
    // There is nowhere left to report that this failed.
    let _ = error.print();
    let is_exec = std::env::args().skip(1).take_while(|word| word != "--").any(|word| word == "exec");
    let status = if is_exec && error.exit_code() != 0 { EXEC_FAILED } else { error.exit_code() as u8 };
    ExitCode::from(status)
}

/// Says what is wrong. A description's problems are lines of their own, as compilers print them.
fn report(failure: &Failure, color: ColorChoice) {
    let mut stderr = std::io::stderr().lock();
    let has_color = color.applies_to(&stderr);
    let text = match failure {
        Failure::Config(error) => commands::problems_text(&error.problems, has_color),
        other => format!("{} {other}", Tone::Bad.paint("mirrorball:", has_color)),
    };
    // There is nowhere left to report that this failed.
    let _ = writeln!(stderr, "{text}");
}
