//! From the firmware's hand-over to the per-hart loop.

mod entry;
pub mod image;
pub mod layout;

use addr::MachineAddr;

/// The boot hart's first Rust code: translation is on with the boot tables, everything else is still to do.
pub(crate) extern "C" fn boot(hart_id: u64, device_tree: u64, load_offset: u64) -> ! {
    rv::world::install_trap_vector();
    crate::machine::log::init();
    image::set_loaded_at(MachineAddr::new(layout::IMAGE_BASE.wrapping_add(load_offset)));
    log::info!("mirrorball: hart {hart_id}, image at {:?}, tree at {device_tree:#x}", image::loaded_at());
    panic!("end of the thin line");
}
