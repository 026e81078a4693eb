//! Bytes from the client, cut into requests; bytes to the client.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::protocol::{Head, MAX_REQUEST, REQUEST_BYTES};
use crate::unread::is_all_read;

/// A connection in its transmission phase. It never blocks in reading.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    received: Requests,
}

/// Bytes of a client, cut into requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// Received, and not yet a whole request.
    received: Vec<u8>,
}

impl Requests {
    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
    }

    /// The next request that has arrived wholly, with its data.
    ///
    /// # Errors
    /// The stream is out of step, or a write is too large. There is no way on.
    pub fn next_request(&mut self) -> io::Result<Option<(Head, Vec<u8>)>> {
        let Some(start) = self.received.first_chunk::<REQUEST_BYTES>() else { return Ok(None) };
        let broken = |what| io::Error::new(ErrorKind::InvalidData, what);
        let head = Head::decode(start).ok_or_else(|| broken("a request does not begin as one"))?;
        if head.payload() > MAX_REQUEST {
            return Err(broken("a write is larger than the server takes"));
        }
        let end = REQUEST_BYTES + head.payload() as usize;
        if self.received.len() < end {
            return Ok(None);
        }
        let data = self.received[REQUEST_BYTES..end].to_vec();
        self.received.drain(..end);
        Ok(Some((head, data)))
    }
}

impl Connection {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Requests::default() })
    }

    /// Waits until there may be something to read, or `timeout` is over.
    pub fn wait(&self, timeout: std::time::Duration) -> io::Result<()> {
        self.poll(PollFlags::IN, Some(timeout))
    }

    /// Takes all that has arrived; false when the client has gone.
    pub fn receive(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(count) => self.received.push(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Requests::next_request`].
    pub fn next_request(&mut self) -> io::Result<Option<(Head, Vec<u8>)>> {
        self.received.next_request()
    }

    /// Sends all, waiting for the client to take it.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.poll(PollFlags::OUT, None)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the client has read everything that was sent.
    pub fn is_all_read(&self) -> io::Result<bool> {
        is_all_read(&self.stream)
    }

    fn poll(&self, flags: PollFlags, timeout: Option<std::time::Duration>) -> io::Result<()> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        match poll(&mut [PollFd::new(&self.stream, flags)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
