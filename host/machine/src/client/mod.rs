//! The client's side of the control protocol: typed calls and streams over a running machine's socket.
//!
//! A [`Client`] can be cloned and used by several threads at once. One thread of its own reads the socket and hands
//! every message to who waits for it. When the machine goes, all waiting calls and streams end with
//! [`ClientError::Disconnected`].

mod calls;
mod link;
mod stream;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use control::{ControlError, Name, Reply, Request, ServerHello, StreamEnd};
use thiserror::Error;

use crate::rundir::{RunDir, RunRoot};
use link::Link;
pub use stream::Stream;

/// How long a call waits for its answer where nothing else is said. Long: the emulated machine may be slow.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// A session with a running machine.
#[derive(Clone, Debug)]
pub struct Client {
    link: Arc<Link>,
    hello: Arc<ServerHello>,
    timeout: Duration,
}

/// Why a call failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No machine runs.
    #[error("no machine is running; start one with `mirrorball run MACHINE.toml`")]
    NoMachine,
    /// Several machines run, and none was named.
    #[error("several machines are running ({}); say which with `--machine NAME`", list(names))]
    SeveralMachines {
        /// Their names.
        names: Vec<Name>,
    },
    /// The machine named does not run.
    #[error("machine {name:?} is not running")]
    NotRunning {
        /// Its name.
        name: Name,
    },
    /// The machine's socket cannot be reached.
    #[error("cannot connect to {path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection ended.
    #[error("the connection to the machine ended: {reason}")]
    Disconnected {
        /// Why, as far as is known.
        reason: String,
    },
    /// No answer came in time.
    #[error("no answer to {request} within {seconds} s")]
    Timeout {
        /// What was asked.
        request: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The request was refused.
    #[error(transparent)]
    Refused(#[from] ControlError),
    /// The request is too large for the protocol.
    #[error(transparent)]
    TooLarge(#[from] control::EncodeError),
    /// The answer is of another kind than the request asks for: the other side has a bug.
    #[error("the machine gave an answer of the wrong kind to {request}")]
    WrongAnswer {
        /// What was asked.
        request: String,
    },
    /// The stream ended.
    #[error("{}", end_text(.0))]
    StreamEnded(StreamEnd),
    /// A file to upload cannot be read.
    #[error("cannot read the module: {0}")]
    Read(io::Error),
}

impl ClientError {
    /// The refusal, if it is one.
    #[must_use]
    pub const fn refusal(&self) -> Option<&ControlError> {
        match self {
            Self::Refused(error) => Some(error),
            _ => None,
        }
    }
}

impl Client {
    /// Connects to the machine `name`, or to the only one that runs.
    ///
    /// # Errors
    /// [`ClientError::NoMachine`], [`ClientError::SeveralMachines`] or [`ClientError::NotRunning`] if it is not
    /// clear which; else as [`Client::connect_to`].
    pub fn connect(name: Option<&Name>) -> Result<Self, ClientError> {
        Self::connect_to(&find(&RunRoot::from_env(), name)?)
    }

    /// Connects to the machine with this run directory.
    ///
    /// # Errors
    /// If its socket cannot be reached, or it speaks another version of the protocol.
    pub fn connect_to(dir: &RunDir) -> Result<Self, ClientError> {
        let path = dir.control_socket();
        let socket = UnixStream::connect(&path).map_err(|source| ClientError::Connect { path, source })?;
        Self::over(socket)
    }

    /// Begins a session over a connected socket.
    ///
    /// # Errors
    /// If the other side refuses it, or is silent.
    pub fn over(socket: UnixStream) -> Result<Self, ClientError> {
        let link = Link::start(socket)?;
        let request = Request::Hello { version: control::PROTOCOL_VERSION };
        match link.call(request, DEFAULT_TIMEOUT)? {
            Reply::Hello(hello) => Ok(Self { link, hello: Arc::new(hello), timeout: DEFAULT_TIMEOUT }),
            _ => Err(ClientError::WrongAnswer { request: "Hello".into() }),
        }
    }

    /// The same session with another time to wait for answers.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Who answers.
    #[must_use]
    pub fn server(&self) -> &ServerHello {
        &self.hello
    }

    /// Sends a request that opens no stream, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError::Refused`], [`ClientError::Timeout`], [`ClientError::Disconnected`] or
    /// [`ClientError::TooLarge`].
    pub fn call(&self, request: Request) -> Result<Reply, ClientError> {
        self.link.call(request, self.timeout)
    }

    /// Sends a request that opens a stream, and waits for the answer.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn open(&self, request: Request) -> Result<(Reply, Stream), ClientError> {
        let (id, reply, data) = self.link.open(request, self.timeout)?;
        Ok((reply, Stream::new(self.clone(), id, data)))
    }

    fn link(&self) -> &Link {
        &self.link
    }
}

/// The machine `name`, or the only one that runs.
///
/// # Errors
/// [`ClientError::NoMachine`], [`ClientError::SeveralMachines`] or [`ClientError::NotRunning`].
pub fn find(root: &RunRoot, name: Option<&Name>) -> Result<RunDir, ClientError> {
    if let Some(name) = name {
        let dir = root.machine(name);
        return if dir.is_running() { Ok(dir) } else { Err(ClientError::NotRunning { name: name.clone() }) };
    }
    let mut running = root.running();
    match (running.pop(), running.is_empty()) {
        (None, _) => Err(ClientError::NoMachine),
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            running.push(last);
            Err(ClientError::SeveralMachines { names: running.iter().map(|dir| dir.name().clone()).collect() })
        }
    }
}

fn list(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

fn end_text(end: &StreamEnd) -> String {
    match end {
        StreamEnd::VmGone => "the VM stopped or was destroyed".into(),
        StreamEnd::TooSlow { waiting } => format!("too slow: {waiting} bytes were waiting to be read"),
        StreamEnd::ShuttingDown => "the machine is shutting down".into(),
        StreamEnd::CellLost { cell } => format!("cell {cell} is lost"),
    }
}
