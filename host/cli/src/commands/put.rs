//! `put`: upload a module.

use std::fs::File;
use std::io::{IsTerminal, Read, stderr};

use control::{ControlError, Label};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use machine::Client;

use super::Context;
use crate::args::Put;
use crate::failure::Failure;
use crate::output::units;

pub fn run(context: &Context, args: &Put) -> Result<(), Failure> {
    let failed = |source| Failure::File { path: args.file.clone(), source };
    let file = File::open(&args.file).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Err(Failure::Other(format!("{}: not a file with content", args.file.display())));
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(args)?,
    };
    let client = context.connect()?;
    let is_there = client.machine_info()?.modules.iter().any(|module| module.name == name);
    if is_there && !args.replace {
        return Err(machine::ClientError::Refused(ControlError::ModuleExists { name }).into());
    }
    if is_there {
        client.drop_module(&name)?;
    }
    upload(&client, &name, metadata.len(), file)?;
    context.output.line(format!("module {name} stored, {}", units::bytes(metadata.len())))
}

fn name_of(args: &Put) -> Result<Label, Failure> {
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    Label::new(name.clone().into_owned())
        .map_err(|error| Failure::Usage(format!("{name:?} cannot name a module: {error}; give it another with --name")))
}

/// Uploads a module, with a progress bar on a terminal.
pub fn upload(client: &Client, name: &Label, bytes: u64, content: impl Read) -> Result<(), Failure> {
    let target = if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(bytes), target);
    let template = "{msg} {bar:30} {binary_bytes:>10} of {binary_total_bytes} {binary_bytes_per_sec}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(format!("uploading {name}"));
    let result = client.put_module(name, bytes, content, |sent| bar.set_position(sent));
    bar.finish_and_clear();
    Ok(result?)
}
