//! What the fake monitor knows and answers.

use std::collections::HashMap;
use std::time::Instant;

use addr::CpuIndex;
use control::{
    Body, ClientMessage, ConsoleRange, ControlError, Event, EventBatch, EventKind, MachineInfo, Name, PROTOCOL_VERSION,
    Reply, Request, ServerHello, StopReason, StreamData, VmLabel, VmState, VmSummary,
};

use super::agent::Agent;
use super::raw::{self, HZ, Size};

/// What every console shows first.
pub const BANNER: &[u8] = b"Debian GNU/Linux 13 debian ttyS0\r\n\r\ndebian login: root (automatic login)\r\n";

pub struct Monitor {
    size: Size,
    name: Name,
    clock: Option<Instant>,
    vms: Vec<VmSummary>,
    modules: Vec<control::ModuleInfo>,
    events: Vec<Event>,
    followers: Vec<u32>,
    consoles: HashMap<u32, Name>,
    agents: HashMap<u32, (Name, Agent)>,
    uploads: HashMap<u32, (control::Label, u64)>,
    is_off: bool,
}

/// Answers: whom, what.
type Answers = Vec<(u32, Body)>;

impl Monitor {
    pub fn new(size: Size, name: Name, clock: Option<Instant>) -> Self {
        let vms = (0..size.vms).map(|index| raw::summary(size, index, 61)).collect();
        let modules = raw::info(size, 61).modules;
        let mut monitor = Self {
            size,
            name,
            clock,
            vms,
            modules,
            events: Vec::new(),
            followers: Vec::new(),
            consoles: HashMap::new(),
            agents: HashMap::new(),
            uploads: HashMap::new(),
            is_off: false,
        };
        monitor.event(None, EventKind::MachineBooted { harts: 8, nodes: 4, free_bytes: 4 << 30 });
        for vm in monitor.vms.clone() {
            monitor.event(Some(&vm), EventKind::VmCreated { vcpus: vm.vcpus, memory_mib: vm.memory_mib });
            monitor.event(Some(&vm), EventKind::VmStarted);
            if let Some(reason) = vm.reason.clone() {
                monitor.event(Some(&vm), EventKind::VmStopped { reason });
            }
        }
        monitor
    }

    pub const fn is_off(&self) -> bool {
        self.is_off
    }

    pub fn answer(&mut self, message: ClientMessage) -> Answers {
        let id = message.id;
        match self.perform(id, message.request) {
            Ok(answers) => answers,
            Err(error) => vec![(id, Body::Error(error))],
        }
    }

    fn at_s(&self) -> u64 {
        61 + self.clock.map_or(0, |clock| clock.elapsed().as_secs())
    }

    fn perform(&mut self, id: u32, request: Request) -> Result<Answers, ControlError> {
        let one = |reply| Ok(vec![(id, Body::Reply(reply))]);
        match request {
            Request::Hello { .. } => one(Reply::Hello(self.hello())),
            Request::MachineInfo => one(Reply::Machine(Box::new(self.info()))),
            Request::Cells => one(Reply::Cells(raw::cells(self.size))),
            Request::ListVms => {
                self.go_down();
                one(Reply::Vms(self.vms.clone()))
            }
            Request::MachineStats => one(Reply::MachineStats(raw::stats(self.size, self.at_s()))),
            Request::VmStats { vm } => {
                one(Reply::VmStats(Box::new(raw::vm_stats(self.size, self.vm(&vm)?, self.at_s()))))
            }
            Request::Events { from } => one(Reply::Events(self.batch(from))),
            Request::EventsFollow { from, .. } => {
                self.followers.push(id);
                let batch = self.batch(from);
                Ok(vec![(id, Body::Reply(Reply::Opened)), (id, Body::Stream(StreamData::Events(batch)))])
            }
            Request::ConsoleAttach { vm, from } => self.attach(id, &vm, from),
            Request::PortOpen { vm, .. } => {
                self.vm(&vm)?;
                self.agents.insert(id, (vm, Agent::default()));
                let open = Body::Stream(StreamData::PortState { guest_open: true });
                Ok(vec![(id, Body::Reply(Reply::Opened)), (id, open)])
            }
            Request::Input { stream, bytes } => self.input(id, stream, &bytes),
            Request::PutModule { name, total_len } => {
                self.uploads.insert(id, (name, total_len));
                one(Reply::Opened)
            }
            Request::ModuleChunk { upload, offset, bytes } => self.chunk(id, upload, offset, bytes.len() as u64),
            Request::DropModule { name } => {
                self.modules.retain(|module| module.name != name);
                one(Reply::Done)
            }
            Request::Close { stream } => {
                self.followers.retain(|follower| *follower != stream);
                self.consoles.remove(&stream);
                self.agents.remove(&stream);
                one(Reply::Done)
            }
            Request::Shutdown => {
                self.is_off = true;
                one(Reply::Done)
            }
            life => self.change(id, life),
        }
    }

    fn hello(&self) -> ServerHello {
        ServerHello { version: PROTOCOL_VERSION, machine: self.name.clone(), monitor: "0.1.0 (fake)".into() }
    }

    fn info(&self) -> MachineInfo {
        MachineInfo { name: self.name.clone(), modules: self.modules.clone(), ..raw::info(self.size, self.at_s()) }
    }

    fn vm(&self, name: &Name) -> Result<&VmSummary, ControlError> {
        self.vms.iter().find(|vm| vm.name == *name).ok_or_else(|| ControlError::UnknownVm { name: name.clone() })
    }

    /// A guest that was asked to goes down while somebody listens to its agent, else it hangs, as real ones do.
    /// `build-1` hangs always.
    fn go_down(&mut self) {
        for (name, _) in self.agents.values().filter(|(name, agent)| agent.is_going_down && name.as_str() != "build-1")
        {
            for vm in self.vms.iter_mut().filter(|vm| vm.name == *name) {
                (vm.state, vm.reason) = (VmState::Stopped, Some(StopReason::PowerOff));
            }
        }
    }

    fn attach(&mut self, id: u32, vm: &Name, from: u64) -> Result<Answers, ControlError> {
        self.vm(vm)?;
        self.consoles.insert(id, vm.clone());
        let end = BANNER.len() as u64;
        let first = from.min(end);
        let range = ConsoleRange { oldest: 0, first, end };
        let mut answers = vec![(id, Body::Reply(Reply::Console(range)))];
        if first < end {
            let bytes = BANNER[first as usize..].to_vec();
            answers.push((id, Body::Stream(StreamData::Console { offset: first, bytes })));
        }
        Ok(answers)
    }

    /// Consoles echo; agents answer.
    fn input(&mut self, id: u32, stream: u32, bytes: &[u8]) -> Result<Answers, ControlError> {
        let mut answers = vec![(id, Body::Reply(Reply::Accepted { bytes: bytes.len() as u32 }))];
        if self.consoles.contains_key(&stream) {
            let data = StreamData::Console { offset: BANNER.len() as u64, bytes: bytes.to_vec() };
            answers.push((stream, Body::Stream(data)));
        } else if let Some((_, agent)) = self.agents.get_mut(&stream) {
            let said = agent.push(bytes);
            let pieces = said.chunks(control::MAX_DATA);
            answers.extend(pieces.map(|piece| (stream, Body::Stream(StreamData::Port { bytes: piece.to_vec() }))));
        } else {
            return Err(ControlError::UnknownStream { stream });
        }
        Ok(answers)
    }

    fn chunk(&mut self, id: u32, upload: u32, offset: u64, length: u64) -> Result<Answers, ControlError> {
        let (name, total) = self.uploads.get(&upload).cloned().ok_or(ControlError::UnknownStream { stream: upload })?;
        if offset + length == total {
            self.uploads.remove(&upload);
            self.modules.push(control::ModuleInfo { name, bytes: total });
        }
        Ok(vec![(id, Body::Reply(Reply::Done))])
    }

    /// The life of VMs.
    fn change(&mut self, id: u32, request: Request) -> Result<Answers, ControlError> {
        let (vm, wanted, next, kind) = match request {
            Request::StartVm { vm } => (vm, VmState::Stopped, VmState::Running, EventKind::VmStarted),
            Request::PauseVm { vm } => (vm, VmState::Running, VmState::Paused, EventKind::VmPaused),
            Request::ResumeVm { vm } => (vm, VmState::Paused, VmState::Running, EventKind::VmResumed),
            Request::ResetVm { vm } => (vm, VmState::Running, VmState::Running, EventKind::VmReset),
            Request::KillVm { vm } => {
                (vm, VmState::Running, VmState::Stopped, EventKind::VmStopped { reason: StopReason::Killed })
            }
            Request::DestroyVm { vm } => (vm, VmState::Stopped, VmState::Stopped, EventKind::VmDestroyed),
            _ => return Err(ControlError::BadMessage),
        };
        let summary = self.vm(&vm)?.clone();
        if summary.state != wanted {
            return Err(ControlError::BadState { vm, state: summary.state, wanted });
        }
        if kind == EventKind::VmDestroyed {
            self.vms.retain(|other| other.name != vm);
        }
        for other in self.vms.iter_mut().filter(|other| other.name == vm) {
            other.state = next;
            if let EventKind::VmStopped { reason } = &kind {
                other.reason = Some(reason.clone());
            }
        }
        let sequence = self.event(Some(&summary), kind);
        let news = Body::Stream(StreamData::Events(self.batch(sequence)));
        let mut answers = vec![(id, Body::Reply(Reply::Done))];
        answers.extend(self.followers.iter().map(|follower| (*follower, news.clone())));
        Ok(answers)
    }

    fn event(&mut self, vm: Option<&VmSummary>, kind: EventKind) -> u64 {
        let sequence = self.events.len() as u64;
        let vm = vm.map(|vm| VmLabel { id: vm.id, name: Some(vm.name.clone()) });
        let ticks = (sequence + 1) * HZ / 10;
        self.events.push(Event { sequence, ticks, hart: CpuIndex(1), cell: 0, vm, kind });
        sequence
    }

    fn batch(&self, from: u64) -> EventBatch {
        let first = usize::try_from(from).unwrap_or(usize::MAX).min(self.events.len());
        EventBatch { lost: 0, events: self.events[first..].to_vec(), next: self.events.len() as u64 }
    }
}
