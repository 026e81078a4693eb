//! The thread that serves a disk.

use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use disk_model::Disk;
use thiserror::Error;

use crate::clock::MachineClock;
use crate::connection::Connection;
use crate::handshake::negotiate;
use crate::image::Image;
use crate::pending::Pending;
use crate::protocol::{Command, Head};
use crate::service::Service;

/// How long the gate stays closed after an answer, at most and in real time, for the emulator to take the answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// Time between two looks at the machine's clock while an answer waits for it, or the machine rings doorbells.
const LOOK: Duration = Duration::from_micros(30);
/// The same while the disk rests.
const REST: Duration = Duration::from_micros(500);
/// How long after the last doorbell it rests.
const RESTLESS: Duration = Duration::from_millis(10);
/// Time between two looks at whether the server is to end before its client has come.
const ACCEPT_LOOK: Duration = Duration::from_millis(20);
/// How long a client may take for its part of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a disk is not served.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The image cannot be used.
    #[error("disk image {path}: {source}")]
    Image {
        /// The image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The model does not take it.
    #[error("disk image {path}: {source}")]
    Model {
        /// The image.
        path: PathBuf,
        /// Why.
        source: disk_model::DiskError,
    },
    /// The socket cannot be made.
    #[error("socket {path}: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A disk that is served. Dropping it ends that.
#[derive(Debug)]
pub struct DiskServer {
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DiskServer {
    /// Serves `image` at a new socket to the one client that will connect. What goes wrong with the client is told to
    /// `on_end`, on the server's thread; `Ok` if it went by itself.
    ///
    /// # Errors
    /// [`ServerError::Socket`].
    pub fn start(
        socket: &Path,
        image: Image,
        disk: Disk,
        clock: impl MachineClock,
        on_end: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Socket { path: socket.to_owned(), source };
        let listener = UnixListener::bind(socket).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let body = move || on_end(run(&listener, image, disk, clock, &ends));
        let thread = thread::Builder::new().name("disk-server".into()).spawn(body).map_err(failed)?;
        Ok(Self { socket: socket.to_owned(), is_over, thread: Some(thread) })
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        // Nobody comes in any more, even where a process that is just being made has a copy of the listening socket.
        let _ = std::fs::remove_file(&self.socket);
        // Read by the thread between two looks; nothing is ordered by it.
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    listener: &UnixListener,
    image: Image,
    disk: Disk,
    clock: impl MachineClock,
    is_over: &AtomicBool,
) -> io::Result<()> {
    // The system may be late by 50 us otherwise, which is longer than a look.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let Some(mut stream) = accept(listener, is_over)? else { return Ok(()) };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    negotiate(&mut stream, &image)?;
    clock.attach(true)?;
    let mut session = Session {
        connection: Connection::new(stream)?,
        service: Service::new(image, disk),
        clock,
        pending: Pending::default(),
        heard: 0,
        held: None,
        restless: Instant::now(),
    };
    let result = session.serve(is_over);
    // Whatever happened, the machine's time must not stand still for a server that is gone.
    let opened = session.clock.hold(None).and_then(|()| session.clock.attach(false));
    result.and(opened)
}

fn accept(listener: &UnixListener, is_over: &AtomicBool) -> io::Result<Option<UnixStream>> {
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(ACCEPT_LOOK),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A client's session.
struct Session<C> {
    connection: Connection,
    service: Service,
    clock: C,
    pending: Pending,
    /// Doorbells heard so far.
    heard: u64,
    /// The time at which an answer was sent, and until when the gate stays there.
    held: Option<(u64, Instant)>,
    /// When something last happened.
    restless: Instant,
}

impl<C: MachineClock> Session<C> {
    fn serve(&mut self, is_over: &AtomicBool) -> io::Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            // In this order: what was rung before the look is in the socket by then, as the emulator hands a request on
            // before the hart that rang goes on.
            let (rung, rung_ps) = self.clock.doorbells()?;
            let is_there = self.connection.receive()?;
            let arrival_ps = if rung > self.heard { rung_ps } else { self.clock.now_ps()? };
            while let Some((head, data)) = self.connection.next_request()? {
                if head.command == Command::Disconnect {
                    return Ok(());
                }
                self.take(head, &data, arrival_ps);
                self.restless = Instant::now();
            }
            if !is_there {
                return Ok(());
            }
            self.answer()?;
            self.set_gate()?;
            if rung > self.heard {
                self.restless = Instant::now();
                self.heard = rung;
                self.clock.acknowledge(rung)?;
            }
            self.connection.wait(self.pause())?;
        }
        Ok(())
    }

    /// Does what a request asks, and notes when that will have been done.
    fn take(&mut self, head: Head, data: &[u8], arrival_ps: u64) {
        let (done_ps, answer) = self.service.take(head, data, arrival_ps);
        // The machine's clock stops at whole nanoseconds.
        self.pending.push(done_ps.next_multiple_of(1000), answer);
    }

    /// Sends what is due.
    fn answer(&mut self) -> io::Result<()> {
        let now = self.clock.now_ps()?;
        while let Some((at_ps, bytes)) = self.pending.pop_due(now) {
            self.connection.send(&bytes)?;
            self.held = Some((at_ps, Instant::now() + ANSWER_TIMEOUT));
        }
        Ok(())
    }

    fn set_gate(&mut self) -> io::Result<()> {
        // The emulator takes an answer and raises the interrupt under one lock, which the clock needs to go on.
        if let Some((_, until)) = self.held
            && (self.connection.is_all_read()? || Instant::now() >= until)
        {
            self.held = None;
        }
        let held = self.held.map(|(at_ps, _)| at_ps);
        // A gate at time 0 would be an open one; nothing is complete before 1.
        let limit = held.into_iter().chain(self.pending.next_ps()).min().map(|limit| limit.max(1));
        self.clock.hold(limit)
    }

    fn pause(&self) -> Duration {
        let is_busy = self.held.is_some() || self.pending.next_ps().is_some();
        if is_busy || self.restless.elapsed() < RESTLESS { LOOK } else { REST }
    }
}
