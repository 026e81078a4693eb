//! A console on a terminal.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use control::{EventKind, Followed, Name, StreamData};
use machine::{Client, ClientError, Stream};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use super::EscapeKey;
use super::input::{InputEvent, InputSink, InputThread};
use super::replay::Replay;
use crate::failure::Failure;

/// A terminal on its way to a VM's console.
#[derive(Clone, Copy, Debug)]
pub struct Attachment<'a> {
    pub client: &'a Client,
    pub vm: &'a Name,
    pub escape: EscapeKey,
    pub has_scrollback: bool,
}

/// How an attachment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detached {
    /// The user typed the escape key.
    ByKey,
    /// The console is gone; why.
    Ended(String),
}

/// What happens on a console.
#[derive(Debug)]
enum Happening {
    Output {
        offset: u64,
        bytes: Vec<u8>,
    },
    Input(InputEvent),
    Notice(String),
    Ended(String),
    /// Nothing: sent now and then, so that threads notice when nobody listens any more.
    Tick,
}

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(500);

/// The terminal in raw mode, until dropped.
#[derive(Debug)]
struct RawMode(());

impl RawMode {
    fn enter() -> Result<Self, Failure> {
        enable_raw_mode().map(|()| Self(())).map_err(Failure::system("cannot put the terminal into raw mode"))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = disable_raw_mode();
    }
}

impl Attachment<'_> {
    /// Attaches standard input and output, which are a terminal, until the user detaches or the console goes.
    pub fn interactive(self) -> Result<Detached, Failure> {
        let (range, stream) = self.client.console(self.vm, if self.has_scrollback { 0 } else { u64::MAX })?;
        let (happenings, queue) = channel();
        let sink = InputSink { client: self.client.clone(), stream: stream.id() };
        let mut shown = Shown { expected: range.first, live_from: range.end, replay: Replay::default() };
        let raw = RawMode::enter()?;
        self.greet()?;
        let failed = || Failure::system("cannot make a thread");
        let input = InputThread::start(sink, self.escape, happenings.clone(), Happening::Input).map_err(failed())?;
        watch_vm(self.client, self.vm, happenings.clone()).map_err(failed())?;
        let output = thread::Builder::new().name("console-output".into());
        output.spawn(move || read_output(&stream, &happenings)).map_err(failed())?;
        let result = pump(&queue, &mut shown);
        drop(input);
        drop(raw);
        result
    }

    fn greet(self) -> Result<(), Failure> {
        let leave = if self.escape.is_some() { format!("; {} detaches", self.escape) } else { String::new() };
        notice(&format!("console of {}{leave}", self.vm))
    }
}

/// Passes the guest's output on, until the console goes or nobody listens.
fn read_output(stream: &Stream, happenings: &Sender<Happening>) {
    loop {
        let happening = match stream.recv_timeout(TICK) {
            Ok(Some(StreamData::Console { offset, bytes })) => Happening::Output { offset, bytes },
            Ok(_) => Happening::Tick,
            Err(error) => Happening::Ended(error.to_string()),
        };
        let is_last = matches!(happening, Happening::Ended(_));
        if happenings.send(happening).is_err() || is_last {
            return;
        }
    }
}

/// How far the output is shown.
struct Shown {
    /// Where the next piece begins, if none is lost.
    expected: u64,
    /// What comes before was kept, and is shown again.
    live_from: u64,
    replay: Replay,
}

impl Shown {
    /// What to show of a piece.
    fn next(&mut self, offset: u64, bytes: Vec<u8>) -> Vec<u8> {
        self.expected = offset.saturating_add(bytes.len() as u64);
        let kept = usize::try_from(self.live_from.saturating_sub(offset)).unwrap_or(usize::MAX);
        if kept == 0 {
            return bytes;
        }
        let (kept, live) = bytes.split_at(kept.min(bytes.len()));
        let mut shown = self.replay.push(kept);
        if self.expected >= self.live_from {
            shown.extend(self.replay.finish());
        }
        shown.extend_from_slice(live);
        shown
    }
}

/// Copies output and reacts, until the end.
fn pump(queue: &Receiver<Happening>, shown: &mut Shown) -> Result<Detached, Failure> {
    let mut stdout = io::stdout();
    while let Ok(happening) = queue.recv() {
        match happening {
            Happening::Output { offset, bytes } => {
                let lost = offset.saturating_sub(shown.expected);
                if lost > 0 {
                    notice(&format!("{lost} bytes of output were lost"))?;
                }
                stdout.write_all(&shown.next(offset, bytes)).and_then(|()| stdout.flush()).map_err(Failure::Output)?;
            }
            Happening::Notice(text) => notice(&text)?,
            Happening::Tick => {}
            Happening::Input(InputEvent::Escape | InputEvent::EndOfFile) => {
                notice("detached")?;
                return Ok(Detached::ByKey);
            }
            Happening::Input(InputEvent::Failed(why)) | Happening::Ended(why) => {
                notice(&why)?;
                return Ok(Detached::Ended(why));
            }
        }
    }
    Ok(Detached::Ended("the console is closed".into()))
}

/// A line of our own between the guest's: the terminal is raw, and the cursor may be anywhere.
fn notice(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    write!(stdout, "\r\n[mirrorball: {text}]\r\n").and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Tells when the VM stops, starts or is reset: its console says nothing of that.
fn watch_vm(client: &Client, vm: &Name, happenings: Sender<Happening>) -> io::Result<()> {
    let (client, vm) = (client.clone(), vm.clone());
    let watch = move || -> Result<(), ClientError> {
        let events = client.follow_events(u64::MAX, Followed::Lives)?;
        let mut is_wanted = true;
        while is_wanted {
            match events.recv_timeout(TICK)? {
                Some(StreamData::Events(batch)) => {
                    for event in batch.events {
                        let is_ours = event.vm.as_ref().is_some_and(|label| label.name.as_ref() == Some(&vm));
                        if let Some(text) = describe(&event.kind).filter(|_| is_ours) {
                            is_wanted = happenings.send(Happening::Notice(text)).is_ok();
                        }
                    }
                }
                _ => is_wanted = happenings.send(Happening::Tick).is_ok(),
            }
        }
        Ok(())
    };
    // That the stream of events ends is told by the console's own stream too.
    thread::Builder::new().name("console-events".into()).spawn(move || drop(watch())).map(drop)
}

fn describe(kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::VmStopped { reason } => Some(format!("the VM stopped: {reason}")),
        EventKind::VmStarted => Some("the VM started".into()),
        EventKind::VmReset => Some("the VM was reset".into()),
        EventKind::VmPaused => Some("the VM is paused".into()),
        EventKind::VmResumed => Some("the VM goes on".into()),
        _ => None,
    }
}
