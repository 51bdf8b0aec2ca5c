//! Columns for people.

use std::io::{self, Write};

/// Rows below a head, each column as wide as it needs to be.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|name| (*name).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Lines that are not longer than `width`, if it is given.
    pub(crate) fn write(&self, to: &mut impl Write, width: Option<usize>) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let wide = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(wide).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            let end = width.and_then(|width| line.char_indices().nth(width)).map_or(line.len(), |(at, _)| at);
            writeln!(to, "{}", line[..end].trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_lines_end_where_they_must() {
        let mut table = Table::new(&["NAME", "STATE"]);
        assert!(table.is_empty());
        table.row(vec!["default/web".to_owned(), "serving".to_owned()]);
        let text = |width| {
            let mut to = Vec::new();
            table.write(&mut to, width).unwrap();
            String::from_utf8(to).unwrap()
        };
        assert_eq!(text(None), "NAME         STATE\ndefault/web  serving\n");
        assert_eq!(text(Some(6)), "NAME\ndefaul\n");
    }
}
