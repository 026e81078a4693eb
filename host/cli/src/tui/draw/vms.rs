//! The list of VMs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::{App, Sort, VmColumn};
use super::super::grid::{CellText, Column, Grid, lines, pad, window};
use super::super::theme::Theme;
use crate::model::VmView;
use crate::output::{Tone, units};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Name,
    State,
    Vcpus,
    Cpu,
    Wait,
    Exits,
    Resident,
    Memory,
    Uptime,
    Resets,
    Disk,
    Net,
    Nodes,
    Causes,
}

const COLUMNS: [Column<Id>; 14] = [
    column(Id::Name, "VM", 8, 20, false, 0),
    column(Id::State, "STATE", 8, 8, false, 1),
    column(Id::Vcpus, "vCPU", 4, 4, true, 5),
    column(Id::Cpu, "CPU%", 5, 5, true, 2),
    column(Id::Wait, "WAIT%", 6, 6, true, 6),
    column(Id::Exits, "EXITS/s", 8, 8, true, 3),
    column(Id::Resident, "RESIDENT", 9, 9, true, 4),
    column(Id::Memory, "MEMORY", 8, 8, true, 8),
    column(Id::Uptime, "UP", 8, 8, true, 7),
    column(Id::Resets, "RESETS", 6, 6, true, 12),
    column(Id::Disk, "DISK/s", 8, 8, true, 10),
    column(Id::Net, "NET/s", 8, 8, true, 11),
    column(Id::Nodes, "MEMORY BY NODE", 24, 32, false, 9),
    column(Id::Causes, "EXITS BY CAUSE", 40, 60, false, 13),
];

const fn column(id: Id, title: &'static str, width: u16, most: u16, is_number: bool, rank: u8) -> Column<Id> {
    Column { id, title, width, most, is_number, rank }
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let vms = app.sorted_vms();
    if vms.is_empty() {
        return frame
            .render_widget(Span::styled("no VM; `mirrorball create FILE.toml` makes one", app.theme.dim()), area);
    }
    let grid = Grid::fit(&COLUMNS, area.width);
    let selected = app.selected_vm_row();
    let visible = window(vms.len(), selected, usize::from(area.height.saturating_sub(1)));
    let titles = grid.titles(app.theme, Some(sorted(app.vm_sort)));
    let rows = vms.iter().enumerate().skip(visible.start).take(visible.len()).map(|(place, vm)| {
        let line = match &vm.reason_text {
            Some(reason) if vm.state == "stopped" => stopped_line(vm, reason, area.width, app.theme),
            _ => grid.row(|id| cell(vm, id, app.theme)),
        };
        if selected == Some(place) { line.style(app.theme.selected()) } else { line }
    });
    lines(frame, area, std::iter::once(titles).chain(rows));
}

const fn sorted(sort: Sort<VmColumn>) -> (Id, bool) {
    let id = match sort.column {
        VmColumn::Name => Id::Name,
        VmColumn::Cpu => Id::Cpu,
        VmColumn::Wait => Id::Wait,
        VmColumn::Exits => Id::Exits,
        VmColumn::Memory => Id::Resident,
    };
    (id, sort.is_reversed)
}

/// A stopped VM has no rates; why it stopped is what one wants to know.
fn stopped_line(vm: &VmView, reason: &str, width: u16, theme: Theme) -> Line<'static> {
    let name_width = Grid::fit(&COLUMNS, width).width_of(Id::Name);
    let tone =
        if matches!(vm.reason, Some("power-off" | "killed" | "machine-shutdown")) { Tone::Dim } else { Tone::Bad };
    Line::from(vec![
        Span::raw(format!("{} ", pad(&vm.name, name_width, false))),
        Span::styled(pad(vm.state, 9, false), theme.state(vm.state)),
        Span::styled(pad(reason, width.saturating_sub(name_width + 10), false), theme.tone(tone)),
    ])
}

fn cell(vm: &VmView, id: Id, theme: Theme) -> CellText {
    let rates = vm.rates();
    let has_rates = vm.counters.as_ref().is_some_and(|counters| counters.rates.is_some());
    let when_known = |text: String| if has_rates { text } else { "-".to_owned() };
    let plain = theme.plain();
    match id {
        Id::Name => (vm.name.clone(), plain),
        Id::State => (vm.state.to_owned(), theme.state(vm.state)),
        Id::Vcpus => (vm.vcpu_count.to_string(), plain),
        Id::Cpu => (when_known(units::percent(rates.run)), theme.title()),
        Id::Wait => {
            let style = if rates.wait > 0.1 { theme.tone(Tone::Notice) } else { plain };
            (when_known(units::percent(rates.wait)), style)
        }
        Id::Exits => (when_known(units::rate(rates.exits_per_s)), plain),
        Id::Resident => (units::bytes(vm.resident_bytes), plain),
        Id::Memory => (units::bytes(vm.memory_bytes), theme.dim()),
        Id::Uptime => (units::whole_seconds(vm.uptime_s), plain),
        Id::Resets => (vm.resets.to_string(), if vm.resets > 0 { theme.tone(Tone::Notice) } else { theme.dim() }),
        Id::Disk => (when_known(units::bytes(rates.disk_bytes_per_s as u64)), plain),
        Id::Net => (when_known(units::bytes(rates.net_bytes_per_s as u64)), plain),
        Id::Nodes => (format!(" {}", nodes_text(vm)), plain),
        Id::Causes => (format!(" {}", causes_text(vm)), theme.dim()),
    }
}

/// Where its memory is: `0:99% 1:1%`, most first.
fn nodes_text(vm: &VmView) -> String {
    let mut parts = vm.resident.clone();
    parts.sort_by_key(|part| std::cmp::Reverse(part.total_bytes));
    let share = |bytes: u64| units::percent(bytes as f64 / vm.resident_bytes.max(1) as f64);
    parts.iter().map(|part| format!("{}:{}%", part.node, share(part.total_bytes))).collect::<Vec<_>>().join(" ")
}

/// What its exits between two looks were for, most first.
fn causes_text(vm: &VmView) -> String {
    let rates = vm.rates();
    let per_second = |count: u64| if rates.interval_s > 0.0 { count as f64 / rates.interval_s } else { 0.0 };
    let ranked = rates.exits.ranked();
    let parts = ranked.iter().map(|(cause, count)| format!("{} {}", cause.label(), units::rate(per_second(*count))));
    parts.collect::<Vec<_>>().join("  ")
}
