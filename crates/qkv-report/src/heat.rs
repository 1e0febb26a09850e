//! A heat map cut to size: cells that are drawn as shades.

use crate::explanation::HeatMap;

/// A heat map with neighbours merged.
pub(crate) struct Grid {
    /// `[rows][columns]`
    pub cells: Vec<Vec<Cell>>,
    /// Queries that share a row.
    pub queries: usize,
    /// Keys that share a column.
    pub keys: usize,
    /// The largest weight of all.
    pub largest: f64,
}

/// One cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// The largest weight in it; NaN if one of them is.
    pub weight: f64,
    /// From 0, nothing, to 1, as much as the largest.
    pub share: f64,
}

impl Grid {
    /// Merges `queries` by `keys` weights into a cell. Where cells are merged, the first rows of a
    /// causal mask would leave nothing of the others, so that each row has its own measure.
    pub(crate) fn new(map: &HeatMap, queries: usize, keys: usize) -> Grid {
        let width = map.values.first().map_or(0, Vec::len);
        let weights = map.values.iter().flatten().copied();
        let largest = weights.filter(|w| w.is_finite()).fold(0.0, f64::max);
        let cells = map.values.chunks(queries.max(1)).map(|rows| {
            let own = rows.iter().flatten().copied();
            let own = own.filter(|w| w.is_finite()).fold(0.0, f64::max);
            let full = if queries * keys > 1 { own } else { largest };
            let starts = (0..width).step_by(keys.max(1));
            let cell = |start: usize| {
                let end = width.min(start + keys);
                cell(rows.iter().flat_map(|row| &row[start..end]), full)
            };
            starts.map(cell).collect()
        });
        Grid {
            cells: cells.collect(),
            queries,
            keys,
            largest,
        }
    }

    /// Whether a cell stands for more than one weight.
    pub(crate) fn is_merged(&self) -> bool {
        self.queries * self.keys > 1
    }
}

fn cell<'a>(weights: impl Iterator<Item = &'a f64>, full: f64) -> Cell {
    let heaviest = |a: f64, &b: &f64| {
        if a.is_nan() || b.is_nan() {
            f64::NAN
        } else {
            a.max(b)
        }
    };
    let weight = weights.fold(0.0, heaviest);
    let share = if full > 0.0 || weight.is_nan() {
        weight / full
    } else {
        0.0
    };
    Cell { weight, share }
}
