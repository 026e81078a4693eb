//! gdb's remote protocol for a session with a VM. Threads are vCPUs, numbered from 1.
//!
//! One client, one connection: whoever can connect can read and change all of the guest, so listeners are for this user or this host only.

mod arch;
mod target;

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gdbstub::common::Signal;
use gdbstub::conn::ConnectionExt;
use gdbstub::stub::run_blocking::{BlockingEventLoop, Event, WaitForStopReasonError};
use gdbstub::stub::{GdbStub, GdbStubError, MultiThreadStopReason};

use crate::{InspectError, Session};
use target::Target;

/// How long to wait for the guest before looking whether gdb says something.
const LOOK: Duration = Duration::from_millis(20);

type Connection = Box<dyn ConnectionExt<Error = io::Error>>;

/// Where gdb is.
#[derive(Debug)]
pub enum Peer {
    /// On this host or far away.
    Tcp(TcpStream),
    /// On this host.
    Unix(UnixStream),
}

/// Serves a gdb until it goes; the VM goes on then.
///
/// # Errors
/// If the connection or the machine fails. That gdb goes or the VM ends is none.
pub fn serve(session: Session, peer: Peer) -> Result<(), InspectError> {
    session.stop()?;
    let mut target = Target::new(session)?;
    let connection: Connection = match peer {
        Peer::Tcp(stream) => Box::new(stream),
        Peer::Unix(stream) => Box::new(stream),
    };
    match GdbStub::new(connection).run_blocking::<Loop>(&mut target) {
        Ok(_) => Ok(()),
        Err(error) => Err(explain(error, &target)),
    }
}

fn explain(error: GdbStubError<InspectError, io::Error>, target: &Target) -> InspectError {
    if error.is_target_error() {
        return error.into_target_error().unwrap_or_else(|| InspectError::Other("the target failed".into()));
    }
    if error.is_connection_error() {
        return match error.into_connection_error() {
            Some((error, _)) => InspectError::Connection(error),
            None => InspectError::Other("the connection failed".into()),
        };
    }
    InspectError::Other(format!("gdb at VM {}: {error}", target.vm()))
}

enum Loop {}

impl BlockingEventLoop for Loop {
    type Target = Target;
    type Connection = Connection;
    type StopReason = MultiThreadStopReason<u64>;

    fn wait_for_stop_reason(
        target: &mut Target,
        connection: &mut Connection,
    ) -> Result<Event<Self::StopReason>, WaitForStopReasonError<InspectError, io::Error>> {
        loop {
            if let Some(reason) = target.wait(LOOK).map_err(WaitForStopReasonError::Target)? {
                return Ok(Event::TargetStopped(reason));
            }
            if connection.peek().map_err(WaitForStopReasonError::Connection)?.is_some() {
                return connection.read().map(Event::IncomingData).map_err(WaitForStopReasonError::Connection);
            }
        }
    }

    fn on_interrupt(target: &mut Target) -> Result<Option<Self::StopReason>, InspectError> {
        let tid = target.interrupt()?;
        Ok(Some(MultiThreadStopReason::SignalWithThread { tid, signal: Signal::SIGINT }))
    }
}
