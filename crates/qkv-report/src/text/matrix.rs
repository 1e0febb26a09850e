//! Matrices, aligned by the decimal point.

use super::wrap::columns;
use crate::explanation::Matrix;
use crate::printed;

/// A matrix in lines.
pub(super) struct Lines {
    pub lines: Vec<String>,
    /// The width that would show it in one piece, if it had to be split.
    pub needed: Option<usize>,
}

const GAP: usize = 2;
/// Between two matrices.
const BETWEEN: usize = 4;

/// One column, every cell as wide as the widest.
struct Column {
    header: String,
    cells: Vec<String>,
    width: usize,
}

pub(super) fn lines(matrix: &Matrix, digits: usize, width: usize) -> Lines {
    let cells = printed::cells(matrix, digits);
    let all: Vec<Column> = matrix
        .columns
        .iter()
        .enumerate()
        .map(|(c, header)| column(header, cells.iter().map(|row| row[c].clone())))
        .collect();
    let labels = matrix.rows.iter().map(|row| columns(row));
    let label_width = labels.chain([columns(&matrix.name)]).max().unwrap_or(0);
    let needed = label_width + all.iter().map(|column| GAP + column.width).sum::<usize>();
    let mut lines = Vec::new();
    let mut rest = &all[..];
    while !rest.is_empty() {
        let mut used = label_width;
        let mut taken = 0;
        for column in rest {
            used += GAP + column.width;
            if used > width && taken > 0 {
                break;
            }
            taken += 1;
        }
        let (now, later) = rest.split_at(taken);
        rest = later;
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let mut header = padded(&matrix.name, label_width);
        for column in now {
            header.push_str(&right(&column.header, GAP + column.width));
        }
        lines.push(header);
        for (i, row) in matrix.rows.iter().enumerate() {
            let mut line = padded(row, label_width);
            for column in now {
                line.push_str(&right(&column.cells[i], GAP + column.width));
            }
            lines.push(line);
        }
    }
    Lines {
        lines,
        needed: (needed > width).then_some(needed),
    }
}

/// Puts matrices beside each other where they fit into the width.
pub(super) fn rows(matrices: Vec<Lines>, width: usize) -> Vec<Lines> {
    let mut rows: Vec<Lines> = Vec::new();
    for matrix in matrices {
        match rows.last_mut() {
            Some(row) if fits(row, &matrix, width) => {
                let left = widest(row);
                row.lines
                    .resize(row.lines.len().max(matrix.lines.len()), String::new());
                for (line, more) in row.lines.iter_mut().zip(&matrix.lines) {
                    *line = padded(line, left + BETWEEN) + more;
                }
            }
            _ => rows.push(matrix),
        }
    }
    rows
}

fn fits(row: &Lines, matrix: &Lines, width: usize) -> bool {
    let whole = row.needed.is_none() && matrix.needed.is_none();
    whole && widest(row) + BETWEEN + widest(matrix) <= width
}

fn widest(lines: &Lines) -> usize {
    lines
        .lines
        .iter()
        .map(|line| columns(line))
        .max()
        .unwrap_or(0)
}

fn column(header: &str, cells: impl Iterator<Item = String>) -> Column {
    let cells: Vec<(String, String)> = cells
        .map(|cell| match cell.find('.') {
            Some(point) => (cell[..point].into(), cell[point..].into()),
            None => (cell, String::new()),
        })
        .collect();
    // −∞ and NaN have no decimal point to stand at: they end where the others do.
    let is_number = |whole: &str| !whole.ends_with(['∞', 'N']);
    let longest = |parts: &mut dyn Iterator<Item = &String>| parts.map(|part| columns(part)).max();
    let numbers = cells.iter().filter(|(whole, _)| is_number(whole));
    let whole = longest(&mut numbers.map(|(whole, _)| whole)).unwrap_or(0);
    let decimals = longest(&mut cells.iter().map(|(_, part)| part)).unwrap_or(0);
    let others = cells.iter().filter(|(whole, _)| !is_number(whole));
    let others = longest(&mut others.map(|(whole, _)| whole)).unwrap_or(0);
    let all = others.max(whole + decimals);
    let cell = |(before, after): &(String, String)| match is_number(before) {
        true => right(&format!("{before}{}", padded(after, decimals)), all),
        false => right(before, all),
    };
    Column {
        header: header.into(),
        width: columns(header).max(all),
        cells: cells.iter().map(cell).collect(),
    }
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}
