//! Bytes typed or piped in, on their way to a guest.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use control::{Reply, Request};
use machine::{Client, ClientError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::escape::{EscapeFilter, EscapeKey};

/// How often the reader looks whether it is still wanted.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long to wait before bytes are offered again to a guest that has taken none.
const RETRY: Duration = Duration::from_millis(20);

/// What the reader has to say.
#[derive(Debug)]
pub enum InputEvent {
    /// The escape key was typed.
    Escape,
    /// Nothing more will come.
    EndOfFile,
    /// The guest cannot be reached, or standard input cannot be read; why.
    Failed(String),
}

/// A thread that reads standard input for a console. It leaves alone what comes after the escape key, and after its
/// own end: the live view reads there next.
#[derive(Debug)]
pub struct InputThread {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A console's input side. Several threads may send; the stream itself stays with its reader.
#[derive(Clone, Debug)]
pub struct InputSink {
    pub client: Client,
    pub stream: u32,
}

impl InputThread {
    /// Begins to read. `tell` is called from the thread.
    pub fn start<T: Send + 'static>(
        sink: InputSink,
        escape: EscapeKey,
        events: Sender<T>,
        wrap: fn(InputEvent) -> T,
    ) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let body = move || {
            let event = read_all(&sink, escape, &over);
            // Nobody listens after the end.
            let _ = event.map(|event| events.send(wrap(event)));
        };
        let thread = thread::Builder::new().name("console-input".into()).spawn(body)?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for InputThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // It sees the flag within a moment, even while the guest takes no bytes.
            let _ = thread.join();
        }
    }
}

fn read_all(sink: &InputSink, escape: EscapeKey, over: &AtomicBool) -> Option<InputEvent> {
    let stdin = io::stdin();
    let mut filter = EscapeFilter::new(escape);
    let mut chunk = [0; 4096];
    while !over.load(Ordering::SeqCst) {
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Some(InputEvent::Failed(error.to_string())),
        }
        // Not through `Stdin`, whose buffer would keep bytes from whoever reads next.
        let count = match rustix::io::read(stdin.as_fd(), &mut chunk) {
            Ok(0) => return Some(InputEvent::EndOfFile),
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(error) => return Some(InputEvent::Failed(error.to_string())),
        };
        let typed = filter.push(chunk.get(..count).unwrap_or_default());
        if let Err(error) = sink.send_all(typed.forward, over) {
            return Some(InputEvent::Failed(error.to_string()));
        }
        if typed.detach {
            return Some(InputEvent::Escape);
        }
    }
    None
}

impl InputSink {
    /// Sends all the bytes; gives up silently when it is over.
    fn send_all(&self, mut bytes: &[u8], over: &AtomicBool) -> Result<(), ClientError> {
        while !bytes.is_empty() && !over.load(Ordering::SeqCst) {
            let request = Request::Input { stream: self.stream, bytes: bytes.to_vec() };
            let taken = match self.client.call(request)? {
                Reply::Accepted { bytes: taken } => usize::try_from(taken).unwrap_or(bytes.len()).min(bytes.len()),
                _ => return Err(ClientError::WrongAnswer { request: "Input".into() }),
            };
            bytes = bytes.get(taken..).unwrap_or_default();
            if taken == 0 {
                // The guest's reading makes no event on this side; ask again.
                thread::sleep(RETRY);
            }
        }
        Ok(())
    }
}
