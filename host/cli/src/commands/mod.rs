//! One module per command.

mod bench;
mod cells;
mod check;
mod console;
mod crash;
mod dump;
mod events;
mod exec;
mod gdb;
mod image;
mod info;
mod inject;
mod kept;
mod launch;
mod launched;
mod ls;
mod metrics;
mod model;
mod perf;
mod perfetto;
mod put;
mod run;
mod shutdown;
mod sim;
pub mod ssh;
mod stats;
mod supervise;
mod top;
mod trace;
mod version;
mod vm;
mod volumes;

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::env::Shells;
use control::Name;
use machine::Client;

use crate::args::{Arguments, Command, Global};
use crate::failure::Failure;
use crate::launched::{Home, Homes};
use crate::output::Output;

pub use check::problems_text;
pub use inject::fault_of;
pub use launch::Running;

/// What every command gets.
#[derive(Debug)]
pub struct Context {
    pub global: Global,
    pub output: Output,
}

impl Context {
    /// A session with the machine meant.
    pub fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(self.global.machine.as_ref())?)
    }

    /// A session with the machine that this VM is on: the one that is named, else the VM's own if it was launched, else the only one.
    pub fn connect_for(&self, vm: &Name) -> Result<Client, Failure> {
        let launched = || Homes::from_env().ok()?.find(vm).filter(Home::is_running);
        match launched().filter(|_| self.global.machine.is_none()) {
            Some(home) => Ok(Client::connect_to(&home.run_dir())?),
            None => self.connect(),
        }
    }

    /// Tells something on standard error.
    pub fn say(&self, text: &str) {
        // That nobody listens is no reason to fail.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{text}\n").as_bytes());
    }
}

/// Does what the command line says.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let output = Output::new(arguments.global.color);
    let context = Context { global: arguments.global, output };
    let done = match arguments.command {
        Command::Exec(args) => return exec::run(&context, &args),
        Command::Console(args) => return console::run(&context, &args),
        Command::Check(args) => return check::run(&context, &args),
        Command::Run(args) => return run::run(&context, &args),
        Command::Demo(args) => return crate::demo::run(&context, &args),
        Command::Ls(args) => ls::run(&context, args),
        Command::Launch(args) => launched::launch(&context, &args),
        Command::Ssh(args) => ssh::run(&args),
        Command::Cp(args) => ssh::copy(&args),
        Command::Port(args) => ssh::ports(&context, &args),
        Command::Image(args) => image::run(&context, &args),
        Command::Inspect(args) => launched::inspect(&context, &args.vm),
        Command::Edit(args) => launched::edit(&context, &args.vm),
        Command::Rename(args) => launched::rename(&context, &args),
        Command::Rm(args) => launched::remove(&context, &args.vm),
        Command::Cells(args) => cells::run(&context, args.json),
        Command::Info(args) => info::run(&context, args.json),
        Command::Top(args) => top::run(&context, &args),
        Command::Stats(args) => stats::run(&context, &args),
        Command::Events(args) => events::run(&context, &args),
        Command::Trace(args) => trace::run(&context, &args),
        Command::Gdb(args) => gdb::run(&context, &args),
        Command::Dump(args) => dump::run(&context, &args),
        Command::Perf(args) => perf::run(&context, &args),
        Command::Metrics(args) => metrics::run(&context, &args),
        Command::Model(args) => model::run(&context, &args),
        Command::Crash(args) => crash::run(&context, &args),
        Command::Inject(args) => inject::run(&context, &args),
        Command::Create(args) => vm::create(&context, &args),
        Command::Start(args) => vm::start(&context, &args.vm),
        Command::Stop(args) => vm::stop(&context, &args),
        Command::Kill(args) => vm::kill(&context, &args.vm),
        Command::Reset(args) => vm::reset(&context, &args.vm),
        Command::Pause(args) => vm::pause(&context, &args.vm),
        Command::Resume(args) => vm::resume(&context, &args.vm),
        Command::Set(args) => vm::set(&context, &args),
        Command::Destroy(args) => vm::destroy(&context, &args.vm),
        Command::Snapshot(args) => volumes::snapshot(&context, &args),
        Command::Volumes(args) => volumes::run(&context, &args),
        Command::Put(args) => put::run(&context, &args),
        Command::Shutdown(args) => shutdown::run(&context, &args),
        Command::Bench(args) => bench::run(&context, &args),
        Command::Sim(args) => sim::run(&context, &args),
        Command::Supervise(args) => supervise::run(&args),
        Command::Version(args) => version::run(&context, args.json),
        Command::Man { folder } => write_manual(&context, &folder),
        Command::Completion { shell } => completion(&context, shell),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The script asks this program at each completion, because only it knows the names of VMs.
fn completion(context: &Context, shell: clap_complete::Shell) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells.completer(&name).ok_or_else(|| Failure::Usage(format!("{name} has no completion")))?;
    let mut script = Vec::new();
    let written = completer.write_registration("COMPLETE", "mirrorball", "mirrorball", "mirrorball", &mut script);
    written.map_err(Failure::Output)?;
    context.output.bytes(&script)
}

fn write_manual(context: &Context, folder: &Path) -> Result<(), Failure> {
    let fail = |source| Failure::File { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fail)?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(fail)?;
    context.output.line(format!("manual pages are in {}; `man -l {0}/mirrorball.1` shows the first", folder.display()))
}
