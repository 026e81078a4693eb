//! Tables of text: columns as wide as needed, two spaces between, no lines.

use unicode_width::UnicodeWidthStr;

use super::Tone;

/// A table.
#[derive(Debug)]
pub struct Table {
    headers: Vec<Header>,
    rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

#[derive(Debug)]
struct Header {
    title: &'static str,
    is_number: bool,
}

impl Cell {
    /// Text in a tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }
}

impl Table {
    /// A table with these headers. One that begins with `>` is of a column of numbers, which stand to the right.
    pub fn new(headers: &[&'static str]) -> Self {
        let header = |text: &&'static str| match text.strip_prefix('>') {
            Some(title) => Header { title, is_number: true },
            None => Header { title: text, is_number: false },
        };
        Self { headers: headers.iter().map(header).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells missing at its end are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().collect();
        row.resize(self.headers.len(), Cell::default());
        self.rows.push(row);
    }

    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, a line per row.
    pub fn render(&self, has_color: bool) -> String {
        let widths: Vec<usize> =
            self.headers.iter().enumerate().map(|(column, header)| self.width(column, header)).collect();
        let titles: Vec<Cell> = self.headers.iter().map(|header| Cell::toned(header.title, Tone::Dim)).collect();
        let mut text = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            self.render_row(row, &widths, has_color, &mut text);
        }
        text
    }

    fn width(&self, column: usize, header: &Header) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.width());
        cells.fold(header.title.width(), usize::max)
    }

    fn render_row(&self, row: &[Cell], widths: &[usize], has_color: bool, text: &mut String) {
        let line_start = text.len();
        for ((cell, header), width) in row.iter().zip(&self.headers).zip(widths) {
            if text.len() > line_start {
                text.push_str("  ");
            }
            let padding = " ".repeat(width.saturating_sub(cell.text.width()));
            let painted = cell.tone.paint(&cell.text, has_color);
            if header.is_number {
                text.push_str(&padding);
                text.push_str(&painted);
            } else {
                text.push_str(&painted);
                text.push_str(&padding);
            }
        }
        text.truncate(text.trim_end_matches(' ').len().max(line_start));
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">COUNT", "STATE"]);
        assert!(table.is_empty());
        table.row(["a".into(), "1".into(), Cell::toned("good", Tone::Good)]);
        table.row(["größer".into(), "1,000".into()]);
        let expected = "NAME    COUNT  STATE\na           1  good\ngrößer  1,000\n";
        assert_eq!(table.render(false), expected);
        assert!(table.render(true).contains("\x1b[32mgood\x1b[0m"));
    }
}
