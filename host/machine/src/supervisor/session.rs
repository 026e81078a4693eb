//! One client's connection.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use control::{Body, ClientMessage, ControlError, Decoder, ServerMessage};

use super::outbox::Outbox;
use super::router::{ClientId, Consequence};
use super::{Hub, lock, read_some, spawn, too_large};

/// The id of messages that answer nothing in particular.
const NO_REQUEST: u32 = 0;

/// How long nobody is accepted after an error.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How long a client that is being cut off may take to read the last words.
const LAST_WORDS: Duration = Duration::from_secs(10);

impl Hub {
    /// Accepts clients until the machine is gone.
    pub(super) fn accept(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            let accepted = listener.accept();
            if self.is_over() {
                return;
            }
            match accepted {
                // A client that cannot be served is cut off; the others go on.
                Ok((socket, _)) => drop(self.serve(socket)),
                // Most likely there are too many open files. Clients go in time, and then others are served.
                Err(_) => thread::sleep(ACCEPT_AGAIN),
            }
        }
    }

    fn serve(self: &Arc<Self>, socket: UnixStream) -> std::io::Result<()> {
        // It bounds only how long one write may stand still, so that a cut-off client does not hold its threads.
        socket.set_write_timeout(Some(LAST_WORDS))?;
        let outbox = Arc::new(Outbox::new(self.limits.client_bytes));
        let client = ClientId(self.last_client.fetch_add(1, Ordering::Relaxed));
        {
            let mut clients = lock(&self.clients);
            if clients.len() >= self.limits.clients {
                return refuse(socket);
            }
            clients.insert(client, Arc::clone(&outbox));
        }
        let started = self.start_client(client, socket, &outbox);
        if started.is_err() {
            outbox.close();
            self.forget(client);
        }
        started
    }

    /// Serves a client that is in the table.
    fn start_client(
        self: &Arc<Self>,
        client: ClientId,
        socket: UnixStream,
        outbox: &Arc<Outbox>,
    ) -> std::io::Result<()> {
        if let Some(router) = lock(&self.router).as_mut() {
            router.enter(client);
        }
        let (writer, writers_outbox) = (socket.try_clone()?, Arc::clone(outbox));
        spawn("client-writer", move || write_client(&writer, &writers_outbox))?;
        // The machine may have ended between the check in `accept` and the entry into the table.
        if self.is_over() {
            outbox.close();
        }
        let (hub, outbox) = (Arc::clone(self), Arc::clone(outbox));
        spawn("client-reader", move || {
            hub.read_client(client, socket, &outbox);
            hub.forget(client);
        })
    }

    /// A client has gone.
    fn forget(&self, client: ClientId) {
        lock(&self.clients).remove(&client);
        let closes = lock(&self.router).as_mut().map(|router| router.leave(client)).unwrap_or_default();
        for message in &closes {
            self.send(message);
        }
    }

    /// Passes requests on, in order, until the client goes or talks nonsense.
    fn read_client(&self, client: ClientId, mut socket: UnixStream, outbox: &Outbox) {
        let mut decoder = Decoder::new();
        let mut chunk = vec![0; 64 * 1024];
        while let Some(count) = read_some(&mut socket, &mut chunk) {
            decoder.push(chunk.get(..count).unwrap_or_default());
            while let Some(next) = decoder.next_message::<ClientMessage>() {
                let Ok(message) = next else {
                    // A Unix socket loses no bytes: this is another program, or another version.
                    outbox.end_after(unasked(ControlError::BadMessage));
                    return;
                };
                if !self.pass_on(client, message) {
                    return;
                }
            }
        }
        outbox.close();
    }

    /// `false` when the machine is gone.
    fn pass_on(&self, client: ClientId, message: ClientMessage) -> bool {
        let consequence = match lock(&self.router).as_mut() {
            Some(router) => router.request(client, message),
            None => return false,
        };
        for message in consequence.to_monitor {
            match control::encode(&message) {
                Ok(frame) => {
                    if !self.to_monitor.push_waiting(frame) {
                        return false;
                    }
                }
                Err(control::EncodeError::TooLarge { len }) => {
                    self.perform(|router| router.refuse(message.id, too_large(len)));
                }
                Err(control::EncodeError::Unencodable) => {
                    self.perform(|router| router.refuse(message.id, ControlError::BadMessage));
                }
            }
        }
        let to_client = consequence.to_client;
        self.perform(|_| Consequence { to_client, to_monitor: Vec::new() });
        true
    }
}

/// Tells a client that it is one too many. Nobody waits for it, and nothing is kept of it.
fn refuse(mut socket: UnixStream) -> std::io::Result<()> {
    socket.set_nonblocking(true)?;
    let what = "too many clients are connected".into();
    // The buffer of a new connection has room for this.
    unasked(ControlError::Busy { what }).iter().try_for_each(|frame| socket.write_all(frame))
}

fn unasked(error: ControlError) -> Vec<Vec<u8>> {
    control::encode(&ServerMessage { id: NO_REQUEST, body: Body::Error(error) }).into_iter().collect()
}

fn write_client(mut socket: &UnixStream, outbox: &Outbox) {
    while let Some(frame) = outbox.pop() {
        if socket.write_all(&frame).is_err() {
            break;
        }
    }
    outbox.close();
    // Wakes the reader of this client too.
    let _ = socket.shutdown(Shutdown::Both);
}
