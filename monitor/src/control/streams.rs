//! Streams: consoles, named ports, followed events and uploads.

use super::debug::Session;
use crate::{
    hart::PreemptionPoint,
    services::{
        modules::{self, Pieces},
        registry,
    },
};
use alloc::vec::Vec;
use control::{
    Body, ConsoleRange, ControlError, Exchange, Followed, Label, MAX_DATA, Name, Reply, ServerMessage, StreamData,
    StreamEnd,
};

/// Streams open at a time.
const MAX_STREAMS: usize = 64;
/// Events in one message.
const EVENTS_PER_MESSAGE: usize = 32;
/// Bytes of a console or port in one message: they are copied several times on their way.
const BYTES_PER_MESSAGE: usize = 4 << 10;
const _: () = assert!(BYTES_PER_MESSAGE <= MAX_DATA);

#[derive(Debug)]
enum Kind {
    Console { vm: Name, next: u64 },
    Port { vm: Name, port: Label, was_open: bool },
    Events { next: u64, which: Followed },
    Upload { name: Label, bytes: Pieces },
    Debug(Session),
}

impl Kind {
    /// Whether there are events that have not been looked at. A look at some of them may find none that is wanted.
    fn is_behind(&self) -> bool {
        matches!(self, Self::Events { next, which } if *next < crate::trace::next_sequence(*which))
    }
}

#[derive(Debug)]
struct Stream {
    id: u32,
    kind: Kind,
}

/// All streams of the client.
#[derive(Debug, Default)]
pub struct Streams {
    open: Vec<Stream>,
    /// Who speaks first; any number, counted round.
    first: usize,
}

impl Streams {
    fn add(&mut self, id: u32, kind: Kind) -> Result<(), ControlError> {
        if self.open.len() >= MAX_STREAMS {
            let value = self.open.len() as u64 + 1;
            return Err(ControlError::TooLarge { what: "open streams".into(), value, max: MAX_STREAMS as u64 });
        }
        self.open.push(Stream { id, kind });
        Ok(())
    }

    /// Whether a console is open.
    pub(super) fn has_console(&self) -> bool {
        self.open.iter().any(|stream| matches!(stream.kind, Kind::Console { .. }))
    }

    /// Whether anybody follows all events.
    pub(super) fn follows_all(&self) -> bool {
        self.open.iter().any(|stream| matches!(stream.kind, Kind::Events { which: Followed::All, .. }))
    }

    pub(super) fn attach_console(&mut self, id: u32, vm: Name, from: u64) -> Result<Reply, ControlError> {
        let range = {
            let mut registry = registry::lock();
            let console = registry.find(&vm)?.console.lock();
            let (oldest, end) = (console.output().oldest(), console.output().end());
            ConsoleRange { oldest, first: from.clamp(oldest, end), end }
        };
        self.add(id, Kind::Console { vm, next: range.first })?;
        Ok(Reply::Console(range))
    }

    pub(super) fn open_port(&mut self, id: u32, vm: Name, port: Label) -> Result<Reply, ControlError> {
        let is_taken =
            |stream: &Stream| matches!(&stream.kind, Kind::Port { vm: v, port: p, .. } if *v == vm && *p == port);
        if self.open.iter().any(is_taken) {
            return Err(ControlError::PortBusy { vm, port });
        }
        let life = registry::lock().find(&vm)?.life.clone();
        if let Some(life) = life {
            life.platform().set_port_connected(&life, &port, true)?;
        }
        self.add(id, Kind::Port { vm, port, was_open: false })?;
        Ok(Reply::Opened)
    }

    pub(super) fn follow_events(&mut self, id: u32, from: u64, which: Followed) -> Result<Reply, ControlError> {
        self.add(id, Kind::Events { next: from.min(crate::trace::next_sequence(Followed::All)), which })?;
        Ok(Reply::Opened)
    }

    pub(super) fn open_debug(&mut self, id: u32, vm: Name) -> Result<Reply, ControlError> {
        self.add(id, Kind::Debug(Session::open(vm)?))?;
        Ok(Reply::Opened)
    }

    /// The debugger's session that this stream is.
    pub(super) fn debug(&mut self, stream: u32) -> Result<&mut Session, ControlError> {
        match &mut self.find(stream)?.kind {
            Kind::Debug(session) => Ok(session),
            _ => Err(ControlError::WrongStream { stream }),
        }
    }

    pub(super) fn begin_upload(&mut self, id: u32, name: Label, total: u64) -> Result<Reply, ControlError> {
        let bytes = modules::begin(&name, total)?;
        self.add(id, Kind::Upload { name, bytes })?;
        Ok(Reply::Opened)
    }

    pub(super) fn input(&mut self, stream: u32, bytes: &[u8]) -> Result<Reply, ControlError> {
        let accepted = match &self.find(stream)?.kind {
            Kind::Console { vm, .. } => {
                let (console, life) = {
                    let mut registry = registry::lock();
                    let record = registry.find(vm)?;
                    (record.console.clone(), record.life.clone())
                };
                let taken = console.lock().type_in(bytes);
                if let Some(life) = life {
                    life.platform().feed_console(&life);
                }
                taken
            }
            Kind::Port { vm, port, .. } => {
                let life = registry::lock().find(vm)?.life.clone();
                life.map_or(0, |life| life.platform().port_input(&life, port, bytes))
            }
            _ => return Err(ControlError::WrongStream { stream }),
        };
        Ok(Reply::Accepted { bytes: accepted as u32 })
    }

    pub(super) fn upload(&mut self, upload: u32, offset: u64, chunk: &[u8]) -> Result<Reply, ControlError> {
        let Kind::Upload { name, bytes } = &mut self.find(upload)?.kind else {
            return Err(ControlError::WrongStream { stream: upload });
        };
        let expected = bytes.len();
        if offset != expected || chunk.len() as u64 > bytes.missing() {
            return Err(ControlError::WrongOffset { offset, expected });
        }
        bytes.extend(chunk)?;
        if bytes.missing() == 0 {
            let (name, bytes) = (name.clone(), core::mem::take(bytes));
            self.open.retain(|stream| stream.id != upload);
            modules::store(name, bytes)?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn close(&mut self, stream: u32) -> Result<Reply, ControlError> {
        if let Kind::Port { vm, port, .. } = &self.find(stream)?.kind
            && let Ok(record) = registry::lock().find(vm)
            && let Some(life) = record.life.clone()
        {
            let _ = life.platform().set_port_connected(&life, port, false);
        }
        self.open.retain(|open| open.id != stream);
        Ok(Reply::Done)
    }

    fn find(&mut self, id: u32) -> Result<&mut Stream, ControlError> {
        self.open.iter_mut().find(|stream| stream.id == id).ok_or(ControlError::UnknownStream { stream: id })
    }

    /// Lets each stream say at most one message, as far as there is room and nobody calls the hart: whoever had no turn begins the next
    /// time. `true` if there may be more to say.
    pub(super) fn pump(&mut self, exchange: &mut Exchange, point: &mut PreemptionPoint<'_>) -> bool {
        let (count, begin) = (self.open.len(), self.first);
        let (mut ended, mut is_busy) = (Vec::new(), false);
        for at in (begin..begin + count).map(|at| at % count) {
            if !exchange.has_room() {
                self.first = at;
                break;
            }
            let Stream { id, kind } = &mut self.open[at];
            let data = match next_data(kind) {
                Ok(Some(data)) => data,
                Ok(None) if kind.is_behind() => {
                    is_busy = true;
                    point.pause();
                    continue;
                }
                Ok(None) => continue,
                Err(end) => {
                    ended.push(*id);
                    StreamData::End(end)
                }
            };
            is_busy |= exchange.send(&ServerMessage { id: *id, body: Body::Stream(data) }).is_ok();
            if !point.may_go_on() {
                (self.first, is_busy) = (at + 1, true);
                break;
            }
        }
        self.open.retain(|stream| !ended.contains(&stream.id));
        is_busy
    }
}

/// The next piece of a stream, nothing, or its end.
fn next_data(kind: &mut Kind) -> Result<Option<StreamData>, StreamEnd> {
    match kind {
        Kind::Console { vm, next } => {
            let mut registry = registry::lock();
            let console = registry.find(vm).map_err(|_| StreamEnd::VmGone)?.console.lock();
            let (offset, bytes) = console.output().read(*next, BYTES_PER_MESSAGE);
            if bytes.is_empty() {
                return Ok(None);
            }
            *next = offset + bytes.len() as u64;
            Ok(Some(StreamData::Console { offset, bytes }))
        }
        Kind::Port { vm, port, was_open } => {
            let life = registry::lock().find(vm).map_err(|_| StreamEnd::VmGone)?.life.clone();
            let guest_open = life.as_ref().is_some_and(|life| life.platform().is_port_open(port));
            if guest_open != *was_open {
                *was_open = guest_open;
                if let Some(life) = life.filter(|_| guest_open) {
                    let _ = life.platform().set_port_connected(&life, port, true);
                }
                return Ok(Some(StreamData::PortState { guest_open }));
            }
            let Some(life) = life else { return Ok(None) };
            let bytes = life.platform().port_output(&life, port, BYTES_PER_MESSAGE);
            Ok((!bytes.is_empty()).then_some(StreamData::Port { bytes }))
        }
        Kind::Events { next, which } => {
            if *next >= crate::trace::next_sequence(*which) {
                return Ok(None);
            }
            let batch = super::answers::event_batch(*next, EVENTS_PER_MESSAGE, *which);
            *next = batch.next;
            let is_news = !batch.events.is_empty() || batch.lost > 0;
            Ok(is_news.then_some(StreamData::Events(batch)))
        }
        Kind::Upload { .. } => Ok(None),
        Kind::Debug(session) => session.next(),
    }
}
