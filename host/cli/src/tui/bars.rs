//! Bars made of characters.

use ratatui::style::Style;
use ratatui::text::Span;

/// A part of a bar.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its share of the whole, 0 to 1.
    pub share: f64,
    /// What fills it.
    pub fill: char,
    /// How.
    pub style: Style,
}

/// A bar of exactly `width` characters: the parts from the left, the rest filled with `rest`.
///
/// A part that is not zero gets at least one character while there is room, so that a little monitor time shows.
pub fn stacked(parts: &[Part], rest: (char, Style), width: u16) -> Vec<Span<'static>> {
    let mut left = width;
    let mut spans = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        let ideal = (part.share.clamp(0.0, 1.0) * f64::from(width)).round() as u16;
        let least = u16::from(part.share > 0.005);
        let cells = ideal.max(least).min(left);
        left -= cells;
        spans.push(run(part.fill, cells, part.style));
    }
    spans.push(run(rest.0, left, rest.1));
    spans
}

/// One character for a share: nothing, a low block ... a full block.
pub fn level(share: f64) -> char {
    const LEVELS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let index = (share.clamp(0.0, 1.0) * 8.0).ceil() as usize;
    LEVELS.get(index).copied().unwrap_or('█')
}

fn run(fill: char, cells: u16, style: Style) -> Span<'static> {
    Span::styled(fill.to_string().repeat(usize::from(cells)), style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shares: &[f64], width: u16) -> String {
        let fills = ['#', '+', '='];
        let parts: Vec<Part> =
            shares.iter().zip(fills).map(|(share, fill)| Part { share: *share, fill, style: Style::new() }).collect();
        stacked(&parts, ('.', Style::new()), width).iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn bars_are_as_wide_as_asked() {
        assert_eq!(text(&[0.5, 0.25], 8), "####++..");
        assert_eq!(text(&[0.5, 0.01], 8), "####+...");
        assert_eq!(text(&[1.0, 1.0], 4), "####");
        assert_eq!(text(&[2.0, -1.0, f64::NAN], 4), "####");
        assert_eq!(text(&[0.5], 0), "");
    }

    #[test]
    fn levels_rise() {
        assert_eq!([0.0, 0.01, 0.5, 1.0, 7.0, f64::NAN].map(level), ['·', '▁', '▄', '█', '█', '·']);
    }
}
