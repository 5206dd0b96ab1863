//! Tables with kubectl's look.
use tabled::{
    builder::Builder,
    settings::{Padding, Style},
};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::{Screen, one_line};
use crate::palette::Tone;

/// Blanks between columns.
const GAP: usize = 3;
/// Below that, a cut message says nothing.
const LEAST: usize = 12;

/// One cell: harmless text on one line, and how it is painted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Unpainted.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    /// Painted.
    pub fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: one_line(text.as_ref()), tone }
    }

    /// The text, or `missing` where there is none.
    pub fn or(text: Option<impl AsRef<str>>, missing: &str) -> Self {
        match text {
            Some(text) if !text.as_ref().is_empty() => Self::new(text),
            _ => Self::new(missing),
        }
    }
}

/// Rows under a header.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row of as many cells as the header has.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The text, every line ended. The last column is cut where the terminal ends.
    pub fn render(&self, screen: &Screen) -> String {
        let room = screen.width.map(|width| width.saturating_sub(self.width_before_last()));
        let mut builder = Builder::default();
        builder.push_record(self.header.iter().copied());
        for row in &self.rows {
            let last = row.len().saturating_sub(1);
            let room = |n: usize| room.filter(|room| n == last && *room >= LEAST);
            let paint = |(n, cell): (usize, &Cell)| screen.palette.paint(cell.tone, &cut(&cell.text, room(n)));
            builder.push_record(row.iter().enumerate().map(paint));
        }
        let table = builder.build().with(Style::empty()).with(Padding::new(0, GAP, 0, 0)).to_string();
        table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
    }

    fn width_before_last(&self) -> usize {
        let column = |n: usize| self.rows.iter().map(|row| row[n].text.width()).max().unwrap_or_default();
        let columns = self.header.iter().enumerate().take(self.header.len().saturating_sub(1));
        columns.map(|(n, title)| column(n).max(title.width()) + GAP).sum()
    }
}

/// At most `room` columns, with a mark that something is missing.
pub(super) fn cut(text: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|room| text.width() > *room) else { return text.to_owned() };
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or_default();
        used < room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::Palette;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE", "MESSAGE"]);
        table.row(vec![Cell::new("a"), Cell::toned("Failed", Tone::Bad), Cell::new("one two three four")]);
        table.row(vec![Cell::new("long-name"), Cell::toned("Ready", Tone::Good), Cell::new("")]);
        table
    }

    fn screen(palette: Palette, width: Option<usize>) -> Screen {
        Screen { palette, width, now: jiff::Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn columns_stand_three_blanks_apart_and_no_line_ends_in_blanks() {
        let text = table().render(&screen(Palette::Plain, None));
        assert_eq!(text, "NAME        STATE    MESSAGE\na           Failed   one two three four\nlong-name   Ready\n");
    }

    #[test]
    fn colour_does_not_shift_columns() {
        let text = table().render(&screen(Palette::Colour, None));
        assert_eq!(
            text,
            "NAME        STATE    MESSAGE\n\
             a           \u{1b}[31mFailed\u{1b}[0m   one two three four\n\
             long-name   \u{1b}[32mReady\u{1b}[0m\n"
        );
    }

    #[test]
    fn the_last_column_ends_with_the_terminal() {
        let text = table().render(&screen(Palette::Plain, Some(34)));
        assert!(text.contains("a           Failed   one two thre…\n"), "{text}");
        // Too narrow for anything: better whole than a stump.
        assert!(table().render(&screen(Palette::Plain, Some(25))).contains("one two three four"));
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(cut("中文字", Some(5)), "中文…");
        assert_eq!(cut("中文字", Some(6)), "中文字");
    }
}
