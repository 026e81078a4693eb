//! The probe on the bare machine.

mod access;
mod entry;
mod machine;
mod sbi;
mod survivor;
mod tables;
