//! The control port: one client (the supervisor or a management guest), served by the control hart in bounded steps.
//!
//! [`Server`] owns the conversation: it takes frames apart, answers requests, and keeps the streams going. It never
//! blocks: what takes time (a VM that is loaded, or loses its memory) is answered later. A step answers one request. What it says
//! is bounded: neither is a request taken nor anything else said while [`Exchange::LIMIT`] bytes wait for the port.

mod answers;
mod debug;
mod port;
mod relay;
mod streams;

pub use port::{ControlStream, Port};

use crate::{
    hart::{self, Hart, PreemptionPoint},
    io,
    machine::cell,
    services::{
        cells,
        mail::{self, Message},
        modules,
        registry::{self, Registry},
    },
    vm::console,
};
use ::cell::CellId;
use addr::{CpuIndex, VcpuIndex};
use alloc::vec::Vec;
use control::{
    Body, ClientMessage, ControlError, DebugAction, EventKind, Exchange, FrameError, Memory, Name, PROTOCOL_VERSION,
    PanicBy, Reply, Request, ServerHello, ServerMessage, VmState,
};
use relay::Relay;
use streams::Streams;

/// Answers that may wait for VMs.
const MAX_WAITING: usize = 256;

/// Refuses what no machine but one for tests does.
fn check_may_fail() -> Result<(), ControlError> {
    if crate::machine::options().allow_panic {
        return Ok(());
    }
    Err(ControlError::Unsupported { what: "its file does not say allow_panic = true in [options]".into() })
}

/// Refuses memory that is there, where the machine file allows that.
fn refuse(memory: Memory, first: u64, count: u64) -> Result<Reply, ControlError> {
    check_may_fail()?;
    let refusals = match memory {
        Memory::Heap => &scarce::HEAP,
        Memory::Pages => crate::machine::memory::frames().refusals(),
    };
    let times = refusals.asked();
    refusals.arm(first, count);
    Ok(Reply::Asked { times })
}

/// A hart that is to panic, and how.
type ToPanic = (&'static Hart, PanicBy);

/// Which hart `cpu` is, if it may be made to panic.
fn to_panic(cpu: CpuIndex, how: PanicBy) -> Result<ToPanic, ControlError> {
    check_may_fail()?;
    let target = hart::all().get(cpu.index()).filter(|target| target.is_online());
    let target = target.ok_or_else(|| ControlError::Unsupported { what: "it has no such hart".into() })?;
    Ok((target, how))
}

/// An answer that waits for a VM to get somewhere.
#[derive(Debug)]
struct Waiting {
    id: u32,
    vm: Name,
    until: Until,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// It has reached this state.
    State(VmState),
    /// It has been launched, or will not be.
    Launched,
    /// A debugger's question to this vCPU has been answered.
    Looked(VcpuIndex),
}

impl Waiting {
    /// The answer, if there is one now.
    fn outcome(&self, registry: &mut Registry) -> Option<Result<Reply, ControlError>> {
        match (self.until, registry.find(&self.vm)) {
            (Until::State(state), Ok(record)) => record.has_reached(state).then_some(Ok(Reply::Done)),
            (Until::State(_), Err(_)) => Some(Ok(Reply::Done)),
            (Until::Launched, Ok(record)) => record.start_outcome().map(|started| started.map(|()| Reply::Done)),
            (Until::Looked(vcpu), Ok(record)) => debug::outcome(record, vcpu),
            (Until::Launched | Until::Looked(_), Err(why)) => Some(Err(why)),
        }
    }
}

/// The conversation with the client.
#[derive(Debug, Default)]
pub struct Server {
    exchange: Exchange,
    streams: Streams,
    /// Where there are other cells.
    relay: Option<Relay>,
    waiting: Vec<Waiting>,
    shutdown: Option<u32>,
    /// Counts clients, so that none gets another's answer.
    session: u32,
    /// Who panics as soon as the port has what was said.
    to_panic: Option<ToPanic>,
    /// The part of a step that comes next.
    part: usize,
    /// The cell that has the control port. Where that is another one, it is this server's client.
    leader: CellId,
}

/// A part of a step; `true` if there is more to do at once.
type Part = fn(&mut Server, &mut dyn Port, &mut PreemptionPoint<'_>) -> bool;

impl Server {
    /// A server that has no client yet, of the cell that executes this.
    pub fn new() -> Self {
        Self { relay: Relay::new(), leader: cells::leader(), ..Self::default() }
    }

    /// One bounded step: take requests, move streams on, give bytes to the port. A call ends it between two of these; the next step goes
    /// on there. `true` if there is more to do at once.
    pub fn step(&mut self, port: &mut dyn Port, point: &mut PreemptionPoint<'_>) -> bool {
        if self.leader != cells::leader() {
            self.follow(cells::leader());
        }
        const PARTS: [Part; 3] = [
            |server, port, _| server.hear(port),
            |server, _, point| server.go_on(point),
            |server, port, _| server.say(port),
        ];
        let (began, mut is_busy) = (core::mem::take(&mut self.part), false);
        for (at, part) in PARTS.into_iter().enumerate().skip(began) {
            is_busy |= part(self, port, point);
            if !point.may_go_on() && at + 1 < PARTS.len() {
                self.part = at + 1;
                return true;
            }
        }
        // What came before the parts that were done now may have more to do because of them.
        is_busy || began != 0 || self.exchange.can_go_on()
    }

    /// Takes requests.
    fn hear(&mut self, port: &mut dyn Port) -> bool {
        // Those of earlier steps first: a request may begin another life of the VM that they wait for.
        self.answer_waiting();
        let is_busy = self.receive(port);
        self.answer_waiting();
        self.answer_stores();
        console::set_watched(self.streams.has_console());
        crate::trace::set_all_followed(self.streams.follows_all());
        is_busy
    }

    /// Moves streams on, and what is under way to and from other cells.
    fn go_on(&mut self, point: &mut PreemptionPoint<'_>) -> bool {
        let mut is_busy = self.streams.pump(&mut self.exchange, point);
        if let Some(relay) = &mut self.relay {
            point.pause();
            is_busy |= relay.step(&mut self.exchange);
        }
        is_busy
    }

    /// Gives bytes to the port.
    fn say(&mut self, port: &mut dyn Port) -> bool {
        self.transmit(port);
        if let Some((target, how)) = self.to_panic.take_if(|_| self.exchange.waiting_bytes() == 0) {
            mail::send(target, Message::Panic(how));
        }
        if self.shutdown.is_some() && self.has_stopped_all() && io::disks::stores::settle() {
            self.finish_shutdown(port);
        }
        false
    }

    /// Another cell leads, because the one before is lost: whoever spoke through that is gone, and with them what they waited for.
    fn follow(&mut self, leader: CellId) {
        let lost = cell::name_of(self.leader.index());
        let ending = self.shutdown.take();
        let session = self.session.wrapping_add(1);
        *self = Self { relay: Relay::new(), session, leader, ..Self::default() };
        if !cells::is_leader() {
            return;
        }
        if let Ok(lost) = Name::new(lost) {
            self.exchange.interrupt(&ServerMessage { id: 0, body: Body::Successor { lost } });
        }
        // The machine was going down: it does, though nobody waits for the answer.
        if let Some(relay) = self.relay.as_mut().filter(|_| ending.is_some()) {
            relay.shut_down();
        }
        self.shutdown = ending;
    }

    /// Answers one request: the next of those that came before, or the first of what has arrived since. `true` if there may be more.
    fn receive(&mut self, port: &mut dyn Port) -> bool {
        if self.handle_next() {
            return true;
        }
        // The port interrupts again only after it has said that there is nothing.
        let has_some = self.exchange.receive(|chunk| port.read(chunk));
        self.handle_next() | has_some
    }

    fn handle_next(&mut self) -> bool {
        let Some(request) = self.exchange.next_request() else { return false };
        match request {
            Ok(message) => self.handle(message),
            Err(FrameError::Garbage { bytes }) => {
                crate::trace::record(None, EventKind::ControlGarbage { bytes: bytes as u64 });
            }
            Err(FrameError::Undecodable { .. }) => self.error(0, ControlError::BadMessage),
        }
        true
    }

    fn transmit(&mut self, port: &mut dyn Port) {
        self.exchange.transmit(|bytes| port.write(bytes));
    }

    /// Says something; whoever comes here has seen that there is room.
    fn send(&mut self, message: &ServerMessage) {
        if self.exchange.send(message).is_err() {
            log::error!("control: the answer to request {} found no room", message.id);
        }
    }

    fn reply(&mut self, id: u32, reply: Reply) {
        self.send(&ServerMessage { id, body: Body::Reply(reply) });
    }

    fn error(&mut self, id: u32, error: ControlError) {
        self.send(&ServerMessage { id, body: Body::Error(error) });
    }

    fn handle(&mut self, ClientMessage { id, request }: ClientMessage) {
        if self.shutdown.is_some() {
            return self.error(id, ControlError::ShuttingDown);
        }
        let message = ClientMessage { id, request };
        let offered = match &mut self.relay {
            Some(relay) => relay.offer(message),
            None => Ok(Some(message)),
        };
        let done = match offered {
            Ok(None) => return,
            Ok(Some(ClientMessage { request, .. })) => self.perform(id, request),
            Err(error) => Err(error),
        };
        match done {
            Ok(Some(reply)) => self.reply(id, reply),
            Ok(None) => {}
            Err(error) => self.error(id, error),
        }
    }

    /// Does what is asked; `None` when the answer comes later.
    fn perform(&mut self, id: u32, request: Request) -> Result<Option<Reply>, ControlError> {
        let reply = match request {
            Request::Hello { version } => self.hello(version)?,
            Request::MachineInfo => answers::machine(),
            Request::ListVms => Reply::Vms(answers::summaries()),
            Request::MachineStats => answers::machine_stats(),
            Request::VmStats { vm } => answers::vm_stats(&vm)?,
            Request::ExitTrace { vm, vcpu } => answers::exit_trace(&vm, vcpu)?,
            Request::PageMap { vm, first } => answers::page_map(&vm, first)?,
            Request::Events { from } => answers::events(from),
            Request::CreateVm(spec) => {
                registry::lock().create(spec)?;
                Reply::Done
            }
            Request::StartVm { vm } => {
                self.check_waiting()?;
                registry::lock().start(&vm)?;
                self.waiting.push(Waiting { id, vm, until: Until::Launched });
                return Ok(None);
            }
            Request::DestroyVm { vm } => {
                registry::lock().destroy(&vm)?;
                Reply::Done
            }
            Request::PauseVm { vm } => return self.pause(id, vm),
            Request::ResumeVm { vm } => {
                registry::lock().find(&vm)?.resume()?;
                Reply::Done
            }
            Request::KillVm { vm } => {
                self.check_waiting()?;
                registry::lock().find(&vm)?.kill()?;
                self.waiting.push(Waiting { id, vm, until: Until::State(VmState::Stopped) });
                return Ok(None);
            }
            Request::ResetVm { vm } => {
                registry::lock().find(&vm)?.reset()?;
                Reply::Done
            }
            Request::SetVm { vm, settings } => {
                registry::lock().find(&vm)?.set(&settings)?;
                Reply::Done
            }
            Request::ConsoleAttach { vm, from } => self.streams.attach_console(id, vm, from)?,
            Request::PortOpen { vm, port } => self.streams.open_port(id, vm, port)?,
            Request::EventsFollow { from, which } => self.streams.follow_events(id, from, which)?,
            Request::Input { stream, bytes } => self.streams.input(stream, &bytes)?,
            Request::Close { stream } => self.streams.close(stream)?,
            Request::PutModule { name, total_len } => self.streams.begin_upload(id, name, total_len)?,
            Request::ModuleChunk { upload, offset, bytes } => self.streams.upload(upload, offset, &bytes)?,
            Request::DropModule { name } => {
                modules::remove(&name)?;
                Reply::Done
            }
            Request::Snapshot { vm, disk, name } => {
                let spec = registry::lock().find(&vm)?.spec.clone();
                io::disks::stores::snapshot(&spec, &disk, &name, self.token(id))?;
                return Ok(None);
            }
            Request::Stores => Reply::Stores(io::disks::stores::list()),
            Request::RemoveVolume { store, name } => {
                io::disks::stores::remove(store.as_deref(), &name, self.token(id))?;
                return Ok(None);
            }
            Request::Cells => Reply::Cells(Vec::from([answers::own_cell()])),
            Request::Panic { hart, how } => {
                self.to_panic = Some(to_panic(hart, how)?);
                Reply::Done
            }
            Request::RefuseMemory { memory, first, count } => refuse(memory, first, count)?,
            Request::DebugOpen { vm } => self.streams.open_debug(id, vm)?,
            Request::Debug { stream, action } => return self.debug(id, stream, action),
            Request::Sample { vm } => debug::samples(&vm)?,
            Request::Shutdown => {
                stop_all();
                if let Some(relay) = &mut self.relay {
                    relay.shut_down();
                }
                self.shutdown = Some(id);
                return Ok(None);
            }
        };
        Ok(Some(reply))
    }

    fn hello(&mut self, version: u32) -> Result<Reply, ControlError> {
        if version != PROTOCOL_VERSION {
            return Err(ControlError::VersionMismatch { client: version, server: PROTOCOL_VERSION });
        }
        self.streams = Streams::default();
        self.waiting.clear();
        self.session = self.session.wrapping_add(1);
        Ok(Reply::Hello(ServerHello {
            version: PROTOCOL_VERSION,
            machine: crate::machine::name(),
            monitor: crate::version::text(),
        }))
    }

    fn pause(&mut self, id: u32, vm: Name) -> Result<Option<Reply>, ControlError> {
        self.check_waiting()?;
        registry::lock().find(&vm)?.pause()?;
        self.waiting.push(Waiting { id, vm, until: Until::State(VmState::Paused) });
        Ok(None)
    }

    fn debug(&mut self, id: u32, stream: u32, action: DebugAction) -> Result<Option<Reply>, ControlError> {
        self.check_waiting()?;
        let session = self.streams.debug(stream)?;
        match session.act(action)? {
            debug::Done::Now(reply) => Ok(Some(*reply)),
            debug::Done::When(until) => {
                let vm = session.vm().clone();
                self.waiting.push(Waiting { id, vm, until });
                Ok(None)
            }
        }
    }

    /// Names a request among those of all sessions.
    fn token(&self, id: u32) -> u64 {
        u64::from(self.session) << 32 | u64::from(id)
    }

    /// Answers those whose snapshot is durable, or who have removed something.
    fn answer_stores(&mut self) {
        while self.exchange.has_room()
            && let Some((token, outcome)) = io::disks::stores::next_answer()
        {
            // A client that is gone is not answered.
            if token == self.token(token as u32) {
                self.answer(token as u32, outcome.map(|()| Reply::Done));
            }
        }
    }

    /// Answers those whose VM has got where they wanted it, as far as there is room.
    fn answer_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let is_over = self.shutdown.is_some();
        let mut registry = registry::lock();
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.retain(|waiting| {
            if !self.exchange.has_room() {
                return true;
            }
            let outcome = waiting.outcome(&mut registry);
            let is_refused = is_over && matches!(waiting.until, Until::Launched);
            let outcome = outcome.or_else(|| is_refused.then_some(Err(ControlError::ShuttingDown)));
            let waits = outcome.is_none();
            outcome.into_iter().for_each(|outcome| self.answer(waiting.id, outcome));
            waits
        });
        self.waiting = waiting;
    }

    fn answer(&mut self, id: u32, outcome: Result<Reply, ControlError>) {
        match outcome {
            Ok(reply) => self.reply(id, reply),
            Err(error) => self.error(id, error),
        }
    }

    /// Refuses what would be answered later, if too many wait for such answers.
    fn check_waiting(&self) -> Result<(), ControlError> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(ControlError::Busy { what: "too many requests wait for VMs".into() });
        }
        Ok(())
    }

    fn finish_shutdown(&mut self, port: &mut dyn Port) {
        if let Some(id) = self.shutdown.take() {
            self.reply(id, Reply::Done);
            self.transmit(port);
            if cells::is_leader() {
                crate::machine::power_off();
            }
        }
    }

    /// Whether the VMs of all cells have ended; those that have not are told to.
    fn has_stopped_all(&self) -> bool {
        stop_all() && self.relay.as_ref().is_none_or(Relay::is_quiet)
    }
}

/// Ends every VM; whether all have ended. One that was about to begin again when it was told first begins, and is told again.
fn stop_all() -> bool {
    let registry = registry::lock();
    registry.stop_all();
    registry.is_quiet()
}
