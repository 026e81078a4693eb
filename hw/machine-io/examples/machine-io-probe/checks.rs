//! What is checked.
//
// UNSAFETY: with translation off, registers and buffers are where the tree and the heap say; the probe vouches for
// that as the monitor does for its mappings.
#![expect(unsafe_code)]

extern crate alloc;

use alloc::{vec, vec::Vec};

use addr::{CpuIndex, HartId, MachineAddr};
use intc::{HartFile, MachineInterrupts, MmioRegion, Pending};
use machine_io::{
    Completion, ControlPort, DeviceType, Discovered, IoError, MachineDisk, MachineNic, Platform, Segment, discover,
};
use machine_tree::{AddressRange, InterruptSource, MachineDescription};

use crate::bare::{Identity, enable_external, external_pending, now, print};

/// Ticks until something is given up: five seconds at QEMU's 10 MHz.
const PATIENCE: u64 = 50_000_000;
/// Sectors of a page.
const PAGE_SECTORS: u64 = 8;

type Interrupts = MachineInterrupts<MmioRegion, HartFile>;

macro_rules! say {
    ($($what:tt)*) => { print(format_args!("{}\n", format_args!($($what)*))) };
}

/// The interrupts of one hart, counted.
struct Hart {
    interrupts: Interrupts,
    cpu: CpuIndex,
    ipis: u32,
}

/// All checks; true if every one passed.
pub fn run(hart: u64, blob: &[u8]) -> bool {
    let machine = match MachineDescription::parse(blob) {
        Ok(machine) => machine,
        Err(error) => {
            say!("{error}");
            return false;
        }
    };
    let cpu = machine.hart(HartId(hart)).expect("the boot hart is in the tree").cpu;
    let controllers = &machine.controllers;
    say!(
        "{} harts, {} nodes, {} MiB, {} aplics, {} plics, imsic {}",
        machine.harts.len(),
        machine.nodes.count(),
        machine.memory.iter().map(|memory| memory.range.bytes()).sum::<u64>() >> 20,
        controllers.aplics.len(),
        controllers.plics.len(),
        controllers.imsic.is_some()
    );
    // SAFETY: translation is off; the tree says that these are interrupt controllers.
    let map =
        |range: AddressRange| Some(unsafe { MmioRegion::new(range.start().raw() as usize, range.bytes() as usize) });
    let interrupts = Interrupts::new(&machine, HartFile, map).expect("controllers as the tree says");
    let mut hart = Hart { interrupts, cpu, ipis: 0 };
    let Discovered { virtio: found, troubles, .. } = discover::<Identity>(&machine);
    for trouble in &troubles {
        say!("{}: {}", trouble.place, trouble.error);
    }
    let mut passed = troubles.is_empty();
    // A wired controller may not reach the boot hart; then the check of arrival is left out.
    let mut reaches = Vec::new();
    for device in &found {
        if let Some(source) = device.interrupt() {
            let taker = hart.interrupts.attach(source, cpu).expect("attaches");
            say!("{} {:?} interrupt {source:?} -> {taker:?}", device.place(), device.kind());
            reaches.push(taker == cpu);
        }
    }
    hart.interrupts.open_current(cpu);
    enable_external();
    for (device, reaches) in found.into_iter().zip(reaches) {
        let place = device.place();
        let outcome = match device.kind() {
            Some(DeviceType::Block) => check_disk(MachineDisk::new(device), &mut hart, reaches),
            Some(DeviceType::Network) => check_nic(MachineNic::new(device), &mut hart, reaches),
            Some(DeviceType::Console) => check_control(ControlPort::new(device), &mut hart, reaches),
            _ => Ok(()),
        };
        match outcome {
            Ok(()) => say!("ok {place}"),
            Err(why) => {
                say!("FAILED {place}: {why}");
                passed = false;
            }
        }
    }
    passed & check_ipi(&mut hart)
}

impl Hart {
    /// Waits until `source` interrupts; serves it with `acknowledge`. Anything else is completed and forgotten.
    fn wait_for(&mut self, source: Option<InterruptSource>, mut acknowledge: impl FnMut() -> bool) -> bool {
        let start = now();
        while now() - start < PATIENCE {
            if !external_pending() {
                continue;
            }
            while let Some(pending) = self.interrupts.claim(self.cpu) {
                match pending {
                    Pending::Ipi => self.ipis += 1,
                    Pending::Device(claim) => {
                        let mine = Some(claim.source()) == source;
                        if mine {
                            acknowledge();
                        }
                        self.interrupts.complete(claim);
                        if mine {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }
}

fn check_ipi(hart: &mut Hart) -> bool {
    if !hart.interrupts.send_ipi(hart.cpu) {
        say!("no IPIs by message here");
        return true;
    }
    hart.ipis = 0;
    let start = now();
    while hart.ipis == 0 && now() - start < PATIENCE {
        if let Some(Pending::Ipi) = hart.interrupts.claim(hart.cpu) {
            hart.ipis += 1;
        }
    }
    say!("IPI to oneself: {}", hart.ipis);
    hart.ipis == 1
}

/// Pages of the heap that a disk may read and write, and a view of them for us.
fn pages(count: usize) -> (MachineAddr, &'static mut [u8]) {
    let (address, memory) = Identity::allocate(count).expect("memory");
    // SAFETY: fresh pages that nobody else uses; the checks look at them only while no request is in flight.
    (address, unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), count * 4096) })
}

fn page(base: MachineAddr, index: u64, bytes: u32) -> Segment {
    Segment { address: base.checked_add(index * 4096).expect("no wrap"), bytes }
}

type Disk = MachineDisk<Identity>;

/// Waits for a request by interrupt (or by polling, where interrupts do not reach this hart).
fn finish(disk: &mut Disk, hart: &mut Hart, reaches: bool) -> Result<Completion, &'static str> {
    let start = now();
    loop {
        if let Some(completion) = disk.poll() {
            return Ok(completion);
        }
        if reaches {
            let source = disk.interrupt();
            if !hart.wait_for(source, || disk.acknowledge()) {
                return Err("no interrupt");
            }
        } else if now() - start > PATIENCE {
            return Err("no completion");
        }
    }
}

fn expect(disk: &mut Disk, hart: &mut Hart, reaches: bool, token: u64) -> Result<(), &'static str> {
    match finish(disk, hart, reaches)? {
        Completion { token: got, outcome: Ok(()) } if got == token => Ok(()),
        completion => {
            say!("{completion:?}");
            Err("request failed")
        }
    }
}

fn check_disk(disk: Result<Disk, IoError>, hart: &mut Hart, reaches: bool) -> Result<(), &'static str> {
    let mut disk = disk.map_err(|error| {
        say!("{error}");
        "set-up"
    })?;
    let capacity = disk.capacity_sectors();
    say!(
        "disk {:?}, {capacity} sectors, read-only {}, {} segments",
        disk.name(),
        disk.is_read_only(),
        disk.max_segments()
    );
    let (base, view) = pages(48);
    // SAFETY: the pages are ours and not looked at until the request has ended; so below.
    unsafe { disk.submit_read(1, 0, &[page(base, 0, 4096)]) }.map_err(|_| "submit")?;
    expect(&mut disk, hart, reaches, 1)?;
    say!("first bytes {:x?}", &view[..8]);
    // SAFETY: refused, nothing is read.
    let beyond = unsafe { disk.submit_read(2, capacity, &[page(base, 0, 512)]) };
    if beyond != Err(IoError::OutOfRange { sector: capacity, capacity }) {
        return Err("a read beyond the end was taken");
    }
    if disk.is_read_only() {
        let refused = disk.submit_write(3, 0, &[page(base, 0, 512)]) == Err(IoError::ReadOnly);
        return if refused { Ok(()) } else { Err("a write to a read-only disk was taken") };
    }
    scatter(&mut disk, hart, reaches, base, view)?;
    many(&mut disk, hart, reaches, base, view)
}

/// Writes three pages from separate places and reads them back cut differently.
fn scatter(
    disk: &mut Disk,
    hart: &mut Hart,
    reaches: bool,
    base: MachineAddr,
    view: &mut [u8],
) -> Result<(), &'static str> {
    for (index, byte) in view.iter_mut().enumerate() {
        *byte = (index / 4096 * 31 + index % 251) as u8;
    }
    let pieces = [page(base, 4, 4096), page(base, 0, 4096), page(base, 9, 4096)];
    disk.submit_write(10, 64, &pieces).map_err(|_| "submit")?;
    expect(disk, hart, reaches, 10)?;
    disk.submit_flush(11).map_err(|_| "submit")?;
    expect(disk, hart, reaches, 11)?;
    let target = [page(base, 20, 512), page(base, 21, 3584), page(base, 22, 4096), page(base, 23, 4096)];
    // SAFETY: as above.
    unsafe { disk.submit_read(12, 64, &target) }.map_err(|_| "submit")?;
    expect(disk, hart, reaches, 12)?;
    let at = |page: usize, bytes: usize| &view[page * 4096..page * 4096 + bytes];
    let first: Vec<u8> = [at(20, 512), at(21, 3584)].concat();
    match first == at(4, 4096) && at(22, 4096) == at(0, 4096) && at(23, 4096) == at(9, 4096) {
        true => Ok(()),
        false => Err("read back something else"),
    }
}

/// Keeps the queue full for a while, past the point where ring indices wrap.
fn many(
    disk: &mut Disk,
    hart: &mut Hart,
    reaches: bool,
    base: MachineAddr,
    view: &mut [u8],
) -> Result<(), &'static str> {
    const TOTAL: u64 = 70_000;
    let (mut submitted, mut ended) = (0, 0);
    let mut refused = false;
    let pages = disk.capacity_sectors() / PAGE_SECTORS;
    while ended < TOTAL {
        while submitted < TOTAL {
            let piece = page(base, submitted % 48, 512);
            // SAFETY: the pages are ours; that requests overwrite one another's does not matter here.
            match unsafe { disk.submit_read(submitted, submitted % pages * PAGE_SECTORS, &[piece]) } {
                Ok(()) => submitted += 1,
                Err(IoError::QueueFull) => {
                    refused = true;
                    break;
                }
                Err(_) => return Err("submit"),
            }
        }
        if finish(disk, hart, reaches)?.outcome.is_err() {
            return Err("request failed");
        }
        ended += 1;
    }
    view[0] = 0;
    say!("{TOTAL} reads, queue was full: {refused}, {} in flight now", disk.in_flight());
    if refused && disk.in_flight() == 0 { Ok(()) } else { Err("requests were lost") }
}

type Nic = MachineNic<Identity>;

/// An ARP request for 10.0.2.2, the gateway of QEMU's user network, from 10.0.2.15.
fn arp_request(mac: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend([10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2]);
    frame.resize(60, 0);
    frame
}

fn check_nic(nic: Result<Nic, IoError>, hart: &mut Hart, reaches: bool) -> Result<(), &'static str> {
    let mut nic = nic.map_err(|error| {
        say!("{error}");
        "set-up"
    })?;
    let mac = nic.mac().ok_or("no address")?;
    say!("nic {mac:x?}");
    let request = arp_request(mac);
    let mut frame = [0; 2048];
    let mut answers = 0;
    for _ in 0..500 {
        loop {
            match nic.send(&request) {
                Ok(()) => break,
                Err(IoError::QueueFull) => core::hint::spin_loop(),
                Err(_) => return Err("send"),
            }
        }
        let start = now();
        loop {
            match nic.receive(&mut frame).map_err(|_| "receive")? {
                Some(bytes) if is_answer(&frame[..bytes]) => break answers += 1,
                Some(_) => {}
                None if reaches => {
                    let source = nic.interrupt();
                    if !hart.wait_for(source, || nic.acknowledge()) {
                        return Err("no interrupt");
                    }
                }
                None if now() - start > PATIENCE => return Err("no answer"),
                None => {}
            }
        }
    }
    say!("{answers} ARP answers, gateway {:x?}, {} runts", &frame[22..28], nic.runts());
    let long = nic.send(&[0; 1600]) == Err(IoError::FrameTooLong { bytes: 1600, limit: machine_io::MAX_FRAME_BYTES });
    if long { Ok(()) } else { Err("a frame too long was taken") }
}

fn is_answer(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 6])
        && frame.get(20..22) == Some(&[0, 2])
        && frame.get(28..32) == Some(&[10, 0, 2, 2])
}

type Port = ControlPort<Identity>;

/// Echoes until `quit`.
fn check_control(port: Result<Port, IoError>, hart: &mut Hart, reaches: bool) -> Result<(), &'static str> {
    let mut port = port.map_err(|error| {
        say!("{error}");
        "set-up"
    })?;
    say!("control port ready");
    let mut buffer = vec![0; 3000];
    let (mut total, mut start) = (0_u64, now());
    loop {
        let got = port.read(&mut buffer).map_err(|_| "read")?;
        let mut rest = &buffer[..got];
        while !rest.is_empty() {
            let sent = port.write(rest).map_err(|_| "write")?;
            rest = &rest[sent..];
        }
        total += got as u64;
        if buffer[..got].ends_with(b"quit\n") {
            say!("echoed {total} bytes");
            return Ok(());
        }
        if got > 0 {
            start = now();
        } else if reaches && total > 0 {
            let source = port.interrupt();
            if !hart.wait_for(source, || port.acknowledge()) {
                return Err("no interrupt");
            }
        } else if now() - start > 4 * PATIENCE {
            return Err("nobody spoke");
        }
    }
}
