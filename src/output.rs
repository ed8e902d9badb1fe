//! What the command prints on stdout: text in columns, or JSON.
//!
//! # What callers may rely on
//! A closed stdout is an [`Outcome`], never a panic. JSON is one object with
//! `schema_version`, pretty-printed, with a newline behind it.

use crate::report::{Exit, Explain, Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};

/// A report with the version of its shape in front.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    report: &'a T,
}

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Outcome<()> {
    print_bytes(text.as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        written => written.context(|| "standard output".to_owned()),
    }
}

/// Prints what the parser of arguments has to say: help and version on stdout, errors on stderr.
pub(crate) fn of_parser(error: &clap::Error) -> Outcome {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        // Where nobody hears the error, there is still the status.
        _ if error.use_stderr() => Ok(Exit::Usage),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        printed => Ok(printed.map(|()| Exit::Done)?),
    }
}

/// Prints a report as JSON.
pub(crate) fn print_json<T: Serialize>(schema_version: u32, report: &T) -> Outcome<()> {
    let versioned = Versioned {
        schema_version,
        report,
    };
    let mut text = serde_json::to_string_pretty(&versioned)?;
    text.push('\n');
    print(&text)
}

/// The longest cell, in characters; JSON has the whole of what is longer.
const LONGEST_CELL: usize = 1000;

/// Lines of cells, aligned in columns.
///
/// What is longer than 1000 characters is cut, with … at its end.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this first line.
    pub(crate) fn new(head: &[&str]) -> Self {
        let rows = vec![head.iter().map(|cell| (*cell).to_owned()).collect()];
        Table { rows }
    }

    /// Adds a line. What is encoded ([`crate::raw::encode`]) is shown as people see it.
    pub(crate) fn push(&mut self, row: Vec<String>) {
        let row = row
            .iter()
            .map(|cell| cut(crate::raw::shown(cell)))
            .collect();
        self.rows.push(row);
    }

    /// The text, each line ended.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                let blanks = width.saturating_sub(cell.chars().count());
                line.extend(std::iter::repeat_n(' ', blanks + 2));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn cut(mut cell: String) -> String {
    if let Some((end, _)) = cell.char_indices().nth(LONGEST_CELL) {
        cell.truncate(end);
        cell.pop();
        cell.push('…');
    }
    cell
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// How long ago a moment was, for people.
pub(crate) fn ago(unix_seconds: u64) -> String {
    let now = crate::jobs::unix_now();
    let seconds = now.saturating_sub(unix_seconds);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", "PID"]);
        table.push(vec!["long-name".to_owned(), "7".to_owned()]);
        assert_eq!(table.render(), "NAME       PID\nlong-name  7\n");
    }

    #[test]
    fn a_cell_of_any_length_is_a_cell() {
        let mut table = Table::new(&["NAME", "WHY"]);
        table.push(vec!["é".repeat(70_000), "b".to_owned()]);
        table.push(vec!["x".repeat(LONGEST_CELL), "c".to_owned()]);
        let text = table.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}…  b", "é".repeat(LONGEST_CELL - 1)));
        assert_eq!(lines[2], format!("{}  c", "x".repeat(LONGEST_CELL)));
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1 << 30), "1.0 GiB");
        assert_eq!(bytes((1 << 30) - 1), "1.0 GiB");
    }
}
