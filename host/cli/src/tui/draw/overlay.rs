//! Boxes over the picture: help, and the question before leaving.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::super::app::App;

const HELP: [&str; 18] = [
    "1-7, Tab      the tabs: overview, vCPUs, exits, memory, places, events, log",
    "Up, Down      select, or scroll; also j k PgUp PgDn Home End",
    "Enter         console of the selected VM; Ctrl-] comes back",
    "s, r          sort by the next column, reverse",
    "+, -          look more often, less often",
    "q, Ctrl-C     quit",
    "",
    "Harts         █ in guests  ▓ in the monitor  · idle",
    "              then what runs there, and +N vCPUs that wait for it",
    "Nodes         ■ VMs  ▤ disk cache  ▣ monitor  □ free or reserved",
    "CPU%, RUN%    time on harts; 100 = one hart all the time",
    "WAIT%         wanted to run and could not (steal time)",
    "EXITS/s       how often guests entered the monitor",
    "RESIDENT      machine memory behind the VM",
    "MEMORY        what its guest believes to have",
    "",
    "`mirrorball COMMAND --help` tells the rest.",
    "Any key closes this.",
];

const QUIT: [&str; 3] = ["p   power the machine off", "l   leave it running", "any other key: back to the view"];

pub fn draw_help(frame: &mut Frame<'_>, area: Rect, app: &App) {
    draw_box(frame, area, app, " Help ", &HELP);
}

pub fn draw_quit(frame: &mut Frame<'_>, area: Rect, app: &App) {
    draw_box(frame, area, app, " Leave? ", &QUIT);
}

fn draw_box(frame: &mut Frame<'_>, area: Rect, app: &App, title: &'static str, text: &[&'static str]) {
    let longest = text.iter().map(|line| line.chars().count()).max().unwrap_or_default() as u16;
    let width = (longest + 4).min(area.width);
    let height = (text.len() as u16 + 2).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let block = Block::bordered().title(title).title_style(app.theme.title());
    let lines: Vec<Line<'_>> = text.iter().map(|line| Line::raw(format!(" {line}"))).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: false }), place);
}
