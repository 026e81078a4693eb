//! The picture.

mod exits;
mod frame;
mod harts;
mod memory;
mod overlay;
mod overview;
mod places;
mod text;
mod vcpus;
mod vms;

use ratatui::Frame;
use ratatui::layout::Rect;

use super::app::{App, Overlay, Tab};

/// Smallest screen that shows anything.
const LEAST: (u16, u16) = (24, 5);

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        frame.render_widget("too small", area);
        return;
    }
    let body = frame::draw(frame, area, app);
    match app.tab {
        Tab::Overview => overview::draw(frame, body, app),
        Tab::Vcpus => vcpus::draw(frame, body, app),
        Tab::Exits => exits::draw_table(frame, body, app),
        Tab::Memory => memory::draw(frame, body, app),
        Tab::Places => places::draw(frame, body, app),
        Tab::Events => text::draw_events(frame, body, app, app.scroll_back),
        Tab::Log => text::draw_log(frame, body, app, app.scroll_back),
    }
    match app.overlay {
        Overlay::None => {}
        Overlay::Help => overlay::draw_help(frame, area, app),
        Overlay::Quit => overlay::draw_quit(frame, area, app),
    }
}

/// The upper `height` lines of an area, and the rest.
fn split_top(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let top = Rect { height, ..area };
    (top, Rect { y: area.y + height, height: area.height - height, ..area })
}

/// The left `width` columns of an area, and the rest without a gap of two.
fn split_left(area: Rect, width: u16) -> (Rect, Rect) {
    let width = width.min(area.width);
    let left = Rect { width, ..area };
    let taken = width.saturating_add(2).min(area.width);
    (left, Rect { x: area.x + taken, width: area.width - taken, ..area })
}
