//! What a cell without a control port has to tell: the lives of its VMs and what they print go to the machine's log.
//!
//! The control hart looks some times a second and takes a bounded piece of each console, so a guest decides what is written
//! but not how much of the hart that takes. What it prints faster than that is left out.

use super::registry;
use crate::{
    machine::{capabilities, cell},
    trace,
};
use addr::VmId;
use alloc::{string::String, vec::Vec};
use control::{Event, EventKind, Followed, VmState};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rv::csr;
use spin::Mutex;

/// Looks per second.
const LOOKS_HZ: u64 = 8;
/// Bytes of a VM's console that are written per look.
const CONSOLE_BYTES: usize = 1024;
/// Events that are written per look.
const EVENTS: usize = 16;

static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);
static TOLD: Mutex<Told> = Mutex::new(Told { event: 0, consoles: Vec::new() });

/// The events and console bytes that have been written so far.
struct Told {
    /// The next event's number.
    event: u64,
    /// The next byte of each VM's console.
    consoles: Vec<(VmId, u64)>,
}

/// When to look next.
#[must_use]
pub fn next_look() -> u64 {
    if cell::is_first() { u64::MAX } else { NEXT_LOOK.load(Relaxed) }
}

/// One look, if it is due.
pub fn step() {
    let now = csr::time::read();
    if now < next_look() {
        return;
    }
    let registry = registry::lock();
    let mut told = TOLD.lock();
    for record in registry.records() {
        told.console(record);
    }
    let name_of = |id| registry.records().find(|record| record.id == id).map(|record| record.spec.name.clone());
    let batch = trace::read(told.event, EVENTS, Followed::Lives, name_of);
    told.event = batch.next;
    batch.events.iter().for_each(tell);
    NEXT_LOOK.store(now + capabilities().timebase_hz / LOOKS_HZ, Relaxed);
}

impl Told {
    /// Whole lines that the VM has printed since; what has no end yet waits for it.
    fn console(&mut self, record: &registry::Record) {
        let at = self.consoles.iter().position(|(id, _)| *id == record.id).unwrap_or_else(|| {
            self.consoles.push((record.id, 0));
            self.consoles.len() - 1
        });
        let Some((_, next)) = self.consoles.get_mut(at) else { return };
        let (first, mut bytes) = record.console.lock().output().read(*next, CONSOLE_BYTES);
        let is_full = bytes.len() == CONSOLE_BYTES;
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            // Its last words may have no end.
            _ if !is_full && record.state == VmState::Stopped => {}
            Some(end) => bytes.truncate(end + 1),
            // A line longer than a look comes in pieces.
            None if is_full => {}
            None => bytes.clear(),
        }
        let name = &record.spec.name;
        if first != *next {
            log::info!("{name}| ({} bytes left out)", first - *next);
        }
        *next = first + bytes.len() as u64;
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            // What a terminal would take as a command is not shown.
            let shown: String =
                line.iter().map(|byte| char::from(*byte)).filter(|c| c.is_ascii() && !c.is_control()).collect();
            log::info!("{name}| {shown}");
        }
    }
}

fn tell(event: &Event) {
    let Some(name) = event.vm.as_ref().and_then(|vm| vm.name.as_ref()) else { return };
    match &event.kind {
        EventKind::VmStarted => log::info!("VM {name} started"),
        EventKind::VmReset => log::info!("VM {name} boots again"),
        EventKind::VmStopped { reason } => log::info!("VM {name} stopped: {reason}"),
        _ => {}
    }
}
