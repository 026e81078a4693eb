//! A plain emulated machine, without the monitor: the second half of the image's installation runs on it, and the
//! reference results are computed there.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::tool;
use crate::kernel::Kernel;
use crate::progress::Step;

/// A machine description for one run.
pub struct PlainMachine<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Initial file system.
    pub initrd: PathBuf,
    /// Disk, written in place.
    pub disk: Option<&'a Path>,
    /// Memory.
    pub memory_mib: u32,
    /// Added to the kernel's command line.
    pub command_line: &'a str,
    /// Where the console's lines are kept, for whoever wants to know what happened.
    pub log: &'a Path,
    /// When to give up.
    pub limit: Duration,
}

impl PlainMachine<'_> {
    /// Runs the machine until it powers off and returns its console's lines; `watch` sees each as it comes.
    ///
    /// # Errors
    /// The emulator cannot be started, fails, or is not done within the limit: it is then killed.
    pub fn run(&self, step: &Step, mut watch: impl FnMut(&str, &Step)) -> Result<Vec<String>> {
        let mut machine = Running(self.command()?.spawn().context("cannot start the emulated machine")?);
        let lines = reader(&mut machine.0)?;
        let deadline = Instant::now() + self.limit;
        let mut log: Vec<String> = Vec::new();
        let mut file = File::create(self.log).context("cannot write the console's log")?;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    watch(&line, step);
                    writeln!(file, "{line}")?;
                    log.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the emulated machine was not done after {:?}; its last lines:\n{}", self.limit, tail(&log))
                }
            }
        }
        let status = machine.0.wait()?;
        if !status.success() {
            bail!("the emulator failed ({status}):\n{}", tail(&log));
        }
        Ok(log)
    }

    fn command(&self) -> Result<Command> {
        let mut command = tool("qemu-system-riscv64")?;
        command.args(["-M", "virt", "-cpu", "rv64,svvptc=on", "-smp", "2", "-accel", "tcg,thread=multi"]);
        command.args(["-m", &format!("{}M", self.memory_mib)]);
        command.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]);
        command.arg("-kernel").arg(self.kernel.image()).arg("-initrd").arg(&self.initrd);
        command.args(["-append", &format!("console=ttyS0 quiet {}", self.command_line)]);
        if let Some(disk) = self.disk {
            // An interrupted build starts over, so nothing needs to reach the disk in order.
            let drive = format!("if=none,id=root,format=raw,cache=unsafe,discard=unmap,file={}", disk.display());
            command.args(["-drive", &drive, "-device", "virtio-blk-device,drive=root"]);
        }
        command.args(["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Ok(command)
    }
}

/// Kills the emulator if it is still there when the run is left.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Console lines, read by a thread so that waiting for one can have a limit.
fn reader(child: &mut Child) -> Result<Receiver<String>> {
    let stdout = child.stdout.take().context("the emulator's output was piped")?;
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    Ok(receive)
}

fn tail(log: &[String]) -> String {
    log[log.len().saturating_sub(40)..].join("\n")
}
