//! What people and scripts are shown.

pub mod explain;
pub mod json;
pub mod plan;
pub mod topo;

pub use explain::explain;

use comfy_table::Table;
use comfy_table::presets;

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
