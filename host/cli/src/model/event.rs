//! Events: what the monitor did and why.

use std::collections::HashMap;

use addr::VmId;
use control::{
    CellLoss, Event, EventKind, MigrationReason, PlacementAction, PlacementReason, Setting, SharingRefusal, StopReason,
    WaitSign,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::vm::reason_label;
use super::{PAGE, seconds};
use crate::output::{Tone, harmless, units};

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventView {
    /// Its number, rising by one over the whole machine.
    pub sequence: u64,
    /// When, in seconds of the machine's clock.
    pub time_s: f64,
    /// On which hart, as its cell numbers them.
    pub hart: u16,
    /// The number of the cell.
    pub cell: u8,
    /// For which VM: its name, or `vm-ID` when the name is not known any more.
    pub vm: Option<String>,
    /// What: a word.
    pub event: &'static str,
    /// What: for people.
    pub text: String,
    /// Its values.
    pub details: Value,
    #[serde(skip)]
    pub tone: Tone,
}

/// Names of VMs, learnt from events: those of destroyed VMs stay known.
#[derive(Clone, Debug, Default)]
pub struct Names(HashMap<VmId, String>);

impl EventView {
    pub fn new(event: &Event, timebase_hz: u64, names: &mut Names) -> Self {
        let (word, tone, details) = describe(&event.kind);
        Self {
            sequence: event.sequence,
            time_s: seconds(event.ticks, timebase_hz),
            hart: event.hart.0,
            cell: event.cell,
            vm: event.vm.as_ref().map(|vm| names.of(vm)),
            event: word,
            text: harmless(&text(&event.kind)),
            details,
            tone,
        }
    }

    /// One line: time, hart (behind its cell, if that is not the first), VM, what.
    pub fn line(&self, has_color: bool) -> String {
        // Most machines have one cell.
        let cell = if self.cell == 0 { String::new() } else { format!("{}/", self.cell) };
        let hart = format!("{cell}{}", self.hart);
        let time = Tone::Dim.paint(&format!("[{:12.6}] hart {hart:<3}", self.time_s), has_color);
        let vm = format!("{:<12}", self.vm.as_deref().unwrap_or("-"));
        format!("{time} {vm} {}", self.tone.paint(&self.text, has_color))
    }
}

impl Names {
    fn of(&mut self, label: &control::VmLabel) -> String {
        if let Some(name) = &label.name {
            self.0.insert(label.id, name.to_string());
        }
        self.0.get(&label.id).cloned().unwrap_or_else(|| format!("vm-{}", label.id))
    }
}

fn text(kind: &EventKind) -> String {
    let pages = |pages: u64| units::bytes(pages.saturating_mul(PAGE));
    match kind {
        EventKind::MachineBooted { harts, nodes, free_bytes } => {
            let (harts, nodes) = (units::things(u64::from(*harts), "hart"), units::things(u64::from(*nodes), "node"));
            format!("machine booted: {harts}, {nodes}, {} free", units::bytes(*free_bytes))
        }
        EventKind::HartOnline => "hart online".into(),
        EventKind::VmCreated { vcpus, memory_mib } => {
            format!("created: {}, {memory_mib} MiB", units::things(u64::from(*vcpus), "vCPU"))
        }
        EventKind::VmStarted => "started".into(),
        EventKind::VmPaused => "paused".into(),
        EventKind::VmResumed => "resumed".into(),
        EventKind::VmReset => "reset".into(),
        EventKind::VmStopped { reason } => format!("stopped: {reason}"),
        EventKind::VmDestroyed => "destroyed".into(),
        EventKind::GuestFault { device, reason, value } => format!("guest fault: {device}: {reason} ({value:#x})"),
        EventKind::VcpuMigrated { vcpu, from, to, reason } => {
            format!("vCPU {vcpu} moved from hart {from} to {to}: {}", migration_text(*reason))
        }
        EventKind::PagesReturned { pages: count } => format!("{} came back", pages(*count)),
        EventKind::PagesLost { pages: count } => format!("MONITOR FAULT: {} did not come back", pages(*count)),
        EventKind::DiskError { disk, sector, write } => {
            format!("disk {disk} failed to {} sector {sector}", if *write { "write" } else { "read" })
        }
        EventKind::DiskCacheShrunk { pages: count } => format!("disk cache gave back {}", pages(*count)),
        EventKind::CopiesGivenUp { pages: count } => format!("memory is short: {} of copies given up", pages(*count)),
        EventKind::ModuleStored { name, bytes } => format!("module {name} stored ({})", units::bytes(*bytes)),
        EventKind::ControlGarbage { bytes } => format!("{bytes} bytes on the control port were no frames"),
        EventKind::SharingRefused { reason } => format!("disk blocks copied, not shared: {}", refusal_text(*reason)),
        EventKind::PagesMerged { merged, zeroes } => {
            format!("{} merged with equal ones of other VMs, {} of zeroes came back", pages(*merged), pages(*zeroes))
        }
        EventKind::DiskFull { disk, limit_mib: Some(limit), .. } => {
            format!("disk {disk}: limit_mib = {limit} is reached, writes of further blocks fail")
        }
        EventKind::DiskFull { disk, store: Some(store), limit_mib: None } => {
            format!("disk {disk}: store {store} has no room but what is kept for others, writes fail")
        }
        EventKind::DiskFull { disk, store: None, limit_mib: None } => {
            format!("disk {disk}: no memory is left for modified blocks, writes fail")
        }
        EventKind::StoreFailed { store } => {
            format!("store {store}: its log could not be written, it takes no more writes; what was flushed is safe")
        }
        EventKind::StoreIndexFull { store, bytes } => format!(
            "store {store}: its index may take no more than {} of memory, writes to new places fail",
            units::bytes(*bytes)
        ),
        EventKind::VolumeChanged { store, name, removed: true } => format!("{name} removed from store {store}"),
        EventKind::VolumeChanged { store, name, removed: false } => format!("snapshot {name} made in store {store}"),
        EventKind::PagesPlaced { action, pages: count, node, reason } => {
            format!("{} {}: {}", pages(*count), action_text(*action, node.0), placement_text(*reason))
        }
        EventKind::PlacementRefused { reason } => {
            format!("a hot page stays where it is: {}", placement_text(*reason))
        }
        EventKind::CellLost { cell, epoch, cause, .. } => {
            format!("cell {cell} is lost, {}: the others go on in epoch {epoch}", loss_text(*cause))
        }
        EventKind::VmSet { setting } => format!("set to {setting}"),
        EventKind::VmGathers { sign } => format!("its vCPUs run together: {}", sign_text(*sign)),
        EventKind::TookOver { .. } => "this cell drives the machine's devices and answers clients now".into(),
    }
}

/// The word for an event, how much it matters, and its values.
fn describe(kind: &EventKind) -> (&'static str, Tone, Value) {
    let none = || Value::Object(Map::new());
    match kind {
        EventKind::MachineBooted { harts, nodes, free_bytes } => {
            ("machine-booted", Tone::Good, json!({"harts": harts, "nodes": nodes, "free_bytes": free_bytes}))
        }
        EventKind::HartOnline => ("hart-online", Tone::Plain, none()),
        EventKind::VmCreated { vcpus, memory_mib } => {
            ("vm-created", Tone::Plain, json!({"vcpus": vcpus, "memory_mib": memory_mib}))
        }
        EventKind::VmStarted => ("vm-started", Tone::Good, none()),
        EventKind::VmPaused => ("vm-paused", Tone::Plain, none()),
        EventKind::VmResumed => ("vm-resumed", Tone::Plain, none()),
        EventKind::VmReset => ("vm-reset", Tone::Notice, none()),
        EventKind::VmStopped { reason } => ("vm-stopped", stop_tone(reason), stop_details(reason)),
        EventKind::VmDestroyed => ("vm-destroyed", Tone::Plain, none()),
        EventKind::GuestFault { device, reason, value } => {
            ("guest-fault", Tone::Bad, json!({"device": device, "reason": reason, "value": value}))
        }
        EventKind::VcpuMigrated { vcpu, from, to, reason } => {
            let reason = migration_label(*reason);
            ("vcpu-migrated", Tone::Plain, json!({"vcpu": vcpu.0, "from": from.0, "to": to.0, "reason": reason}))
        }
        EventKind::PagesReturned { pages } => ("pages-returned", Tone::Plain, json!({"pages": pages})),
        EventKind::PagesLost { pages } => ("pages-lost", Tone::Bad, json!({"pages": pages})),
        EventKind::DiskError { disk, sector, write } => {
            ("disk-error", Tone::Bad, json!({"disk": disk.as_str(), "sector": sector, "write": write}))
        }
        EventKind::DiskCacheShrunk { pages } => ("disk-cache-shrunk", Tone::Plain, json!({"pages": pages})),
        EventKind::CopiesGivenUp { pages } => ("copies-given-up", Tone::Plain, json!({"pages": pages})),
        EventKind::ModuleStored { name, bytes } => {
            ("module-stored", Tone::Plain, json!({"name": name.as_str(), "bytes": bytes}))
        }
        EventKind::ControlGarbage { bytes } => ("control-garbage", Tone::Notice, json!({"bytes": bytes})),
        EventKind::SharingRefused { reason } => {
            ("sharing-refused", Tone::Notice, json!({"reason": refusal_label(*reason)}))
        }
        EventKind::PagesMerged { merged, zeroes } => {
            ("pages-merged", Tone::Plain, json!({"merged": merged, "zeroes": zeroes}))
        }
        EventKind::DiskFull { disk, store, limit_mib } => {
            let details = json!({"disk": disk.as_str(), "store": store.as_deref(), "limit_mib": limit_mib});
            ("disk-full", Tone::Bad, details)
        }
        EventKind::StoreFailed { store } => ("store-failed", Tone::Bad, json!({"store": store})),
        EventKind::StoreIndexFull { store, bytes } => {
            ("store-index-full", Tone::Bad, json!({"store": store, "bytes": bytes}))
        }
        EventKind::VolumeChanged { store, name, removed } => {
            ("volume-changed", Tone::Plain, json!({"store": store, "name": name, "removed": removed}))
        }
        EventKind::PagesPlaced { action, pages, node, reason } => {
            let (action, reason) = (action_label(*action), placement_label(*reason));
            let details = json!({"action": action, "pages": pages, "node": node.0, "reason": reason});
            ("pages-placed", Tone::Plain, details)
        }
        EventKind::PlacementRefused { reason } => {
            ("placement-refused", Tone::Plain, json!({"reason": placement_label(*reason)}))
        }
        EventKind::CellLost { cell, epoch, cause, noticed_ticks } => {
            let cause = loss_label(*cause);
            let details =
                json!({"cell": cell.as_str(), "epoch": epoch, "cause": cause, "noticed_ticks": noticed_ticks});
            ("cell-lost", Tone::Bad, details)
        }
        EventKind::VmSet { setting } => {
            ("vm-set", Tone::Plain, json!({"key": setting.key(), "value": setting_value(*setting)}))
        }
        EventKind::VmGathers { sign } => ("vm-gathers", Tone::Plain, json!({"sign": sign_label(*sign)})),
        EventKind::TookOver { took_ticks } => ("took-over", Tone::Notice, json!({"took_ticks": took_ticks})),
    }
}

fn setting_value(setting: Setting) -> Value {
    match setting {
        Setting::Weight(weight) => weight.into(),
        Setting::Gang(gang) => gang.label().into(),
    }
}

const fn sign_label(sign: WaitSign) -> &'static str {
    match sign {
        WaitSign::Store => "store",
        WaitSign::Spin => "spin",
        WaitSign::Call => "call",
    }
}

const fn sign_text(sign: WaitSign) -> &'static str {
    match sign {
        WaitSign::Store => "one waited for a store while another had no hart",
        WaitSign::Spin => "one spun for its whole slice while another had no hart",
        WaitSign::Call => "one called another that had no hart",
    }
}

const fn stop_tone(reason: &StopReason) -> Tone {
    match reason {
        StopReason::PowerOff | StopReason::Killed | StopReason::MachineShutdown => Tone::Plain,
        _ => Tone::Bad,
    }
}

fn stop_details(reason: &StopReason) -> Value {
    let mut details = match reason {
        StopReason::PowerOff | StopReason::Killed | StopReason::MachineShutdown => json!({}),
        StopReason::GuestFailure { code } => json!({"code": code}),
        StopReason::GuestFault { vcpu, device, reason, value } => {
            json!({"vcpu": vcpu.map(|vcpu| vcpu.0), "device": device, "fault": reason, "value": value})
        }
        StopReason::ResetLoop { resets } => json!({"resets": resets}),
        StopReason::OutOfMemory { needed } => json!({"needed_bytes": needed}),
        StopReason::CellLost { cell } => json!({"cell": cell.as_str()}),
    };
    details["reason"] = reason_label(reason).into();
    details
}

pub const fn loss_label(cause: CellLoss) -> &'static str {
    match cause {
        CellLoss::MemoryGone => "memory-gone",
        CellLoss::OutOfReach => "out-of-reach",
        CellLoss::Stopped => "stopped",
        CellLoss::Silent => "silent",
    }
}

const fn loss_text(cause: CellLoss) -> &'static str {
    match cause {
        CellLoss::MemoryGone => "its memory is gone",
        CellLoss::OutOfReach => "it is out of reach",
        CellLoss::Stopped => "it has stopped",
        CellLoss::Silent => "it does nothing any more",
    }
}

const fn migration_label(reason: MigrationReason) -> &'static str {
    match reason {
        MigrationReason::IdleElsewhere => "idle-elsewhere",
        MigrationReason::Balance => "balance",
        MigrationReason::Turns => "turns",
        MigrationReason::Home => "home",
        MigrationReason::Together => "together",
    }
}

const fn migration_text(reason: MigrationReason) -> &'static str {
    match reason {
        MigrationReason::IdleElsewhere => "it was idle",
        MigrationReason::Balance => "queues were uneven",
        MigrationReason::Turns => "queues cannot be even, so vCPUs take turns",
        MigrationReason::Home => "its memory is there, and it was idle",
        MigrationReason::Together => "it was idle, and the VM can run together there",
    }
}

const fn action_label(action: PlacementAction) -> &'static str {
    match action {
        PlacementAction::Migrated => "migrated",
        PlacementAction::MigratedBlock => "migrated-block",
        PlacementAction::Replicated => "replicated",
        PlacementAction::Collapsed => "collapsed",
        PlacementAction::Split => "split",
    }
}

fn action_text(action: PlacementAction, node: u8) -> String {
    match action {
        PlacementAction::Migrated => format!("migrated to node {node}"),
        PlacementAction::MigratedBlock => format!("migrated to node {node} as a block"),
        PlacementAction::Replicated => format!("replicated on node {node}"),
        PlacementAction::Collapsed => format!("have one copy again, on node {node}"),
        PlacementAction::Split => format!("split, a block of node {node}"),
    }
}

const fn placement_label(reason: PlacementReason) -> &'static str {
    match reason {
        PlacementReason::OneUser => "one-user",
        PlacementReason::Readers => "readers",
        PlacementReason::SeveralUsers => "several-users",
        PlacementReason::WriteShared => "write-shared",
        PlacementReason::Written => "written",
        PlacementReason::Shared => "shared",
        PlacementReason::Pinned => "pinned",
        PlacementReason::Tried => "tried",
        PlacementReason::Unsettled => "unsettled",
        PlacementReason::NoMemory => "no-memory",
        PlacementReason::Raced => "raced",
        PlacementReason::SwitchedOff => "switched-off",
    }
}

const fn placement_text(reason: PlacementReason) -> &'static str {
    match reason {
        PlacementReason::OneUser => "only this node uses them",
        PlacementReason::Readers => "several nodes read them",
        PlacementReason::SeveralUsers => "they have different users",
        PlacementReason::WriteShared => "several nodes use it and some write it",
        PlacementReason::Written => "one was written",
        PlacementReason::Shared => "other VMs have its 2 MiB block, too",
        PlacementReason::Pinned => "a device uses it",
        PlacementReason::Tried => "it was tried too often",
        PlacementReason::Unsettled => "a vCPU has just changed nodes",
        PlacementReason::NoMemory => "the node has no memory for it",
        PlacementReason::Raced => "it was written, or changed, on the way",
        PlacementReason::SwitchedOff => "the VM is not to have it",
    }
}

const fn refusal_label(reason: SharingRefusal) -> &'static str {
    match reason {
        SharingRefusal::NoMemory => "no-memory",
        SharingRefusal::TooManyReferences => "too-many-references",
        SharingRefusal::NotRam => "not-ram",
        SharingRefusal::InUse => "in-use",
    }
}

const fn refusal_text(reason: SharingRefusal) -> &'static str {
    match reason {
        SharingRefusal::NoMemory => "no memory for tables",
        SharingRefusal::TooManyReferences => "a page has too many holders",
        SharingRefusal::NotRam => "the guest's buffer is not in its memory",
        SharingRefusal::InUse => "a device uses the guest's page",
    }
}

#[cfg(test)]
mod tests {
    use addr::CpuIndex;
    use control::{Name, VmLabel};

    use super::*;

    fn event(name: Option<&str>, kind: EventKind) -> Event {
        let vm = VmLabel { id: VmId(3), name: name.map(|name| Name::new(name).expect("a name")) };
        Event { sequence: 9, ticks: 12_345_678, hart: CpuIndex(2), cell: 0, vm: Some(vm), kind }
    }

    #[test]
    fn an_event_reads_well() {
        let mut names = Names::default();
        let fault = StopReason::GuestFault {
            vcpu: None,
            device: "virtio-blk root".into(),
            reason: "descriptor \x1b[2J".into(),
            value: 0x80,
        };
        let view = EventView::new(&event(Some("web"), EventKind::VmStopped { reason: fault }), 10_000_000, &mut names);
        let line = "[    1.234568] hart 2   web          stopped: guest fault: virtio-blk root: descriptor ?[2J (0x80)";
        assert_eq!(view.line(false), line);
        assert_eq!((view.tone, view.details["reason"].as_str()), (Tone::Bad, Some("guest-fault")));
        let json = serde_json::to_value(&view).expect("plain data");
        assert_eq!((json["event"].as_str(), json["vm"].as_str()), (Some("vm-stopped"), Some("web")));
    }

    #[test]
    fn names_of_vms_are_kept() {
        let mut names = Names::default();
        let unknown = EventView::new(&event(None, EventKind::VmStarted), 1, &mut names);
        assert_eq!(unknown.vm.as_deref(), Some("vm-3"));
        EventView::new(&event(Some("web"), EventKind::VmStopped { reason: StopReason::Killed }), 1, &mut names);
        let known = EventView::new(&event(None, EventKind::VmDestroyed), 1, &mut names);
        assert_eq!(known.vm.as_deref(), Some("web"));
    }
}
