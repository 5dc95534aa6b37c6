//! Tables, as kubectl prints them.

use knative_operator_shared::text::{one_line, show_controls};

/// Aligns `rows` in columns.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        format!("{}\n", cells.join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A row of `cells`, each on one line and with the width that it has on a terminal.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(|cell| show_controls(&one_line(cell))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [row(["NAME", "STATE"]), row(["a", ""]), row(["longer", "b"])];
        assert_eq!(table(&rows), "NAME     STATE\na\nlonger   b\n");
        let forged = [row(["a\u{1b}[2J", "b\nc   d"]), row(["a", "b"])];
        assert_eq!(table(&forged), "a\\u{1b}[2J   b c d\na            b\n");
    }
}
