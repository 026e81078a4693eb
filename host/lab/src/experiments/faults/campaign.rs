//! The campaign: fault after fault, machine after machine, each at a random moment of VMs that compute.

use control::{CellState, StopReason, VmSpec};
use faults::{Fault, NodeSet, PAGE_BYTES, Request, Trigger};

use super::recovery::{boot, inject, trouble, vm, wait};
use crate::LabError;
use crate::compare::ratio;
use crate::plan::{NodeSpec, Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Running, name};
use crate::run::Progress;
use crate::store::{Measured, Value};

/// The figure.
pub const CONTAINED: &str = "contained";
/// Rounds of a VM's computation: some seconds, of which the fault comes in the first one.
const ROUNDS: u64 = 150;
/// Where RAM begins.
const RAM: u64 = 0x8000_0000;

/// What happened so far.
#[derive(Debug, Default)]
struct Tally {
    faults: u64,
    contained: u64,
    cells_lost: u64,
    /// VMs that had to finish, and did with the right result.
    finished: u64,
    /// What was not contained.
    complaints: Vec<String>,
}

/// A fault, whom it takes, and whom it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    fault: Fault,
    takes: NodeSet,
    may_take: NodeSet,
}

/// Injects as many faults as the procedure counts.
///
/// # Errors
/// [`LabError`] if a machine does not boot, or its control port falls silent.
pub fn contained(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let count = match &trial.work {
        Work::Procedure(procedure) => procedure.count,
        Work::Guest(_) => 0,
    };
    let mut random = Random(trial.seed.wrapping_add(1));
    let mut tally = Tally::default();
    let mut described = Default::default();
    while tally.faults < count {
        progress.say(&format!("{} of {count} faults, {} contained", tally.faults, tally.contained));
        let machine = boot(trial, "bench-faults", &stand_ins(trial)?)?;
        let info = machine.client().machine_info()?;
        described = (describe(&info), commit_of(&info.monitor.version));
        // The result that is right: nothing has failed yet.
        let right = result(&machine.run(&vm(0, ROUNDS)?)?.console);
        until_alone(trial, &machine, &right, count, &mut random, &mut tally)?;
    }
    let share = 100.0 * ratio(tally.contained, tally.faults);
    let note = tally.complaints.join("; ");
    let values = vec![
        Value { note, ..Value::new(CONTAINED, share, "%", tally.faults) },
        Value::new("faults", tally.faults as f64, "", 1),
        Value::new("cells_lost", tally.cells_lost as f64, "", 1),
        Value::new("vms_finished", tally.finished as f64, "", 1),
    ];
    let (machine, commit) = described;
    Ok(Measured { machine, commit, values })
}

/// A VM of each cell that never starts: a cell has what the VMs boot from that it begins with.
fn stand_ins(trial: &Trial) -> Result<Vec<VmSpec>, LabError> {
    let stand_in = |cell| Ok(VmSpec { name: name(&format!("none{cell}"))?, autostart: false, ..vm(cell, 1)? });
    (0..trial.machine.nodes.len()).map(stand_in).collect()
}

/// Fault after fault until the first cell is alone.
fn until_alone(
    trial: &Trial,
    machine: &Running,
    right: &str,
    count: u64,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), LabError> {
    let mut left = NodeSet::first(trial.machine.nodes.len());
    // Who has lost a page may find that out at any time.
    let mut weak = NodeSet::EMPTY;
    let mut story = Vec::new();
    while left.len() > 1 && tally.faults < count {
        let mut planned = draw(random, left, &trial.machine.nodes);
        planned.may_take = planned.may_take.or(weak.and(left));
        if matches!(planned.fault, Fault::Page(_)) {
            weak = weak.or(planned.may_take);
        }
        story.push(planned.fault.to_string());
        let vms = left.iter().map(|cell| vm(cell, ROUNDS)).collect::<Result<Vec<_>, _>>()?;
        vms.iter().try_for_each(|vm| machine.start(vm))?;
        let info = machine.client().machine_info()?;
        let ticks = info.now_ticks + random.below(info.timebase_hz);
        inject(machine, Request { fault: planned.fault, trigger: Trigger::At { ticks } })?;
        let before = tally.complaints.len();
        for (vm, cell) in vms.iter().zip(left.iter()).filter(|(_, cell)| !planned.may_take.has(*cell)) {
            match survived(machine, vm, right) {
                Ok(()) => tally.finished += 1,
                Err(why) => tally.complaints.push(format!("{}: VM of cell {cell}: {why}", story.join(", "))),
            }
        }
        for cell in planned.takes.iter() {
            wait(machine, "a cell to be lost", || Ok((!is_in(machine, cell)?).then_some(())))?;
        }
        for (vm, cell) in vms.iter().zip(left.iter()).filter(|(_, cell)| planned.may_take.has(*cell)) {
            // Who may have used what was lost ends somehow.
            if is_in(machine, cell)? && survived(machine, vm, right).is_err() && is_in(machine, cell)? {
                return Err(trouble(machine, format!("{}: cell {cell} goes on, its VM does not end", planned.fault)));
            }
        }
        let lost = left.iter().map(|cell| Ok((cell, is_in(machine, cell)?))).collect::<Result<Vec<_>, LabError>>()?;
        let lost =
            lost.iter().filter(|(_, is_in)| !is_in).fold(NodeSet::EMPTY, |set, (cell, _)| set.or(NodeSet::one(*cell)));
        for cell in lost.without(planned.may_take).iter() {
            let state = machine.client().cells()?.get(cell).map(|cell| cell.state);
            tally.complaints.push(format!("{}: cell {cell}: {state:?}", story.join(", ")));
        }
        left = left.without(lost);
        tally.faults += 1;
        tally.contained += u64::from(tally.complaints.len() == before);
        tally.cells_lost += u64::from(lost.len());
    }
    Ok(())
}

/// Whether a VM finishes as if nothing had happened; it is forgotten then.
fn survived(machine: &Running, vm: &VmSpec, right: &str) -> Result<(), String> {
    let ended =
        machine.end_of(&vm.name).map_err(|why| why.to_string().lines().next().unwrap_or_default().to_owned())?;
    match ended.summary.reason {
        Some(StopReason::PowerOff) if result(&ended.console) == right => Ok(()),
        Some(StopReason::PowerOff) => Err("its result is wrong".to_owned()),
        reason => Err(format!("{reason:?}")),
    }
}

fn is_in(machine: &Running, cell: usize) -> Result<bool, LabError> {
    Ok(machine.client().cells()?.get(cell).is_some_and(|cell| cell.state == CellState::In))
}

/// The line with the result of a VM's computation.
fn result(console: &str) -> String {
    console.lines().find(|line| line.contains("CHECKSUM")).unwrap_or_default().trim().to_owned()
}

/// A fault that leaves the first cell and whoever is with it.
fn draw(random: &mut Random, left: NodeSet, nodes: &[NodeSpec]) -> Planned {
    let others: Vec<usize> = left.iter().filter(|node| *node != 0).collect();
    let one = others[random.below(others.len() as u64) as usize];
    let taken = |fault, nodes| Planned { fault, takes: nodes, may_take: nodes };
    // Some of the others, but fewer than half of all: the larger part goes on.
    let few = (left.len() as usize - 1) / 2;
    let group = |random: &mut Random, most: usize| {
        let count = 1 + random.below(most as u64) as usize;
        let first = random.below(others.len() as u64) as usize;
        let some = (first..first + count).map(|at| NodeSet::one(others[at % others.len()]));
        some.fold(NodeSet::EMPTY, NodeSet::or)
    };
    match random.below(5) {
        0 => taken(Fault::NodeController(NodeSet::one(one)), NodeSet::one(one)),
        1 if few > 0 => {
            let side = group(random, few);
            taken(Fault::Link(side), side)
        }
        2 => {
            let side = group(random, others.len());
            taken(Fault::Router(side), side)
        }
        3 => {
            let before: u64 = nodes.iter().take(one).map(|node| u64::from(node.memory_mib) << 20).sum();
            let pages = (u64::from(nodes[one].memory_mib) << 20) / PAGE_BYTES;
            let page = RAM + before + random.below(pages) * PAGE_BYTES;
            Planned { fault: Fault::Page(page), takes: NodeSet::EMPTY, may_take: NodeSet::one(one) }
        }
        _ => taken(Fault::NodePower(NodeSet::one(one)), NodeSet::one(one)),
    }
}

/// Numbers that look random, the same in each run.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// One below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_leave_the_first_cell_in_the_larger_part() {
        let nodes = [NodeSpec { harts: 2, memory_mib: 256 }, NodeSpec { harts: 2, memory_mib: 128 }];
        let nodes = [&nodes[..], &nodes[1..], &nodes[1..]].concat();
        let mut random = Random(7);
        let mut kinds = std::collections::BTreeSet::new();
        for round in 0..1000 {
            let left = [NodeSet(0b1111), NodeSet(0b1011), NodeSet(0b0101)][round % 3];
            let planned = draw(&mut random, left, &nodes);
            kinds.insert(planned.fault.kind() as u64);
            let Planned { fault, takes, may_take } = planned;
            assert!(!may_take.has(0) && may_take.without(left).is_empty(), "{planned:?} of {left}");
            assert!(takes.without(may_take).is_empty(), "{planned:?}");
            assert!(Fault::decode(fault.kind() as u64, fault.nodes().0, fault.address()).is_ok(), "{planned:?}");
            match fault {
                Fault::Link(side) => assert!(2 * side.len() < left.len(), "{planned:?} of {left}"),
                Fault::Page(page) => assert!((0x9000_0000..0xa800_0000).contains(&page), "{page:#x}"),
                _ => {}
            }
        }
        assert_eq!(kinds.len(), 5, "{kinds:?}");
    }
}
