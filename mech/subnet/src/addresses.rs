//! Which address is behind which port.

use alloc::collections::BTreeMap;
use control::MacAddress;

use crate::port::PortId;

/// Learned addresses of one port, at most: a port cannot push others' out.
const MAX_LEARNED: usize = 512;

/// The address table.
#[derive(Debug)]
pub(crate) struct AddressTable {
    entries: BTreeMap<MacAddress, Entry>,
    /// A learned address that was not heard for so many ticks is forgotten.
    ageing_ticks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    port: PortId,
    /// When it was heard last; `None`: it belongs to the port for good.
    heard: Option<u64>,
}

impl AddressTable {
    pub const fn new(ageing_ticks: u64) -> Self {
        Self { entries: BTreeMap::new(), ageing_ticks }
    }

    /// The port to whom `mac` belongs for good.
    pub fn owner(&self, mac: MacAddress) -> Option<PortId> {
        self.entries.get(&mac).filter(|entry| entry.heard.is_none()).map(|entry| entry.port)
    }

    /// The port behind which `mac` is.
    pub fn port_of(&self, mac: MacAddress, now: u64) -> Option<PortId> {
        let is_fresh = |entry: &&Entry| self.is_fresh(entry, now);
        self.entries.get(&mac).filter(is_fresh).map(|entry| entry.port)
    }

    /// `mac` belongs to `port` from now on.
    pub fn assign(&mut self, mac: MacAddress, port: PortId) {
        self.entries.insert(mac, Entry { port, heard: None });
    }

    /// `mac`, which belongs to nobody, was heard at `port`.
    pub fn hear(&mut self, mac: MacAddress, port: PortId, now: u64) {
        let heard = Entry { port, heard: Some(now) };
        match self.entries.get_mut(&mac) {
            Some(entry) if entry.port == port => *entry = heard,
            known => {
                let is_known = known.is_some();
                if self.learned(port) >= MAX_LEARNED {
                    self.forget_one(port, now);
                }
                if is_known || self.learned(port) < MAX_LEARNED {
                    self.entries.insert(mac, heard);
                }
            }
        }
    }

    /// Forgets everything about `port`.
    pub fn remove_port(&mut self, port: PortId) {
        self.entries.retain(|_, entry| entry.port != port);
    }

    /// Addresses that were learned at `port`.
    pub fn learned(&self, port: PortId) -> usize {
        self.entries.values().filter(|entry| entry.port == port && entry.heard.is_some()).count()
    }

    /// Makes room among a port's learned addresses: drops the stale ones, or the one not heard for the longest.
    fn forget_one(&mut self, port: PortId, now: u64) {
        let ageing_ticks = self.ageing_ticks;
        let before = self.entries.len();
        self.entries.retain(|_, entry| {
            entry.port != port || entry.heard.is_none_or(|heard| now.saturating_sub(heard) < ageing_ticks)
        });
        if self.entries.len() < before {
            return;
        }
        let learned = self.entries.iter().filter(|(_, entry)| entry.port == port && entry.heard.is_some());
        if let Some(mac) = learned.min_by_key(|(_, entry)| entry.heard).map(|(mac, _)| *mac) {
            self.entries.remove(&mac);
        }
    }

    fn is_fresh(&self, entry: &Entry, now: u64) -> bool {
        entry.heard.is_none_or(|heard| now.saturating_sub(heard) < self.ageing_ticks)
    }
}
