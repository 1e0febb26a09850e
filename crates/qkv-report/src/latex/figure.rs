//! Matrices and heat maps in LaTeX.

use super::number;
use super::prose::plain;
use crate::explanation::{Cell, HeatMap, Matrix};
use crate::heat::Grid;
use crate::notation::to_tex;
use crate::number::shown;
use crate::printed;

/// Rows that fit on a page; what is longer goes on in another array.
const ROWS: usize = 36;
/// More rows or columns of a heat map than this are merged.
const MOST: usize = 32;
/// Up to so many columns have room for their numbers.
const NUMBERS: usize = 8;
/// Of a dense map every so many rows and columns are named.
const NAMED: usize = 8;
/// Shades besides that of nothing, and from which on the ink is white.
const SHADES: usize = 8;
const WHITE_INK: usize = 6;
/// From nothing to the largest weight, in steps that also differ in grey and to the colour-blind.
const COLOURS: [&str; SHADES + 1] = [
    "F7FBFF", "DEEBF7", "C6DBEF", "9ECAE1", "6BAED6", "4292C6", "2171B5", "08519C", "08306B",
];

/// The definitions that heat maps need.
pub(super) fn colours() -> String {
    let define = |(at, colour)| format!("\\definecolor{{h{at}}}{{HTML}}{{{colour}}}\n");
    COLOURS.iter().enumerate().map(define).collect()
}

/// A matrix as one or several arrays.
pub(super) fn matrix(matrix: &Matrix, digits: usize) -> Vec<String> {
    let cells = printed::cells(matrix, digits);
    let mut arrays = Vec::new();
    for group in printed::column_groups(matrix, &cells, printed::PAGE) {
        let rows: Vec<usize> = (0..matrix.rows.len()).collect();
        for rows in rows.chunks(ROWS) {
            let columns = "r".repeat(group.len());
            let mut array = format!("$\\begin{{array}}{{l|{columns}}}\n");
            array.push_str(to_tex(&matrix.name).trim_end());
            for name in &matrix.columns[group.clone()] {
                array.push_str(&format!(" & {}", label(name)));
            }
            array.push_str(" \\\\ \\hline\n");
            for &r in rows {
                array.push_str(&label(matrix.rows[r].trim()));
                for c in group.clone() {
                    let text = match &matrix.cells[r][c] {
                        Cell::Number(_) => number(&cells[r][c]),
                        Cell::Blank(Some(number)) => format!("\\text{{({number}) \\room}}"),
                        Cell::Blank(None) => "\\text{\\room}".into(),
                    };
                    array.push_str(&format!(" & {text}"));
                }
                array.push_str(" \\\\\n");
            }
            array.push_str("\\end{array}$");
            arrays.push(array);
        }
    }
    arrays
}

/// `q0` as a formula, any other name of a row or column as text.
fn label(name: &str) -> String {
    let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let letters = name.len() - digits.len();
    match letters <= 1 && digits.chars().all(|c| c.is_ascii_digit()) {
        true => to_tex(name),
        false => format!("\\text{{{}}}", plain(name)),
    }
}

/// A table of shades, with its grid for the legend.
pub(super) fn heat_map(map: &HeatMap, digits: usize) -> (String, Grid) {
    let width = map.values.first().map_or(0, Vec::len);
    let queries = map.values.len().div_ceil(MOST).max(1);
    let keys = width.div_ceil(MOST).max(1);
    let grid = Grid::new(map, queries, keys);
    let dense = grid.is_merged() || width > NUMBERS;
    let columns = grid.cells.first().map_or(0, Vec::len);
    let name = |letter: char, at: usize, merged: usize, names: &[String]| match dense {
        true if !at.is_multiple_of(NAMED) => String::new(),
        true => format!(
            "\\makebox[0pt][l]{{\\scriptsize ${letter}_{{{}}}$}}",
            at * merged
        ),
        false => format!(
            "${}$",
            names.get(at).map_or(String::new(), |name| label(name))
        ),
    };
    let cell = if dense { "p{3.2mm}" } else { "r" };
    let mut out = if dense {
        "{\\setlength{\\tabcolsep}{0pt}\\renewcommand{\\arraystretch}{0.62}\n".to_string()
    } else {
        "{\\renewcommand{\\arraystretch}{1.3}\n".to_string()
    };
    let first = if dense { "p{9mm}" } else { "l" };
    out.push_str(&format!(
        "\\begin{{tabular}}{{{first}{}}}\n",
        cell.repeat(columns)
    ));
    for at in 0..columns {
        out.push_str(&format!(" & {}", name('k', at, keys, &map.columns)));
    }
    out.push_str(" \\\\\n");
    for (at, row) in grid.cells.iter().enumerate() {
        out.push_str(&name('q', at, queries, &map.rows));
        for cell in row {
            let text = if dense {
                String::new()
            } else {
                format!("${}$", number(&shown(cell.weight, digits).text))
            };
            out.push_str(&format!(" & {}", shaded(cell.share, &text)));
        }
        out.push_str(" \\\\\n");
    }
    out.push_str("\\end{tabular}}");
    (out, grid)
}

fn shaded(share: f64, text: &str) -> String {
    if share.is_nan() {
        return "?".into();
    }
    let shade = (share * SHADES as f64).ceil().clamp(0.0, SHADES as f64) as usize;
    let ink = if shade >= WHITE_INK && !text.is_empty() {
        "\\color{white}"
    } else {
        ""
    };
    format!("\\cellcolor{{h{shade}}}{ink}{text}")
}
