//! Tables that fit: columns drop out by rank when the screen is narrow.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::theme::Theme;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column<Id> {
    pub id: Id,
    pub title: &'static str,
    /// Least width.
    pub width: u16,
    /// Most width: it grows as far when there is room.
    pub most: u16,
    pub is_number: bool,
    /// Columns of higher rank drop out first.
    pub rank: u8,
}

/// Text of a cell.
pub type CellText = (String, Style);

/// Columns that fit, with their widths.
#[derive(Debug)]
pub struct Grid<Id> {
    columns: Vec<Column<Id>>,
}

impl<Id: Copy + PartialEq> Grid<Id> {
    /// Chooses the columns for a width.
    pub fn fit(columns: &[Column<Id>], width: u16) -> Self {
        let mut kept = columns.to_vec();
        while total(&kept) > width && kept.len() > 1 {
            let worst = kept.iter().enumerate().max_by_key(|(_, column)| column.rank).map(|(place, _)| place);
            kept.remove(worst.unwrap_or_default());
        }
        let mut spare = width.saturating_sub(total(&kept));
        for column in &mut kept {
            let growth = spare.min(column.most.saturating_sub(column.width));
            column.width += growth;
            spare -= growth;
        }
        Self { columns: kept }
    }

    /// The width of a column; 0 if it has dropped out.
    pub fn width_of(&self, id: Id) -> u16 {
        self.columns.iter().find(|column| column.id == id).map_or(0, |column| column.width)
    }

    /// The line of titles, the sorted column marked.
    pub fn titles(&self, theme: Theme, sorted: Option<(Id, bool)>) -> Line<'static> {
        let title = |column: &Column<Id>| {
            let mark = match sorted {
                Some((id, is_reversed)) if id == column.id => {
                    if is_reversed {
                        "▲"
                    } else {
                        "▼"
                    }
                }
                _ => "",
            };
            (format!("{}{mark}", column.title), theme.dim())
        };
        self.line(title)
    }

    /// A line with what `cell` gives for each column.
    pub fn row(&self, mut cell: impl FnMut(Id) -> CellText) -> Line<'static> {
        self.line(|column| cell(column.id))
    }

    fn line(&self, mut cell: impl FnMut(&Column<Id>) -> CellText) -> Line<'static> {
        let mut spans = Vec::with_capacity(self.columns.len() * 2);
        for (place, column) in self.columns.iter().enumerate() {
            if place > 0 {
                spans.push(Span::raw(" "));
            }
            let (text, style) = cell(column);
            spans.push(Span::styled(pad(&text, column.width, column.is_number), style));
        }
        Line::from(spans)
    }
}

fn total<Id>(columns: &[Column<Id>]) -> u16 {
    let gaps = u16::try_from(columns.len().saturating_sub(1)).unwrap_or(u16::MAX);
    columns.iter().fold(gaps, |sum, column| sum.saturating_add(column.width))
}

/// `text` in exactly `width` columns of the screen.
pub fn pad(text: &str, width: u16, to_right: bool) -> String {
    let width = usize::from(width);
    let text = clip(text, width);
    let padding = " ".repeat(width.saturating_sub(text.width()));
    if to_right { padding + &text } else { text + &padding }
}

/// `text` in at most `width` columns; what does not fit ends in `…`.
pub fn clip(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut clipped = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= width {
            break;
        }
        clipped.push(c);
    }
    if width > 0 {
        clipped.push('…');
    }
    clipped
}

/// Draws as many lines as fit, beginning at the top.
pub fn lines<'a>(frame: &mut Frame<'_>, area: Rect, lines: impl IntoIterator<Item = Line<'a>>) {
    for (row, line) in area.rows().zip(lines) {
        frame.render_widget(line, row);
    }
}

/// The part of a list of `length` rows to show in `height`, so that `selected` is in it.
pub fn window(length: usize, selected: Option<usize>, height: usize) -> std::ops::Range<usize> {
    let last_start = length.saturating_sub(height);
    let start = selected.unwrap_or_default().saturating_sub(height / 2).min(last_start);
    start..(start + height).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_drop_out_by_rank_and_grow() {
        let column = |id, width, most, rank| Column { id, title: "T", width, most, is_number: false, rank };
        let columns = [column('a', 4, 10, 0), column('b', 5, 5, 2), column('c', 5, 5, 1)];
        let widths = |width| {
            let grid = Grid::fit(&columns, width);
            grid.columns.iter().map(|column| (column.id, column.width)).collect::<Vec<_>>()
        };
        assert_eq!(widths(30), [('a', 10), ('b', 5), ('c', 5)]);
        assert_eq!(widths(16), [('a', 4), ('b', 5), ('c', 5)]);
        assert_eq!(widths(15), [('a', 9), ('c', 5)]);
        assert_eq!(widths(0), [('a', 4)]);
    }

    #[test]
    fn texts_are_clipped_and_padded() {
        assert_eq!(clip("build-10", 8), "build-10");
        assert_eq!(clip("build-10", 5), "buil…");
        assert_eq!(clip("ab", 0), "");
        assert_eq!(pad("7", 3, true), "  7");
        assert_eq!(pad("größe", 6, false), "größe ");
    }

    #[test]
    fn the_window_holds_the_selected_row() {
        assert_eq!(window(3, Some(2), 10), 0..3);
        assert_eq!(window(100, Some(0), 10), 0..10);
        assert_eq!(window(100, Some(50), 10), 45..55);
        assert_eq!(window(100, Some(99), 10), 90..100);
        assert_eq!(window(0, None, 0), 0..0);
        assert_eq!(window(5, Some(3), 0), 3..3);
    }
}
