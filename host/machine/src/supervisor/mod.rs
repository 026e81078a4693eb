//! Many clients on the one connection to the monitor.
//!
//! # Threads
//! One reads the monitor, one writes to it, one accepts clients; two more per client. Whoever reads the monitor never
//! waits for anybody: a client that does not read its answers is cut off when [`Limits::client_bytes`] are waiting,
//! and no other client notices. A client that sends faster than the monitor reads waits, it alone.
//!
//! # Locking
//! `router` is held only while a message is translated; the outboxes have their own locks, which are never held while
//! another is taken.

mod outbox;
pub mod router;
mod session;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use control::{
    Body, ClientMessage, ControlError, Decoder, FrameError, Name, PROTOCOL_VERSION, Reply, Request, ServerHello,
    ServerMessage, StreamEnd,
};
use thiserror::Error;

use outbox::{Outbox, Pushed};
use router::{ClientId, Consequence, Router};

/// The id of the supervisor's own greeting. The router counts from 1.
const HELLO_ID: u32 = 0;

/// How much of whom is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connected clients.
    pub clients: usize,
    /// Bytes that wait for one client to read them.
    pub client_bytes: usize,
    /// Bytes that wait for the monitor to read them.
    pub monitor_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { clients: 64, client_bytes: 8 << 20, monitor_bytes: 1 << 20 }
    }
}

/// Why the monitor cannot be supervised.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// A thread or socket could not be made.
    #[error("cannot supervise the machine: {0}")]
    Io(#[from] io::Error),
    /// The monitor refused the greeting.
    #[error("the monitor refused the connection: {0}")]
    Refused(ControlError),
    /// The monitor's answer to the greeting is no answer to it.
    #[error("the monitor gave a wrong answer to the greeting")]
    WrongAnswer,
    /// The connection ended before the monitor answered.
    #[error("the monitor's control port closed before it answered")]
    Closed,
    /// The monitor did not answer.
    #[error("the monitor did not answer within {seconds} s")]
    Silent {
        /// How long was waited.
        seconds: u64,
    },
}

/// Passes the messages of many clients on to the monitor and its answers back.
#[derive(Debug)]
pub struct Supervisor {
    hub: Arc<Hub>,
    hello: ServerHello,
    /// The clients' socket; it is removed at the end.
    path: Option<PathBuf>,
}

/// What all threads share.
#[derive(Debug)]
struct Hub {
    link: UnixStream,
    to_monitor: Outbox,
    router: Mutex<Option<Router>>,
    clients: Mutex<HashMap<ClientId, Arc<Outbox>>>,
    limits: Limits,
    last_client: AtomicU64,
    /// Set once, before the wake-up connection to the listener; pairs with the load after `accept`.
    is_over: AtomicBool,
    /// Bytes from the monitor that were no frames.
    garbage: AtomicU64,
}

impl Supervisor {
    /// Greets the monitor behind `link` and waits for its answer, at most so long; then serves clients on
    /// `listener`. `on_end` is called once when the connection to the monitor has ended.
    ///
    /// # Errors
    /// If the monitor is silent or refuses.
    pub fn start(
        link: UnixStream,
        listener: UnixListener,
        limits: Limits,
        timeout: Duration,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, SupervisorError> {
        let reader = link.try_clone()?;
        let hub = Arc::new(Hub {
            link,
            to_monitor: Outbox::new(limits.monitor_bytes),
            router: Mutex::new(None),
            clients: Mutex::default(),
            limits,
            last_client: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            garbage: AtomicU64::new(0),
        });
        let (greeted, greeting) = channel();
        let (of_reader, of_writer) = (Arc::clone(&hub), Arc::clone(&hub));
        spawn("monitor-reader", move || {
            of_reader.read_monitor(reader, greeted);
            of_reader.end();
            on_end();
        })?;
        spawn("monitor-writer", move || of_writer.write_monitor())?;
        let hello = hub.greet(&greeting, timeout).inspect_err(|_| hub.end())?;
        *lock(&hub.router) = Some(Router::new(hello.clone()));
        let path = listener.local_addr()?.as_pathname().map(Into::into);
        let of_acceptor = Arc::clone(&hub);
        spawn("acceptor", move || of_acceptor.accept(&listener))?;
        Ok(Self { hub, hello, path })
    }

    /// What the monitor said in answer to the greeting.
    #[must_use]
    pub const fn hello(&self) -> &ServerHello {
        &self.hello
    }

    /// Bytes from the monitor that belonged to no frame.
    #[must_use]
    pub fn garbage_bytes(&self) -> u64 {
        // A counter for people; it guards nothing.
        self.hub.garbage.load(Ordering::Relaxed)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.hub.end();
        if let Some(path) = &self.path {
            // The acceptor waits in `accept`: a connection wakes it.
            let _ = UnixStream::connect(path);
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Hub {
    fn greet(&self, greeting: &Receiver<Body>, timeout: Duration) -> Result<ServerHello, SupervisorError> {
        self.send(&ClientMessage { id: HELLO_ID, request: Request::Hello { version: PROTOCOL_VERSION } });
        match greeting.recv_timeout(timeout) {
            Ok(Body::Reply(Reply::Hello(hello))) => Ok(hello),
            Ok(Body::Error(error)) => Err(SupervisorError::Refused(error)),
            Ok(_) => Err(SupervisorError::WrongAnswer),
            Err(RecvTimeoutError::Disconnected) => Err(SupervisorError::Closed),
            Err(RecvTimeoutError::Timeout) => Err(SupervisorError::Silent { seconds: timeout.as_secs() }),
        }
    }

    /// Reads the monitor until its port closes. Never waits for anything else.
    fn read_monitor(&self, mut reader: UnixStream, greeted: Sender<Body>) {
        let mut greeted = Some(greeted);
        let mut decoder = Decoder::new();
        let mut chunk = vec![0; 64 * 1024];
        while let Some(count) = read_some(&mut reader, &mut chunk) {
            decoder.push(chunk.get(..count).unwrap_or_default());
            while let Some(next) = decoder.next_message::<ServerMessage>() {
                match next {
                    Ok(ServerMessage { body: Body::Successor { lost }, .. }) => self.begin_again(lost),
                    Ok(message) if message.id == HELLO_ID => {
                        if let Some(greeted) = greeted.take() {
                            let _ = greeted.send(message.body);
                        }
                    }
                    Ok(message) => self.perform(|router| router.answer(message)),
                    Err(FrameError::Garbage { bytes }) => self.count_garbage(bytes),
                    Err(FrameError::Undecodable { len }) => self.count_garbage(len),
                }
            }
        }
    }

    /// Another cell of the machine answers from here on: whoever waits for the lost one hears of it, and may ask again.
    fn begin_again(&self, lost: Name) {
        // Before anything that clients ask of the new one.
        self.send(&ClientMessage { id: HELLO_ID, request: Request::Hello { version: PROTOCOL_VERSION } });
        let ended = lock(&self.router).as_mut().map(|router| router.lose_all(lost)).unwrap_or_default();
        for (client, message) in ended {
            self.send_to(client, message);
        }
    }

    fn write_monitor(&self) {
        let mut link = &self.link;
        while let Some(frame) = self.to_monitor.pop() {
            if link.write_all(&frame).is_err() {
                // The reader sees the end too, and tells everybody.
                return;
            }
        }
    }

    fn count_garbage(&self, bytes: usize) {
        self.garbage.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Lets the router translate, and sends what comes of it without waiting.
    fn perform(&self, translate: impl FnOnce(&mut Router) -> Consequence) {
        let consequence = match lock(&self.router).as_mut() {
            Some(router) => translate(router),
            None => return,
        };
        for message in &consequence.to_monitor {
            self.send(message);
        }
        if let Some((client, message)) = consequence.to_client {
            self.send_to(client, message);
        }
    }

    /// Sends the monitor a message of our own: rare and small, so it does not wait for room.
    fn send(&self, message: &ClientMessage) {
        if let Ok(frame) = control::encode(message) {
            self.to_monitor.push_urgent(frame);
        }
    }

    /// Sends a client a message; cuts the client off if it does not read.
    fn send_to(&self, client: ClientId, message: ServerMessage) {
        let Some(outbox) = lock(&self.clients).get(&client).map(Arc::clone) else { return };
        let id = message.id;
        let frame = control::encode(&message).or_else(|error| {
            let control::EncodeError::TooLarge { len } = error else { return Err(error) };
            let body = Body::Error(too_large(len));
            control::encode(&ServerMessage { id, body })
        });
        let Ok(frame) = frame else { return };
        if let Pushed::Full { waiting } = outbox.push_now(frame) {
            let end = StreamEnd::TooSlow { waiting: waiting as u64 };
            let error = ControlError::Busy { what: "the client does not read its answers".into() };
            outbox.end_with(self.farewell(client, &end, &error));
        }
    }

    fn farewell(&self, client: ClientId, end: &StreamEnd, error: &ControlError) -> Vec<Vec<u8>> {
        let router = lock(&self.router);
        let messages = router.as_ref().map(|router| router.farewell(client, end, error)).unwrap_or_default();
        messages.iter().filter_map(|message| control::encode(message).ok()).collect()
    }

    /// The machine is gone: tells every client, and stops all threads.
    fn end(&self) {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.to_monitor.close();
        let _ = self.link.shutdown(Shutdown::Both);
        let clients: Vec<_> = lock(&self.clients).drain().collect();
        for (client, outbox) in clients {
            outbox.end_after(self.farewell(client, &StreamEnd::ShuttingDown, &ControlError::ShuttingDown));
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

fn too_large(len: usize) -> ControlError {
    ControlError::TooLarge { what: "message".into(), value: len as u64, max: control::MAX_PAYLOAD as u64 }
}

/// Reads what is there; `None` when there will be no more.
fn read_some(reader: &mut UnixStream, chunk: &mut [u8]) -> Option<usize> {
    loop {
        match reader.read(chunk) {
            Ok(0) => return None,
            Ok(count) => return Some(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(body).map(drop)
}

/// A poisoned lock means that a thread panicked between two whole updates; the data is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
