//! The weights as a coloured table.

use super::markup::{attribute, escaped, scroll};
use crate::explanation::HeatMap;
use crate::heat::{Cell, Grid};
use crate::number::shown;
use crate::words::Words;

/// More rows or columns than this are merged.
const MOST: usize = 32;
/// Up to so many columns have room for their numbers.
const NUMBERS: usize = 8;
/// Of a dense map every so many rows and columns are named.
const NAMED: usize = 8;
/// Shades besides that of nothing.
const SHADES: f64 = 8.0;

/// A table of shades: with numbers inside, or small cells whose numbers are for screen readers and
/// the script.
pub(super) fn table(map: &HeatMap, id: usize, digits: usize, words: &dyn Words) -> String {
    let queries = map.values.len().div_ceil(MOST).max(1);
    let width = map.values.first().map_or(0, Vec::len);
    let keys = width.div_ceil(MOST).max(1);
    let grid = Grid::new(map, queries, keys);
    let dense = grid.is_merged() || width > NUMBERS;
    let name = |letter: char, at: usize, merged: usize, names: &[String]| {
        let first = at * merged;
        match names.len().min(first + merged).saturating_sub(1) {
            last if last > first => format!("{letter}{first}–{last}"),
            _ => escaped(names.get(first).map_or("", String::as_str)),
        }
    };
    let label = |at: usize, name: String| match dense && !at.is_multiple_of(NAMED) {
        true => format!("<span>{name}</span>"),
        false => name,
    };
    let class = if dense { "heat dense" } else { "heat" };
    let title = escaped(&map.name);
    let mut html = format!(
        "<figure><p id=\"map-{id}\">{title}</p>\n{}\
         <table class=\"{class}\" aria-labelledby=\"map-{id}\">\n<thead><tr><td></td>",
        scroll(&title)
    );
    for at in 0..grid.cells.first().map_or(0, Vec::len) {
        let text = label(at, name('k', at, keys, &map.columns));
        html.push_str(&format!("<th scope=\"col\">{text}</th>"));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (at, row) in grid.cells.iter().enumerate() {
        let text = label(at, name('q', at, queries, &map.rows));
        html.push_str(&format!("<tr><th scope=\"row\">{text}</th>"));
        for (key, cell) in row.iter().enumerate() {
            let text = shown(cell.weight, digits).text;
            let text = match dense {
                true => format!("<span>{text}</span>"),
                false => text,
            };
            let entry = map.at.as_ref().filter(|_| !grid.is_merged());
            let entry = entry.map(|map| map.inside(&[at, key]));
            let of = attribute("data-e", entry.as_ref());
            html.push_str(&format!("<td class=\"h{}\"{of}>{text}</td>", shade(*cell)));
        }
        html.push_str("</tr>\n");
    }
    let legend = match grid.is_merged() {
        true => words.merged_cells(queries, keys),
        false => words.legend(&shown(grid.largest, digits).text),
    };
    // The sample of the legend has the colour that it stands for.
    let legend = escaped(&legend).replace('█', "<span class=\"h8\">█</span>");
    html.push_str(&format!(
        "</tbody></table></div>\n<figcaption>{legend}</figcaption></figure>\n"
    ));
    html
}

/// The number of a shade, or "n" for NaN.
fn shade(cell: Cell) -> String {
    if cell.share.is_nan() {
        return "n".into();
    }
    format!("{}", (cell.share * SHADES).ceil().clamp(0.0, SHADES))
}
