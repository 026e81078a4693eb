//! Colours. Everything can be told apart without them, by character.

use ratatui::style::{Color, Modifier, Style};

use crate::output::Tone;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    has_color: bool,
}

impl Theme {
    pub const fn new(has_color: bool) -> Self {
        Self { has_color }
    }

    fn color(self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    pub const fn plain(self) -> Style {
        Style::new()
    }

    pub const fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The bar at the top.
    pub const fn banner(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    pub const fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn dim(self) -> Style {
        if self.has_color { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// Time in guests, memory of VMs.
    pub fn guest(self) -> Style {
        self.color(Color::Green)
    }

    /// Time in the monitor, memory of the monitor.
    pub fn monitor(self) -> Style {
        self.color(Color::Yellow)
    }

    /// The disk cache.
    pub fn cache(self) -> Style {
        self.color(Color::Blue)
    }

    pub fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => self.plain(),
            Tone::Strong => self.title(),
            Tone::Dim => self.dim(),
            Tone::Good => self.color(Color::Green),
            Tone::Notice => self.color(Color::Yellow),
            Tone::Bad => self.color(Color::Red),
        }
    }

    /// The word of a VM's or vCPU's state.
    pub fn state(self, state: &str) -> Style {
        match state {
            "running" => self.tone(Tone::Good),
            "ready" | "paused" | "stopping" => self.tone(Tone::Notice),
            _ => self.dim(),
        }
    }
}
