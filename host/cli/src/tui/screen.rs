//! The live view on a real terminal.

use std::io::{self, Stdout};
use std::path::Path;
use std::time::Duration;

use control::Name;
use machine::Client;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use super::LogTail;
use super::app::App;
use super::draw::draw;
use super::feed::{Feed, News};
use super::keys::Reaction;
use super::theme::Theme;
use crate::console::{Attachment, Detached, EscapeKey};
use crate::failure::Failure;

/// How long to wait for a key before looking for news.
const TICK: Duration = Duration::from_millis(50);

/// What to show.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub client: &'a Client,
    /// The machine's own log.
    pub log: &'a Path,
    pub interval: Duration,
    pub has_color: bool,
    /// Whether leaving may end the machine.
    pub has_machine: bool,
}

/// How the view was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The machine is to go on.
    Leave,
    /// The machine is to be powered off.
    PowerOff,
    /// The machine answers no more; why.
    Gone(String),
}

/// A terminal with the live view. Dropping it gives the terminal back.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> Result<Self, Failure> {
        let failed = Failure::system("cannot use the terminal");
        take_terminal().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout()))).map_or_else(
            |error| {
                give_terminal();
                Err(failed(error))
            },
            |terminal| Ok(Self { terminal }),
        )
    }

    /// Shows the machine until the user leaves or it goes.
    pub fn show(&mut self, setup: Setup<'_>) -> Result<Ending, Failure> {
        let mut app = App::new(Theme::new(setup.has_color), setup.interval, setup.has_machine);
        let feed = Feed::start(setup.client, setup.interval)?;
        let mut log = LogTail::new(setup.log);
        let mut is_stale = true;
        loop {
            if !log.poll().is_empty() {
                app.set_log(log.lines());
                is_stale = true;
            }
            for news in feed.news() {
                is_stale = true;
                if let Some(ending) = take(&mut app, news) {
                    return Ok(ending);
                }
            }
            if std::mem::take(&mut is_stale) {
                self.terminal.draw(|frame| draw(frame, &app)).map_err(Failure::system("cannot draw"))?;
            }
            if !event::poll(TICK).map_err(Failure::system("cannot read the terminal"))? {
                continue;
            }
            is_stale = true;
            let Event::Key(key) = event::read().map_err(Failure::system("cannot read the terminal"))? else { continue };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            match app.on_key(key) {
                Reaction::Redraw => feed.set_interval(app.interval),
                Reaction::Leave => return Ok(Ending::Leave),
                Reaction::PowerOff => return Ok(Ending::PowerOff),
                Reaction::Console(vm) => app.notice = self.console(setup.client, &vm)?,
            }
        }
    }

    /// Gives the terminal to a VM's console for a while; gives what to tell afterwards.
    fn console(&mut self, client: &Client, vm: &str) -> Result<Option<String>, Failure> {
        let failed = || Failure::system("cannot use the terminal");
        let Ok(vm) = Name::new(vm) else { return Ok(None) };
        execute!(io::stdout(), LeaveAlternateScreen).map_err(failed())?;
        self.terminal.show_cursor().map_err(failed())?;
        let attachment = Attachment { client, vm: &vm, escape: EscapeKey::default(), has_scrollback: true };
        let ended = attachment.interactive();
        execute!(io::stdout(), EnterAlternateScreen).map_err(failed())?;
        // The console leaves cooked mode behind.
        enable_raw_mode().map_err(failed())?;
        self.terminal.clear().map_err(failed())?;
        Ok(match ended {
            Ok(Detached::ByKey) => None,
            Ok(Detached::Ended(why)) => Some(format!("console of {vm}: {why}")),
            Err(error) => Some(error.to_string()),
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_terminal();
    }
}

fn take(app: &mut App, news: News) -> Option<Ending> {
    match news {
        News::View(view) => app.set_view(*view),
        News::Events(events) => app.add_events(events),
        News::Lost(why) => return Some(Ending::Gone(why)),
    }
    None
}

fn take_terminal() -> io::Result<()> {
    // A panic must not leave the terminal unusable, nor its message on the other screen.
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        give_terminal();
        earlier(info);
    }));
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Errors are of no use here: there is no other way to give it back.
fn give_terminal() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
}
