//! A monitor that exists only in a test: the other end of a socket pair.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use control::{
    Body, ClientMessage, ControlError, Decoder, Name, PROTOCOL_VERSION, Reply, Request, ServerHello, ServerMessage,
    StreamData,
};
use machine::{Client, Limits, Supervisor};

/// Long enough never to matter; a test that waits so long has failed.
pub const WATCHDOG: Duration = Duration::from_secs(60);

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

pub fn hello() -> ServerHello {
    ServerHello { version: PROTOCOL_VERSION, machine: name("fake"), monitor: "fake 1".into() }
}

/// The monitor's side.
pub struct FakeMonitor {
    socket: UnixStream,
    decoder: Decoder,
}

impl FakeMonitor {
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, decoder: Decoder::new() }
    }

    /// The next request; `None` when the other side is gone.
    pub fn next(&mut self) -> Option<ClientMessage> {
        loop {
            if let Some(message) = self.decoder.next_message() {
                return Some(message.expect("the supervisor sends good frames"));
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.decoder.push(&chunk[..count]),
            }
        }
    }

    /// The next request, which must be there.
    pub fn expect(&mut self) -> ClientMessage {
        self.next().expect("a request comes")
    }

    pub fn send(&mut self, id: u32, body: Body) {
        let frame = control::encode(&ServerMessage { id, body }).expect("it is small");
        self.raw(&frame);
    }

    pub fn reply(&mut self, id: u32, reply: Reply) {
        self.send(id, Body::Reply(reply));
    }

    pub fn refuse(&mut self, id: u32, error: ControlError) {
        self.send(id, Body::Error(error));
    }

    pub fn stream(&mut self, id: u32, data: StreamData) {
        self.send(id, Body::Stream(data));
    }

    /// Bytes as they are. That the other side is gone already is no matter here.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Answers the greeting.
    pub fn greet(&mut self) {
        let ClientMessage { id, request } = self.expect();
        assert_eq!(request, Request::Hello { version: PROTOCOL_VERSION });
        self.reply(id, Reply::Hello(hello()));
    }
}

/// A supervisor over a fake monitor that runs `script` after the greeting.
pub struct Fixture<T = ()> {
    pub supervisor: Option<Supervisor>,
    pub monitor: JoinHandle<T>,
    dir: tempfile::TempDir,
}

impl<T: Send + 'static> Fixture<T> {
    pub fn start(script: impl FnOnce(FakeMonitor) -> T + Send + 'static) -> Self {
        Self::with_limits(Limits::default(), script)
    }

    pub fn with_limits(limits: Limits, script: impl FnOnce(FakeMonitor) -> T + Send + 'static) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(dir.path().join("control.sock")).expect("the path is free");
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let monitor = thread::spawn(move || {
            let mut monitor = FakeMonitor::new(theirs);
            monitor.greet();
            script(monitor)
        });
        let supervisor = Supervisor::start(ours, listener, limits, WATCHDOG, || {}).expect("the monitor answers");
        Self { supervisor: Some(supervisor), monitor, dir }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub fn socket(&self) -> UnixStream {
        UnixStream::connect(self.path()).expect("the supervisor listens")
    }

    pub fn client(&self) -> Client {
        Client::over(self.socket()).expect("the supervisor greets")
    }

    /// Ends the supervisor and gives what the monitor's script gave.
    pub fn finish(mut self) -> T {
        drop(self.supervisor.take());
        self.monitor.join().expect("the monitor's script holds")
    }
}
