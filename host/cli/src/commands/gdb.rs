//! `gdb`: a debugger for a VM.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use inspect::Session;
use inspect::gdb::{Peer, serve};

use super::Context;
use crate::args::Gdb;
use crate::failure::Failure;

/// What Debian calls a gdb that knows RISC-V, then one that may.
const GDBS: [&str; 2] = ["gdb-multiarch", "riscv64-linux-gnu-gdb"];

/// Time between two looks whether gdb has ended before it came.
const LOOK: Duration = Duration::from_millis(20);

pub fn run(context: &Context, args: &Gdb) -> Result<(), Failure> {
    let client = context.connect_for(&args.vm)?;
    // What is wrong with the VM is told before anybody waits for gdb.
    client.vm(&args.vm)?;
    let open = || Session::open(&client, &args.vm);
    match args.listen {
        Some(address) => listen(context, args, address, open),
        None => start(args, open),
    }
}

fn listen(
    context: &Context,
    args: &Gdb,
    address: SocketAddr,
    open: impl Fn() -> Result<Session, inspect::InspectError>,
) -> Result<(), Failure> {
    let cannot = |source| Failure::System { what: "cannot listen for gdb", source };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    context.output.line(format!("gdb for VM {}: target remote {address}", args.vm))?;
    io::stdout().flush().map_err(Failure::Output)?;
    let (stream, _) = listener.accept().map_err(cannot)?;
    // One gdb at a time: others are refused, not kept waiting.
    drop(listener);
    stream.set_nodelay(true).map_err(cannot)?;
    Ok(serve(open()?, Peer::Tcp(stream))?)
}

fn start(args: &Gdb, open: impl Fn() -> Result<Session, inspect::InspectError>) -> Result<(), Failure> {
    let cannot = |source| Failure::System { what: "cannot listen for gdb", source };
    // A directory that only this user enters.
    let directory = tempfile::Builder::new().prefix("mirrorball-gdb.").tempdir().map_err(cannot)?;
    let socket = directory.path().join("gdb.sock");
    let listener = UnixListener::bind(&socket).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let mut gdb = spawn(args, &socket)?;
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(cannot(error)),
        }
        if gdb.try_wait().map_err(cannot)?.is_some() {
            return Err(Failure::Other("gdb has ended before it came to the VM".into()));
        }
        std::thread::sleep(LOOK);
    };
    stream.set_nonblocking(false).map_err(cannot)?;
    let served = open().and_then(|session| serve(session, Peer::Unix(stream)));
    let ended = gdb.wait().map_err(cannot)?;
    match served {
        // gdb says what its user wants to know of the connection's end.
        Err(inspect::InspectError::Connection(_)) if ended.success() => Ok(()),
        served => Ok(served?),
    }
}

fn spawn(args: &Gdb, socket: &Path) -> Result<Child, Failure> {
    for name in GDBS {
        let mut command = Command::new(name);
        command.args(["-q", "-ex", "set architecture riscv:rv64", "-ex"]);
        command.arg(format!("target remote {}", socket.display())).args(&args.rest).args(&args.program);
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Failure::System { what: "cannot start gdb", source }),
        }
    }
    Err(Failure::Other(format!(
        "there is no {}; install Debian's package gdb-multiarch, or serve another gdb with --listen 127.0.0.1:1234",
        GDBS[0]
    )))
}
