//! The machine's RAM inside the emulator: to read page tables, and to know where instructions come from.

use std::ops::Range;

use machine_model::Config;

use crate::hooks::{Hooks, read_ram};

/// Where each node's RAM is.
pub struct Ram {
    base: u64,
    node_bytes: u64,
    nodes: Vec<Range<usize>>,
}

impl Ram {
    /// Finds it, once the machine is built.
    pub fn find(hooks: &Hooks, config: &Config) -> Result<Self, String> {
        let find = |node: usize| {
            let start = config.ram_base + node as u64 * config.node_bytes;
            let found = hooks.ram(start, config.node_bytes);
            found.ok_or_else(|| format!("the machine has no {:#x} bytes of RAM at {start:#x}", config.node_bytes))
        };
        let nodes = (0..config.nodes).map(find).collect::<Result<_, _>>()?;
        Ok(Self { base: config.ram_base, node_bytes: config.node_bytes, nodes })
    }

    /// The eight bytes at a machine address; 0 where there is no RAM, or which it splits.
    pub fn read(&self, addr: u64) -> u64 {
        let offset = addr.wrapping_sub(self.base);
        let place = self.nodes.get((offset / self.node_bytes) as usize);
        match place {
            // A node is whole pages, so the word is within it.
            Some(node) if addr.is_multiple_of(8) => read_ram(node.start + (offset % self.node_bytes) as usize),
            _ => 0,
        }
    }

    /// The machine address of a place in this process.
    pub fn machine_addr(&self, host: usize) -> Option<u64> {
        let node = self.nodes.iter().position(|node| node.contains(&host))?;
        Some(self.base + node as u64 * self.node_bytes + (host - self.nodes[node].start) as u64)
    }
}
