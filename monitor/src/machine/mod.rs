//! The machine as the monitor knows it: memory, log, interrupt controllers, disks, network, control port.

pub mod clock;
pub mod devices;
pub mod direct;
pub mod disks;
pub mod entropy;
pub mod gateway;
pub mod heap;
pub mod irq;
pub mod locality;
pub mod logging;
pub mod memory;
pub mod merging;
pub mod modules;
pub mod network;
pub mod node_box;

use crate::{
    boot::Bundle,
    control::Server,
    hart::{self, Hart},
    trace,
    vcpu::VectorLength,
    vm::registry,
};
use ::control::{BootConfig, EventKind, MonitorOptions, Name};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use frames::PageState;
use machine_tree::{InterruptSource, MachineDescription};
use rv::csr;
use rv::world::HartFeatures;
use rv_pte::Mode;
use sched::Scheduling;
use spin::{Mutex, Once};

/// What every hart of the machine can do.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Optional CSRs.
    pub features: HartFeatures,
    /// G-stage translation mode in use.
    pub gstage_mode: Mode,
    /// Bits of a VMID.
    pub vmid_bits: u8,
    /// Bytes of a vector register, 0 without V.
    pub vector: VectorLength,
    /// Guest interrupt files per hart.
    pub guest_files: u16,
    /// Ticks of `time` per second.
    pub timebase_hz: u64,
}

static CAPABILITIES: Once<Capabilities> = Once::new();
static DESCRIPTION: Once<MachineDescription> = Once::new();
static CONFIG: Once<BootConfig> = Once::new();

/// Boot has found out what the harts can do.
pub fn set_capabilities(capabilities: Capabilities) {
    CAPABILITIES.call_once(|| capabilities);
}

/// What every hart of the machine can do.
#[inline]
#[must_use]
pub fn capabilities() -> &'static Capabilities {
    CAPABILITIES.get().expect("boot sets the capabilities first")
}

/// The machine as its tree describes it.
#[must_use]
pub fn description() -> &'static MachineDescription {
    DESCRIPTION.get().expect("boot sets the description first")
}

/// Takes the machine over: controllers and devices.
pub fn init(description: MachineDescription, bundle: Bundle) {
    let mut controllers = irq::discover(&description);
    entropy::init(&description.chosen.rng_seed);
    clock::init(&description);
    devices::discover(&description, &mut controllers);
    irq::install(controllers);
    modules::adopt_bundle(&bundle);
    DESCRIPTION.call_once(|| description);
    let config = bundle.config;
    CONFIG.call_once(|| config.unwrap_or_else(|| BootConfig::new(default_name())));
    disks::init();
    network::init();
}

fn default_name() -> Name {
    Name::new("machine").expect("a constant that is a name")
}

/// What the boot bundle's configuration says.
fn config() -> &'static BootConfig {
    CONFIG.get().expect("boot sets the configuration first")
}

/// The machine's name.
#[must_use]
pub fn name() -> Name {
    config().machine_name.clone()
}

/// Options of the monitor.
#[must_use]
pub fn options() -> &'static MonitorOptions {
    &config().options
}

/// The scheduler's numbers.
#[must_use]
pub fn scheduling() -> Scheduling {
    let hz = capabilities().timebase_hz;
    let slice_ticks = u64::from(options().time_slice_us) * hz / 1_000_000;
    let usual = Scheduling::new(hz);
    Scheduling {
        slice_ticks,
        period_ticks: 2 * slice_ticks,
        min_slice_ticks: usual.min_slice_ticks.min(slice_ticks),
        ..usual
    }
}

/// Ticks of `time` in nanoseconds.
#[must_use]
pub fn ticks_to_ns(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000_000 / u128::from(capabilities().timebase_hz)) as u64
}

/// When this hart has to look at its machine-wide duties even if nothing interrupts it; `is_busy` with a guest, which
/// then is not interrupted for what can wait.
#[inline]
#[must_use]
pub fn next_tick(hart: &Hart, is_busy: bool) -> u64 {
    if !hart.is_control() {
        return u64::MAX;
    }
    if NEEDS_CONTROL.load(Ordering::Relaxed) {
        return csr::time::read();
    }
    let balance = if hart::balance::is_contended() { NEXT_BALANCE.load(Ordering::Relaxed) } else { u64::MAX };
    let merging = if is_busy { merging::latest_step() } else { merging::next_step() };
    balance.min(clock::next_alarm()).min(merging).min(locality::next_look())
}

static NEEDS_CONTROL: AtomicBool = AtomicBool::new(true);
static NEXT_BALANCE: AtomicU64 = AtomicU64::new(0);
static SERVER: Mutex<Option<Server>> = Mutex::new(None);

/// Something has happened that the control hart should look at.
pub fn wake_control() {
    if !NEEDS_CONTROL.swap(true, Ordering::SeqCst)
        && let Some(hart) = hart::all().get(hart::CONTROL_HART.index())
    {
        hart.kick();
    }
}

/// A device of the machine has interrupted the hart `hart`.
pub fn device_interrupt(hart: &Hart, source: InterruptSource) {
    devices::acknowledge(source);
    if hart.is_control() {
        // It looks right after this; a ring to itself would only bring it here again.
        NEEDS_CONTROL.store(true, Ordering::SeqCst);
    } else {
        // A PLIC has no wire from every source to every hart.
        wake_control();
    }
}

/// Has the control hart anything to do?
#[inline]
pub fn is_control_due() -> bool {
    NEEDS_CONTROL.load(Ordering::Relaxed)
        || is_balancing_due()
        || is_past(clock::next_alarm().min(merging::next_step()).min(locality::next_look()))
}

/// Does background work wait for this hart to rest? Then a guest that has nothing to do should leave it, though nobody else
/// wants to run: in guest mode it would seem busy.
#[inline]
#[must_use]
pub fn wants_rest(hart: &Hart) -> bool {
    merging::is_under_way() && hart.is_control()
}

/// Has this time come? `u64::MAX` never does.
#[inline]
fn is_past(when: u64) -> bool {
    when != u64::MAX && csr::time::read() >= when
}

#[inline]
fn is_balancing_due() -> bool {
    hart::balance::is_contended() && csr::time::read() >= NEXT_BALANCE.load(Ordering::Relaxed)
}

/// The control hart's duties, one bounded step each: the control port, the lives of VMs, hot pages, balancing.
pub fn control_step() {
    if NEEDS_CONTROL.swap(false, Ordering::SeqCst) {
        let mut server = SERVER.lock();
        let server = server.get_or_insert_with(begin);
        let is_busy =
            server.step(&mut devices::ControlStream) | disks::step() | network::step() | registry::lock().step();
        if is_busy {
            NEEDS_CONTROL.store(true, Ordering::SeqCst);
        }
    }
    clock::step();
    merging::step();
    locality::step();
    if is_balancing_due() {
        hart::balance::step(&registry::lock());
        NEXT_BALANCE
            .store(csr::time::read() + capabilities().timebase_hz / hart::balance::REBALANCE_HZ, Ordering::Relaxed);
    }
}

/// The first step: create and start what the configuration says.
fn begin() -> Server {
    let free = description().nodes.ids().map(|node| memory::frames().counts(node).get(PageState::Free)).sum::<u64>();
    trace::record(
        None,
        EventKind::MachineBooted {
            harts: hart::all().len() as u16,
            nodes: description().nodes.count() as u8,
            free_bytes: free * addr::BASE_PAGE,
        },
    );
    let mut registry = registry::lock();
    for spec in config().vms.clone() {
        let (name, autostart) = (spec.name.clone(), spec.autostart);
        let outcome = registry.create(spec).and_then(|_| if autostart { registry.start(&name) } else { Ok(()) });
        if let Err(why) = outcome {
            log::error!("VM {name}: {why}");
        }
    }
    Server::default()
}

/// Switches the machine off.
pub fn power_off() -> ! {
    log::info!("powering off");
    rv::sbi::shutdown(false);
    loop {
        rv::fence::wait_for_interrupt();
    }
}

/// A bounded piece of background work for an idle hart. `false` when there is none.
pub fn idle_step(hart: &Hart) -> bool {
    /// Pages zeroed per step: about 50 microseconds' worth.
    const PAGES: u64 = 64;
    memory::frames().idle_step(&memory::DirectMemory, hart.node, PAGES) != frames::IdleWork::Nothing
}
