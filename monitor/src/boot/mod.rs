//! From the firmware's hand-over to the per-hart loop.
//!
//! The boot hart reads the device tree, sets up memory, builds each node's tables and image copy, prepares a
//! [`Hart`] and a stack in its node's memory for every hart, starts the others through SBI HSM, and ends in the
//! same loop as they do.

mod bundle;
mod entry;
mod features;
mod handover;
mod paging;
mod share;
mod stack;

pub use bundle::Bundle;

use crate::{
    hart::{self, Hart, this_hart},
    io,
    machine::{self, agenda, direct, image, layout, memory, node_box::NodeBox},
    run,
    services::{cells, mail, modules, shortage},
};
use addr::{BASE_PAGE, HartId, MachineAddr, Mfn};
use alloc::{boxed::Box, vec::Vec};
use entry::StartBlock;
use machine_tree::{AddressRange, MachineDescription};
use rv::{csr, sbi, world};
use share::{Arrival, Share};

/// The longest tree that is read; its own header says how long it is.
const TREE_MAX: u64 = 2 << 20;

/// The first Rust code of a cell's first hart: translation is on with the boot tables, everything else is still to do.
/// `handed` is where the device tree is, or a [`handover::Handover`] if another cell `is_started` this one.
pub(crate) extern "C" fn boot(hart_id: u64, handed: u64, load_offset: u64, is_started: u64) -> ! {
    world::install_trap_vector();
    if is_started != 0 {
        machine::cell::set_started();
    }
    image::set_loaded_at(MachineAddr::new(layout::IMAGE_BASE.wrapping_add(load_offset)));
    machine::logging::init();
    let handed = MachineAddr::new(handed);
    let arrival = match is_started {
        0 => Arrival::from_firmware(tree_range(handed)),
        _ => Arrival::from_cell(handed),
    };
    let whole =
        MachineDescription::parse(share::bytes(arrival.tree)).unwrap_or_else(|why| panic!("device tree: {why}"));
    machine::logging::set_timebase(whole.timebase_hz);
    let Share { description, with_devices, bundle, taken, epoch_ns, others } =
        share::take(&whole, &arrival, HartId(hart_id));
    report(&description);
    features::adopt(&description);
    memory::init(&description, &taken);
    let roots: Vec<Mfn> = description.nodes.ids().map(paging::build_node).collect();
    take_over(description, with_devices, bundle, epoch_ns);
    let own = start_harts(hart_id, &roots);
    share::start(&others);
    drop((whole, others));
    enter(own)
}

/// The machine's devices, from the bottom up, and what the bundle brings.
fn take_over(
    description: MachineDescription,
    with_devices: Option<MachineDescription>,
    bundle: Bundle,
    epoch_ns: Option<u64>,
) {
    modules::adopt(bundle.modules.into_iter().map(|module| (module.name, module.bytes)));
    machine::init(description, with_devices, bundle.config, epoch_ns);
    let restarts = machine::options().restarts;
    if restarts > 0 && machine::cell::is_first() {
        log::warn!("this machine was started again after a panic (restart {restarts})");
    }
    shortage::init();
    cells::init();
    match machine::cell::is_first() {
        true => io::init(),
        false => io::init_remote(),
    }
    if machine::cell::is_first() && !machine::cell::is_alone() {
        io::disks::describe();
    }
}

fn report(description: &MachineDescription) {
    let (implementation, version) = sbi::implementation();
    log::info!(
        "mirrorball {} on {}: {} harts, {} nodes, SBI {:#x} by implementation {implementation} version {version:#x}",
        crate::version::text(),
        description.model,
        description.harts.len(),
        description.nodes.count(),
        sbi::spec_version(),
    );
    if !machine::cell::is_alone() {
        let harts: Vec<_> = description.harts.iter().map(|hart| hart.id.0).collect();
        let nodes: Vec<_> = machine::cell::nodes().iter().map(|node| node.0).collect();
        let mib = description.memory.iter().map(|memory| memory.range.bytes()).sum::<u64>() >> 20;
        log::info!("nodes {nodes:?}, harts {harts:?}, {mib} MiB");
    }
}

/// The tree's own extent, from its header's `totalsize`.
fn tree_range(at: MachineAddr) -> AddressRange {
    let mut field = [0; 4];
    direct::read_bytes(MachineAddr::new(at.raw() + 4), &mut field);
    let bytes = u64::from(u32::from_be_bytes(field)).min(TREE_MAX);
    AddressRange::new(at, bytes.next_multiple_of(BASE_PAGE)).expect("the tree lies in memory")
}

/// How long a hart may take to start before the next one does, in fractions of a second.
const START_HZ: u64 = 4;

/// Builds the harts and starts all but this one; where this one goes on.
fn start_harts(boot_hart: u64, roots: &[Mfn]) -> &'static StartBlock {
    let description = machine::description();
    let harts: Vec<&'static Hart> = description
        .harts
        .iter()
        .map(|found| Hart::new(found.cpu, found.id, found.node, stack::emergency(found.node)))
        .map(|hart| NodeBox::new(hart.node, hart).expect("memory for a hart's data").leak())
        .collect();
    hart::install(harts.into_boxed_slice());
    mail::init();
    let control = &hart::all()[hart::CONTROL_HART.index()];
    agenda::set_control(control.cpu, control.hart_id);
    let start = image::machine_of(entry::secondary_start_address());
    let mut own = None;
    for hart in hart::all() {
        let block = start_block(hart, roots);
        if hart.hart_id.0 == boot_hart {
            own = Some(block);
            continue;
        }
        let answer = start_hart(hart, start, block);
        if !answer.is_ok() {
            log::warn!("hart {} does not start: SBI error {}", hart.hart_id, answer.error);
        } else if !has_come(hart) {
            log::warn!("hart {} has not come up yet", hart.hart_id);
        }
    }
    own.expect("the boot hart is in the device tree, and in this cell")
}

/// Waits a while for a hart that was started. One comes after the other: OpenSBI 1.5 takes memory for a hart while it starts,
/// and has too little for many at once; those that find none never come, whoever started them included.
fn has_come(hart: &Hart) -> bool {
    let patience = machine::capabilities().timebase_hz / START_HZ;
    let begin = csr::time::read();
    while !hart.is_online() {
        if csr::time::read().wrapping_sub(begin) > patience {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

fn start_block(hart: &'static Hart, roots: &[Mfn]) -> &'static StartBlock {
    let root = roots[hart.node.index()];
    Box::leak(Box::new(StartBlock {
        satp: paging::satp(root),
        stack_top: stack::prepare(hart.cpu, hart.node, root),
        thread_pointer: core::ptr::from_ref(hart) as u64,
        entry: hart_main as *const () as u64,
    }))
}

#[expect(unsafe_code)]
fn start_hart(hart: &Hart, start: MachineAddr, block: &'static StartBlock) -> sbi::SbiRet {
    let opaque = memory::machine_address_of(core::ptr::from_ref(block) as u64);
    // UNSAFETY and SAFETY: `secondary_start` is written for the HSM entry state and takes a StartBlock's machine
    // address; the block is never freed.
    unsafe { sbi::hart_start(hart.hart_id.0, start.raw(), opaque.raw()) }
}

#[expect(unsafe_code)]
fn enter(block: &'static StartBlock) -> ! {
    // UNSAFETY and SAFETY: the block was built for this hart by `start_block`; its tables map image and direct map.
    unsafe { entry::enter(block) }
}

/// Every hart's first code on its own stack and tables.
extern "C" fn hart_main() -> ! {
    world::install_trap_vector();
    let hart = this_hart().expect("the start block has set the thread pointer");
    init_hart(hart);
    run::run(hart)
}

#[expect(unsafe_code)]
fn init_hart(hart: &Hart) {
    // UNSAFETY and SAFETY: the trap vector is installed; the features are those that every hart of the machine has.
    unsafe { world::init_hart(machine::capabilities().features) };
    if machine::capabilities().guests.double_trap && !sbi::enable_double_traps().is_ok() {
        log::warn!("hart {}: the firmware refuses double traps here: guests do without them", hart.hart_id);
    }
    machine::irq::init_hart(hart.cpu);
    log::debug!("hart {} online, time {}", hart.hart_id, csr::time::read());
}
