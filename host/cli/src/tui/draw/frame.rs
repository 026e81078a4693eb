//! What every tab has: the banner, the tabs, the last line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::super::app::{App, Tab, busy_share, exits_per_second};
use super::super::grid::{clip, pad};
use super::split_top;
use crate::model::MachineView;
use crate::output::{Tone, units};

/// Draws it; gives what is left.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) -> Rect {
    let (banner, rest) = split_top(area, 1);
    let (tabs, rest) = split_top(rest, 1);
    let (body, footer) = split_top(rest, rest.height.saturating_sub(1));
    draw_banner(frame, banner, app);
    frame.render_widget(tab_line(app), tabs);
    frame.render_widget(footer_line(app, footer.width), footer);
    body
}

fn draw_banner(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(view) = &app.view else {
        let text = pad(" mirrorball  waiting for the monitor", area.width, false);
        return frame.render_widget(Span::styled(text, app.theme.banner()), area);
    };
    let right = match view.interval_s {
        Some(_) => format!(
            "busy {}%  {} exits/s  {} ",
            units::percent(busy_share(view)),
            units::rate(exits_per_second(view)),
            interval(app)
        ),
        None => format!("{} ", interval(app)),
    };
    let room = usize::from(area.width).saturating_sub(right.width() + 1);
    let left = clip(&machine_text(view), room);
    let text = if room < 12 {
        pad(&machine_text(view), area.width, false)
    } else {
        format!("{}{right}", pad(&left, area.width.saturating_sub(right.width() as u16), false))
    };
    frame.render_widget(Span::styled(text, app.theme.banner()), area);
}

fn machine_text(view: &MachineView) -> String {
    let running = view.vms.iter().filter(|vm| vm.state == "running").count();
    let up = units::whole_seconds(view.clock_s);
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let (nodes, harts) = (count(view.nodes.len(), "node"), count(view.harts.len(), "hart"));
    let vms = view.vms.len();
    format!(" mirrorball {}  {nodes} {harts}  {running}/{vms} VMs  up {up}", view.machine)
}

fn interval(app: &App) -> String {
    let seconds = app.interval.as_secs_f64();
    if seconds < 1.0 { format!("{seconds:.2}s") } else { format!("{seconds:.0}s") }
}

fn tab_line(app: &App) -> Line<'static> {
    let tabs = Tab::ALL.iter().enumerate().flat_map(|(place, tab)| {
        let style = if *tab == app.tab { app.theme.selected() } else { app.theme.plain() };
        let number = Span::styled(format!(" {}", place + 1), app.theme.dim());
        [number, Span::raw(" "), Span::styled(tab.title(), style)]
    });
    Line::from_iter(tabs)
}

fn footer_line(app: &App, width: u16) -> Line<'static> {
    if let Some(notice) = &app.notice {
        return Line::styled(pad(&format!(" {notice}"), width, false), app.theme.tone(Tone::Bad));
    }
    let keys: &[(&str, &str)] = match app.tab {
        Tab::Events | Tab::Log => {
            &[("q", "quit"), ("?", "help"), ("Tab", "next"), ("Up/Down", "scroll"), ("End", "newest")]
        }
        _ => &[
            ("q", "quit"),
            ("?", "help"),
            ("Tab", "next"),
            ("Up/Down", "select"),
            ("Enter", "console"),
            ("s", "sort"),
            ("r", "reverse"),
            ("+/-", "pace"),
        ],
    };
    Line::from_iter(keys.iter().flat_map(|(key, what)| {
        [Span::styled(format!(" {key}"), app.theme.title()), Span::styled(format!(" {what} "), app.theme.dim())]
    }))
}
