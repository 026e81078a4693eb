//! The end of a cell whose code has panicked: what its harts were doing goes into the machine's log, for `mirrorball crash`.
//!
//! The hart that panics calls the others, waits for them a moment, and writes for all. It may hold any lock, so whatever is locked is
//! left out, and nothing here takes memory. A hart that dies over this dies at once.

use super::registry;
use crate::{
    hart::{self, Hart},
    machine::{boards, cell, image, logging},
    version::Version,
};
use addr::{VcpuIndex, VmId};
use control::PanicBy;
use core::{
    fmt::Write,
    hint::{black_box, spin_loop},
    iter,
    panic::PanicInfo,
    sync::atomic::{AtomicBool, Ordering},
};
use crash::{Begin, Exit, HartLine, How, Record, Text, Trap, Writer};
use rv::{
    csr,
    host_trap::{self, Registers},
    sbi,
};

/// How long the others may take to stop, as a part of a second: emulated harts wait for the host's cores.
const PATIENCE_HZ: u64 = 2;
/// Looks at the others, should the clock have stopped.
const MOST_LOOKS: u32 = 50_000_000;
/// Attempts to get the registry, which is rarely locked for long.
const REGISTRY_TRIES: u32 = 10_000;
/// Events and exits of the hart that panicked, and of another.
const RECENT: (usize, usize) = (8, 4);
/// Bytes of an event.
const EVENT_BYTES: usize = 96;

/// Whether a hart that has no entry yet has panicked.
static HAS_FAILED_AT_BOOT: AtomicBool = AtomicBool::new(false);

/// The calling hart has panicked. Its cell ends, and no other one; the machine ends with its last cell.
pub fn panicked(info: &PanicInfo<'_>) -> ! {
    let Some(hart) = hart::this_hart() else { panicked_at_boot(info) };
    match hart.dying.count_panic() {
        0 => {}
        // What it has not said yet nobody will.
        1 if !cell::has_failed() => {
            logging::last_words(format_args!("{info}"));
            end()
        }
        1 | 2 => end(),
        // Not even that can be done: the cell's own memory is gone.
        _ => cell::stop_hart(),
    }
    if cell::has_failed() {
        // Another hart was first, and tells of both.
        record(hart, How::Panicked, Some(info));
        cell::stop_hart()
    }
    logging::last_words(format_args!("{info}"));
    if !cell::set_failed() {
        cell::stop_hart()
    }
    // The others need not wait for the record.
    boards::stop();
    record(hart, How::Panicked, Some(info));
    call_others(hart);
    tell(hart);
    end()
}

/// The cell has failed, and the calling hart has heard of it.
pub fn stop(hart: &Hart) -> ! {
    record(hart, How::Stopped, None);
    cell::stop_hart()
}

/// The cell is not among those that go on, or has lost a part of itself: its harts stop. Called by its control hart.
pub fn leave(hart: &Hart, why: &str) -> ! {
    log::error!("this cell stops: {why}");
    if cell::set_failed() {
        hart::all().iter().filter(|other| other.cpu != hart.cpu && other.is_online()).for_each(|other| other.kick());
    }
    end()
}

/// Panics, for whoever wants to see what comes then.
pub fn provoke(how: PanicBy) -> ! {
    match how {
        PanicBy::Statement => panic!("a client has asked for it"),
        PanicBy::Overflow => panic!("the stack has no end: {}", overflow(&[0; 64])),
    }
}

/// Calls itself until the stack ends, which is long before it would.
#[inline(never)]
fn overflow(before: &[u64; 64]) -> u64 {
    let own = [before[63] + 1; 64];
    if own[0] == u64::MAX {
        return 0;
    }
    overflow(black_box(&own)) + black_box(&own)[0]
}

fn panicked_at_boot(info: &PanicInfo<'_>) -> ! {
    if !HAS_FAILED_AT_BOOT.swap(true, Ordering::Relaxed) {
        logging::last_words(format_args!("{info}"));
    }
    end()
}

fn end() -> ! {
    if boards::stop() {
        sbi::shutdown(true);
    }
    cell::stop_hart()
}

/// Puts down what the calling hart knows of itself.
fn record(hart: &Hart, how: How, info: Option<&PanicInfo<'_>>) {
    let (registers, is_trap) = host_trap::registers();
    let trap = Trap {
        scause: csr::scause::read(),
        sepc: csr::sepc::read(),
        stval: csr::stval::read(),
        sstatus: csr::sstatus::read(),
    };
    let Some(mut record) = hart.dying.begin() else { return };
    record.how = how;
    record.sp = registers.sp;
    record.trap = is_trap.then_some(trap);
    if let Some(info) = info {
        // It keeps what there is room for.
        let _ = write!(record.message, "{info}");
    }
    note_registers(&mut record, &registers);
    // A function that calls nobody has its return address in a register only.
    let first = if is_trap { Some(registers.ra) } else { None };
    let words = first.into_iter().chain(hart.stack_words(registers.sp));
    record.call_count = crash::find_calls(words, image::is_behind_call, &mut record.calls);
    drop(record);
    hart.dying.tell();
}

fn note_registers(record: &mut Record, registers: &Registers) {
    const S: [usize; 12] = [8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27];
    record.set_register(1, registers.ra);
    record.set_register(2, registers.sp);
    iter::zip(S, registers.s).for_each(|(index, value)| record.set_register(index, value));
    if let Some(saved) = &registers.caller_saved {
        let others = iter::zip(5.., saved.t0_to_t2).chain(iter::zip(10.., saved.arguments));
        others.chain(iter::zip(28.., saved.t3_to_t6)).for_each(|(index, value)| record.set_register(index, value));
    }
}

/// Calls the cell's other harts, and waits until they have stopped, but not long.
fn call_others(own: &Hart) {
    let others = || hart::all().iter().filter(|hart| hart.cpu != own.cpu && hart.is_online());
    others().for_each(|hart| hart.kick());
    let (begin, patience) = (csr::time::read(), logging::timebase() / PATIENCE_HZ);
    for _ in 0..MOST_LOOKS {
        if csr::time::read().wrapping_sub(begin) > patience || others().all(|hart| hart.dying.told().is_some()) {
            return;
        }
        spin_loop();
    }
}

/// Writes what all harts have told.
fn tell(own: &Hart) {
    let mut writer = Writer::new(logging::last_bytes as fn(&[u8]), cell::index());
    let begin = Begin {
        hart: own.cpu.0.into(),
        ticks: csr::time::read(),
        timebase_hz: logging::timebase(),
        harts: hart::all().len() as u64,
        fingerprint: crash::fingerprint(image::text_words()),
    };
    let mut build = Text::new();
    let _ = write!(build, "{Version}");
    writer.begin(&begin, core::str::from_utf8(build.bytes()).unwrap_or_default());
    let registry = (0..REGISTRY_TRIES).find_map(|_| registry::try_lock());
    for hart in hart::all().iter().filter(|hart| hart.is_online()) {
        let recent = if hart.cpu == own.cpu { RECENT.0 } else { RECENT.1 };
        tell_of(hart, &mut writer);
        if let (Some(registry), Some((vm, vcpu))) = (&registry, ran(hart)) {
            registry.show_exits(VmId(vm), VcpuIndex(vcpu), recent as u64, |exit| {
                writer.exit(&Exit { ticks: exit.ticks, scause: exit.scause, pc: exit.pc, stval: exit.stval });
            });
        }
        crate::trace::latest(hart.cpu, recent, |event| {
            if let Some(bytes) = event.to_bytes(&mut [0; EVENT_BYTES]) {
                writer.event(bytes);
            }
        });
    }
    writer.end();
}

fn tell_of(hart: &Hart, writer: &mut Writer<fn(&[u8])>) {
    let line =
        HartLine { index: hart.cpu.0.into(), hart_id: hart.hart_id.0, node: hart.node.0.into(), running: ran(hart) };
    match hart.dying.told() {
        Some(record) => writer.hart(&line, &record),
        None => writer.hart(&line, const { &Record::new() }),
    }
}

/// The VM and the vCPU that it ran last.
fn ran(hart: &Hart) -> Option<(u16, u16)> {
    let label = hart.counters.loaded.load(Ordering::Relaxed);
    (label != u32::MAX).then_some((label as u16, (label >> 16) as u16))
}
