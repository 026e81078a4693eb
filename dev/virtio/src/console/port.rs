//! One port's state, and what the driver still has to be told about it.

use alloc::vec::Vec;

use bitflags::bitflags;

use super::spec;

/// How a port looks to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig<'a> {
    /// Its name under `/dev/virtio-ports`, for example `org.qemu.guest_agent.0`. At most 255 bytes are used.
    pub name: Option<&'a str>,
    /// Whether it is a console (`hvc`). Else it is a byte stream.
    pub is_console: bool,
    /// Whether something on the host listens from the start.
    pub is_open: bool,
}

bitflags! {
    /// Control messages that wait for a buffer. A set instead of a queue: bounded whatever the guest does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pending: u8 {
        const ADD = 1;
        const CONSOLE = 2;
        const NAME = 4;
        const OPEN = 8;
    }
}

/// A port.
#[derive(Debug)]
pub struct Port {
    name: Vec<u8>,
    is_console: bool,
    /// Something on the host listens.
    pub is_host_open: bool,
    /// The driver has taken the port (`PORT_READY`).
    is_ready: bool,
    /// Something in the guest listens.
    pub is_guest_open: bool,
    /// Bytes of the transmit queue's next chain that the host has already taken.
    pub output_taken: u32,
    /// Input found no buffer: tell the host when there is one.
    pub wants_input: bool,
    pending: Pending,
}

impl Port {
    pub fn new(config: &PortConfig<'_>) -> Self {
        let name = config.name.unwrap_or("").as_bytes();
        Self {
            // Bounded: 255 bytes.
            name: name.get(..255).unwrap_or(name).to_vec(),
            is_console: config.is_console,
            is_host_open: config.is_open,
            is_ready: false,
            is_guest_open: false,
            output_taken: 0,
            wants_input: false,
            pending: Pending::empty(),
        }
    }

    /// The driver is gone. What the host waits for stays.
    pub const fn reset(&mut self) {
        self.is_ready = false;
        self.is_guest_open = false;
        self.output_taken = 0;
        self.pending = Pending::empty();
    }

    /// The driver can handle ports: announce this one.
    pub fn announce(&mut self) {
        self.pending |= Pending::ADD;
    }

    /// The driver has taken the port: tell what it is.
    pub fn introduce(&mut self) {
        self.is_ready = true;
        self.pending.set(Pending::CONSOLE, self.is_console);
        self.pending.set(Pending::NAME, !self.name.is_empty());
        self.pending.set(Pending::OPEN, self.is_host_open);
    }

    /// The host opens or closes its end.
    pub fn set_host_open(&mut self, is_open: bool) {
        if self.is_host_open != is_open {
            self.is_host_open = is_open;
            self.pending.set(Pending::OPEN, self.is_ready);
        }
    }

    /// The next message to send: event, value and text.
    pub fn next_message(&self) -> Option<(Pending, u16, u16, &[u8])> {
        let which = self.pending.iter().next()?;
        let (event, value, text): (_, _, &[u8]) = match which {
            Pending::ADD => (spec::PORT_ADD, 0, &[]),
            Pending::CONSOLE => (spec::CONSOLE_PORT, 1, &[]),
            Pending::NAME => (spec::PORT_NAME, 1, &self.name),
            _ => (spec::PORT_OPEN, u16::from(self.is_host_open), &[]),
        };
        Some((which, event, value, text))
    }

    /// The message has been sent.
    pub fn mark_sent(&mut self, which: Pending) {
        self.pending -= which;
    }
}
