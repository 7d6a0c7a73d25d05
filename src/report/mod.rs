//! What people and scripts are shown.

pub mod explain;
pub mod json;
pub mod plan;
pub mod question;
pub mod status;
pub mod topo;
pub mod words;

pub use explain::explain;

use comfy_table::Table;
use comfy_table::presets;
use std::fmt::Display;
use std::io::{self, Write};

/// Prints an answer on stdout. A reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// It cannot be written.
pub fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says something on stderr. Nobody may be there to hear it, which stops nothing.
pub fn say(text: impl Display) {
    let _ = io::stderr().write_all(printable(&text.to_string()).as_bytes());
}

/// A text that does nothing to a terminal: names in it may be anybody's.
pub fn printable(text: &str) -> String {
    let harmless = |letter: char| !letter.is_control() || letter == '\n' || letter == '\t';
    text.chars().map(|letter| if harmless(letter) { letter } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

/// A plain table: aligned columns, no lines.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// A table as text, without blanks at the ends of lines.
fn text(table: &Table) -> String {
    table.lines().map(|line| line.trim().to_owned() + "\n").collect()
}
