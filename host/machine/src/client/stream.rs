//! An open stream.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use control::{MAX_DATA, Reply, Request, StreamData};

use super::{Client, ClientError};

/// How long to wait before bytes are offered again to a guest that has taken none.
const RETRY: Duration = Duration::from_millis(20);

/// An open stream: a console, a port or events. Dropping it closes it.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    id: u32,
    data: Receiver<StreamData>,
}

impl Stream {
    pub(super) const fn new(client: Client, id: u32, data: Receiver<StreamData>) -> Self {
        Self { client, id, data }
    }

    /// The id that names the stream on the wire.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Waits for the next data.
    ///
    /// # Errors
    /// [`ClientError::StreamEnded`] or [`ClientError::Disconnected`] when there will be no more.
    pub fn recv(&self) -> Result<StreamData, ClientError> {
        self.data.recv().map_err(|_| self.client.link().end_reason()).and_then(unless_ended)
    }

    /// Waits for the next data, at most so long; `None` if none came.
    ///
    /// # Errors
    /// As [`Stream::recv`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<StreamData>, ClientError> {
        match self.data.recv_timeout(timeout) {
            Ok(data) => unless_ended(data).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.client.link().end_reason()),
        }
    }

    /// Offers bytes to the guest once; gives how many it took (0 if it does not read).
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn send(&self, bytes: &[u8]) -> Result<usize, ClientError> {
        let bytes = bytes.get(..bytes.len().min(MAX_DATA)).unwrap_or_default();
        let limit = bytes.len();
        match self.client.call(Request::Input { stream: self.id, bytes: bytes.to_vec() })? {
            Reply::Accepted { bytes } => Ok(usize::try_from(bytes).unwrap_or(limit).min(limit)),
            _ => Err(ClientError::WrongAnswer { request: "Input".into() }),
        }
    }

    /// Sends all the bytes, waiting for the guest to take them, at most so long.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if the guest does not read; else as [`Client::call`].
    pub fn send_all(&self, mut bytes: &[u8], timeout: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + timeout;
        while !bytes.is_empty() {
            let taken = self.send(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            if taken == 0 {
                if Instant::now() >= deadline {
                    return Err(ClientError::Timeout { request: "Input".into(), seconds: timeout.as_secs() });
                }
                // The guest's reading makes no event on this side; ask again.
                thread::sleep(RETRY);
            }
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.client.link().abandon(self.id);
    }
}

fn unless_ended(data: StreamData) -> Result<StreamData, ClientError> {
    match data {
        StreamData::End(end) => Err(ClientError::StreamEnded(end)),
        data => Ok(data),
    }
}
