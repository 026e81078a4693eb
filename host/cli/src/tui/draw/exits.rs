//! Exits by cause: a panel for the whole machine, a table by VM.

use control::ExitCause;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::bars::{Part, stacked};
use super::super::grid::{lines, pad};
use super::super::theme::Theme;
use crate::model::{ExitsView, MachineView, VmView};
use crate::output::units;

/// Width of a cause's name.
const LABEL: u16 = 15;
/// Width of a VM's column.
const COLUMN: u16 = 10;

/// Exits per second of all VMs by cause, as bars, most first.
pub fn draw_panel(frame: &mut Frame<'_>, area: Rect, app: &App, view: &MachineView) {
    let theme = app.theme;
    let rates: Vec<(ExitCause, f64)> = ranked(view);
    let total: f64 = rates.iter().map(|(_, rate)| rate).sum();
    // The first look at a machine knows no rates.
    let rate = if view.interval_s.is_some() { format!("  {}/s", units::rate(total)) } else { String::new() };
    let title = Line::from(vec![Span::styled("Exits by cause", theme.title()), Span::styled(rate, theme.dim())]);
    let bars = rates.iter().map(|(cause, rate)| bar_line(*cause, *rate, total, area.width, theme));
    lines(frame, area, std::iter::once(title).chain(bars));
}

fn bar_line(cause: ExitCause, rate: f64, total: f64, width: u16, theme: Theme) -> Line<'static> {
    let share = if total > 0.0 { rate / total } else { 0.0 };
    let numbers = format!(" {:>6}/s {:>4.0}%", units::rate(rate), share * 100.0);
    let bar = width.saturating_sub(LABEL + numbers.len() as u16);
    let mut spans = vec![Span::raw(pad(cause.label(), LABEL, false))];
    spans.extend(stacked(&[Part { share, fill: '█', style: theme.monitor() }], (' ', theme.plain()), bar));
    spans.push(Span::raw(numbers));
    Line::from(spans)
}

/// Causes with exits per second over all VMs, most first.
fn ranked(view: &MachineView) -> Vec<(ExitCause, f64)> {
    let rate = |cause| view.vms.iter().map(|vm| rate_of(vm, cause)).sum();
    let mut rates: Vec<(ExitCause, f64)> = ExitCause::ALL.iter().map(|cause| (*cause, rate(*cause))).collect();
    rates.retain(|(_, rate)| *rate > 0.0);
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    rates
}

fn rate_of(vm: &VmView, cause: ExitCause) -> f64 {
    let rates = vm.rates();
    if rates.interval_s > 0.0 { rates.exits.get(cause) as f64 / rates.interval_s } else { 0.0 }
}

/// A row per cause; columns: all VMs per second, each VM per second, all harts since boot.
pub fn draw_table(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(view) = &app.view else { return };
    let theme = app.theme;
    let vms = app.sorted_vms();
    let room = usize::from(area.width.saturating_sub(LABEL + 2 * COLUMN + 2) / (COLUMN + 1));
    let shown = super::super::grid::window(vms.len(), app.selected_vm_row(), room);
    let vms = vms.get(shown).unwrap_or_default();
    let since_boot = view.exits();
    let causes = ExitCause::ALL.iter().map(|cause| {
        let all: f64 = view.vms.iter().map(|vm| rate_of(vm, *cause)).sum();
        let columns = vms.iter().map(|vm| rate_of(vm, *cause));
        row(cause.label(), all, columns, since_boot.get(*cause), theme)
    });
    let total = row(
        "total",
        view.vms.iter().map(|vm| vm.rates().exits_per_s).sum(),
        vms.iter().map(|vm| vm.rates().exits_per_s),
        ExitsView::total(&since_boot),
        theme,
    );
    let all = [titles(app, vms)].into_iter().chain(causes).chain([total.style(theme.title())]);
    lines(frame, area, all);
}

fn titles(app: &App, vms: &[&VmView]) -> Line<'static> {
    let dim = app.theme.dim();
    let mut spans = vec![Span::styled(pad("CAUSE", LABEL, false), dim), Span::styled(pad("ALL/s", COLUMN, true), dim)];
    for vm in vms {
        let is_selected = app.selected.vm.as_deref() == Some(vm.name.as_str());
        let style = if is_selected { app.theme.selected() } else { dim };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(pad(&vm.name, COLUMN, true), style));
    }
    spans.push(Span::styled(pad("SINCE BOOT", COLUMN + 3, true), dim));
    Line::from(spans)
}

fn row(label: &str, all: f64, vms: impl Iterator<Item = f64>, since_boot: u64, theme: Theme) -> Line<'static> {
    let style = |rate: f64| if rate > 0.0 { theme.plain() } else { theme.dim() };
    let cell = |rate: f64, width| Span::styled(pad(&units::rate(rate), width, true), style(rate));
    let mut spans = vec![Span::raw(pad(label, LABEL, false)), cell(all, COLUMN)];
    spans.extend(vms.map(|rate| cell(rate, COLUMN + 1)));
    spans.push(Span::styled(pad(&units::rate(since_boot as f64), COLUMN + 3, true), theme.dim()));
    Line::from(spans)
}
