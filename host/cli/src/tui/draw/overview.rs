//! The overview: nodes and harts, VMs, then as room allows exits by cause, history, events and log.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::bars::level;
use super::super::grid::lines;
use super::harts::Plan;
use super::{exits, harts, split_left, split_top, text, vms};
use crate::model::MachineView;
use crate::output::units;

/// Fewest lines in which a panel at the bottom makes sense: title and three lines.
const LEAST_PANEL: u16 = 4;
/// Lines of the panel of exits: title and most of the causes.
const EXITS_PANEL: u16 = 10;
/// From this width on two panels stand side by side.
const TWO_PANELS: u16 = 110;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(view) = &app.view else {
        return text::draw_log(frame, area, app, 0);
    };
    let vm_lines = u16::try_from(view.vms.len()).unwrap_or(u16::MAX).saturating_add(1);
    // VMs get their lines, but never more than a half; harts what is left, but never more than two thirds.
    let for_vms = vm_lines.min(area.height / 2).max(2);
    let budget = area.height.saturating_sub(for_vms + 1).min((area.height * 2).div_ceil(3));
    // A panel below is worth narrower bars, but not losing them.
    let with_panel = budget.saturating_sub(LEAST_PANEL + 2);
    let plan = match Plan::choose(view, area.width, with_panel) {
        Plan::Cells { .. } => Plan::choose(view, area.width, budget),
        bars => bars,
    };
    let (top, rest) = split_top(area, plan.height());
    harts::draw(frame, top, app, view, plan);
    let (_, rest) = split_top(rest, 1);
    let spare = rest.height.saturating_sub(vm_lines.max(2));
    let bottom = if spare > LEAST_PANEL { spare - 1 } else { 0 };
    let (middle, rest) = split_top(rest, rest.height - if bottom > 0 { bottom + 1 } else { 0 });
    vms::draw(frame, middle, app);
    let (_, rest) = split_top(rest, 1);
    draw_panels(frame, rest, app, view);
}

/// What is below the VMs. The log comes first where there is one: `run` is there to show it.
fn draw_panels(frame: &mut Frame<'_>, area: Rect, app: &App, view: &MachineView) {
    if area.height < LEAST_PANEL {
        return;
    }
    if area.width >= TWO_PANELS {
        let (left, right) = split_left(area, area.width / 2 - 1);
        draw_left(frame, left, app, view);
        return draw_text(frame, right, app);
    }
    if area.height < 2 * LEAST_PANEL + 1 {
        return if app.has_machine {
            text::draw_log_panel(frame, area, app)
        } else {
            exits::draw_panel(frame, area, app, view)
        };
    }
    let (upper, lower) = split_top(area, (area.height / 2).min(EXITS_PANEL));
    exits::draw_panel(frame, upper, app, view);
    let (_, lower) = split_top(lower, 1);
    draw_text(frame, lower, app);
}

/// Exits, and the history below if there is room.
fn draw_left(frame: &mut Frame<'_>, area: Rect, app: &App, view: &MachineView) {
    if area.height < EXITS_PANEL + 6 {
        return exits::draw_panel(frame, area, app, view);
    }
    let (upper, lower) = split_top(area, EXITS_PANEL);
    exits::draw_panel(frame, upper, app, view);
    let (_, lower) = split_top(lower, 1);
    draw_history(frame, lower, app);
}

/// Events, and the log below if there is room; the log alone for `run` if there is not.
fn draw_text(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let has_room = area.height > 2 * LEAST_PANEL;
    match (app.has_machine, has_room) {
        (false, _) => text::draw_events_panel(frame, area, app),
        (true, false) => text::draw_log_panel(frame, area, app),
        (true, true) => {
            let (upper, lower) = split_top(area, area.height / 2);
            text::draw_events_panel(frame, upper, app);
            let (_, lower) = split_top(lower, 1);
            text::draw_log_panel(frame, lower, app);
        }
    }
}

/// Load and exits over time, the newest to the right.
fn draw_history(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let theme = app.theme;
    let width = usize::from(area.width);
    let recent = || app.history.iter().skip(app.history.len().saturating_sub(width));
    let most = recent().map(|(_, exits)| *exits).fold(0.0, f64::max);
    let busy: String = recent().map(|(busy, _)| level(*busy)).collect();
    let exits: String = recent().map(|(_, exits)| level(if most > 0.0 { exits / most } else { 0.0 })).collect();
    let history = [
        Line::from(vec![Span::styled("Harts busy", theme.title()), Span::styled("  up to 100%", theme.dim())]),
        Line::styled(busy, theme.guest()),
        Line::default(),
        Line::from(vec![
            Span::styled("Exits", theme.title()),
            Span::styled(format!("  up to {}/s", units::rate(most)), theme.dim()),
        ]),
        Line::styled(exits, theme.monitor()),
    ];
    lines(frame, area, history);
}
