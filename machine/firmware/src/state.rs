//! Which nodes, links and pages work.

use arrayvec::ArrayVec;
use faults::{Fault, MAX_NODES, MAX_POISONED, NodeSet, PAGE_BYTES, Refusal};

use crate::pmp::Plan;
use crate::{Hardware, Memory};

/// Which nodes, links and pages work, and what each node may write.
#[derive(Clone, Debug)]
pub struct Containment {
    all: NodeSet,
    live: NodeSet,
    memory: ArrayVec<Memory, 32>,
    /// By node: those to which there is still a way.
    linked: [NodeSet; MAX_NODES],
    poisoned: ArrayVec<u64, MAX_POISONED>,
    /// By node: the nodes that it may write, with itself; all if empty.
    cells: [NodeSet; MAX_NODES],
}

impl Containment {
    /// The machine as long as everything works.
    #[must_use]
    pub fn new(hardware: &Hardware) -> Self {
        let all = NodeSet::first(hardware.nodes);
        Self {
            all,
            live: all,
            memory: hardware.memory.clone(),
            linked: [all; MAX_NODES],
            poisoned: ArrayVec::new(),
            cells: [NodeSet::EMPTY; MAX_NODES],
        }
    }

    /// What a node reaches, itself included; nothing if it is dead.
    #[must_use]
    pub fn reach(&self, node: usize) -> NodeSet {
        let linked = self.linked.get(node).copied().unwrap_or_default();
        if self.live.has(node) { linked.and(self.live) } else { NodeSet::EMPTY }
    }

    /// The nodes that are not dead.
    #[must_use]
    pub const fn live(&self) -> NodeSet {
        self.live
    }

    /// The pages that nobody reaches.
    #[must_use]
    pub fn poisoned(&self) -> &[u64] {
        &self.poisoned
    }

    /// The state after a fault.
    ///
    /// # Errors
    /// The fault names what does not exist or is gone, would leave nobody, or needs too many protection entries.
    pub fn after(&self, fault: Fault) -> Result<Self, Refusal> {
        let mut next = self.clone();
        match fault {
            Fault::NodePower(nodes) | Fault::Router(nodes) | Fault::NodeController(nodes) => next.lose(nodes)?,
            Fault::Link(nodes) => next.cut(nodes)?,
            Fault::Page(address) => next.poison(address)?,
        }
        next.check_plans()?;
        Ok(next)
    }

    /// The state in which the nodes of `cell` may write only their own memory; in which all may write all, if the cell is
    /// empty.
    ///
    /// # Errors
    /// The cell has unknown nodes, is not `node`'s, or the harts have too few protection entries.
    pub fn with_firewall(&self, node: usize, cell: NodeSet) -> Result<Self, Refusal> {
        if !cell.without(self.all).is_empty() || !(cell.is_empty() || cell.has(node)) {
            return Err(Refusal::UnknownNode);
        }
        let mut next = self.clone();
        let members = if cell.is_empty() { self.cells[node].or(NodeSet::one(node)) } else { cell };
        members.iter().for_each(|member| next.cells[member] = cell);
        next.check_plans()?;
        Ok(next)
    }

    fn lose(&mut self, nodes: NodeSet) -> Result<(), Refusal> {
        self.check_known(nodes)?;
        if nodes.and(self.live).is_empty() {
            return Err(Refusal::AlreadyGone);
        }
        self.live = self.live.without(nodes);
        if self.live.is_empty() { Err(Refusal::NobodyLeft) } else { Ok(()) }
    }

    fn cut(&mut self, nodes: NodeSet) -> Result<(), Refusal> {
        self.check_known(nodes)?;
        let others = self.all.without(nodes);
        if nodes.and(self.live).is_empty() || others.and(self.live).is_empty() {
            return Err(Refusal::NobodyLeft);
        }
        let before = self.linked;
        nodes.iter().for_each(|node| self.linked[node] = self.linked[node].without(others));
        others.iter().for_each(|node| self.linked[node] = self.linked[node].without(nodes));
        if self.linked == before { Err(Refusal::AlreadyGone) } else { Ok(()) }
    }

    fn poison(&mut self, address: u64) -> Result<(), Refusal> {
        let end = address.checked_add(PAGE_BYTES).ok_or(Refusal::NotMemory)?;
        let firmware = faults::FIRMWARE_AT..faults::FIRMWARE_AT + faults::FIRMWARE_BYTES;
        let is_memory = self.memory.iter().any(|memory| memory.start <= address && end <= memory.end);
        if !is_memory || firmware.contains(&address) {
            return Err(Refusal::NotMemory);
        }
        if self.poisoned.contains(&address) {
            return Err(Refusal::AlreadyGone);
        }
        self.poisoned.try_push(address).map_err(|_| Refusal::NoEntries)
    }

    fn check_known(&self, nodes: NodeSet) -> Result<(), Refusal> {
        if nodes.without(self.all).is_empty() { Ok(()) } else { Err(Refusal::UnknownNode) }
    }

    /// Nothing is promised that a hart could not keep.
    fn check_plans(&self) -> Result<(), Refusal> {
        self.live.iter().try_for_each(|node| self.plan(node).map(drop))
    }

    /// The protection entries of a node's harts: most specific first, then what is out of reach, then what must not be
    /// written.
    ///
    /// # Errors
    /// [`Refusal::NoEntries`]; never for a state that [`Self::after`] or [`Self::with_firewall`] gave.
    pub fn plan(&self, node: usize) -> Result<Plan, Refusal> {
        let reach = self.reach(node);
        let mut plan = Plan::new();
        self.poisoned.iter().try_for_each(|page| plan.deny(*page, page + PAGE_BYTES))?;
        self.joined(|owner| !reach.has(owner), |start, end| plan.deny(start, end))?;
        let cell = self.cells.get(node).copied().unwrap_or_default();
        if !cell.is_empty() {
            // Where a hart may not even read, the entries above decide first.
            self.joined(|owner| !cell.has(owner), |start, end| plan.forbid_writing(start, end))?;
        }
        plan.finish()
    }

    /// Calls `act` with the memory of all nodes that `choose` takes, neighbours as one range.
    fn joined(
        &self,
        choose: impl Fn(usize) -> bool,
        mut act: impl FnMut(u64, u64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut open: Option<(u64, u64)> = None;
        for memory in self.memory.iter().filter(|memory| choose(memory.node)) {
            open = match open {
                Some((start, end)) if end == memory.start => Some((start, memory.end)),
                Some((start, end)) => {
                    act(start, end)?;
                    Some((memory.start, memory.end))
                }
                None => Some((memory.start, memory.end)),
            };
        }
        open.map_or(Ok(()), |(start, end)| act(start, end))
    }
}

#[cfg(test)]
mod tests;
