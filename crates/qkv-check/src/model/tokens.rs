//! From the heads of a token to the result: side by side, W_O, residual.

use super::Model;
use super::row::RowOut;
use crate::recipe::Merge;
use qkv::{StepName, Tensor};

impl Model<'_> {
    /// The heads of a token side by side, and what follows.
    pub(super) fn tokens(&self, step: StepName, [b, i]: [usize; 2]) -> Option<RowOut> {
        let base = self.base.sizes;
        let width = match self.recipe.swap {
            crate::recipe::Swap::KeysValues => base.head_dim,
            _ => base.value_dim,
        };
        let (heads, queries) = (base.heads, base.queries);
        let mut all = RowOut::default();
        let mut put = |row: &RowOut, c: Option<usize>| {
            let pick = |from: &[f64], to: &mut Vec<f64>| match c {
                Some(c) => to.extend(from.get(c)),
                None => to.extend(from),
            };
            pick(&row.values, &mut all.values);
            pick(&row.worst, &mut all.worst);
            pick(&row.usual, &mut all.usual);
        };
        match self.recipe.merge {
            Merge::Usual => {
                for h in 0..heads {
                    put(&self.output(self.inner([b, h, i])), None);
                }
            }
            Merge::WithoutTranspose => {
                for n in i * heads..(i + 1) * heads {
                    put(
                        &self.output(self.inner([b, n / queries, n % queries])),
                        None,
                    );
                }
            }
            Merge::Interleaved => {
                let rows: Vec<RowOut> = (0..heads)
                    .map(|h| self.output(self.inner([b, h, i])))
                    .collect();
                for c in 0..width {
                    rows.iter().for_each(|row| put(row, Some(c)));
                }
            }
        }
        if step == StepName::Concatenated {
            return Some(all);
        }
        if !self.recipe.projection.no_output {
            all = self.project(&all)?;
        }
        if step == StepName::Residual && !self.recipe.projection.no_residual {
            self.add_tokens(&mut all, [b, i])?;
        }
        Some(all)
    }

    fn project(&self, all: &RowOut) -> Option<RowOut> {
        let given = self.base.problem.block().output.as_ref()?;
        let way = self.recipe.projection;
        let linear = super::projection::linear(given, way.transposed[3], way.unbiased[3]).ok()?;
        let weight: &Tensor<f64> = linear.weight();
        let &[rows, columns] = weight.shape() else {
            return None;
        };
        if rows != all.values.len() {
            return None;
        }
        let mut out = RowOut {
            values: linear.bias().map_or(vec![0.0; columns], <[f64]>::to_vec),
            ..RowOut::default()
        };
        for (r, x) in all.values.iter().enumerate() {
            for (out, w) in out.values.iter_mut().zip(weight.row(&[r])) {
                *out += x * w;
            }
        }
        if self.with_bounds {
            let mut size: Vec<f64> = linear.bias().map_or(vec![0.0; columns], |bias| {
                bias.iter().map(|b| b.abs()).collect()
            });
            let (mut worst, mut squares) = (vec![0.0; columns], vec![0.0; columns]);
            for r in 0..rows {
                for (c, w) in weight.row(&[r]).iter().enumerate() {
                    size[c] += (all.values[r] * w).abs();
                    worst[c] += all.worst[r] * w.abs();
                    squares[c] += (all.usual[r] * w).powi(2);
                }
            }
            let terms = rows as f64 + 4.0;
            out.worst = worst
                .iter()
                .zip(&size)
                .map(|(e, s)| e + terms * s)
                .collect();
            let usual = squares.iter().zip(&size).zip(&out.values);
            out.usual = usual
                .map(|((sq, s), x)| {
                    2.0 * sq.sqrt() + 2.0 * s / (rows as f64).sqrt().max(1.0) + 2.0 * x.abs()
                })
                .collect();
        }
        Some(out)
    }

    fn add_tokens(&self, all: &mut RowOut, [b, i]: [usize; 2]) -> Option<()> {
        let crate::problem::Problem::Tokens { layer, x, .. } = self.base.problem else {
            return None;
        };
        let mut row = x.row(&[b, i]).to_vec();
        if let Some(start) = layer
            .sinusoidal
            .filter(|_| !self.recipe.projection.no_positions)
        {
            let pads = self.base.left_padding.get(b).copied().unwrap_or(0);
            let i = match self.recipe.projection.unpadded {
                None => i,
                Some(place) => i.checked_sub(pads).unwrap_or(place),
            };
            let table = qkv::position::sinusoidal(1, row.len(), start + self.base.sizes.past + i);
            for (x, position) in row.iter_mut().zip(table.data()) {
                *x += position;
            }
        }
        if row.len() != all.values.len() {
            return None;
        }
        for (c, x) in row.iter().enumerate() {
            all.values[c] += x;
            if self.with_bounds {
                all.worst[c] += x.abs() + all.values[c].abs();
                all.usual[c] += x.abs() + all.values[c].abs();
            }
        }
        Some(())
    }
}
