//! `perf`: where a VM's vCPUs spend their time.

use std::path::Path;
use std::time::Duration;

use inspect::profile::{MAX_HZ, Profile, SymbolMap, Symbols, svg};
use machine::{Client, GuestAgent};

use super::Context;
use crate::args::Perf;
use crate::failure::Failure;
use crate::output::{Cell, Table};

/// How long the guest's agent may take to say what its kernel's functions are.
const AGENT_PATIENCE: Duration = Duration::from_secs(10);
/// How long the guest may take to list them.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

pub fn run(context: &Context, args: &Perf) -> Result<(), Failure> {
    if args.hz == 0 || args.hz > MAX_HZ {
        return Err(Failure::Usage(format!("--hz must lie between 1 and {MAX_HZ}")));
    }
    let client = context.connect_for(&args.vm)?;
    let profile = Profile::take(&client, &args.vm, args.time, args.hz)?;
    let symbols = Symbols::new(match &args.map {
        Some(path) => Some(read_map(path)?),
        None if profile.samples > 0 => guests_map(context, &client, args),
        None => None,
    });
    if let Some(path) = &args.flame {
        let title = format!("VM {}, {:.1} s", args.vm, args.time.as_secs_f64());
        write(path, &svg(&title, &profile.named(&symbols)))?;
    }
    if let Some(path) = &args.folded {
        write(path, &profile.folded(&symbols))?;
    }
    let mut table = Table::new(&["SAMPLES", "%", "FUNCTION"]);
    for (name, count) in profile.hottest(&symbols).into_iter().take(args.top) {
        let share = format!("{:.1}", count as f64 * 100.0 / profile.samples as f64);
        table.row([Cell::from(count.to_string()), Cell::from(share), Cell::from(name)]);
    }
    context.output.table(&table)?;
    context.say(&format!("{} samples in {} looks; vCPUs that wait are in none", profile.samples, profile.looks));
    Ok(())
}

fn read_map(path: &Path) -> Result<SymbolMap, Failure> {
    let failed = |source| Failure::File { path: path.to_owned(), source };
    let map = SymbolMap::parse(&String::from_utf8_lossy(&std::fs::read(path).map_err(failed)?));
    if map.is_empty() {
        return Err(Failure::Other(format!("{} names no function", path.display())));
    }
    Ok(map)
}

/// What the guest says itself: it knows where its kernel and its modules lie.
fn guests_map(context: &Context, client: &Client, args: &Perf) -> Option<SymbolMap> {
    let listed = GuestAgent::connect(client, &args.vm, AGENT_PATIENCE).and_then(|mut agent| {
        let mut command = agent.start("cat", &["/proc/kallsyms".to_owned()], false)?;
        let begin = std::time::Instant::now();
        let mut text = Vec::new();
        loop {
            let progress = command.look()?;
            text.extend(progress.stdout);
            if progress.ended.is_some() || begin.elapsed() > LIST_PATIENCE {
                let _ = command.finish();
                return Ok(text);
            }
        }
    });
    match listed.map(|text| SymbolMap::parse(&String::from_utf8_lossy(&text))) {
        Ok(map) if !map.is_empty() => Some(map),
        Ok(_) => {
            context.say("mirrorball: the guest does not name its functions; --map FILE does");
            None
        }
        Err(error) => {
            context.say(&format!("mirrorball: no names of functions ({error}); --map FILE gives them"));
            None
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|source| Failure::File { path: path.to_owned(), source })
}
