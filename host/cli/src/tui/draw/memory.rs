//! Memory: a bar per node, then who has how much on which node.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::grid::{lines, pad, window};
use super::super::theme::Theme;
use super::harts::memory_bar;
use super::split_top;
use crate::model::{MachineView, NodeView};
use crate::output::units;

/// Width of the names.
const LABEL: u16 = 16;
/// Width of a node's column.
const COLUMN: u16 = 9;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(view) = &app.view else { return };
    let theme = app.theme;
    let bars = view.nodes.iter().map(|node| bar_line(node, area.width, theme));
    let (top, rest) = split_top(area, view.nodes.len() as u16 + 2);
    lines(frame, top, std::iter::once(legend(theme)).chain(bars));
    lines(frame, rest, table(app, view, rest));
}

fn legend(theme: Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled("■ VMs  ", theme.guest()),
        Span::styled("▤ disk cache  ", theme.cache()),
        Span::styled("▣ monitor  ", theme.monitor()),
        Span::styled("□ free or reserved", theme.dim()),
    ])
}

fn bar_line(node: &NodeView, width: u16, theme: Theme) -> Line<'static> {
    let numbers = format!(
        " {:>8} free of {:>8}, {} x 2 MiB",
        units::bytes(node.free_bytes),
        units::bytes(node.total_bytes),
        node.free_large_blocks
    );
    let mut spans = vec![Span::styled(format!("node {:<2} ", node.id), theme.title())];
    spans.extend(memory_bar(node, width.saturating_sub(8 + numbers.len() as u16), theme));
    spans.push(Span::styled(numbers, theme.dim()));
    Line::from(spans)
}

/// Rows: VMs (as many as fit), then disk cache, monitor by purpose, free. Columns: total, then nodes.
fn table<'a>(app: &App, view: &'a MachineView, area: Rect) -> Vec<Line<'a>> {
    let theme = app.theme;
    let nodes = fitting_nodes(view, area.width);
    let mut fixed = vec![
        row("disk cache", nodes, |node| node.disk_cache_bytes, view, theme),
        row("monitor", nodes, |node| node.monitor_bytes, view, theme).style(theme.monitor()),
    ];
    fixed.extend(monitor_rows(view, nodes, theme));
    fixed.push(row("free", nodes, |node| node.free_bytes, view, theme));
    let vms = app.sorted_vms();
    let room = usize::from(area.height).saturating_sub(fixed.len() + 1).max(vms.len().min(3));
    let selected = app.selected_vm_row();
    let visible = window(vms.len(), selected, room);
    let vm_rows = vms.iter().enumerate().skip(visible.start).take(visible.len()).map(|(place, vm)| {
        let line = numbers(&vm.name, vm.resident_bytes, nodes.iter().map(|node| vm.resident_on(node.id)), theme);
        if selected == Some(place) { line.style(theme.selected()) } else { line }
    });
    [titles(nodes, theme)].into_iter().chain(vm_rows).chain(fixed).collect()
}

fn fitting_nodes(view: &MachineView, width: u16) -> &[NodeView] {
    let room = usize::from(width.saturating_sub(LABEL + COLUMN + 1) / (COLUMN + 1));
    view.nodes.get(..room.min(view.nodes.len())).unwrap_or_default()
}

fn monitor_rows<'a>(view: &MachineView, nodes: &[NodeView], theme: Theme) -> Vec<Line<'a>> {
    let on_node = |kind: &str, node: u8| {
        let parts = view.monitor.memory.iter().filter(|part| part.kind == kind && part.node == node);
        parts.map(|part| part.bytes).sum()
    };
    let line = |(kind, total): (&'static str, u64)| {
        numbers(&format!("  {kind}"), total, nodes.iter().map(|node| on_node(kind, node.id)), theme)
    };
    view.monitor.memory_by_kind().into_iter().map(line).collect()
}

fn titles(nodes: &[NodeView], theme: Theme) -> Line<'static> {
    let names = nodes.iter().map(|node| format!(" {}", pad(&format!("node {}", node.id), COLUMN, true)));
    let text = format!("{}{}{}", pad("MEMORY", LABEL, false), pad("TOTAL", COLUMN, true), names.collect::<String>());
    Line::styled(text, theme.dim())
}

fn row(
    label: &str,
    nodes: &[NodeView],
    bytes: fn(&NodeView) -> u64,
    view: &MachineView,
    theme: Theme,
) -> Line<'static> {
    numbers(label, view.nodes.iter().map(bytes).sum(), nodes.iter().map(bytes), theme)
}

fn numbers(label: &str, total: u64, nodes: impl Iterator<Item = u64>, theme: Theme) -> Line<'static> {
    let cell = |bytes: u64, width| {
        let (text, style) =
            if bytes == 0 { ("-".to_owned(), theme.dim()) } else { (units::bytes(bytes), theme.plain()) };
        Span::styled(pad(&text, width, true), style)
    };
    let mut spans = vec![Span::raw(pad(label, LABEL, false)), cell(total, COLUMN)];
    spans.extend(nodes.map(|bytes| cell(bytes, COLUMN + 1)));
    Line::from(spans)
}
