//! Writes a workload's initial file system to a file and prints its kernel command line, for an emulator started by hand:
//!
//! ```text
//! cargo run -p loads --example compose -- CACHE PROGRAM NAME small|full OUT [kvm VCPUS]
//! ```
//!
//! With `kvm` it is that of the KVM host with the workload's guest inside.

use std::path::PathBuf;
use std::process::ExitCode;

use loads::{Files, KvmGuests, LoadError, Size};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(words), further) = (words.first_chunk::<5>(), words.get(5..).unwrap_or_default()) else {
        eprintln!("say: CACHE PROGRAM NAME small|full OUT [kvm VCPUS]");
        return ExitCode::from(2);
    };
    match compose(words, further) {
        Ok(command_line) => {
            println!("{command_line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("compose: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compose(
    [cache, program, name, size, out]: &[String; 5],
    further: &[String],
) -> Result<String, Box<dyn std::error::Error>> {
    let files = Files { cache: cache.into(), program: program.into() };
    let size = Size::from_word(size).ok_or("the size is small or full")?;
    let load = loads::find(name)?;
    let (mut initrd, mut line) = (load.initrd(&files)?, load.command_line(size, None));
    let mut memory = load.memory_mib(size);
    if let [word, vcpus] = further
        && word == "kvm"
    {
        let guests = KvmGuests::one(vcpus.parse()?, memory);
        (memory, line) = (guests.host_memory_mib(initrd.len()), guests.command_line(&line)?);
        let kernel: PathBuf = files.cache.join("kernel/Image");
        initrd = guests.initrd(&files, &kernel, &initrd)?;
    }
    std::fs::write(out, initrd).map_err(|error| LoadError::Missing {
        path: out.into(),
        maker: "a folder that can be written",
        error,
    })?;
    Ok(format!("{line} # {memory} MiB"))
}
