//! The machine's interrupts: doorbells between harts, messages to guest interrupt files, and the devices' lines.

use super::layout;
use addr::{CpuIndex, HartId, MachineAddr, Mfn};
use core::num::NonZero;
use intc::{HartFile, MachineInterrupts, MmioRegion, Pending};
use machine_tree::{AddressRange, InterruptSource, MachineDescription};
use spin::Once;

/// The machine's controllers.
pub type Controllers = MachineInterrupts<MmioRegion, HartFile>;

static CONTROLLERS: Once<Controllers> = Once::new();
/// The same controllers with the devices' wires, once this cell has taken these over. Doorbells do not need them.
static WIRED: Once<Controllers> = Once::new();

fn wired() -> Option<&'static Controllers> {
    WIRED.get().or_else(|| CONTROLLERS.get())
}

/// Takes the controllers over.
///
/// # Panics
/// When the tree describes controllers that cannot be driven: without interrupts nothing else works.
#[must_use]
pub fn discover(description: &MachineDescription) -> Controllers {
    let controllers = MachineInterrupts::new(description, HartFile, map_registers);
    controllers.unwrap_or_else(|why| panic!("interrupt controllers: {why}"))
}

/// Publishes them. What is attached later is attached to others, see [`take_over`].
pub fn install(controllers: Controllers) {
    CONTROLLERS.call_once(|| controllers);
}

/// Publishes controllers to which the devices of a lost cell are attached. The calling hart, `cpu`, takes their interrupts.
pub fn take_over(controllers: Controllers, cpu: CpuIndex) {
    let controllers = WIRED.call_once(|| controllers);
    super::description().harts.iter().for_each(|hart| controllers.open_wires(hart.cpu));
    controllers.open_messages(cpu);
}

/// A device's registers through the direct map.
#[expect(unsafe_code)]
pub fn map_registers(range: AddressRange) -> Option<MmioRegion> {
    let is_mapped = range.end().raw() <= layout::DIRECT_SIZE;
    let base = usize::try_from(layout::direct(range.start())).ok()?;
    // UNSAFETY and SAFETY: (1) the tree says that the range is a device's registers, the direct map covers it, and no
    // Rust object lies outside RAM; (2) interrupt controllers do not write memory.
    is_mapped.then(|| unsafe { MmioRegion::new(base, range.bytes() as usize) })
}

/// Opens the calling hart, `cpu`, for its interrupts.
pub fn init_hart(cpu: CpuIndex) {
    if let Some(controllers) = wired() {
        controllers.open_current(cpu);
    }
}

/// Interrupts another hart: by a store to its interrupt file where it has one, else through the firmware.
#[inline]
pub fn ring(cpu: CpuIndex, hart: HartId) {
    if !CONTROLLERS.get().is_some_and(|controllers| controllers.send_ipi(cpu)) {
        rv::sbi::send_ipi(hart.0);
    }
}

/// Makes interrupt `identity` pending in guest file `file` of a hart.
#[inline]
pub fn send_to_guest_file(cpu: CpuIndex, file: u8, identity: NonZero<u16>) {
    if let Some(controllers) = CONTROLLERS.get() {
        controllers.send(cpu, u32::from(file), identity);
    }
}

/// Takes what is pending for the calling hart, `cpu`, and hands devices' interrupts to `serve`. A bounded number at a time: a source
/// that never falls silent must not hold the hart.
pub fn handle_external(cpu: CpuIndex, serve: impl Fn(InterruptSource)) {
    const AT_MOST: usize = 16;
    let Some(controllers) = wired() else { return };
    for _ in 0..AT_MOST {
        match controllers.claim(cpu) {
            None => return,
            Some(Pending::Ipi) => {}
            Some(Pending::Device(claim)) => {
                serve(claim.source());
                controllers.complete(claim);
            }
        }
    }
}

/// The page of guest file `file` of a hart, to be mapped into a guest.
#[must_use]
pub fn guest_file_page(hart: HartId, file: u8) -> Option<Mfn> {
    let imsic = super::description().controllers.imsic.as_ref()?;
    imsic.guest_file(hart, u32::from(file)).map(MachineAddr::mfn)
}
