//! The firmware on the bare machine.

mod aplic;
mod console;
mod csr;
mod doorbell;
mod entry;
mod harts;
mod injection;
mod memory;
mod pages;
mod protection;
mod sbi;
mod setup;
mod timer;
mod trap;
