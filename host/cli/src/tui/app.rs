//! The state of the live view.

use std::collections::VecDeque;
use std::time::Duration;

use super::theme::Theme;
use crate::model::{EventView, MachineView, VcpuView, VmView};

/// Most events kept.
const MAX_EVENTS: usize = 2_000;
/// Looks kept for the history of the load.
const MAX_HISTORY: usize = 512;

/// The state of the live view.
#[derive(Debug)]
pub struct App {
    pub theme: Theme,
    /// The machine at the last look; `None` until the monitor has answered.
    pub view: Option<MachineView>,
    pub tab: Tab,
    pub selected: Selection,
    pub vm_sort: Sort<VmColumn>,
    pub vcpu_sort: Sort<VcpuColumn>,
    /// Lines scrolled back from the newest, for events and log.
    pub scroll_back: usize,
    pub events: VecDeque<EventView>,
    /// The machine's own log.
    pub log: VecDeque<String>,
    /// Share of all harts' time with something to do, and exits per second, oldest first.
    pub history: VecDeque<(f64, f64)>,
    pub interval: Duration,
    /// Something to tell, in the last line.
    pub notice: Option<String>,
    pub overlay: Overlay,
    /// Whether leaving the view may end the machine: `run`.
    pub has_machine: bool,
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Overview,
    Vcpus,
    Exits,
    Memory,
    Places,
    Events,
    Log,
}

/// What lies over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlay {
    #[default]
    None,
    Help,
    Quit,
}

/// The row that stands out: by name, so that it stays when rows move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub vm: Option<String>,
    pub vcpu: u16,
}

/// How a table is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort<Column> {
    pub column: Column,
    pub is_reversed: bool,
}

/// What VMs are sorted by. Numbers fall, names rise, unless reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VmColumn {
    #[default]
    Name,
    Cpu,
    Wait,
    Exits,
    Memory,
}

/// What vCPUs are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VcpuColumn {
    #[default]
    Name,
    Hart,
    Run,
    Wait,
    Exits,
}

impl Tab {
    pub const ALL: [Self; 7] =
        [Self::Overview, Self::Vcpus, Self::Exits, Self::Memory, Self::Places, Self::Events, Self::Log];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Vcpus => "vCPUs",
            Self::Exits => "Exits",
            Self::Memory => "Memory",
            Self::Places => "Places",
            Self::Events => "Events",
            Self::Log => "Log",
        }
    }

    /// The tab so many places further, round and round.
    pub fn step(self, by: usize) -> Self {
        let place = Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default();
        Self::ALL.get((place + by) % Self::ALL.len()).copied().unwrap_or_default()
    }
}

impl VmColumn {
    pub const fn next(self) -> Self {
        match self {
            Self::Name => Self::Cpu,
            Self::Cpu => Self::Wait,
            Self::Wait => Self::Exits,
            Self::Exits => Self::Memory,
            Self::Memory => Self::Name,
        }
    }
}

impl VcpuColumn {
    pub const fn next(self) -> Self {
        match self {
            Self::Name => Self::Hart,
            Self::Hart => Self::Run,
            Self::Run => Self::Wait,
            Self::Wait => Self::Exits,
            Self::Exits => Self::Name,
        }
    }
}

impl App {
    pub fn new(theme: Theme, interval: Duration, has_machine: bool) -> Self {
        Self {
            theme,
            view: None,
            tab: Tab::default(),
            selected: Selection::default(),
            vm_sort: Sort::default(),
            vcpu_sort: Sort::default(),
            scroll_back: 0,
            events: VecDeque::new(),
            log: VecDeque::new(),
            history: VecDeque::new(),
            interval,
            notice: None,
            overlay: Overlay::default(),
            has_machine,
        }
    }

    /// Takes a new look at the machine.
    pub fn set_view(&mut self, view: MachineView) {
        if view.interval_s.is_some() {
            self.history.push_back((busy_share(&view), exits_per_second(&view)));
            let surplus = self.history.len().saturating_sub(MAX_HISTORY);
            self.history.drain(..surplus);
        }
        let is_there = |name: &String| view.vm(name).is_some();
        if !self.selected.vm.as_ref().is_some_and(is_there) {
            self.selected = Selection { vm: view.vms.first().map(|vm| vm.name.clone()), vcpu: 0 };
        }
        self.view = Some(view);
    }

    pub fn add_events(&mut self, events: impl IntoIterator<Item = EventView>) {
        self.events.extend(events);
        let surplus = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..surplus);
    }

    pub fn set_log(&mut self, lines: &VecDeque<String>) {
        self.log.clone_from(lines);
    }

    /// The VMs as they are listed.
    pub fn sorted_vms(&self) -> Vec<&VmView> {
        let mut vms: Vec<&VmView> = self.view.iter().flat_map(|view| &view.vms).collect();
        vms.sort_by(|a, b| natural(&a.name, &b.name));
        match self.vm_sort.column {
            VmColumn::Name => {}
            VmColumn::Cpu => vms.sort_by(|a, b| b.rates().run.total_cmp(&a.rates().run)),
            VmColumn::Wait => vms.sort_by(|a, b| b.rates().wait.total_cmp(&a.rates().wait)),
            VmColumn::Exits => vms.sort_by(|a, b| b.rates().exits_per_s.total_cmp(&a.rates().exits_per_s)),
            VmColumn::Memory => vms.sort_by_key(|vm| std::cmp::Reverse(vm.resident_bytes)),
        }
        if self.vm_sort.is_reversed {
            vms.reverse();
        }
        vms
    }

    /// The vCPUs as they are listed.
    pub fn sorted_vcpus(&self) -> Vec<(&VmView, &VcpuView)> {
        let vms = self.view.iter().flat_map(|view| &view.vms);
        let pairs = vms.flat_map(|vm| {
            vm.counters.iter().flat_map(move |counters| counters.vcpus.iter().map(move |vcpu| (vm, vcpu)))
        });
        let mut vcpus: Vec<_> = pairs.collect();
        vcpus.sort_by(|a, b| natural(&a.0.name, &b.0.name).then(a.1.index.cmp(&b.1.index)));
        let rates = |vcpu: &VcpuView| vcpu.rates.unwrap_or_default();
        match self.vcpu_sort.column {
            VcpuColumn::Name => {}
            VcpuColumn::Hart => vcpus.sort_by_key(|(_, vcpu)| vcpu.hart),
            VcpuColumn::Run => vcpus.sort_by(|a, b| rates(b.1).run.total_cmp(&rates(a.1).run)),
            VcpuColumn::Wait => vcpus.sort_by(|a, b| rates(b.1).wait.total_cmp(&rates(a.1).wait)),
            VcpuColumn::Exits => vcpus.sort_by(|a, b| rates(b.1).exits_per_s.total_cmp(&rates(a.1).exits_per_s)),
        }
        if self.vcpu_sort.is_reversed {
            vcpus.reverse();
        }
        vcpus
    }

    /// The place of the selected VM in the list.
    pub fn selected_vm_row(&self) -> Option<usize> {
        let name = self.selected.vm.as_ref()?;
        self.sorted_vms().iter().position(|vm| vm.name == *name)
    }

    /// The place of the selected vCPU in the list.
    pub fn selected_vcpu_row(&self) -> Option<usize> {
        let name = self.selected.vm.as_ref()?;
        let vcpus = self.sorted_vcpus();
        let is_exact = |(vm, vcpu): &(&VmView, &VcpuView)| vm.name == *name && vcpu.index == self.selected.vcpu;
        vcpus.iter().position(is_exact).or_else(|| vcpus.iter().position(|(vm, _)| vm.name == *name))
    }
}

/// Share of all harts' time with something to do.
pub fn busy_share(view: &MachineView) -> f64 {
    let loads: Vec<f64> = view.harts.iter().filter_map(|hart| hart.load).map(|load| load.busy()).collect();
    if loads.is_empty() { 0.0 } else { loads.iter().sum::<f64>() / loads.len() as f64 }
}

/// Exits per second on all harts.
pub fn exits_per_second(view: &MachineView) -> f64 {
    view.harts.iter().filter_map(|hart| hart.load).map(|load| load.exits_per_s).sum()
}

/// Names with numbers in the order that people expect: `build-2` before `build-10`.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let key = |name: &str| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, digits) = name.split_at(stem);
        (stem.to_owned(), digits.parse::<u64>().unwrap_or_default())
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}
