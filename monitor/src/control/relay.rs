//! What clients ask of other cells: the leader has the control port, and passes on what is about VMs elsewhere.
//!
//! Each other cell has a [`super::Server`] of its own at the other end of a wire. Ids are the client's in both directions, so an
//! answer and the data of a stream go to the client as they come. What is about all cells is asked of each and put together.
//! Who waits for a cell that is lost hears of it.

mod gather;
mod known;
mod link;

use super::answers;
use crate::{
    machine::cell,
    services::{cells, registry},
};
use ::cell::{CellId, CellSet, View};
use alloc::vec::Vec;
use control::{
    Body, ClientMessage, ControlError, Event, Exchange, Followed, Request, ServerMessage, StreamData, StreamEnd, VmSpec,
};
use gather::Gather;
use known::Directory;
use link::Link;

/// Answers of other cells that may be waited for.
const MAX_PENDING: usize = 256;
/// Answers that are put together of what several cells say, at a time.
const MAX_GATHERS: usize = 16;
/// Streams of other cells that may be open.
const MAX_STREAMS: usize = 256;
/// Messages that are taken from a cell in a step.
const MESSAGES: usize = 8;
/// What the relay asks for itself has these ids; no client's has.
const GREETING: u32 = u32::MAX;
const EVENTS: u32 = u32::MAX - 1;
const SHUTDOWN: u32 = u32::MAX - 2;

/// What is to be done with an answer of another cell.
#[derive(Debug)]
enum Then {
    /// The client gets it; where it is good, a VM is known from then on, or forgotten.
    Pass(Change),
    /// It is a part of one for the client.
    Gather,
    /// The cell has ended its VMs.
    Shutdown,
}

#[derive(Debug)]
enum Change {
    None,
    Stream,
    Created(known::Vm),
    Destroyed(control::Name),
    Set(control::Name, Vec<control::Setting>),
}

/// An answer that another cell owes.
#[derive(Debug)]
struct Pending {
    id: u32,
    cell: CellId,
    then: Then,
}

/// What is under way with other cells.
#[derive(Debug)]
pub struct Relay {
    links: Vec<Link>,
    directory: Directory,
    pending: Vec<Pending>,
    /// Open streams of other cells, by the client's ids.
    streams: Vec<(u32, CellId)>,
    gathers: Vec<Gather>,
    /// VMs of lost cells that this one is to start.
    to_restart: Vec<VmSpec>,
}

impl Relay {
    /// Of the cell that leads several; `None` for all others. What was lost before it led is made good.
    pub fn new() -> Option<Self> {
        if !cells::is_leader() || cell::is_alone() {
            return None;
        }
        let View { members, .. } = cells::view()?;
        let others = members.minus(CellSet::EMPTY.with(cells::leader()));
        let directory = Directory::of_config();
        let lost = CellId::all().filter(|cell| cells::loss_of(*cell).is_some());
        Some(Self {
            links: others.iter().map(Link::new).collect(),
            to_restart: lost.flat_map(|cell| directory.to_restart(cell)).collect(),
            directory,
            pending: Vec::new(),
            streams: Vec::new(),
            gathers: Vec::new(),
        })
    }

    /// A client's request: `Ok(None)` if the answer comes later, the request itself if it is this cell's business.
    pub fn offer(&mut self, message: ClientMessage) -> Result<Option<ClientMessage>, ControlError> {
        let id = message.id;
        if id >= SHUTDOWN {
            return Err(ControlError::BadMessage);
        }
        match &message.request {
            Request::Hello { .. } => {
                self.streams.clear();
                self.pending.retain(|pending| matches!(pending.then, Then::Shutdown));
                self.gathers.clear();
                self.links.iter_mut().for_each(Link::greet);
                return Ok(Some(message));
            }
            Request::ListVms => {
                self.check_gathers(id)?;
                self.gathers.push(Gather::vms(id, answers::summaries()));
                self.ask_all(&message);
                return Ok(None);
            }
            Request::Cells => {
                self.check_gathers(id)?;
                self.gathers.push(Gather::cells(id));
                self.ask_all(&message);
                return Ok(None);
            }
            _ => {}
        }
        let Some(to) = self.place_of(&message.request)? else { return Ok(Some(message)) };
        let change = match &message.request {
            request if request.opens_stream() => {
                if self.streams.len() + self.pending.len() >= MAX_STREAMS {
                    return Err(too_many("streams of other cells are open"));
                }
                Change::Stream
            }
            Request::CreateVm(spec) => Change::Created(known::Vm::of(spec)),
            Request::DestroyVm { vm } => Change::Destroyed(vm.clone()),
            Request::SetVm { vm, settings } => Change::Set(vm.clone(), settings.clone()),
            _ => Change::None,
        };
        self.ask(to, &message, Then::Pass(change))?;
        if let Request::Close { stream } = message.request {
            // Nothing more of it is for the client, whatever the cell answers.
            self.streams.retain(|(id, _)| *id != stream);
        }
        Ok(None)
    }

    /// Refuses what would be put together of several answers, if too much is, or `id` is waited for already.
    fn check_gathers(&self, id: u32) -> Result<(), ControlError> {
        let is_waited_for = self.pending.iter().any(|pending| pending.id == id);
        if self.gathers.len() >= MAX_GATHERS || is_waited_for || self.gathers.iter().any(|gather| gather.id == id) {
            return Err(too_many("requests wait for all cells"));
        }
        Ok(())
    }

    /// Whether a VM of this name is being made in another cell.
    fn is_coming(&self, name: &control::Name) -> bool {
        self.pending.iter().any(|pending| matches!(&pending.then, Then::Pass(Change::Created(vm)) if vm.name() == name))
    }

    /// Which other cell a request is about.
    fn place_of(&self, request: &Request) -> Result<Option<CellId>, ControlError> {
        if let Some(stream) = request.stream() {
            return Ok(self.streams.iter().find(|(id, _)| *id == stream).map(|(_, cell)| *cell));
        }
        let Some(name) = request.vm() else { return Ok(None) };
        let known = self.directory.cell_of(name);
        match request {
            Request::CreateVm(spec)
                if known.is_some()
                    || self.is_coming(name)
                    || !is_own(spec.cell) && registry::lock().find(name).is_ok() =>
            {
                Err(ControlError::VmExists { name: name.clone() })
            }
            Request::CreateVm(spec) if !is_own(spec.cell) => Ok(CellId::new(spec.cell.into())),
            _ => Ok(known),
        }
    }

    fn ask(&mut self, to: CellId, message: &ClientMessage, then: Then) -> Result<(), ControlError> {
        if self.pending.len() >= MAX_PENDING {
            return Err(too_many("requests wait for other cells"));
        }
        let lost = || match cell::facts(to.index()) {
            Some(facts) => ControlError::CellLost { cell: facts.name.clone() },
            None => ControlError::Unsupported { what: "the machine has no such cell".into() },
        };
        let link = self.links.iter_mut().find(|link| link.cell == to && !link.is_lost).ok_or_else(lost)?;
        link.ask(message)?;
        self.pending.push(Pending { id: message.id, cell: to, then });
        Ok(())
    }

    /// Asks each cell that can be asked; the others are missing in the answer.
    fn ask_all(&mut self, message: &ClientMessage) {
        for cell in self.links.iter().map(|link| link.cell).collect::<Vec<_>>() {
            let _ = self.ask(cell, message, Then::Gather);
        }
    }

    /// All cells are told to end their VMs.
    pub fn shut_down(&mut self) {
        let message = ClientMessage { id: SHUTDOWN, request: Request::Shutdown };
        for cell in self.links.iter().map(|link| link.cell).collect::<Vec<_>>() {
            // Who cannot be asked is lost or has no VMs yet.
            let _ = self.ask(cell, &message, Then::Shutdown);
        }
    }

    /// Whether all cells have ended their VMs that were told to.
    pub fn is_quiet(&self) -> bool {
        !self.pending.iter().any(|pending| matches!(pending.then, Then::Shutdown))
    }

    /// A bounded step: what other cells say goes to the client. `true` if there is more to do at once.
    pub fn step(&mut self, exchange: &mut Exchange) -> bool {
        let members = cells::view().map_or(CellSet::EMPTY, |view| view.members);
        let mut is_busy = false;
        for at in 0..self.links.len() {
            self.links[at].step();
            for _ in 0..MESSAGES {
                if !exchange.has_room() {
                    break;
                }
                let Some(message) = self.links[at].next_message() else { break };
                is_busy = true;
                self.take(self.links[at].cell, message, exchange);
            }
            if !members.contains(self.links[at].cell) {
                self.lose(self.links[at].cell, exchange);
            }
        }
        self.finish(exchange);
        // Each takes a step of its own.
        if let Some(spec) = self.to_restart.pop() {
            self.restart(spec);
            is_busy = true;
        }
        is_busy
    }

    /// Starts a VM of a lost cell in this one.
    fn restart(&mut self, spec: VmSpec) {
        let name = spec.name.clone();
        let mut registry = registry::lock();
        let started = registry.create(spec).and_then(|_| {
            registry.start(&name).inspect_err(|_| {
                // It stays what it is: lost.
                let _ = registry.destroy(&name);
            })
        });
        match started {
            Ok(()) => {
                log::info!("VM {name} starts again, in this cell");
                self.directory.remove(&name);
            }
            Err(why) => log::error!("VM {name} does not start again: {why}"),
        }
    }

    /// Takes a message of another cell.
    fn take(&mut self, from: CellId, message: ServerMessage, exchange: &mut Exchange) {
        let id = message.id;
        if id == EVENTS {
            if let Body::Stream(StreamData::Events(batch)) = message.body {
                let link = self.links.iter_mut().find(|link| link.cell == from);
                link.into_iter().for_each(|link| link.next_event = batch.next);
                batch.events.into_iter().for_each(|event| self.hear(from, event));
            }
            return;
        }
        if let Body::Stream(data) = &message.body {
            if self.streams.contains(&(id, from)) {
                if matches!(data, StreamData::End(_)) {
                    self.streams.retain(|(stream, _)| *stream != id);
                }
                let _ = exchange.send(&message);
            }
            return;
        }
        let owed = |pending: &Pending| pending.id == id && pending.cell == from;
        let Some(at) = self.pending.iter().position(owed) else { return };
        match self.pending.swap_remove(at).then {
            Then::Pass(change) => {
                if matches!(message.body, Body::Reply(_)) {
                    self.change(change, id, from);
                }
                let _ = exchange.send(&message);
            }
            Then::Gather => {
                let gather = self.gathers.iter_mut().find(|gather| gather.id == id);
                gather.into_iter().for_each(|gather| gather.add(&message.body));
            }
            Then::Shutdown => {}
        }
    }

    fn change(&mut self, change: Change, id: u32, cell: CellId) {
        match change {
            Change::None => {}
            Change::Stream => {
                // Who uses an id again means the newer one.
                self.streams.retain(|(stream, _)| *stream != id);
                self.streams.push((id, cell));
            }
            Change::Created(vm) => self.directory.add(vm),
            Change::Destroyed(name) => self.directory.remove(&name),
            Change::Set(name, settings) => self.directory.set(&name, &settings),
        }
    }

    /// An event of another cell is kept among this cell's.
    fn hear(&mut self, from: CellId, event: Event) {
        self.directory.hear(&event);
        crate::trace::import(from.index() as u8, event);
    }

    /// Answers those who wait for a cell that is lost, as far as there is room.
    fn lose(&mut self, cell: CellId, exchange: &mut Exchange) {
        let Some(name) = cell::facts(cell.index()).map(|facts| facts.name.clone()) else { return };
        for link in self.links.iter_mut().filter(|link| link.cell == cell && !link.is_lost) {
            link.is_lost = true;
            self.to_restart.extend(self.directory.to_restart(cell));
        }
        while exchange.has_room() {
            let (id, body) = if let Some(at) = self.pending.iter().position(|pending| pending.cell == cell) {
                let Pending { id, then, .. } = self.pending.swap_remove(at);
                if !matches!(then, Then::Pass(_)) {
                    continue;
                }
                (id, Body::Error(ControlError::CellLost { cell: name.clone() }))
            } else if let Some(at) = self.streams.iter().position(|(_, of)| *of == cell) {
                let (id, _) = self.streams.swap_remove(at);
                (id, Body::Stream(StreamData::End(StreamEnd::CellLost { cell: name.clone() })))
            } else {
                return;
            };
            let _ = exchange.send(&ServerMessage { id, body });
        }
    }

    /// Sends the answers that are complete.
    fn finish(&mut self, exchange: &mut Exchange) {
        while exchange.has_room() {
            let waits = |id: u32| self.pending.iter().any(|pending| pending.id == id);
            let Some(at) = self.gathers.iter().position(|gather| !waits(gather.id)) else { return };
            let gather = self.gathers.swap_remove(at);
            let (id, body) = (gather.id, Body::Reply(gather.reply(&self.directory)));
            let _ = exchange.send(&ServerMessage { id, body });
        }
    }
}

fn is_own(cell: u8) -> bool {
    usize::from(cell) == cell::index()
}

fn too_many(what: &str) -> ControlError {
    ControlError::Busy { what: alloc::format!("too many {what}").into() }
}

/// What the relay asks each cell for at the beginning of a session.
fn greetings(next_event: u64) -> [ClientMessage; 2] {
    [
        ClientMessage { id: GREETING, request: Request::Hello { version: control::PROTOCOL_VERSION } },
        ClientMessage { id: EVENTS, request: Request::EventsFollow { from: next_event, which: Followed::Lives } },
    ]
}
