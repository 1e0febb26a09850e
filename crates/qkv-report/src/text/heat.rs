//! Weights as shades.

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

/// The most lines of a map.
const MOST_ROWS: usize = 16;
/// The fullest shade inside a dim line.
pub(super) const SAMPLE: &str = "\x1b[0m\x1b[38;5;51m█\x1b[0m\x1b[2m";
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// From faint to bright in the 256 colours of a terminal, for the same five shades.
const COLOURS: [u8; 5] = [0, 24, 31, 38, 51];

pub(crate) fn draw(map: &HeatMap, width: usize, settings: &Settings) -> Drawn {
    let rows = map.values.len();
    let keys = map.values.first().map_or(0, Vec::len);
    let rows_merged = rows.div_ceil(MOST_ROWS).max(1);
    let label = format!("q{rows}").len();
    let room = width.saturating_sub(label + 3).max(1);
    let named = keys * (format!("k{keys}").len() + 1) <= room;
    let cell = match named {
        true => format!("k{}", keys.saturating_sub(1)).len(),
        false if 2 * keys <= room => 2,
        false => 1,
    };
    let keys_merged = if named {
        1
    } else {
        keys.div_ceil(room / cell).max(1)
    };
    let gap = if named { " " } else { "" };
    let grid = Grid::new(map, rows_merged, keys_merged);

    let mut lines = vec![header(
        keys,
        named,
        cell,
        label,
        keys.div_ceil(keys_merged) * cell,
    )];
    for (row, cells) in grid.cells.iter().enumerate() {
        let mut line = format!("{:<label$} ", format!("q{}", row * rows_merged));
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

/// Every key by name, or only the first and the last.
fn header(keys: usize, named: bool, cell: usize, label: usize, drawn: usize) -> String {
    let mut header = " ".repeat(label + 2);
    if named {
        for j in 0..keys {
            header.push_str(&format!("{:<cell$} ", format!("k{j}")));
        }
    } else {
        let last = format!("k{}", keys.saturating_sub(1));
        let between = drawn.saturating_sub(2 + last.len());
        header.push_str(&format!("k0{}{last}", " ".repeat(between)));
    }
    header
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
