//! Where the VMs' memory is: a map of VMs and nodes, and what moved lately.

use std::collections::HashSet;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::bars::{Part, stacked};
use super::super::grid::{lines, pad, window};
use super::super::theme::Theme;
use super::{split_top, text};
use crate::model::{EventView, LARGE_PAGE, MachineView, MemoryView, VmView};
use crate::output::units;

/// Width of the names, and where nodes would not fit otherwise.
const LABEL: u16 = 12;
const LEAST_LABEL: u16 = 8;
/// Width of a node's cell: the mark, an amount, how many vCPUs.
const CELL: u16 = 14;
/// The same with amounts as short as can be.
const LEAST_CELL: u16 = 9;
/// A wider one says no more.
const GOOD_CELL: u16 = 28;
/// Width of the rates at the end.
const RATES: u16 = 20;
/// What came to a node within so many seconds is marked.
const LATELY_S: f64 = 10.0;
/// Events that tell of places. vCPUs move so much more often that nothing else would be seen.
const OF_PLACES: [&str; 2] = ["pages-placed", "placement-refused"];

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(view) = &app.view else { return };
    let (legend_area, rest) = split_top(area, 1);
    frame.render_widget(legend(app.theme), legend_area);
    let map = Map::new(app, view, rest.width);
    let per_vm = if usize::from(rest.height) >= 2 * view.vms.len() + 4 { 2 } else { 1 };
    // Titles above, two lines or more for events below.
    let height = (per_vm * view.vms.len() as u16 + 1).min(rest.height.saturating_sub(3).max(2));
    let (table, rest) = split_top(rest, height);
    draw_table(frame, table, app, &map, per_vm);
    let (title, rest) = split_top(split_top(rest, 1).1, 1);
    frame.render_widget(selected_line(app), title);
    let moves = app.events.iter().filter(|event| OF_PLACES.contains(&event.event));
    text::draw_some(frame, rest, moves.collect(), "nothing has moved", app.theme);
}

fn legend(theme: Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled("■ its own  ", theme.guest()),
        Span::styled("▤ shared  ", theme.cache()),
        Span::styled("▧ replicas  ", theme.monitor()),
        Span::styled("2v vCPUs there  + pages came lately", theme.dim()),
    ])
}

/// What all cells need to know.
struct Map<'a> {
    nodes: Vec<u8>,
    /// Nodes for which there is no room.
    hidden: usize,
    /// Width of the names.
    label: u16,
    /// Width of a node's cell.
    cell: u16,
    has_rates: bool,
    /// The most that one VM has on one node: a full bar.
    most: u64,
    /// VMs and the nodes to which pages of theirs came lately.
    lately: HashSet<(&'a str, u64)>,
    view: &'a MachineView,
    theme: Theme,
}

impl<'a> Map<'a> {
    fn new(app: &'a App, view: &'a MachineView, width: u16) -> Self {
        let count = u16::try_from(view.nodes.len()).unwrap_or(u16::MAX).max(1);
        let label = if width.saturating_sub(LABEL) / LEAST_CELL >= count { LABEL } else { LEAST_LABEL };
        let room = width.saturating_sub(label);
        let has_rates = room.saturating_sub(RATES) / CELL >= count;
        let room = if has_rates { room - RATES } else { room };
        let shown = (room / LEAST_CELL).min(count).max(1);
        let since = view.clock_s - LATELY_S;
        let placed = app.events.iter().rev().take_while(|event| event.time_s >= since);
        Self {
            nodes: view.nodes.iter().take(usize::from(shown)).map(|node| node.id).collect(),
            hidden: view.nodes.len().saturating_sub(usize::from(shown)),
            label,
            cell: (room / shown).min(GOOD_CELL),
            has_rates,
            most: view.vms.iter().flat_map(|vm| &vm.resident).map(|part| part.total_bytes).max().unwrap_or_default(),
            lately: placed.filter_map(place_of).collect(),
            view,
            theme: app.theme,
        }
    }

    fn titles(&self) -> Line<'static> {
        let nodes = self.nodes.iter().map(|node| pad(&format!(" node {node}"), self.cell, false));
        let label = if self.hidden > 0 { format!("+{} nodes", self.hidden) } else { "VM".to_owned() };
        let rates = if self.has_rates { format!("{:>10}{:>10}", "MOVED/s", "COPIED/s") } else { String::new() };
        let text = format!("{}{}{rates}", pad(&label, self.label, false), nodes.collect::<String>());
        Line::styled(text, self.theme.dim())
    }

    /// The amounts, with how many vCPUs are there.
    fn numbers(&self, vm: &VmView) -> Line<'static> {
        let mut spans = vec![Span::raw(pad(&vm.name, self.label, false))];
        spans.extend(self.nodes.iter().map(|node| {
            let text = self.cell_text(vm, *node);
            let style = if text.trim() == "-" { self.theme.dim() } else { self.theme.plain() };
            Span::styled(pad(&text, self.cell, false), style)
        }));
        spans.extend(self.has_rates.then(|| self.rates(vm)));
        Line::from(spans)
    }

    fn cell_text(&self, vm: &VmView, node: u8) -> String {
        let bytes = vm.resident_on(node);
        let mut amount = if bytes == 0 { "-".to_owned() } else { units::bytes(bytes) };
        if self.cell < CELL {
            amount = amount.replace(" ", "").replace("iB", "");
        }
        let vcpus = match self.vcpus_on(vm, node) {
            0 => String::new(),
            count => format!(" {count}v"),
        };
        let mark = if self.lately.contains(&(vm.name.as_str(), node.into())) { '+' } else { ' ' };
        format!("{mark}{}{vcpus}", pad(&amount, if self.cell < CELL { 5 } else { 8 }, true))
    }

    fn vcpus_on(&self, vm: &VmView, node: u8) -> usize {
        let is_here = |hart: u16| self.view.harts.iter().any(|other| other.index == hart && other.node == node);
        let vcpus = vm.counters.iter().flat_map(|counters| &counters.vcpus);
        vcpus.filter(|vcpu| vcpu.state != "stopped" && is_here(vcpu.hart)).count()
    }

    fn rates(&self, vm: &VmView) -> Span<'static> {
        let rates = vm.rates();
        let cell =
            |bytes: f64| pad(&if bytes < 1.0 { "-".to_owned() } else { units::bytes(bytes as u64) }, RATES / 2, true);
        Span::raw(format!("{}{}", cell(rates.migrated_bytes_per_s), cell(rates.replicated_bytes_per_s)))
    }

    /// The same as bars, all to one scale.
    fn bars(&self, vm: &VmView) -> Line<'static> {
        let mut spans = vec![Span::raw(pad("", self.label, false))];
        for node in &self.nodes {
            let part = vm.resident.iter().find(|part| part.node == *node).copied().unwrap_or_default();
            spans.push(Span::raw(" "));
            spans.extend(self.bar(&part, self.cell.saturating_sub(2)));
            spans.push(Span::raw(" "));
        }
        Line::from(spans)
    }

    fn bar(&self, part: &MemoryView, width: u16) -> Vec<Span<'static>> {
        let share = |bytes: u64| if self.most == 0 { 0.0 } else { bytes as f64 / self.most as f64 };
        let own = part.total_bytes.saturating_sub(part.shared_bytes + part.replica_bytes);
        let parts = [
            Part { share: share(own), fill: '■', style: self.theme.guest() },
            Part { share: share(part.shared_bytes), fill: '▤', style: self.theme.cache() },
            Part { share: share(part.replica_bytes), fill: '▧', style: self.theme.monitor() },
        ];
        stacked(&parts, ('·', self.theme.dim()), width)
    }
}

/// To which node pages of which VM came.
fn place_of(event: &EventView) -> Option<(&str, u64)> {
    let is_arrival = event.event == "pages-placed" && event.details.get("action")? != "split";
    if is_arrival { Some((event.vm.as_deref()?, event.details.get("node")?.as_u64()?)) } else { None }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, app: &App, map: &Map<'_>, per_vm: u16) {
    let vms = app.sorted_vms();
    if vms.is_empty() {
        return frame
            .render_widget(Span::styled("no VM; `mirrorball create FILE.toml` makes one", app.theme.dim()), area);
    }
    let selected = app.selected_vm_row();
    let visible = window(vms.len(), selected, usize::from(area.height.saturating_sub(1) / per_vm));
    let rows = vms.iter().enumerate().skip(visible.start).take(visible.len()).flat_map(|(place, vm)| {
        let line = map.numbers(vm);
        let line = if selected == Some(place) { line.style(app.theme.selected()) } else { line };
        std::iter::once(line).chain((per_vm == 2).then(|| map.bars(vm)))
    });
    lines(frame, area, std::iter::once(map.titles()).chain(rows));
}

/// What became of the selected VM's pages since it started.
fn selected_line(app: &App) -> Line<'_> {
    let selected = app.sorted_vms().into_iter().find(|vm| Some(&vm.name) == app.selected.vm.as_ref());
    let Some((vm, counters)) = selected.and_then(|vm| Some((vm, vm.counters.as_ref()?))) else {
        return Line::styled("Moves", app.theme.title());
    };
    let placement = &counters.placement;
    let moved = units::bytes(placement.migrated_bytes + placement.migrated_blocks.saturating_mul(LARGE_PAGE));
    let (copied, ended) = (units::bytes(placement.replicated_bytes), units::bytes(placement.collapsed_bytes));
    let text = format!("  {moved} moved, {copied} copied, {ended} of it ended, {} stayed", placement.refused);
    Line::from(vec![
        Span::styled(format!("Moves of {}", vm.name), app.theme.title()),
        Span::styled(text, app.theme.dim()),
    ])
}
