//! Nodes and their harts: a block per node, its memory in the first line, a bar per hart below.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::bars::{Part, level, stacked};
use super::super::grid::{clip, lines, pad};
use super::super::theme::Theme;
use super::split_left;
use crate::model::{HartView, MachineView, NodeView};
use crate::output::{Tone, units};

/// Narrowest block of a node.
const LEAST_BLOCK: u16 = 36;
/// Narrowest bar of a hart, with number and percentage.
const LEAST_HART: u16 = 18;
/// A bar wider than this is no better.
const GOOD_HART: u16 = 60;
/// From here on there is room to say what runs.
const WITH_LABEL: u16 = 34;

/// How the nodes are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Blocks side by side, and harts side by side in them.
    Bars {
        /// Blocks per row.
        blocks: u16,
        /// Harts per line of a block.
        columns: u16,
        /// Lines in all.
        height: u16,
    },
    /// One line per node, one character per hart.
    Cells {
        /// Lines in all.
        height: u16,
    },
}

impl Plan {
    pub const fn height(self) -> u16 {
        match self {
            Self::Bars { height, .. } | Self::Cells { height } => height,
        }
    }

    /// The layout with the widest bars that takes at most `budget` lines.
    pub fn choose(view: &MachineView, width: u16, budget: u16) -> Self {
        let nodes = u16::try_from(view.nodes.len()).unwrap_or(u16::MAX).max(1);
        let counts: Vec<u16> = view.nodes.iter().map(|node| harts_of(view, node).count() as u16).collect();
        let mut best: Option<(u16, u16, Self)> = None;
        for blocks in (1..=nodes).take_while(|blocks| *blocks == 1 || width / blocks >= LEAST_BLOCK) {
            let block_width = width / blocks;
            for columns in (1..=16).take_while(|columns| block_width / columns >= LEAST_HART) {
                let height = bars_height(&counts, blocks, columns);
                let hart_width = (block_width / columns).min(GOOD_HART);
                let is_better = best.is_none_or(|(wide, tall, _)| (hart_width, tall) > (wide, height));
                if height <= budget && is_better {
                    best = Some((hart_width, height, Self::Bars { blocks, columns, height }));
                }
            }
        }
        best.map_or(Self::Cells { height: nodes.min(budget) }, |(_, _, plan)| plan)
    }
}

fn bars_height(counts: &[u16], blocks: u16, columns: u16) -> u16 {
    let rows = counts.chunks(usize::from(blocks));
    rows.map(|row| 1 + row.iter().copied().max().unwrap_or_default().div_ceil(columns)).sum()
}

fn harts_of<'a>(view: &'a MachineView, node: &NodeView) -> impl Iterator<Item = &'a HartView> {
    let id = node.id;
    view.harts.iter().filter(move |hart| hart.node == id)
}

/// Draws all nodes.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, view: &MachineView, plan: Plan) {
    match plan {
        Plan::Bars { blocks, columns, .. } => draw_blocks(frame, area, app, view, blocks, columns),
        Plan::Cells { .. } => {
            lines(frame, area, view.nodes.iter().map(|node| cells_line(view, node, area.width, app.theme)))
        }
    }
}

fn draw_blocks(frame: &mut Frame<'_>, area: Rect, app: &App, view: &MachineView, blocks: u16, columns: u16) {
    let mut left = area;
    for row in view.nodes.chunks(usize::from(blocks)) {
        let tallest = row.iter().map(|node| harts_of(view, node).count()).max().unwrap_or_default();
        let height = 1 + (tallest as u16).div_ceil(columns);
        let (this, rest) = super::split_top(left, height);
        left = rest;
        let mut line = this;
        for node in row {
            let (block, rest) = split_left(line, (area.width / blocks).saturating_sub(2));
            line = rest;
            draw_block(frame, block, app, view, node, columns);
        }
    }
}

fn draw_block(frame: &mut Frame<'_>, area: Rect, app: &App, view: &MachineView, node: &NodeView, columns: u16) {
    let harts: Vec<&HartView> = harts_of(view, node).collect();
    let width = area.width / columns.max(1);
    let hart_lines = harts
        .chunks(usize::from(columns.max(1)))
        .map(|row| Line::from_iter(row.iter().flat_map(|hart| hart_spans(hart, width, app.theme))));
    lines(frame, area, std::iter::once(node_line(node, area.width, app.theme)).chain(hart_lines));
}

fn node_line(node: &NodeView, width: u16, theme: Theme) -> Line<'static> {
    let name = format!("node {:<2}", node.id);
    let amount = format!(" {} of {}", units::bytes(node.used_bytes()), units::bytes(node.total_bytes));
    let taken = name.chars().count() + amount.chars().count() + 1;
    let bar = width.saturating_sub(taken as u16);
    let mut spans = vec![Span::styled(name, theme.title()), Span::raw(" ")];
    spans.extend(memory_bar(node, bar, theme));
    spans.push(Span::styled(amount, theme.dim()));
    Line::from(spans)
}

/// Memory of a node: VMs, disk cache, monitor, free.
pub fn memory_bar(node: &NodeView, width: u16, theme: Theme) -> Vec<Span<'static>> {
    let share = |bytes: u64| if node.total_bytes == 0 { 0.0 } else { bytes as f64 / node.total_bytes as f64 };
    let parts = [
        Part { share: share(node.vm_bytes), fill: '■', style: theme.guest() },
        Part { share: share(node.disk_cache_bytes), fill: '▤', style: theme.cache() },
        Part { share: share(node.monitor_bytes), fill: '▣', style: theme.monitor() },
    ];
    stacked(&parts, ('□', theme.dim()), width)
}

fn hart_spans(hart: &HartView, width: u16, theme: Theme) -> Vec<Span<'static>> {
    let number = Span::styled(format!("{:>4} ", hart.index), theme.dim());
    let Some(load) = hart.load.filter(|_| hart.online) else {
        let text = if hart.online { "..." } else { "offline" };
        return vec![number, Span::styled(pad(text, width.saturating_sub(5), false), theme.dim())];
    };
    let label_width = if width >= WITH_LABEL { (width * 3 / 8).min(24) } else { 0 };
    // Number and blank 5, percentage 5, a blank at the end.
    let bar = width.saturating_sub(5 + 5 + 1 + label_width);
    let parts = [
        Part { share: load.guest, fill: '█', style: theme.guest() },
        Part { share: load.monitor, fill: '▓', style: theme.monitor() },
    ];
    let mut spans = vec![number];
    spans.extend(stacked(&parts, ('·', theme.dim()), bar));
    spans.push(Span::raw(format!("{:>4.0}%", load.busy() * 100.0)));
    if label_width > 0 {
        spans.extend(label_spans(hart, label_width, theme));
    }
    spans.push(Span::raw(" "));
    spans
}

/// What runs, and how many vCPUs wait behind it.
fn label_spans(hart: &HartView, width: u16, theme: Theme) -> [Span<'static>; 2] {
    let waiting = hart.queued.saturating_sub(u32::from(hart.running.is_some()));
    let queue = if waiting > 0 { format!(" +{waiting}") } else { String::new() };
    let name = match &hart.running {
        Some(running) => format!(" {}/{}", running.vm.as_deref().unwrap_or("?"), running.vcpu),
        // As it does when it answers the question how it is.
        None if hart.queued > 0 && hart.load.is_some_and(|load| load.busy() > 0.5) => " monitor".to_owned(),
        None => " idle".to_owned(),
    };
    let name = clip(&name, usize::from(width).saturating_sub(queue.len()));
    let rest = width.saturating_sub(unicode_width::UnicodeWidthStr::width(name.as_str()) as u16);
    let name_style = if hart.running.is_some() { theme.plain() } else { theme.dim() };
    [Span::styled(name, name_style), Span::styled(pad(&queue, rest, false), theme.tone(Tone::Notice))]
}

fn cells_line(view: &MachineView, node: &NodeView, width: u16, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("node {:<2} ", node.id), theme.title())];
    let cells = harts_of(view, node).map(|hart| {
        let load = hart.load.unwrap_or_default();
        let style = if load.monitor > load.guest { theme.monitor() } else { theme.guest() };
        Span::styled(level(load.busy()).to_string(), if load.busy() > 0.0 { style } else { theme.dim() })
    });
    spans.extend(cells);
    let used = spans.iter().map(Span::width).sum::<usize>() as u16;
    let amount = format!(" {} of {}", units::bytes(node.used_bytes()), units::bytes(node.total_bytes));
    let bar = width.saturating_sub(used + amount.len() as u16 + 2).min(40);
    if bar >= 8 {
        spans.push(Span::raw("  "));
        spans.extend(memory_bar(node, bar, theme));
        spans.push(Span::styled(amount, theme.dim()));
    }
    Line::from(spans)
}
