//! QEMU plugin: the machine that `machine-model` describes, on the emulator that `./x` installs.
//!
//! Every hart has a clock of its own, which counts instructions and stalls; the machine's clock follows the slowest, so
//! that harts run at once although one thread emulates them in turn, and two runs are the same. Instructions, stalls and
//! idle time are counted by hart and mode, and shown in the shared file (`model-file`). A guest in any mode switches the
//! model and marks places by a hint instruction (`model_file::hint`).
//!
//! # Arguments
//! `machine=` the description (JSON of [`machine_model::Description`]), `shared=` the shared file, `marks=` where marks are
//! appended, `ram=` the guest's memory.
//!
//! # What it refuses
//! Every QEMU but the one that it knows: it uses insides of QEMU 10.0 that the plugin API does not give ([`qemu`]), and
//! checks them when it is loaded. A description that cannot be modelled, files that do not fit.
//!
//! # Threads
//! The machine runs with `-accel tcg,thread=single`: one thread emulates all harts and calls all of this; QEMU's other
//! threads ask for the time only.

mod counts;
mod machine;
mod marks;
mod qemu;
mod shared;
mod time;
mod translate;

use std::path::PathBuf;

use machine_model::Description;

use machine::Machine;
use qemu::{Id, Inside};

/// What every refusal of an emulator ends with.
const KNOWN: &str = "; the machine model knows QEMU 10.0 as Debian builds it: run `./x setup`, or leave out [model]";

/// Called by QEMU when it loads the plugin.
fn install(id: Id, harts: usize, arguments: &[String]) -> Result<(), String> {
    let path = |name: &str| {
        let found = arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
        found.map(PathBuf::from).ok_or_else(|| format!("say {name}=FILE"))
    };
    let description = path("machine")?;
    let text = std::fs::read_to_string(&description).map_err(|error| format!("{}: {error}", description.display()))?;
    let described: Description =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", description.display()))?;
    described.check().map_err(|error| format!("{}: {error}", description.display()))?;
    if described.machine.harts != harts {
        let wanted = described.machine.harts;
        return Err(format!("{}: {wanted} harts are described, the machine has {harts}", description.display()));
    }
    let inside = Inside::find()?;
    Machine::set_up(inside, &described, time::START_NS * 1000, &path("shared")?, &path("marks")?)?;
    qemu::on_hart(id, make_hart);
    qemu::on_translation(id, translate::translate);
    qemu::on_exit(id, || {
        if let Some(machine) = Machine::get() {
            machine.publish_all();
        }
    });
    Ok(())
}

fn make_hart(hart: usize) {
    let Some(machine) = Machine::get() else { return };
    if hart == 0
        && let Err(why) = machine.inside.take_clock(time::get_clock, time::set_clock, time::START_NS as i64)
    {
        eprintln!("numa-model: {why}");
        // The machine exists already and cannot be refused any more; without the clock its time would be a lie.
        std::process::exit(1);
    }
    machine.add_hart(hart);
}
