//! How far roundings to half precision may move each number of the gradients, beside what `each.rs`
//! says of single precision.
//!
//! *Stored*: inputs and gradients are in half precision, what is between in `f32`, but for what
//! known kernels round on the way. With h the roundoff of the format, t the terms of a gradient's sum
//! (scale·dx_j·k_j of dQ, scale·dx_j·q_i of dK, w_j·g_i of dV) and o the output:
//!
//! ```text
//! delta  e = h·(Σ_c |g_c·o_c| + Σ_j w_j·|dw_j|)      it is g·o, o rounded, of weights that may be, too
//! x      h·|x|                                       rounded once
//!        e·|Σ_j scale·w_j·k_j| of dQ                 delta is the same for all keys of a row
//!        Σ_i e_i·w_j·|scale·q_i| of dK, Σ w·e of dbias, Σ w_sink·e of dsinks
//!        h·|x| + h·min(Σ|t|, 4·√Σt²)                 each factor w_j or dx_j rounded before its product
//! ```
//!
//! The first three lines are at worst, and enough for all that computes in `f32`. The last is of
//! kernels that multiply weights and gradients of scores in half precision (those of GPUs, PyTorch's on
//! CPUs): at worst Σ|t|, but roundings of different numbers are independent, within half a unit of the
//! last place and even in it, so that they are below 4·h·√Σt² but with a chance of 2·exp(−24)
//! (Hoeffding's bound with a variance of a third); equal numbers round alike, hence h·|x|. PyTorch's also
//! rounds the sums of dQ after every 512 keys, and of dK and dV after 32 to 256 queries: its partial sums
//! join the t. Numbers below the least normal one may be off by half the least of all, in full.
//!
//! *Kept*: every intermediate is stored in the format, as layers written operation by operation do.
//! Its roundings are taken as four deviations each and independent, as in `bound.rs`, whose share of a
//! weight W_j is. So dx_j is off by W_j·|dw_j − delta| and four times each of what it is made of:
//! 3 of the size of dw_j, 2 of dw_j − delta, and w_j·D, where D is what delta is off by.

use super::backward::{Gradients, Kept, Row, sink_weight};
use super::repeated::Repeated;
use crate::bound::roundoff;
use crate::model::{Model, Shared};
use crate::problem::Base;
use crate::recipe::Recipe;
use qkv::{DType, Tensor};

/// Absolute bounds.
pub(super) struct Half {
    pub stored: Gradients,
    pub kept: Gradients,
}

/// Four deviations.
const FOUR: f64 = 4.0;
/// For products of errors.
const MORE: f64 = 1.1;
/// After so many keys PyTorch rounds the sums of dQ.
const KEYS: usize = 512;

/// After so many queries PyTorch rounds the sums of dK and dV.
fn queries_of_block(queries: usize) -> usize {
    match queries {
        768.. => 256,
        192.. => 64,
        _ => 32,
    }
}

/// A format.
#[derive(Clone, Copy)]
struct Format {
    h: f64,
    normal: f64,
    /// Half the smallest number.
    tiny: f64,
}

impl Format {
    fn of(dtype: DType) -> Format {
        let h = roundoff(dtype);
        let normal = match dtype {
            DType::F16 => 2f64.powi(-14),
            _ => f64::from(f32::MIN_POSITIVE),
        };
        let tiny = normal * h;
        Format { h, normal, tiny }
    }

    /// What rounding a number may do at worst.
    fn rounding(self, x: f64) -> f64 {
        (self.h * x.abs()).max(self.tiny)
    }
}

/// What a number may be off by.
#[derive(Clone, Copy, Default)]
struct Off {
    value: f64,
    /// Of roundings that are independent.
    sum: f64,
    squares: f64,
    /// At worst.
    whole: f64,
    /// Squares of what intermediates that are kept add.
    kept: f64,
}

impl Off {
    fn round(&mut self, size: f64) {
        self.sum += size;
        self.squares += size * size;
    }

    /// A term whose factor x of `x·by` is rounded; what was kept of it is off by `kept`.
    fn term(&mut self, format: Format, x: f64, by: f64, kept: f64) {
        self.value += x * by;
        if x.abs() >= format.normal {
            self.round(format.h * (x * by).abs());
        } else {
            // All of them may go the same way.
            self.whole += x.abs().min(format.tiny) * by.abs();
        }
        self.kept += (kept * by) * (kept * by);
    }

    fn stored(&self, format: Format) -> f64 {
        let independent = self.sum.min(FOUR * self.squares.sqrt());
        let alike = format.h * self.value.abs();
        MORE * (independent + self.whole + alike) + format.rounding(self.value)
    }

    fn all(&self, format: Format) -> f64 {
        self.stored(format) + MORE * format.h * self.kept.sqrt()
    }
}

/// Of every number.
struct Sums {
    q: Vec<Off>,
    k: Vec<Off>,
    v: Vec<Off>,
    bias: Vec<Off>,
    sinks: Vec<Off>,
}

impl Half {
    pub fn new(
        base: &Base<'_>,
        shared: &Shared,
        right: &Recipe,
        grad: &Tensor<f64>,
        dtype: DType,
    ) -> Option<Half> {
        let model = Model::new(base, shared, right, true)?;
        let (sizes, format) = (base.sizes, Format::of(dtype));
        let repeated = Repeated::of(base);
        let [of_q, of_k] = [(sizes.heads, sizes.queries), (sizes.kv_heads, sizes.keys)]
            .map(|(heads, length)| sizes.batch * heads * length);
        let none = |count: usize| vec![Off::default(); count];
        let mut out = Sums {
            q: none(of_q * sizes.head_dim),
            k: none(of_k * sizes.head_dim),
            v: none(of_k * sizes.value_dim),
            bias: none(repeated.as_ref().map_or(0, Repeated::len)),
            sinks: none(sizes.heads),
        };
        let block = queries_of_block(sizes.queries);
        for at in 0..sizes.batch * sizes.heads {
            let (b, h) = (at / sizes.heads, at % sizes.heads);
            let kept = Kept::new(&model, [b, h]);
            let group = b * sizes.kv_heads + model.group_of(h);
            for i in 0..sizes.queries {
                if i % block == 0 {
                    let of = |width: usize| {
                        let each = sizes.keys * width;
                        group * each..(group + 1) * each
                    };
                    let (k, v) = (of(sizes.head_dim), of(sizes.value_dim));
                    for off in out.k[k].iter_mut().chain(&mut out.v[v]) {
                        off.round(format.h * off.value.abs());
                    }
                }
                if let Some(row) = kept.row(&model, i) {
                    let add = Add {
                        model: &model,
                        kept: &kept,
                        format,
                        repeated: repeated.as_ref(),
                        group,
                    };
                    add.row(&mut out, [b, h, i], &row, grad.row(&[b, h, i]));
                }
            }
        }
        let gradients = |of: &dyn Fn(&Off) -> f64| {
            let each = |offs: &[Off]| offs.iter().map(of).collect();
            Gradients {
                q: each(&out.q),
                k: each(&out.k),
                v: each(&out.v),
                bias: each(&out.bias),
                sinks: each(&out.sinks),
            }
        };
        Some(Half {
            stored: gradients(&|off| off.stored(format)),
            kept: gradients(&|off| off.all(format)),
        })
    }
}

/// What rows of a head add.
struct Add<'a> {
    model: &'a Model<'a>,
    kept: &'a Kept,
    format: Format,
    repeated: Option<&'a Repeated>,
    group: usize,
}

impl Add<'_> {
    fn row(&self, to: &mut Sums, at @ [b, h, i]: [usize; 3], row: &Row, g: &[f64]) {
        let Add {
            model,
            kept,
            format,
            ..
        } = *self;
        let (sizes, recipe, scale) = (model.sizes(), model.recipe, model.recipe.scale);
        let (d, dv) = (sizes.head_dim, sizes.value_dim);
        let used: Vec<usize> = (0..sizes.keys).filter(|j| row.weights[*j] != 0.0).collect();
        let sum = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let dw: Vec<f64> = (0..sizes.keys)
            .map(|j| match row.weights[j] == 0.0 {
                true => 0.0,
                false => row.shares[j] * sum(g, &kept.v[j]),
            })
            .collect();
        let delta: f64 = used.iter().map(|&j| row.weights[j] * dw[j]).sum();
        let mut output = vec![0.0; dv];
        for &j in &used {
            for (out, v) in output.iter_mut().zip(&kept.v[j]) {
                *out += row.weights[j] * row.shares[j] * v;
            }
        }
        // What delta is off by.
        let pairs = g.iter().zip(&output);
        let of_output: f64 = pairs.map(|(g, o)| g.abs() * format.rounding(*o)).sum();
        let weights = used
            .iter()
            .map(|&j| format.rounding(row.weights[j]) * dw[j].abs());
        let e = of_output + weights.sum::<f64>();
        let squares = used.iter().map(|&j| {
            let own = row.usual[j] * (dw[j] - delta);
            own * own + 2.0 * (FOUR * row.weights[j] * dw[j]).powi(2)
        });
        let of_delta = squares.sum::<f64>().sqrt() + FOUR * delta.abs();

        let first = ((b * sizes.heads + h) * sizes.queries + i) * d;
        let mut along = vec![0.0; d];
        for &j in &used {
            let (weight, apart) = (row.weights[j], dw[j] - delta);
            let dx = weight * apart;
            let sizes_of = 3.0 * dw[j] * dw[j] + 2.0 * apart * apart;
            let own = row.usual[j] * apart;
            let own = own * own + (FOUR * weight).powi(2) * sizes_of;
            if let Some(repeated) = self.repeated {
                let off = &mut to.bias[repeated.at([b, h, i, j])];
                let with_delta = (own + (weight * of_delta).powi(2)).sqrt();
                off.term(format, dx, 1.0, with_delta);
                off.whole += weight.abs() * e;
            }
            let (slope, of_slope) = match recipe.softcap {
                Some(cap) => {
                    let t = (row.scaled[j] / cap).tanh();
                    let slope = 1.0 - t * t;
                    let of_score = row.usual[j] / weight.abs();
                    (slope, slope * 2.0 * t.abs() / cap * of_score + 3.0 * FOUR)
                }
                None => (1.0, 0.0),
            };
            let own = own * slope * slope + (of_slope * dx).powi(2);
            let with_delta = (own + (slope * weight * of_delta).powi(2)).sqrt();
            let (own, dx, weight_of_e) = (own.sqrt(), slope * dx, slope * weight);
            for ((off, k), along) in to.q[first..first + d]
                .iter_mut()
                .zip(&kept.k[j])
                .zip(&mut along)
            {
                if j > 0 && j % KEYS == 0 {
                    off.round(format.h * off.value.abs());
                }
                off.term(format, dx, scale * k, own);
                *along += scale * weight_of_e * k;
            }
            let start = (self.group * sizes.keys + j) * d;
            for (off, q) in to.k[start..start + d].iter_mut().zip(&kept.q[i]) {
                off.term(format, dx, scale * q, with_delta);
                off.whole += (scale * weight_of_e * q).abs() * e;
            }
            let start = (self.group * sizes.keys + j) * dv;
            let share = row.shares[j];
            let off_by = row.usual[j].hypot(2.0 * FOUR * weight);
            for (off, g) in to.v[start..start + dv].iter_mut().zip(g) {
                off.term(format, weight, share * g, off_by);
            }
        }
        for (off, along) in to.q[first..first + d].iter_mut().zip(along) {
            off.whole += along.abs() * e;
            off.kept += (along * of_delta).powi(2);
        }
        if let Some(sinks) = to.sinks.get_mut(h).filter(|_| recipe.sinks.is_some()) {
            let weight = sink_weight(model, at[1], &row.logits, &row.weights);
            let share = |j: &usize| row.usual[*j] / row.weights[*j].abs();
            let most = used.iter().map(share).fold(0.0, f64::max);
            sinks.term(format, -weight, delta, (most + FOUR) * weight);
            sinks.whole += weight * e;
            sinks.kept += (weight * of_delta).powi(2);
        }
    }
}
