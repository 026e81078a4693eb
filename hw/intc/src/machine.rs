//! All controllers of the machine behind one face.

use alloc::vec::Vec;
use core::num::NonZero;

use addr::{BASE_PAGE_SHIFT, CpuIndex, HartId, MachineAddr};
use machine_tree::{AddressRange, Controller, Imsic, InterruptSource, MachineDescription, Trigger};

use crate::{
    Aplic, AplicContext, Delivery, FilePages, FileRegisters, Identity, IntcError, MsiTarget, OwnFile, Plic,
    PlicContext, Registers,
};

/// The identity of inter-processor interrupts: the most urgent one.
const IPI: Identity = NonZero::<u16>::MIN;
/// Identities that are handed to devices, at most: there are not more sources worth having.
const MAX_DEVICE_IDENTITIES: u32 = 254;

/// Every interrupt controller of the machine, and what is attached to them.
///
/// `R` are memory-mapped registers, `C` the current hart's interrupt file.
pub struct MachineInterrupts<R, C> {
    own_file: C,
    files: Option<Files<R>>,
    aplics: Vec<Aplic<R>>,
    plics: Vec<Plic<R>>,
    /// By `CpuIndex`.
    cpus: Vec<Cpu>,
    attached: Vec<Attachment>,
}

/// What a hart took from its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Another hart sent an inter-processor interrupt.
    Ipi,
    /// A device interrupts. Serve it, then hand the claim back.
    Device(Claim),
}

/// A device interrupt between claim and completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a source stays quiet until it is completed"]
pub struct Claim {
    source: InterruptSource,
    line: Option<PlicContext>,
}

impl Claim {
    /// The source that interrupts.
    #[must_use]
    pub const fn source(&self) -> InterruptSource {
        self.source
    }
}

struct Files<R> {
    layout: Imsic,
    /// By `CpuIndex`; a hart may lack files.
    pages: Vec<Option<FilePages<R>>>,
    last_identity: u32,
}

impl<R> Files<R> {
    fn has(&self, cpu: CpuIndex) -> bool {
        self.pages.get(cpu.index()).is_some_and(Option::is_some)
    }
}

struct Cpu {
    hart: HartId,
    lines: Vec<Line>,
}

/// A wire into a hart.
#[derive(Clone, Copy)]
enum Line {
    Plic { index: usize, context: PlicContext },
    Aplic { index: usize, context: AplicContext },
}

struct Attachment {
    source: InterruptSource,
    cpu: CpuIndex,
    /// How it arrives where interrupts are messages.
    identity: Option<Identity>,
}

impl<R: Registers, C: FileRegisters> MachineInterrupts<R, C> {
    /// Takes over the controllers of `machine`: every source off, no file open. `map` turns a block of machine
    /// addresses into registers (it is where the caller vouches for the mapping).
    pub fn new(
        machine: &MachineDescription,
        own_file: C,
        mut map: impl FnMut(AddressRange) -> Option<R>,
    ) -> Result<Self, IntcError> {
        let mut map = |range| map(range).ok_or(IntcError::NotMapped { range });
        let controllers = &machine.controllers;
        let mut found = Self {
            own_file,
            files: None,
            aplics: Vec::new(),
            plics: Vec::new(),
            cpus: machine.harts.iter().map(|hart| Cpu { hart: hart.id, lines: Vec::new() }).collect(),
            attached: Vec::new(),
        };
        if let Some(layout) = &controllers.imsic {
            let pages = machine.harts.iter().map(|hart| {
                let pages = file_pages(layout, hart.id).map(&mut map).transpose()?;
                Ok(pages.map(FilePages::new))
            });
            let pages = pages.collect::<Result<_, IntcError>>()?;
            let last_identity = layout.num_ids.min(MAX_DEVICE_IDENTITIES + 1);
            found.files = Some(Files { layout: layout.clone(), pages, last_identity });
        }
        for aplic in &controllers.aplics {
            let delivery = if aplic.is_msi { Delivery::Msi } else { Delivery::Wired };
            let driver = Aplic::new(map(aplic.registers)?, aplic.num_sources, delivery)?;
            for wire in &aplic.contexts {
                let line = Line::Aplic { index: found.aplics.len(), context: driver.open(wire.index)? };
                found.add_line(wire.hart, line);
            }
            found.aplics.push(driver);
        }
        for plic in &controllers.plics {
            let driver = Plic::new(map(plic.registers)?, plic.num_sources)?;
            for wire in &plic.contexts {
                let line = Line::Plic { index: found.plics.len(), context: driver.open(wire.index)? };
                found.add_line(wire.hart, line);
            }
            found.plics.push(driver);
        }
        Ok(found)
    }

    /// Routes `source` to `cpu`, or to another hart where no wire leads to that one; returns who will take it. A source
    /// that several devices share is attached once.
    pub fn attach(&mut self, source: InterruptSource, cpu: CpuIndex) -> Result<CpuIndex, IntcError> {
        let same =
            |other: &&Attachment| (other.source.controller, other.source.number) == (source.controller, source.number);
        if let Some(attachment) = self.attached.iter().find(same) {
            return Ok(attachment.cpu);
        }
        let (cpu, identity) = match source.controller {
            Controller::Aplic(index) if self.aplics.get(index).is_some_and(|a| a.delivery() == Delivery::Msi) => {
                (cpu, Some(self.attach_msi(index, source, cpu)?))
            }
            _ => (self.attach_wired(source, cpu)?, None),
        };
        self.attached.push(Attachment { source, cpu, identity });
        Ok(cpu)
    }

    /// Opens the current hart, which is `cpu`, for everything that was attached before, and for IPIs. Its
    /// supervisor external interrupt enable (`sie.SEIE`) is the caller's.
    ///
    /// Call it on the hart itself once it is up: firmware closes the interrupt contexts of a hart that it starts.
    pub fn open_current(&self, cpu: CpuIndex) {
        self.open_wires(cpu);
        let Some(files) = self.files.as_ref().filter(|files| files.has(cpu)) else { return };
        let own = OwnFile::new(&self.own_file);
        own.reset(files.layout.num_ids);
        own.enable(IPI);
        self.open_messages(cpu);
    }

    /// Opens the file of the current hart, which is `cpu`, for the messages that were attached before. What is pending in it stays: for
    /// what is attached after [`Self::open_current`], maybe by another owner of the same controllers.
    pub fn open_messages(&self, cpu: CpuIndex) {
        if !self.files.as_ref().is_some_and(|files| files.has(cpu)) {
            return;
        }
        let own = OwnFile::new(&self.own_file);
        let mine = self.attached.iter().filter(|attachment| attachment.cpu == cpu);
        for attachment in mine {
            let Some(identity) = attachment.identity else { continue };
            own.enable(identity);
            if let Controller::Aplic(index) = attachment.source.controller
                && let Some(aplic) = self.aplics.get(index)
            {
                aplic.look_again(attachment.source.number);
            }
        }
    }

    /// Enables the sources that come to `cpu` by a PLIC's wire. Any hart may do it for any other.
    pub fn open_wires(&self, cpu: CpuIndex) {
        for line in self.cpus.get(cpu.index()).into_iter().flat_map(|cpu| &cpu.lines) {
            let Line::Plic { index, context } = *line else { continue };
            let Some(plic) = self.plics.get(index) else { continue };
            plic.set_threshold(context, 0);
            let comes_here = |attachment: &&Attachment| {
                attachment.cpu == cpu && attachment.source.controller == Controller::Plic(index)
            };
            for attachment in self.attached.iter().filter(comes_here) {
                // It was enabled here before, so the PLIC has it.
                let _ = plic.enable(context, attachment.source.number);
            }
        }
    }

    /// Takes the most urgent pending interrupt of the current hart, which is `cpu`. Call until it says `None`.
    pub fn claim(&self, cpu: CpuIndex) -> Option<Pending> {
        if self.files.is_some()
            && let Some(pending) = self.claim_message()
        {
            return Some(pending);
        }
        let lines = &self.cpus.get(cpu.index())?.lines;
        lines.iter().find_map(|line| self.claim_line(line))
    }

    /// The claimed source has been served: the device no longer asks for anything that the caller knows of.
    pub fn complete(&self, claim: Claim) {
        let number = claim.source.number;
        match claim.source.controller {
            Controller::Plic(index) => {
                if let (Some(plic), Some(context), Some(source)) =
                    (self.plics.get(index), claim.line, NonZero::new(number))
                {
                    plic.complete(context, source);
                }
            }
            Controller::Aplic(index) => {
                let is_level = matches!(claim.source.trigger, Trigger::LevelHigh | Trigger::LevelLow);
                let aplic = self.aplics.get(index).filter(|aplic| is_level && aplic.delivery() == Delivery::Msi);
                if let Some(aplic) = aplic {
                    aplic.look_again(number);
                }
            }
        }
    }

    /// Interrupts another hart by a message. False where the machine has no interrupt file for it: use SBI.
    #[inline]
    pub fn send_ipi(&self, cpu: CpuIndex) -> bool {
        self.send(cpu, 0, IPI)
    }

    /// Sends a message to file `guest` of a hart (0: its own S-level file). False if there is no such file.
    #[inline]
    pub fn send(&self, cpu: CpuIndex, guest: u32, identity: Identity) -> bool {
        let pages = self.files.as_ref().and_then(|files| files.pages.get(cpu.index())?.as_ref());
        pages.is_some_and(|pages| pages.send(guest, identity))
    }

    fn add_line(&mut self, hart: HartId, line: Line) {
        // Harts that the firmware keeps may be wired too.
        if let Some(cpu) = self.cpus.iter_mut().find(|cpu| cpu.hart == hart) {
            cpu.lines.push(line);
        }
    }

    fn attach_msi(&mut self, aplic: usize, source: InterruptSource, cpu: CpuIndex) -> Result<Identity, IntcError> {
        let hart = self.cpus.get(cpu.index()).ok_or(IntcError::NoSuchCpu { cpu })?.hart;
        let files = self.files.as_ref().filter(|files| files.pages.get(cpu.index()).is_some_and(Option::is_some));
        let files = files.ok_or(IntcError::NoFile { hart })?;
        let page = file_base(&files.layout, hart)?.raw() >> BASE_PAGE_SHIFT;
        let target = MsiTarget::of_page(&files.layout, page);
        let taken = self.attached.iter().filter_map(|attachment| attachment.identity).max().unwrap_or(IPI);
        let identity = taken.checked_add(1).filter(|next| u32::from(next.get()) <= files.last_identity);
        let identity = identity.ok_or(IntcError::NoIdentityLeft)?;
        let no_controller = IntcError::NoSuchController { controller: source.controller };
        let aplic = self.aplics.get(aplic).ok_or(no_controller)?;
        aplic.route_msi(source.number, source.trigger, target, identity)?;
        Ok(identity)
    }

    fn attach_wired(&mut self, source: InterruptSource, wanted: CpuIndex) -> Result<CpuIndex, IntcError> {
        if wanted.index() >= self.cpus.len() {
            return Err(IntcError::NoSuchCpu { cpu: wanted });
        }
        let others = (0..self.cpus.len()).filter_map(|index| u16::try_from(index).ok()).map(CpuIndex);
        for cpu in core::iter::once(wanted).chain(others) {
            for line in &self.cpus[cpu.index()].lines {
                match (source.controller, *line) {
                    (Controller::Plic(wanted), Line::Plic { index, context }) if wanted == index => {
                        self.plics[index].enable(context, source.number)?;
                        return Ok(cpu);
                    }
                    (Controller::Aplic(wanted), Line::Aplic { index, context }) if wanted == index => {
                        self.aplics[index].route_wired(source.number, source.trigger, context)?;
                        return Ok(cpu);
                    }
                    _ => {}
                }
            }
        }
        Err(IntcError::Unreachable { controller: source.controller })
    }

    fn claim_message(&self) -> Option<Pending> {
        // A claim takes its identity away, and one that is not enabled is not claimed.
        loop {
            let identity = OwnFile::new(&self.own_file).claim()?;
            if identity == IPI {
                return Some(Pending::Ipi);
            }
            let attachment = self.attached.iter().find(|attachment| attachment.identity == Some(identity));
            // An identity that nobody attached is not enabled; a stray claim of it is dropped.
            if let Some(attachment) = attachment {
                return Some(Pending::Device(Claim { source: attachment.source, line: None }));
            }
        }
    }

    fn claim_line(&self, line: &Line) -> Option<Pending> {
        let (controller, number, context) = match *line {
            Line::Plic { index, context } => {
                (Controller::Plic(index), self.plics.get(index)?.claim(context)?, Some(context))
            }
            Line::Aplic { index, context } => (Controller::Aplic(index), self.aplics.get(index)?.claim(context)?, None),
        };
        let number = number.get();
        let attached = self.attached.iter().map(|attachment| attachment.source);
        let source = attached.into_iter().find(|source| source.controller == controller && source.number == number);
        // Only attached sources are enabled, but a source is served whatever the hardware says it is.
        let source = source.unwrap_or(InterruptSource { controller, number, trigger: Trigger::LevelHigh });
        Some(Pending::Device(Claim { source, line: context }))
    }
}

fn file_base(layout: &Imsic, hart: HartId) -> Result<MachineAddr, IntcError> {
    layout.file(hart).ok_or(IntcError::NoFile { hart })
}

/// The pages of a hart's files that lie inside the tree's regions.
fn file_pages(layout: &Imsic, hart: HartId) -> Option<AddressRange> {
    let base = layout.file(hart)?;
    let region = layout.regions.iter().find(|region| region.contains(base))?;
    let stride = 1_u64 << (BASE_PAGE_SHIFT + layout.guest_index_bits);
    let left = region.end().offset_from(base)?;
    AddressRange::new(base, stride.min(left))
}
