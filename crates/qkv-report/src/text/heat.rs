//! Weights as shades.

use super::columns;
use crate::Settings;
use crate::explanation::HeatMap;
use crate::heat::Grid;
use crate::number::shown;

/// A map in lines.
pub(crate) struct Drawn {
    pub lines: Vec<String>,
    pub largest: String,
    /// Queries and keys that share a cell, if they do.
    pub merged: Option<(usize, usize)>,
}

/// The most lines of a map among other blocks.
pub(crate) const MOST_ROWS: usize = 16;
/// The fullest shade inside a dim line.
pub(crate) const SAMPLE: &str = "\x1b[0m\x1b[38;5;51m█\x1b[0m\x1b[2m";
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// From faint to bright in the 256 colours of a terminal, for the same five shades.
const COLOURS: [u8; 5] = [0, 24, 31, 38, 51];

pub(crate) fn draw(map: &HeatMap, width: usize, most_rows: usize, settings: &Settings) -> Drawn {
    let rows = map.values.len();
    let keys = map.values.first().map_or(0, Vec::len);
    let rows_merged = rows.div_ceil(most_rows).max(1);
    let label = map.rows.iter().map(|name| columns(name)).max().unwrap_or(0);
    let room = width.saturating_sub(label + 3).max(1);
    // With their tokens, by number, or only the first and the last.
    let short: Vec<String> = (0..keys).map(|j| format!("k{j}")).collect();
    let fits = |names: &[String]| keys * (widest(names) + 1) <= room;
    let names = [&map.columns, &short].into_iter().find(|names| fits(names));
    let named = names.is_some();
    let cell = match names {
        Some(names) => widest(names),
        None if 2 * keys <= room => 2,
        None => 1,
    };
    let keys_merged = if named {
        1
    } else {
        keys.div_ceil(room / cell).max(1)
    };
    let gap = if named { " " } else { "" };
    let grid = Grid::new(map, rows_merged, keys_merged);

    let drawn = keys.div_ceil(keys_merged) * cell;
    let header = match names {
        Some(names) => names.iter().map(|name| padded(name, cell + 1)).collect(),
        None => first_and_last(keys, drawn),
    };
    let mut lines = vec![" ".repeat(label + 2) + &header];
    for (row, cells) in grid.cells.iter().enumerate() {
        let name = map.rows.get(row * rows_merged).map_or("", String::as_str);
        let mut line = padded(name, label + 1);
        line.push_str(if named { " " } else { "│" });
        for drawn in cells {
            line.push_str(&shade(drawn.share, cell, settings.color));
            line.push_str(gap);
        }
        if !named {
            line.push('│');
        }
        lines.push(line);
    }
    Drawn {
        lines,
        largest: shown(grid.largest, settings.digits).text,
        merged: grid.is_merged().then_some((rows_merged, keys_merged)),
    }
}

fn widest(names: &[String]) -> usize {
    names.iter().map(|name| columns(name)).max().unwrap_or(0)
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// The first and the last key, where there is no room for all names.
fn first_and_last(keys: usize, drawn: usize) -> String {
    let last = format!("k{}", keys.saturating_sub(1));
    let between = drawn.saturating_sub(2 + last.len());
    format!("k0{}{last}", " ".repeat(between))
}

fn shade(share: f64, cell: usize, color: bool) -> String {
    if share.is_nan() {
        return "?".repeat(cell);
    }
    let level = match share {
        0.0 => 0,
        ..=0.25 => 1,
        ..=0.5 => 2,
        ..=0.75 => 3,
        _ => 4,
    };
    let text = SHADES[level].to_string().repeat(cell);
    if color && level > 0 {
        let full = "█".repeat(cell);
        format!("\x1b[38;5;{}m{full}\x1b[0m", COLOURS[level])
    } else {
        text
    }
}
