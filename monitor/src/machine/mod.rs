//! What the machine is: its memory, heap, log, interrupt controllers, devices and clock, and what its harts can do. Nothing here
//! knows of VMs.

pub mod agenda;
pub mod boards;
pub mod cell;
pub mod clock;
pub mod devices;
pub mod direct;
pub mod entropy;
pub mod failures;
pub mod heap;
pub mod heap_reserve;
pub mod image;
pub mod irq;
pub mod layout;
pub mod logging;
pub mod memory;
pub mod node_box;
pub mod relief;

use addr::{CpuIndex, NodeId};
use control::{BootConfig, MonitorOptions, Name};
use machine_tree::MachineDescription;
use rv::world::HartFeatures;
use rv_pte::Mode;
use sched::Scheduling;
use spin::Once;

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
    /// The harts' own counters that the firmware lets the monitor read.
    pub counters: ReadableCounters,
    /// Firmware features that guests can have.
    pub guests: ::vcpu::fwft::Support,
}

/// Counters that can be read; a read of another one traps.
#[derive(Clone, Copy, Debug)]
pub struct ReadableCounters {
    /// `cycle`.
    pub cycles: bool,
    /// `instret`.
    pub instructions: bool,
}

/// Bytes per vector register, 0 where the hart has none.
#[derive(Clone, Copy, Debug)]
pub struct VectorLength(pub usize);

/// The node that machine-wide things go to.
pub const HOME_NODE: NodeId = NodeId(0);

static CAPABILITIES: Once<Capabilities> = Once::new();
static DESCRIPTION: Once<MachineDescription> = Once::new();
static CONFIG: Once<BootConfig> = Once::new();
/// In a cell without the machine's devices: its description with them, for when the cell that has them is lost.
static WITH_DEVICES: Once<MachineDescription> = Once::new();

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

/// Takes the machine over: controllers and, in the first cell, devices; the others keep the description `with_devices`.
/// `epoch_ns` is [`clock::epoch_of`] the machine.
pub fn init(
    description: MachineDescription,
    with_devices: Option<MachineDescription>,
    config: Option<BootConfig>,
    epoch_ns: Option<u64>,
) {
    let mut controllers = irq::discover(&description);
    // The firmware gives all cells one seed.
    entropy::init(&description.chosen.rng_seed, cell::index() as u64);
    clock::init(epoch_ns);
    match with_devices {
        None => devices::discover(&description, &mut controllers),
        Some(with_devices) => {
            WITH_DEVICES.call_once(|| with_devices);
        }
    }
    irq::install(controllers);
    DESCRIPTION.call_once(|| description);
    CONFIG.call_once(|| config.unwrap_or_else(|| BootConfig::new(default_name())));
}

/// Takes over the machine's devices and their wires, which were those of a cell that is lost. For the control hart, `cpu`, once.
pub fn take_over_devices(cpu: CpuIndex) {
    let Some(description) = WITH_DEVICES.get() else { return };
    let mut controllers = irq::discover(description);
    devices::discover(description, &mut controllers);
    irq::take_over(controllers, cpu);
    // On QEMU's board the controllers' messages do not reach harts of other nodes than the first.
    devices::poll();
}

fn default_name() -> Name {
    Name::new("machine").expect("a constant that is a name")
}

/// What the boot bundle's configuration says.
pub fn config() -> &'static BootConfig {
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

/// The second of the machine's time in which `now` is.
pub fn second(now: u64) -> u32 {
    (now / capabilities().timebase_hz) as u32
}

/// Ticks of `time` in microseconds.
pub fn ticks_to_us(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / capabilities().timebase_hz
}

/// Ticks of `time` in nanoseconds.
#[must_use]
pub fn ticks_to_ns(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000_000 / u128::from(capabilities().timebase_hz)) as u64
}

/// Switches the machine off.
pub fn power_off() -> ! {
    log::info!("powering off");
    rv::sbi::shutdown(false);
    // Firmware that cannot switch off has nothing left for this hart to do.
    loop {
        rv::fence::wait_for_interrupt();
    }
}

/// A bounded piece of background work for an idle hart. `false` when there is none.
pub fn idle_step(node: NodeId) -> bool {
    /// Pages zeroed per step: 40 us where 128 bytes take 300 ns (FLASH).
    const PAGES: u64 = 4;
    memory::frames().idle_step(&memory::DirectMemory, node, PAGES) != frames::IdleWork::Nothing
}
