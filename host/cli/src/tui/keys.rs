//! What keys do.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Overlay, Selection, Tab};

/// Rows that a page key moves.
const PAGE: isize = 10;
const INTERVALS_MS: [u64; 7] = [100, 250, 500, 1_000, 2_000, 5_000, 10_000];

/// What a key asks of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing but a new picture.
    Redraw,
    /// The console of this VM.
    Console(String),
    /// Leave; the machine goes on.
    Leave,
    /// Leave and power the machine off.
    PowerOff,
}

impl App {
    /// Reacts to a key.
    pub fn on_key(&mut self, key: KeyEvent) -> Reaction {
        self.notice = None;
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (self.overlay, key.code) {
            (Overlay::Quit, code) => return self.on_quit_key(code),
            (_, KeyCode::Char('c')) if has_control => return self.quit(),
            (Overlay::Help, _) => self.overlay = Overlay::None,
            (_, KeyCode::Char('q')) => return self.quit(),
            (_, KeyCode::Enter) => return self.open_console(),
            (_, code) => self.on_view_key(code),
        }
        Reaction::Redraw
    }

    fn on_quit_key(&mut self, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('p' | 'y') => Reaction::PowerOff,
            KeyCode::Char('l' | 'd') => Reaction::Leave,
            _ => {
                self.overlay = Overlay::None;
                Reaction::Redraw
            }
        }
    }

    fn quit(&mut self) -> Reaction {
        if !self.has_machine {
            return Reaction::Leave;
        }
        self.overlay = Overlay::Quit;
        Reaction::Redraw
    }

    fn open_console(&mut self) -> Reaction {
        match (&self.selected.vm, self.tab) {
            (Some(vm), Tab::Overview | Tab::Vcpus | Tab::Exits | Tab::Memory | Tab::Places) => {
                Reaction::Console(vm.clone())
            }
            _ => Reaction::Redraw,
        }
    }

    fn on_view_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(digit @ '1'..='7') => {
                self.show(Tab::ALL.get(usize::from(digit as u8 - b'1')).copied().unwrap_or_default());
            }
            KeyCode::Tab | KeyCode::Right => self.show(self.tab.step(1)),
            KeyCode::BackTab | KeyCode::Left => self.show(self.tab.step(Tab::ALL.len() - 1)),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX / 2),
            KeyCode::Char('s') => self.sort_next(),
            KeyCode::Char('r') => self.sort_reversed(),
            KeyCode::Char('+') => self.change_interval(false),
            KeyCode::Char('-') => self.change_interval(true),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.overlay = Overlay::Help,
            _ => {}
        }
    }

    fn show(&mut self, tab: Tab) {
        self.tab = tab;
        self.scroll_back = 0;
    }

    fn move_by(&mut self, rows: isize) {
        match self.tab {
            Tab::Events => self.scroll_back = moved(self.scroll_back, rows.saturating_neg(), self.events.len()),
            Tab::Log => self.scroll_back = moved(self.scroll_back, rows.saturating_neg(), self.log.len()),
            Tab::Vcpus => {
                let row = self.selected_vcpu_row().unwrap_or_default();
                let vcpus = self.sorted_vcpus();
                let chosen = vcpus.get(moved(row, rows, vcpus.len()));
                let chosen = chosen.map(|(vm, vcpu)| Selection { vm: Some(vm.name.clone()), vcpu: vcpu.index });
                self.selected = chosen.unwrap_or_default();
            }
            Tab::Overview | Tab::Exits | Tab::Memory | Tab::Places => {
                let row = self.selected_vm_row().unwrap_or_default();
                let vms = self.sorted_vms();
                let chosen = vms.get(moved(row, rows, vms.len())).map(|vm| vm.name.clone());
                self.selected = Selection { vm: chosen, vcpu: 0 };
            }
        }
    }

    fn sort_next(&mut self) {
        if self.tab == Tab::Vcpus {
            self.vcpu_sort.column = self.vcpu_sort.column.next();
        } else {
            self.vm_sort.column = self.vm_sort.column.next();
        }
    }

    fn sort_reversed(&mut self) {
        let reversed =
            if self.tab == Tab::Vcpus { &mut self.vcpu_sort.is_reversed } else { &mut self.vm_sort.is_reversed };
        *reversed = !*reversed;
    }

    fn change_interval(&mut self, longer: bool) {
        let now = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let next = if longer {
            INTERVALS_MS.into_iter().find(|interval| *interval > now)
        } else {
            INTERVALS_MS.into_iter().rev().find(|interval| *interval < now)
        };
        self.interval = next.map_or(self.interval, Duration::from_millis);
    }
}

/// `place` moved by `rows`, inside a list of `length`.
fn moved(place: usize, rows: isize, length: usize) -> usize {
    place.saturating_add_signed(rows).min(length.saturating_sub(1))
}
