//! The requests as methods.

use std::io::Read;

use addr::{CpuIndex, VcpuIndex};
use control::{
    CellInfo, ConsoleRange, EventBatch, ExitTrace, Followed, Label, MAX_DATA, MachineInfo, MachineStats, Memory, Name,
    PageKind, PanicBy, Reply, Request, Setting, StoreInfo, VmSpec, VmStats, VmSummary,
};

use super::{Client, ClientError, Stream};

/// Takes the reply to `$request` apart.
macro_rules! expect {
    ($reply:expr, $request:literal, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            _ => Err(ClientError::WrongAnswer { request: $request.into() }),
        }
    };
}

/// All of these fail as [`Client::call`] does; [`Request`] names the refusals of each.
impl Client {
    /// What the machine is.
    pub fn machine_info(&self) -> Result<MachineInfo, ClientError> {
        expect!(self.call(Request::MachineInfo)?, "MachineInfo", Reply::Machine(info) => *info)
    }

    /// All VMs, by name.
    pub fn vms(&self) -> Result<Vec<VmSummary>, ClientError> {
        expect!(self.call(Request::ListVms)?, "ListVms", Reply::Vms(vms) => vms)
    }

    /// The machine's cells.
    pub fn cells(&self) -> Result<Vec<CellInfo>, ClientError> {
        expect!(self.call(Request::Cells)?, "Cells", Reply::Cells(cells) => cells)
    }

    /// One VM.
    pub fn vm(&self, name: &Name) -> Result<VmSummary, ClientError> {
        let unknown = || ClientError::Refused(control::ControlError::UnknownVm { name: name.clone() });
        self.vms()?.into_iter().find(|vm| vm.name == *name).ok_or_else(unknown)
    }

    /// Makes a VM, stopped.
    pub fn create_vm(&self, spec: VmSpec) -> Result<(), ClientError> {
        self.done(Request::CreateVm(spec), "CreateVm")
    }

    /// Starts a stopped VM.
    pub fn start_vm(&self, vm: &Name) -> Result<(), ClientError> {
        self.done(Request::StartVm { vm: vm.clone() }, "StartVm")
    }

    /// Pauses a running VM.
    pub fn pause_vm(&self, vm: &Name) -> Result<(), ClientError> {
        self.done(Request::PauseVm { vm: vm.clone() }, "PauseVm")
    }

    /// Lets a paused VM go on.
    pub fn resume_vm(&self, vm: &Name) -> Result<(), ClientError> {
        self.done(Request::ResumeVm { vm: vm.clone() }, "ResumeVm")
    }

    /// Takes the power from a VM.
    pub fn kill_vm(&self, vm: &Name) -> Result<(), ClientError> {
        self.done(Request::KillVm { vm: vm.clone() }, "KillVm")
    }

    /// Resets a VM.
    pub fn reset_vm(&self, vm: &Name) -> Result<(), ClientError> {
        self.done(Request::ResetVm { vm: vm.clone() }, "ResetVm")
    }

    /// Changes a VM, running or not.
    pub fn set_vm(&self, vm: &Name, settings: Vec<Setting>) -> Result<(), ClientError> {
        self.done(Request::SetVm { vm: vm.clone(), settings }, "SetVm")
    }

    /// Forgets a stopped VM.
    pub fn destroy_vm(&self, vm: &Name) -> Result<(), ClientError> {
        self.done(Request::DestroyVm { vm: vm.clone() }, "DestroyVm")
    }

    /// Counters of harts, nodes and the monitor.
    pub fn machine_stats(&self) -> Result<MachineStats, ClientError> {
        expect!(self.call(Request::MachineStats)?, "MachineStats", Reply::MachineStats(stats) => stats)
    }

    /// Counters of a VM.
    pub fn vm_stats(&self, vm: &Name) -> Result<VmStats, ClientError> {
        expect!(self.call(Request::VmStats { vm: vm.clone() })?, "VmStats", Reply::VmStats(stats) => *stats)
    }

    /// The latest exits of a vCPU.
    ///
    /// # Errors
    /// As every call; [`control::ControlError::NoSuchVcpu`].
    pub fn exit_trace(&self, vm: &Name, vcpu: VcpuIndex) -> Result<ExitTrace, ClientError> {
        let request = Request::ExitTrace { vm: vm.clone(), vcpu };
        expect!(self.call(request)?, "ExitTrace", Reply::ExitTrace(trace) => trace)
    }

    /// What is behind each page of a VM's RAM; nothing for a stopped one. Pages change while this asks for them part by part.
    ///
    /// # Errors
    /// As every call; [`ClientError::WrongAnswer`] for a kind that this client does not know.
    pub fn page_map(&self, vm: &Name) -> Result<Vec<PageKind>, ClientError> {
        let mut map = Vec::new();
        loop {
            let request = Request::PageMap { vm: vm.clone(), first: map.len() as u64 };
            let kinds = expect!(self.call(request)?, "PageMap", Reply::PageMap { kinds } => kinds)?;
            if kinds.is_empty() {
                return Ok(map);
            }
            for kind in kinds {
                let unknown = || ClientError::WrongAnswer { request: "PageMap".into() };
                map.push(PageKind::from_raw(kind).ok_or_else(unknown)?);
            }
        }
    }

    /// Kept events from this number on, as many as one answer holds; ask again with [`EventBatch::next`].
    pub fn events(&self, from: u64) -> Result<EventBatch, ClientError> {
        expect!(self.call(Request::Events { from })?, "Events", Reply::Events(batch) => batch)
    }

    /// Events from this number on as they happen ([`control::StreamData::Events`]).
    pub fn follow_events(&self, from: u64, which: Followed) -> Result<Stream, ClientError> {
        let (reply, stream) = self.open(Request::EventsFollow { from, which })?;
        expect!(reply, "EventsFollow", Reply::Opened => stream)
    }

    /// A VM's console: output from this byte on (0 = all that is kept, `u64::MAX` = only new), and input.
    pub fn console(&self, vm: &Name, from: u64) -> Result<(ConsoleRange, Stream), ClientError> {
        let (reply, stream) = self.open(Request::ConsoleAttach { vm: vm.clone(), from })?;
        expect!(reply, "ConsoleAttach", Reply::Console(range) => (range, stream))
    }

    /// A named port of a VM.
    pub fn port(&self, vm: &Name, port: &Label) -> Result<Stream, ClientError> {
        let (reply, stream) = self.open(Request::PortOpen { vm: vm.clone(), port: port.clone() })?;
        expect!(reply, "PortOpen", Reply::Opened => stream)
    }

    /// Uploads a module of `total_len` bytes; calls `progress` with the bytes sent so far.
    pub fn put_module(
        &self,
        name: &Label,
        total_len: u64,
        mut content: impl Read,
        mut progress: impl FnMut(u64),
    ) -> Result<(), ClientError> {
        let (_, stream) = self.open(Request::PutModule { name: name.clone(), total_len })?;
        let mut offset = 0;
        while offset < total_len {
            let want = usize::try_from(total_len - offset).unwrap_or(MAX_DATA).min(MAX_DATA);
            let mut bytes = vec![0; want];
            content.read_exact(&mut bytes).map_err(ClientError::Read)?;
            self.done(Request::ModuleChunk { upload: stream.id(), offset, bytes }, "ModuleChunk")?;
            offset += want as u64;
            progress(offset);
        }
        Ok(())
    }

    /// Forgets a module.
    pub fn drop_module(&self, name: &Label) -> Result<(), ClientError> {
        self.done(Request::DropModule { name: name.clone() }, "DropModule")
    }

    /// Freezes what a disk of a VM shows now as a snapshot.
    pub fn snapshot(&self, vm: &Name, disk: &Name, name: &Name) -> Result<(), ClientError> {
        self.done(Request::Snapshot { vm: vm.clone(), disk: disk.clone(), name: name.clone() }, "Snapshot")
    }

    /// What all stores of modified blocks hold.
    pub fn stores(&self) -> Result<Vec<StoreInfo>, ClientError> {
        match self.call(Request::Stores)? {
            Reply::Stores(stores) => Ok(stores),
            _ => Err(ClientError::WrongAnswer { request: "Stores".into() }),
        }
    }

    /// Removes a volume or snapshot.
    pub fn remove_volume(&self, store: Option<&str>, name: &str) -> Result<(), ClientError> {
        let request = Request::RemoveVolume { store: store.map(str::to_owned), name: name.to_owned() };
        self.done(request, "RemoveVolume")
    }

    /// Makes the monitor panic on a hart, if its machine file allows that.
    pub fn panic(&self, hart: CpuIndex, how: PanicBy) -> Result<(), ClientError> {
        self.done(Request::Panic { hart, how }, "Panic")
    }

    /// Serves `first` who ask for memory, and then refuses `count`, if the machine file allows that. How many have asked since the last
    /// time.
    pub fn refuse_memory(&self, memory: Memory, first: u64, count: u64) -> Result<u64, ClientError> {
        expect!(self.call(Request::RefuseMemory { memory, first, count })?, "RefuseMemory", Reply::Asked { times } => times)
    }

    /// Powers the machine off.
    pub fn shutdown(&self) -> Result<(), ClientError> {
        self.done(Request::Shutdown, "Shutdown")
    }

    fn done(&self, request: Request, label: &str) -> Result<(), ClientError> {
        match self.call(request)? {
            Reply::Done => Ok(()),
            _ => Err(ClientError::WrongAnswer { request: label.into() }),
        }
    }
}
