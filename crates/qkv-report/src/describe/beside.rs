//! Matrices of numbers that are not the run's own, to put beside those that are.

use super::run::Run;
use crate::entry::Number;
use crate::explanation::{Cell, Matrix};
use qkv::{StepName, Tensor};

/// The sum of a row or of a column.
const TOTAL: &str = "Σ";

/// The rows and columns of a step that are written out.
pub(super) struct Window {
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
}

impl Window {
    /// Of weights: all of a small input, else the chosen rows and the heaviest keys of the first.
    pub(super) fn of_weights(run: &Run<'_>, [b, h]: [usize; 2]) -> Window {
        let rows = shown_rows(run);
        let columns = match rows.first() {
            Some(&i) => run.keys_of([b, h, i]),
            None => Vec::new(),
        };
        Window { rows, columns }
    }

    /// Of the output.
    pub(super) fn of_output(run: &Run<'_>) -> Window {
        Window {
            rows: shown_rows(run),
            columns: run.columns(run.dv).collect(),
        }
    }

    /// What a tensor has there; `step` is its name if it is the run's own.
    pub(super) fn of(
        &self,
        tensor: &Tensor<f64>,
        step: Option<StepName>,
        [b, h]: [usize; 2],
    ) -> Vec<Vec<Number>> {
        let number = |i: usize, j: usize| match step {
            Some(step) => Number::of(step.as_str(), tensor, &[b, h, i, j]),
            None => tensor.at(&[b, h, i, j]).into(),
        };
        let row = |&i: &usize| self.columns.iter().map(|&j| number(i, j)).collect();
        self.rows.iter().map(row).collect()
    }

    /// Numbers with the names of the rows and columns.
    pub(super) fn matrix(
        &self,
        name: String,
        row: impl Fn(usize) -> String,
        column: impl Fn(usize) -> String,
        values: Vec<Vec<Number>>,
    ) -> Matrix {
        Matrix {
            name,
            rows: self.rows.iter().map(|&i| row(i)).collect(),
            columns: self.columns.iter().map(|&j| column(j)).collect(),
            cells: values
                .into_iter()
                .map(|row| row.into_iter().map(Cell::Number).collect())
                .collect(),
        }
    }
}

/// All queries of a small input, else the chosen ones.
pub(super) fn shown_rows(run: &Run<'_>) -> Vec<usize> {
    match run.large {
        true => run.rows.clone(),
        false => (0..run.queries).collect(),
    }
}

/// Adds the sums of all rows and columns of the whole tensor, not only of those written out.
pub(super) fn with_totals(
    mut matrix: Matrix,
    window: &Window,
    tensor: &Tensor<f64>,
    [b, h]: [usize; 2],
) -> Matrix {
    let &[_, _, queries, keys] = tensor.shape() else {
        return matrix;
    };
    let row = |i: usize| tensor.row(&[b, h, i]).iter().sum::<f64>();
    let column = |j: usize| (0..queries).map(|i| tensor.at(&[b, h, i, j])).sum::<f64>();
    for (cells, &i) in matrix.cells.iter_mut().zip(&window.rows) {
        cells.push(Cell::Number(row(i).into()));
    }
    let columns = window.columns.iter().map(|&j| column(j));
    let totals = columns.chain([(0..keys).map(column).sum()]);
    let totals = totals.map(|total: f64| Cell::Number(total.into()));
    matrix.cells.push(totals.collect());
    matrix.rows.push(TOTAL.into());
    matrix.columns.push(TOTAL.into());
    matrix
}

/// a − b, number by number.
pub(super) fn minus(a: &[Vec<Number>], b: &[Vec<Number>]) -> Vec<Vec<Number>> {
    let number = |(a, b): (&Number, &Number)| (a.value - b.value).into();
    let row = |(a, b): (&Vec<Number>, &Vec<Number>)| a.iter().zip(b).map(number).collect();
    a.iter().zip(b).map(row).collect()
}
