//! The list of vCPUs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::super::app::{App, Sort, VcpuColumn};
use super::super::grid::{CellText, Column, Grid, lines, window};
use super::super::theme::Theme;
use crate::model::{MachineView, VcpuView, VmView};
use crate::output::{Tone, units};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    Vm,
    Vcpu,
    State,
    Hart,
    Node,
    Run,
    Wait,
    Exits,
    Total,
    Faults,
    Moves,
    Gang,
    WaitsFor,
    Causes,
}

const COLUMNS: [Column<Id>; 14] = [
    column(Id::Vm, "VM", 8, 20, false, 0),
    column(Id::Vcpu, "vCPU", 5, 5, true, 1),
    column(Id::State, "STATE", 8, 8, false, 2),
    column(Id::Hart, "HART", 5, 5, true, 3),
    column(Id::Node, "NODE", 4, 4, true, 8),
    column(Id::Run, "RUN%", 6, 6, true, 4),
    column(Id::Wait, "WAIT%", 6, 6, true, 5),
    column(Id::Exits, "EXITS/s", 8, 8, true, 6),
    column(Id::Total, "EXITS", 11, 11, true, 10),
    column(Id::Faults, "FAULTS", 9, 9, true, 9),
    column(Id::Moves, "MOVES", 6, 6, true, 7),
    column(Id::Gang, "GANG", 4, 4, false, 11),
    column(Id::WaitsFor, "WAITS FOR", 10, 24, false, 12),
    column(Id::Causes, "EXITS BY CAUSE SINCE ITS CREATION", 40, 120, false, 13),
];

const fn column(id: Id, title: &'static str, width: u16, most: u16, is_number: bool, rank: u8) -> Column<Id> {
    Column { id, title, width, most, is_number, rank }
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let vcpus = app.sorted_vcpus();
    let Some(view) = app.view.as_ref().filter(|_| !vcpus.is_empty()) else {
        return frame.render_widget(Span::styled("no vCPU", app.theme.dim()), area);
    };
    let grid = Grid::fit(&COLUMNS, area.width);
    let selected = app.selected_vcpu_row();
    let visible = window(vcpus.len(), selected, usize::from(area.height.saturating_sub(1)));
    let titles = grid.titles(app.theme, Some(sorted(app.vcpu_sort)));
    let rows = vcpus.iter().enumerate().skip(visible.start).take(visible.len()).map(|(place, (vm, vcpu))| {
        let line = grid.row(|id| cell(view, vm, vcpu, id, app.theme));
        if selected == Some(place) { line.style(app.theme.selected()) } else { line }
    });
    lines(frame, area, std::iter::once(titles).chain(rows));
}

const fn sorted(sort: Sort<VcpuColumn>) -> (Id, bool) {
    let id = match sort.column {
        VcpuColumn::Name => Id::Vm,
        VcpuColumn::Hart => Id::Hart,
        VcpuColumn::Run => Id::Run,
        VcpuColumn::Wait => Id::Wait,
        VcpuColumn::Exits => Id::Exits,
    };
    (id, sort.is_reversed)
}

fn cell(view: &MachineView, vm: &VmView, vcpu: &VcpuView, id: Id, theme: Theme) -> CellText {
    let plain = theme.plain();
    let rate = |text: fn(&crate::model::VcpuRates) -> String| vcpu.rates.as_ref().map_or_else(|| "-".to_owned(), text);
    match id {
        Id::Vm => (vm.name.clone(), plain),
        Id::Vcpu => (vcpu.index.to_string(), plain),
        Id::State => (vcpu.state.to_owned(), theme.state(vcpu.state)),
        Id::Hart => (vcpu.hart.to_string(), plain),
        Id::Node => {
            let hart = view.harts.iter().find(|hart| hart.index == vcpu.hart);
            (hart.map_or_else(|| "-".to_owned(), |hart| hart.node.to_string()), plain)
        }
        Id::Run => (rate(|rates| units::percent(rates.run)), theme.title()),
        Id::Wait => {
            let is_high = vcpu.rates.is_some_and(|rates| rates.wait > 0.1);
            (rate(|rates| units::percent(rates.wait)), if is_high { theme.tone(Tone::Notice) } else { plain })
        }
        Id::Exits => (rate(|rates| units::rate(rates.exits_per_s)), plain),
        Id::Total => (units::count(vcpu.exits_total), theme.dim()),
        Id::Faults => (units::count(vcpu.faults), theme.dim()),
        Id::Moves => (units::count(vcpu.migrations), theme.dim()),
        Id::Gang => {
            let together = vm.counters.as_ref().is_some_and(|counters| counters.share.together);
            (
                if together { "yes" } else { "-" }.to_owned(),
                if together { theme.tone(Tone::Notice) } else { theme.dim() },
            )
        }
        Id::WaitsFor => (vcpu.waits_for.clone().unwrap_or_default(), plain),
        Id::Causes => {
            let ranked = vcpu.exits.ranked();
            let parts = ranked.iter().map(|(cause, count)| format!("{} {}", cause.label(), units::rate(*count as f64)));
            (format!(" {}", parts.collect::<Vec<_>>().join("  ")), theme.dim())
        }
    }
}
