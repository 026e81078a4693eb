//! Where a new VM's vCPUs go.

use alloc::vec::Vec;

use addr::{CpuIndex, NodeId, VcpuIndex, VmId};

use crate::Entity;

use super::loads::{Load, Loads};
use super::{Activity, HartFacts, Snapshot, VcpuFacts};

/// A hart for each of `vcpus` new vCPUs of one VM, in the order of their indices. Empty if no hart is online.
///
/// First no hart gets more vCPUs than must be, then the VM lies on the fewest nodes, the emptiest and then the nearest
/// ones. vCPUs of the VM share a hart only if it has more of them than there are harts (they will be gang-scheduled).
/// Neighbouring indices lie on one node.
#[must_use]
pub fn place_vm(snapshot: &Snapshot<'_>, vcpus: usize) -> Vec<CpuIndex> {
    let loads = Loads::new(*snapshot, 0..snapshot.harts.len());
    let harts = loads.harts(None).count();
    if harts == 0 || vcpus == 0 {
        return Vec::new();
    }
    let fill = Fill::least(&loads, vcpus, vcpus.div_ceil(harts));
    let nodes = choose_nodes(snapshot, &loads, fill, vcpus);
    // Bounded: MAX_VCPUS.
    let mut chosen = Vec::with_capacity(vcpus);
    for node in nodes {
        take_from_node(&loads, node, fill, vcpus, &mut chosen);
    }
    chosen
}

/// The same for a VM whose guest sees nodes: a hart for each vCPU of each of them, `parts` vCPUs in each. Those of one lie on
/// one node of the machine where it has room for them; two share one only if there are more of them than nodes.
#[must_use]
pub fn place_parts(snapshot: &Snapshot<'_>, parts: &[usize]) -> Vec<CpuIndex> {
    // Bounded: MAX_VCPUS of MAX_VMS.
    let mut vcpus = snapshot.vcpus.to_vec();
    let mut left: Vec<NodeId> = Vec::new();
    let mut chosen = Vec::new();
    for part in parts {
        if left.is_empty() {
            left = snapshot.harts.iter().filter(|hart| hart.is_online).map(|hart| hart.node).collect();
            order::ascending(&mut left);
            left.dedup();
        }
        let free = |hart: &HartFacts| HartFacts { is_online: hart.is_online && left.contains(&hart.node), ..*hart };
        let harts: Vec<_> = snapshot.harts.iter().map(free).collect();
        let placed = place_vm(&Snapshot { harts: &harts, vcpus: &vcpus, ..*snapshot }, *part);
        for cpu in placed {
            let node = snapshot.harts.get(cpu.index()).map(|hart| hart.node);
            left.retain(|one| Some(*one) != node);
            vcpus.push(newcomer(cpu));
            chosen.push(cpu);
        }
    }
    chosen
}

/// A vCPU that was just placed: it counts for whoever is placed after it.
const fn newcomer(hart: CpuIndex) -> VcpuFacts {
    let entity = Entity { vm: VmId(0), vcpu: VcpuIndex(0) };
    VcpuFacts {
        entity,
        weight: 0,
        hart,
        activity: Activity::Running,
        home: None,
        served_permille: 1_000,
        last_move: None,
        is_gang: false,
    }
}

/// How far harts are filled up.
#[derive(Clone, Copy, Debug)]
struct Fill {
    /// vCPUs on any hart afterwards.
    level: usize,
    /// New vCPUs on any hart.
    siblings: usize,
}

impl Fill {
    /// The least level at which `vcpus` more fit, `siblings` to a hart.
    fn least(loads: &Loads<'_>, vcpus: usize, siblings: usize) -> Self {
        let mut fill = Self { level: 1, siblings };
        while fill.room(loads, None) < vcpus {
            fill.level += 1;
        }
        fill
    }

    fn room_on(self, load: &Load) -> usize {
        self.level.saturating_sub(load.owned as usize).min(self.siblings)
    }

    fn room(self, loads: &Loads<'_>, node: Option<NodeId>) -> usize {
        loads.harts(node).map(|(_, load)| self.room_on(load)).sum()
    }
}

/// The fewest nodes that have room for all, the one to fill first in front.
fn choose_nodes(snapshot: &Snapshot<'_>, loads: &Loads<'_>, fill: Fill, vcpus: usize) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = snapshot.harts.iter().map(|hart| hart.node).collect();
    order::ascending(&mut nodes);
    nodes.dedup();
    let owned = |node| loads.harts(Some(node)).map(|(_, load)| load.owned).sum::<u32>();
    let mut rooms: Vec<_> = nodes.into_iter().map(|node| (node, fill.room(loads, Some(node)))).collect();
    order::by_key(&mut rooms, |(node, room)| (core::cmp::Reverse(*room), owned(*node), *node));
    let Some((first, _)) = rooms.first().copied() else { return Vec::new() };
    order::by_key(&mut rooms, |(node, room)| {
        let distance = (snapshot.distance)(first, *node);
        (*node != first, core::cmp::Reverse(*room), distance, owned(*node), *node)
    });
    let mut missing = vcpus;
    let mut chosen = Vec::new();
    for (node, room) in rooms {
        if missing == 0 {
            break;
        }
        missing = missing.saturating_sub(room);
        chosen.push(node);
    }
    chosen
}

/// Fills `node`, its emptiest harts first and of these last the one with the machine's duties, until it is full or `vcpus` are placed.
fn take_from_node(loads: &Loads<'_>, node: NodeId, fill: Fill, vcpus: usize, chosen: &mut Vec<CpuIndex>) {
    let mut free: Vec<_> = loads.harts(Some(node)).map(|(cpu, load)| (load.owned, cpu, fill.room_on(load))).collect();
    while chosen.len() < vcpus {
        let emptiest = free
            .iter_mut()
            .filter(|(_, _, room)| *room > 0)
            .min_by_key(|(owned, cpu, _)| (*owned, loads.has_duties(*cpu), *cpu));
        let Some((owned, cpu, room)) = emptiest else { return };
        chosen.push(*cpu);
        *owned += 1;
        *room -= 1;
    }
}
