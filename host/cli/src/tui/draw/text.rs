//! Lines of text, the newest at the bottom: events and the machine's own log.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::grid::lines;
use super::super::theme::Theme;
use super::split_top;
use crate::model::EventView;

/// Events on the whole area.
pub fn draw_events(frame: &mut Frame<'_>, area: Rect, app: &App, scroll_back: usize) {
    if app.events.is_empty() {
        return frame.render_widget(Span::styled("no events yet", app.theme.dim()), area);
    }
    let shown = part(app.events.len(), scroll_back, area.height);
    lines(frame, area, app.events.range(shown).map(|event| event_line(event, app.theme)));
}

/// The newest of some events, on the whole area.
pub fn draw_some(frame: &mut Frame<'_>, area: Rect, events: Vec<&EventView>, nothing: &str, theme: Theme) {
    if events.is_empty() {
        return frame.render_widget(Span::styled(nothing, theme.dim()), area);
    }
    let shown = part(events.len(), 0, area.height);
    let events = events.get(shown).unwrap_or_default();
    lines(frame, area, events.iter().map(|event| event_line(event, theme)));
}

/// The log on the whole area.
pub fn draw_log(frame: &mut Frame<'_>, area: Rect, app: &App, scroll_back: usize) {
    if app.log.is_empty() {
        return frame.render_widget(Span::styled("the machine's log is empty", app.theme.dim()), area);
    }
    let shown = part(app.log.len(), scroll_back, area.height);
    lines(frame, area, app.log.range(shown).map(|line| Line::raw(line.as_str())));
}

/// The newest events under a title.
pub fn draw_events_panel(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (title, rest) = split_top(area, 1);
    frame.render_widget(Span::styled("Events", app.theme.title()), title);
    draw_events(frame, rest, app, 0);
}

/// The newest lines of the log under a title.
pub fn draw_log_panel(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let (title, rest) = split_top(area, 1);
    frame.render_widget(Span::styled("Log of the machine", app.theme.title()), title);
    draw_log(frame, rest, app, 0);
}

fn event_line(event: &EventView, theme: Theme) -> Line<'_> {
    Line::from(vec![
        Span::styled(format!("{:>11.3} ", event.time_s), theme.dim()),
        Span::raw(format!("{:<12} ", event.vm.as_deref().unwrap_or("-"))),
        Span::styled(event.text.as_str(), theme.tone(event.tone)),
    ])
}

/// Which of `length` lines are shown in `height`, scrolled back by so many.
fn part(length: usize, scroll_back: usize, height: u16) -> std::ops::Range<usize> {
    let height = usize::from(height);
    let end = length.saturating_sub(scroll_back).max(height.min(length));
    end.saturating_sub(height)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrolling_stays_inside() {
        assert_eq!(part(100, 0, 10), 90..100);
        assert_eq!(part(100, 5, 10), 85..95);
        assert_eq!(part(100, 1_000, 10), 0..10);
        assert_eq!(part(3, 2, 10), 0..3);
        assert_eq!(part(3, 0, 0), 3..3);
        assert_eq!(part(0, 0, 5), 0..0);
    }
}
