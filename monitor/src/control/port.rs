//! The stream to the client: the machine's control port, or in another cell than the leader the wire to that one.

use crate::{machine::devices, services::cells};

/// The byte stream below.
pub trait Port {
    /// Takes what has arrived, up to the buffer's size.
    fn read(&mut self, buf: &mut [u8]) -> usize;
    /// Gives bytes away; returns how many were taken.
    fn write(&mut self, bytes: &[u8]) -> usize;
}

/// The control port for the server; nothing where the machine has none.
#[derive(Debug)]
pub struct ControlStream;

impl Port for ControlStream {
    fn read(&mut self, buf: &mut [u8]) -> usize {
        if !cells::is_leader() {
            return cells::read(cells::leader(), buf);
        }
        devices::all().control.as_ref().and_then(|port| port.lock().read(buf).ok()).unwrap_or(0)
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        if !cells::is_leader() {
            return cells::write(cells::leader(), bytes);
        }
        match &devices::all().control {
            // Without a port, or with a broken one, nobody listens: what is said is gone.
            None => bytes.len(),
            Some(port) => port.lock().write(bytes).unwrap_or(bytes.len()),
        }
    }
}
