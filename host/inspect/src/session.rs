//! A debugger's session with one VM, over the control protocol.

use std::time::Duration;

use addr::VcpuIndex;
use control::{DebugAction, DebugStop, MAX_PEEK, Name, Reply, Request, StreamData, VcpuRegisters};
use machine::{Client, ClientError, Stream};

use crate::{GuestRam, InspectError};

/// A debugger's session. Dropping it lets the VM go on as it was: without breakpoints, running if this session stopped it.
#[derive(Debug)]
pub struct Session {
    client: Client,
    stream: Stream,
    vm: Name,
    vcpus: u16,
    memory_bytes: u64,
}

impl Session {
    /// Attaches to a VM that runs or is paused.
    ///
    /// # Errors
    /// If there is no such VM, it is stopped, or another debugger is at it.
    pub fn open(client: &Client, vm: &Name) -> Result<Self, InspectError> {
        let summary = client.vm(vm)?;
        let (reply, stream) = client.open(Request::DebugOpen { vm: vm.clone() })?;
        match reply {
            Reply::Opened => Ok(Self {
                client: client.clone(),
                stream,
                vm: vm.clone(),
                vcpus: summary.vcpus,
                memory_bytes: u64::from(summary.memory_mib) << 20,
            }),
            _ => Err(wrong("DebugOpen")),
        }
    }

    /// The VM.
    #[must_use]
    pub const fn vm(&self) -> &Name {
        &self.vm
    }

    /// How many vCPUs it has.
    #[must_use]
    pub const fn vcpus(&self) -> u16 {
        self.vcpus
    }

    /// Bytes of its RAM, from [`control::RAM_START`] on.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn act(&self, action: DebugAction) -> Result<Reply, InspectError> {
        Ok(self.client.call(Request::Debug { stream: self.stream.id(), action })?)
    }

    fn done(&self, action: DebugAction) -> Result<(), InspectError> {
        match self.act(action)? {
            Reply::Done => Ok(()),
            _ => Err(wrong("Debug")),
        }
    }

    /// Stops all vCPUs; they have stopped when this returns.
    ///
    /// # Errors
    /// If the VM has ended.
    pub fn stop(&self) -> Result<(), InspectError> {
        self.done(DebugAction::Stop)
    }

    /// Lets all vCPUs go on, or only one.
    ///
    /// # Errors
    /// If the VM does not stand still.
    pub fn resume(&self, only: Option<VcpuIndex>) -> Result<(), InspectError> {
        self.done(DebugAction::Resume { only })
    }

    /// A vCPU's registers.
    ///
    /// # Errors
    /// If the VM does not stand still, or has no such vCPU.
    pub fn registers(&self, vcpu: VcpuIndex) -> Result<VcpuRegisters, InspectError> {
        match self.act(DebugAction::ReadRegisters { vcpu })? {
            Reply::Registers(registers) => Ok(*registers),
            _ => Err(wrong("Debug")),
        }
    }

    /// Changes a vCPU's registers.
    ///
    /// # Errors
    /// As [`Self::registers`].
    pub fn set_registers(&self, vcpu: VcpuIndex, registers: VcpuRegisters) -> Result<(), InspectError> {
        self.done(DebugAction::WriteRegisters { vcpu, registers: Box::new(registers) })
    }

    /// Puts an `ebreak` at a guest-physical address.
    ///
    /// # Errors
    /// If there is no RAM, or there are too many breakpoints.
    pub fn set_breakpoint(&self, address: u64) -> Result<(), InspectError> {
        self.done(DebugAction::SetBreakpoint { address })
    }

    /// Takes it away.
    ///
    /// # Errors
    /// If the VM has ended.
    pub fn clear_breakpoint(&self, address: u64) -> Result<(), InspectError> {
        self.done(DebugAction::ClearBreakpoint { address })
    }

    /// Waits for a vCPU to come to an `ebreak`, at most so long; `None` if none has.
    ///
    /// # Errors
    /// If the VM has ended: [`InspectError::is_gone`].
    pub fn wait(&self, patience: Duration) -> Result<Option<DebugStop>, InspectError> {
        match self.stream.recv_timeout(patience)? {
            Some(StreamData::Debug(stop)) => Ok(Some(stop)),
            _ => Ok(None),
        }
    }
}

impl GuestRam for Session {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), InspectError> {
        let mut at = address;
        for piece in into.chunks_mut(MAX_PEEK as usize) {
            let bytes = piece.len() as u32;
            match self.act(DebugAction::ReadMemory { address: at, bytes })? {
                Reply::Memory { bytes } if bytes.len() == piece.len() => piece.copy_from_slice(&bytes),
                _ => return Err(wrong("Debug")),
            }
            at = at.saturating_add(bytes.into());
        }
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), InspectError> {
        let mut at = address;
        for piece in bytes.chunks(MAX_PEEK as usize) {
            self.done(DebugAction::WriteMemory { address: at, bytes: piece.to_vec() })?;
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(())
    }
}

fn wrong(request: &str) -> InspectError {
    ClientError::WrongAnswer { request: request.into() }.into()
}
