//! QEMU plugin: makes the emulated machine a NUMA machine with time of its own.
//!
//! It sees every access and every block of instructions, asks `machine-model` what they cost, and gives QEMU a virtual
//! clock that is made of these costs: each hart has its own time, harts that are ahead wait for the others, and when all
//! are idle time jumps to the next timer. Without host input two runs are identical.
//!
//! # Arguments
//! - `machine=FILE`: the machine as JSON, a [`machine_model::Description`].
//! - `shared=FILE`: the file that is shared with monitor and tools (`model-file`); it is as long as its layout says.
//! - `marks=FILE`: where a line of JSON ([`machine_model::MarkLine`]) goes at each mark, see [`model_file::hint`].
//!
//! QEMU must run with `-accel tcg,thread=single` and without `-icount`. The model is tied to QEMU 10.0 as Debian builds
//! it: it needs functions that are not in the plugin API (`hooks`), and refuses any other.
//!
//! # While it is off
//! Blocks count time, and nothing else: plain speed. Instructions are then estimated, by the mode that a hart is in when
//! it looks up, some ten thousand instructions apart. Harts are up to 20 us apart, and idle time passes
//! as fast as the host's, as in plain QEMU. While it is on idle time jumps, but for host input or output under way.
//!
//! # Threads
//! All harts share one thread, and all state is that thread's (`state`); only the machine's time is read by others.

mod gates;
mod hooks;
mod idle;
mod marks;
mod options;
mod ram;
mod registers;
mod state;
mod time;
mod translate;
mod watch;

use std::sync::OnceLock;

use qemu_plugin::{Callbacks, Installation};

use crate::hooks::Hooks;
use crate::options::Options;

/// The versions of QEMU that the model knows: a stable series does not change what it needs.
const KNOWN: (i64, i64) = (10, 0);
/// How the package of the build that the model knows begins.
const PACKAGER: &str = "Debian ";

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// QEMU's functions; found before any callback is registered.
fn hooks() -> &'static Hooks {
    HOOKS.get().expect("installed")
}

qemu_plugin::export!("numa-model", install);

fn install(installation: Installation) -> Result<(), String> {
    let Installation { id, arguments, target, harts } = installation;
    let hooks = Hooks::find().map_err(|name| refuse(&format!("this one does not export {name}")))?;
    check_emulator(&hooks)?;
    let _ = HOOKS.set(hooks);
    if target != "riscv64" || harts == 0 {
        return Err(format!("the model knows whole riscv64 machines, this emulates {target} with {harts} harts"));
    }
    let options = Options::read(&arguments)?;
    state::prepare(&options, harts)?;
    let callbacks = Callbacks {
        hart_begins: Some(state::hart_begins),
        translate: translate::translate,
        flush: Some(translate::flush),
        exit: state::exit,
    };
    qemu_plugin::register(id, &callbacks);
    Ok(())
}

fn check_emulator(hooks: &Hooks) -> Result<(), String> {
    let ([major, minor, micro], package) = hooks.version();
    if (major, minor) == KNOWN && package.starts_with(PACKAGER) {
        return Ok(());
    }
    Err(refuse(&format!("this is {major}.{minor}.{micro} ({package})")))
}

/// Says what is wrong with the emulator and what to do.
fn refuse(what: &str) -> String {
    format!(
        "the model knows QEMU 10.0 of Debian, and {what}; install that one with `./x setup`, or run without [model]"
    )
}

/// Ends QEMU: what was found out too late to refuse the plugin.
fn give_up(problem: &str) -> ! {
    eprintln!("numa-model: {problem}");
    std::process::exit(1);
}
