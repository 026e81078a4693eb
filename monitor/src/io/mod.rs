//! The machine's disks and network as VMs share them.
//!
//! These rooms are below those of VMs, whose devices call them. The other way round they know a VM as a [`DeviceOwner`].

pub mod disks;
mod gateway;
pub mod network;
mod owner;
pub mod sent;

pub use owner::{DeviceOwner, at_cost_of};

/// Takes disks and networks into use, once, after the machine's devices: at boot, or when the cell that had them is lost.
pub fn init() {
    disks::init();
    network::init();
}

/// The same in a cell whose leader drives the devices.
pub fn init_remote() {
    disks::init_remote();
    network::init();
}
