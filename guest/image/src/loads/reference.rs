//! What a workload must give: found out once, on a plain emulated machine without the monitor.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cpio::Archive;
use crate::emulator::PlainMachine;
use crate::kernel::Kernel;
use crate::progress::Step;

/// Memory that a workload needs with its initial file system.
const MEMORY_MIB: u32 = 1536;
const SIZES: [&str; 2] = ["small", "full"];

/// Writes `NAME.cpio` into `dir`: the archive, and what the workload gave in each size when it was run here.
///
/// # Errors
/// The workload does not run.
pub fn finish(kernel: &Kernel, base: &Path, archive: Vec<u8>, name: &str, dir: &Path) -> Result<()> {
    let part = dir.join(format!("{name}.part"));
    fs::write(&part, archive)?;
    let initrd = dir.join("reference.cpio");
    join(&[base, &part], &initrd)?;
    let mut expected = Archive::new();
    for size in SIZES {
        let result = run(kernel, &initrd, name, size, dir)?;
        expected.file(&format!("loads/{name}.{size}.expected"), 0o644, format!("{result}\n").as_bytes());
        fs::write(dir.join(format!("{size}.expected")), format!("{result}\n"))?;
    }
    let known = dir.join("expected.cpio");
    fs::write(&known, expected.finish())?;
    join(&[&part, &known], &dir.join(format!("{name}.cpio")))?;
    [part, initrd, known].iter().try_for_each(fs::remove_file).context("cannot remove what was temporary")
}

fn run(kernel: &Kernel, initrd: &Path, name: &str, size: &str, dir: &Path) -> Result<String> {
    let step = Step::begin(format!("workload {name}, {size}, on a plain emulated machine (minutes)"));
    let machine = PlainMachine {
        kernel,
        initrd: initrd.to_owned(),
        disk: None,
        memory_mib: MEMORY_MIB,
        log: &dir.join(format!("{size}.log")),
        command_line: &format!("workload={name} size={size} unchecked=1"),
        limit: Duration::from_secs(1800),
    };
    let log = machine.run(&step, |_, _| ())?;
    let result = result_of(&log, name)?;
    step.finish(&result);
    Ok(result)
}

/// The result that a console says.
///
/// # Errors
/// The workload failed.
pub fn result_of(log: &[String], name: &str) -> Result<String> {
    let done = log.iter().find_map(|line| line.strip_prefix("WORKLOAD done "));
    let words = done.with_context(|| format!("workload {name} failed:\n{}", log.join("\n")))?;
    let result = words.split_whitespace().find_map(|word| word.strip_prefix("result="));
    Ok(result.context("the workload printed no result")?.to_owned())
}

/// Writes archives one after another, which is one archive to Linux.
///
/// # Errors
/// A file cannot be read or written.
pub fn join(parts: &[&Path], to: &PathBuf) -> Result<()> {
    let mut out = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
    for part in parts {
        let bytes = fs::read(part).with_context(|| format!("cannot read {}", part.display()))?;
        out.write_all(&bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}
