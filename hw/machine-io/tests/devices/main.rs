//! The drivers against devices that do what a test says: honest, failing, and broken.

mod disk;
mod fake;
mod streams;

/// Devices move to whichever hart serves them.
#[test]
fn devices_are_send() {
    fn is_send<T: Send>() {}
    is_send::<machine_io::MachineDisk<fake::Process>>();
    is_send::<machine_io::MachineNic<fake::Process>>();
    is_send::<machine_io::ControlPort<fake::Process>>();
}
