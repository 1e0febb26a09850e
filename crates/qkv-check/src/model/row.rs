//! One row: scores, weights, output, and what rounding may make of each.

use super::Model;
use super::heads::{Kind, Sized};
use crate::recipe::{Axis, Cap, DroppedRule, EmptyRule, Merge, Padding, Recipe};
use qkv::{StepName, Tensor, definition};

/// Numbers of a row, and for each how far rounding may move it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowOut {
    pub values: Vec<f64>,
    /// In units of the roundoff of what is computed in, at worst.
    pub worst: Vec<f64>,
    /// In units of the roundoff of a format that every intermediate is stored in, as roundings
    /// usually add up.
    pub usual: Vec<f64>,
}

/// Everything up to the logits of a row.
struct Logits {
    raw: Vec<f64>,
    scaled: Vec<f64>,
    capped: Vec<f64>,
    biased: Vec<f64>,
    /// What enters the softmax.
    logits: Vec<f64>,
    /// Whether the row keeps a key, as the softmax sees it.
    kept: Vec<bool>,
    /// How many masks drop a key.
    drops: Vec<u8>,
    /// Σ|q·k| of each key, scaled, and the bias: at worst.
    size: Vec<f64>,
    /// √Σ(q·k)² of each key, scaled.
    spread: Vec<f64>,
}

/// Weights of a row, with the logits.
struct Weighed {
    logits: Logits,
    weights: Vec<f64>,
    max: f64,
    sum: f64,
    keys_sum: f64,
    empty: bool,
}

/// The largest logit and the sum of each column of a head, or of all of it.
pub(super) struct Columns {
    max: Vec<f64>,
    sum: Vec<f64>,
}

/// Roundings of a score besides those of its products.
const FEW: f64 = 28.0;

impl Model<'_> {
    /// Row `at` of a step: `[b, h, i]`, or `[b, i]` where heads are side by side.
    pub(crate) fn step(&self, step: StepName, at: &[usize]) -> Option<RowOut> {
        match (step, at) {
            (StepName::Q, &[b, h, i]) => Some(self.given(Kind::Q, [b, h, i], false)),
            (StepName::K, &[b, h, i]) => Some(self.given(Kind::K, [b, h, i], false)),
            (StepName::V, &[b, h, i]) => Some(self.given(Kind::V, [b, h, i], false)),
            (StepName::QRotated, &[b, h, i]) => Some(self.given(Kind::Q, [b, h, i], true)),
            (StepName::KRotated, &[b, h, i]) => Some(self.given(Kind::K, [b, h, i], true)),
            (StepName::Output, &[b, h, i]) => Some(self.output(self.inner([b, h, i]))),
            (_, &[b, h, i]) => {
                let inner = self.inner([b, h, i]);
                match step {
                    StepName::Scores
                    | StepName::Scaled
                    | StepName::Capped
                    | StepName::Biased
                    | StepName::Masked => Some(self.scores(step, inner)),
                    _ => self.weights_step(step, inner),
                }
            }
            (_, &[b, i]) => self.tokens(step, [b, i]),
            _ => None,
        }
    }

    fn given(&self, kind: Kind, at: [usize; 3], ready: bool) -> RowOut {
        let Sized { row, size } = match ready || kind != Kind::Q && at[2] < self.base.sizes.past {
            true => self.ready(kind, at),
            false => {
                let past = if kind == Kind::Q {
                    0
                } else {
                    self.base.sizes.past
                };
                self.raw(kind, [at[0], at[1], at[2] - past])
            }
        };
        let terms = self.base.sizes.model_width as f64;
        RowOut {
            worst: size.iter().map(|s| s * (terms + FEW)).collect(),
            usual: row.iter().map(|x| 4.0 * x.abs()).collect(),
            values: row,
        }
    }

    fn logits(&self, at @ [b, h, _]: [usize; 3]) -> Logits {
        let recipe = self.recipe;
        let q = self.query(at);
        let keys = self.head(Kind::K, b, h);
        let count = self.sizes.keys;
        let mut drops = self.seen.drops(at);
        let zeros_from = match recipe.padding {
            Padding::Zeros => self.seen.length(b),
            _ => count,
        };
        let mut raw = Vec::with_capacity(count);
        let (mut size, mut spread) = (Vec::new(), Vec::new());
        for j in 0..count {
            let k = keys.row(j);
            let dot: f64 = q.row.iter().zip(k).map(|(q, k)| q * k).sum();
            let dot = if j < zeros_from { dot } else { 0.0 };
            raw.push(match recipe.half_range[0] {
                true => half_range(dot),
                false => dot,
            });
            if self.with_bounds {
                let sizes = q.size.iter().zip(keys.size(j));
                size.push(recipe.scale.abs() * sizes.map(|(q, k)| q * k).sum::<f64>());
                let squares = q.row.iter().zip(k).map(|(q, k)| q * q * k * k);
                spread.push(recipe.scale.abs() * squares.sum::<f64>().sqrt());
            }
        }
        let added: Vec<f64> = (0..count).map(|j| self.added(at, j)).collect();
        let before = recipe.distance.before_scale;
        let scaled: Vec<f64> = match (before, recipe.half_range[1]) {
            (true, _) => raw
                .iter()
                .zip(&added)
                .map(|(s, a)| recipe.scale * (s + a))
                .collect(),
            (false, true) => raw.iter().map(|s| half_range(recipe.scale * s)).collect(),
            (false, false) => raw.iter().map(|s| recipe.scale * s).collect(),
        };
        let capped: Vec<f64> = match (recipe.softcap, recipe.cap) {
            (None, _) => scaled.clone(),
            (Some(cap), Cap::Unscaled) => scaled.iter().map(|s| (s / cap).tanh()).collect(),
            (Some(cap), Cap::BeforeScale) => raw
                .iter()
                .map(|s| recipe.scale * cap * (s / cap).tanh())
                .collect(),
            (Some(cap), _) => scaled.iter().map(|s| cap * (s / cap).tanh()).collect(),
        };
        let mut biased: Vec<f64> = match before {
            true => capped.clone(),
            false => capped.iter().zip(&added).map(|(s, a)| s + a).collect(),
        };
        // A bias of −∞ is a mask; where masks are done otherwise, it is done so too.
        let mut added = added;
        if recipe.dropped != DroppedRule::Left {
            for j in 0..count {
                if added[j] == f64::NEG_INFINITY {
                    (added[j], biased[j], drops[j]) = (0.0, capped[j], drops[j].max(1));
                }
            }
        }
        if self.with_bounds {
            for (size, added) in size.iter_mut().zip(&added) {
                if added.is_finite() {
                    *size += added.abs();
                }
            }
        }
        let mut logits = biased.clone();
        let mut kept = vec![true; count];
        for j in 0..count {
            if added[j] == f64::NEG_INFINITY {
                kept[j] = false;
                logits[j] = f64::NEG_INFINITY;
                if let (Some(cap), Cap::AfterMask) = (recipe.softcap, recipe.cap) {
                    (kept[j], logits[j]) = (true, -cap);
                }
                continue;
            }
            let dropped = drops[j] > 0;
            if let (true, Some(cap), Cap::AfterMask) = (dropped, recipe.softcap, recipe.cap) {
                logits[j] = -cap;
                continue;
            }
            match recipe.dropped {
                DroppedRule::Left => {
                    kept[j] = !dropped;
                    if dropped {
                        logits[j] = f64::NEG_INFINITY;
                    }
                }
                DroppedRule::Added {
                    kept: _,
                    dropped: by,
                } if dropped => logits[j] += by,
                DroppedRule::Added { kept: by, .. } => logits[j] += by,
                DroppedRule::Filled(value) if dropped => logits[j] = value,
                DroppedRule::Overflow if drops[j] == 1 => logits[j] = f64::from(f32::MIN),
                DroppedRule::Overflow if dropped => logits[j] = f64::NEG_INFINITY,
                DroppedRule::Filled(_) | DroppedRule::Overflow | DroppedRule::AfterSoftmax => {}
            }
        }
        Logits {
            raw,
            scaled,
            capped,
            biased,
            logits,
            kept,
            drops,
            size,
            spread,
        }
    }

    /// Bias and ALiBi.
    fn added(&self, [b, h, i]: [usize; 3], j: usize) -> f64 {
        let Recipe {
            bias_factor,
            slopes,
            distance,
            ..
        } = self.recipe;
        let mut added = 0.0;
        if let Some(bias) = &self.seen.bias {
            let bias = bias.get([b, h, i, j]);
            added += if bias == f64::NEG_INFINITY {
                bias
            } else {
                bias_factor * bias
            };
        }
        if let Some(slopes) = slopes {
            let alignment = distance.alignment.or(self.recipe.alignment);
            let shift = if self.recipe.shift_masks {
                self.recipe.shift
            } else {
                0
            };
            let place = self.seen.position(b, i, alignment) + distance.shift + shift;
            let ahead = (i128::from(place) - j as i128) as f64;
            added -= slopes[h] * if distance.signed { ahead } else { ahead.abs() };
        }
        added
    }

    fn weighed(&self, at @ [b, h, _]: [usize; 3]) -> Weighed {
        let recipe = self.recipe;
        let mut logits = self.logits(at);
        let count = logits.logits.len();
        let mut empty = !logits.kept.contains(&true);
        if empty && recipe.dropped == DroppedRule::Left {
            match recipe.empty {
                EmptyRule::Zero | EmptyRule::Nan => {}
                EmptyRule::Uniform | EmptyRule::Unmasked => {
                    empty = false;
                    logits.kept = vec![true; count];
                    logits.logits = match recipe.empty {
                        EmptyRule::Uniform => vec![0.0; count],
                        // A bias of −∞ is a mask too.
                        _ => (logits.biased.iter().zip(&logits.capped))
                            .map(|(b, c)| if *b == f64::NEG_INFINITY { *c } else { *b })
                            .collect(),
                    };
                }
            }
        }
        if empty {
            let value = match recipe.empty {
                EmptyRule::Nan => f64::NAN,
                _ => 0.0,
            };
            return Weighed {
                weights: vec![value; count],
                logits,
                max: f64::NEG_INFINITY,
                sum: value,
                keys_sum: value,
                empty: true,
            };
        }
        let kept = &logits.kept;
        let sink = recipe.sinks.as_ref().map(|sinks| sinks[h]);
        let own = maximum(
            logits
                .logits
                .iter()
                .zip(kept)
                .filter(|(_, k)| **k)
                .map(|(l, _)| *l),
        );
        let mut weights = vec![0.0; count];
        let (mut max, mut sum, mut keys_sum) = (own, 0.0, 0.0);
        match recipe.axis {
            Axis::Keys => {
                for j in 0..count {
                    if kept[j] {
                        weights[j] = (logits.logits[j] - own).exp();
                        keys_sum += weights[j];
                    }
                }
                sum = keys_sum;
                if let Some(sink) = sink {
                    sum += (sink - own).exp();
                }
                let phantoms = recipe.phantoms.count(count);
                if phantoms > 0.0 {
                    let phantoms = phantoms * (-own).exp();
                    sum += phantoms;
                    keys_sum += phantoms;
                }
                weights.iter_mut().for_each(|w| *w /= sum);
            }
            Axis::Queries | Axis::Joint => {
                let columns = self.columns(b, h);
                for j in 0..count {
                    let at = if recipe.axis == Axis::Joint { 0 } else { j };
                    if kept[j] {
                        weights[j] = (logits.logits[j] - columns.max[at]).exp() / columns.sum[at];
                    }
                }
                (max, sum) = (columns.max[0], columns.sum[0]);
                keys_sum = sum;
            }
            Axis::Heads => {
                let all: Vec<Logits> = (0..self.sizes.heads)
                    .map(|h| self.logits([b, h, at[2]]))
                    .collect();
                for j in 0..count {
                    let column = || all.iter().filter(|l| l.kept[j]).map(|l| l.logits[j]);
                    let largest = maximum(column());
                    let total: f64 = column().map(|l| (l - largest).exp()).sum();
                    if kept[j] {
                        weights[j] = (logits.logits[j] - largest).exp() / total;
                    }
                }
            }
        }
        if recipe.dropped == DroppedRule::AfterSoftmax {
            for (w, drops) in weights.iter_mut().zip(&logits.drops) {
                *w *= f64::from(u8::from(*drops == 0));
            }
        }
        if recipe.leak && (0..count).any(|j| !kept[j] && logits.biased[j].is_nan()) {
            weights.fill(f64::NAN);
        }
        if recipe.scale_after != 1.0 {
            weights.iter_mut().for_each(|w| *w *= recipe.scale_after);
        }
        Weighed {
            logits,
            weights,
            max,
            sum,
            keys_sum,
            empty: false,
        }
    }

    fn columns(&self, b: usize, h: usize) -> std::rc::Rc<Columns> {
        if let Some(columns) = self.columns.borrow().get(&(b, h)) {
            return std::rc::Rc::clone(columns);
        }
        let rows: Vec<Logits> = (0..self.sizes.queries)
            .map(|i| self.logits([b, h, i]))
            .collect();
        let kept = |row: &Logits, j: usize| row.kept[j].then_some(row.logits[j]);
        let columns = if self.recipe.axis == Axis::Joint {
            let all = || {
                rows.iter()
                    .flat_map(|row| (0..row.kept.len()).filter_map(move |j| kept(row, j)))
            };
            let max = maximum(all());
            let mut sum: f64 = all().map(|l| (l - max).exp()).sum();
            if let Some(sinks) = &self.recipe.sinks {
                sum += rows.len() as f64 * (sinks[h] - max).exp();
            }
            Columns {
                max: vec![max],
                sum: vec![sum],
            }
        } else {
            let column = |j: usize| rows.iter().filter_map(move |row| kept(row, j));
            let max: Vec<f64> = (0..self.sizes.keys).map(|j| maximum(column(j))).collect();
            let sum = |j: usize| column(j).map(|l| (l - max[j]).exp()).sum();
            Columns {
                sum: (0..self.sizes.keys).map(sum).collect(),
                max,
            }
        };
        let columns = std::rc::Rc::new(columns);
        self.columns
            .borrow_mut()
            .insert((b, h), std::rc::Rc::clone(&columns));
        columns
    }

    /// Roundings of a logit: at worst in units of its size, and as they usually add up.
    fn logit_errors(&self, row: &Logits, max: f64) -> (Vec<f64>, Vec<f64>) {
        let terms = self.base.sizes.head_dim as f64
            + FEW
            + match self.projected.sizes {
                Some(_) => 2.0 * self.base.sizes.model_width as f64,
                None => 0.0,
            };
        let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
        let mut worst: Vec<f64> = row.size.iter().map(|s| finite(terms * s)).collect();
        let usual = row.logits.iter().zip(&row.spread);
        let mut usual: Vec<f64> = usual
            .map(|(l, spread)| finite(4.0 * (2.0 * spread + l.abs() + (l - max).abs())))
            .collect();
        // What a mask puts in the place of a score, or adds to it, is not a rounding.
        for j in (0..row.drops.len()).filter(|&j| row.drops[j] > 0) {
            match self.recipe.dropped {
                DroppedRule::Filled(_) | DroppedRule::Overflow => {
                    (worst[j], usual[j]) = (0.0, 0.0);
                }
                _ => usual[j] = finite(4.0 * (2.0 * row.spread[j] + row.biased[j].abs())),
            }
        }
        (worst, usual)
    }

    fn scores(&self, step: StepName, at: [usize; 3]) -> RowOut {
        let row = self.logits(at);
        let scale = match step {
            StepName::Scores => 1.0 / self.recipe.scale.abs().max(f64::MIN_POSITIVE),
            _ => 1.0,
        };
        let (worst, usual) = match self.with_bounds {
            true => self.logit_errors(&row, 0.0),
            false => Default::default(),
        };
        let scaled = |errors: Vec<f64>| errors.into_iter().map(|e| e * scale).collect();
        RowOut {
            worst: scaled(worst),
            usual: scaled(usual),
            values: match step {
                StepName::Scores => row.raw,
                StepName::Scaled => row.scaled,
                StepName::Capped => row.capped,
                StepName::Biased => row.biased,
                _ => row.logits,
            },
        }
    }

    fn weights_step(&self, step: StepName, at: [usize; 3]) -> Option<RowOut> {
        let row = self.weighed(at);
        let (worst, usual) = match self.with_bounds {
            true => self.logit_errors(&row.logits, row.max),
            false => Default::default(),
        };
        let mean = |errors: &[f64]| -> f64 {
            let pairs = errors.iter().zip(&row.weights);
            let sum: f64 = pairs.map(|(e, w)| e * w.abs()).sum();
            if sum.is_finite() { sum } else { 0.0 }
        };
        let sums = self.sizes.keys as f64 + 64.0;
        let (mean_worst, mean_usual) = (mean(&worst) + sums, mean(&usual) + 6.0);
        let one = |value: f64, size: f64| RowOut {
            values: vec![value],
            worst: vec![mean_worst * size],
            usual: vec![mean_usual * size],
        };
        Some(match step {
            StepName::Weights | StepName::Dropped => {
                let mut weights = row.weights.clone();
                if step == StepName::Dropped {
                    for (j, w) in weights.iter_mut().enumerate() {
                        *w *= self.kept_share(at, j);
                    }
                }
                let errors = |own: &[f64], mean: f64| -> Vec<f64> {
                    let pairs = own.iter().zip(&weights);
                    pairs.map(|(e, w)| w.abs() * (e + mean)).collect()
                };
                RowOut {
                    worst: errors(&worst, mean_worst),
                    usual: errors(&usual, mean_usual),
                    values: weights,
                }
            }
            StepName::Exp => RowOut {
                values: row
                    .logits
                    .logits
                    .iter()
                    .zip(&row.logits.kept)
                    .map(|(l, kept)| if *kept { (l - row.max).exp() } else { 0.0 })
                    .collect(),
                worst: worst.iter().map(|e| e + 64.0).collect(),
                usual: usual.iter().map(|e| e + 6.0).collect(),
            },
            StepName::Max => {
                let largest = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
                RowOut {
                    values: vec![row.max],
                    worst: vec![largest(&worst)],
                    usual: vec![largest(&usual)],
                }
            }
            StepName::Sum => one(row.sum, row.sum.abs()),
            StepName::Lse => {
                let sum = if self.recipe.lse_with_sink {
                    row.sum
                } else {
                    row.keys_sum
                };
                let lse = match row.empty {
                    true if self.recipe.empty == EmptyRule::Nan => f64::NAN,
                    true => f64::NEG_INFINITY,
                    false => row.max + sum.ln(),
                };
                match self.recipe.lse_base_2 {
                    true => one(lse / std::f64::consts::LN_2, std::f64::consts::LOG2_E),
                    false => one(lse, 1.0),
                }
            }
            _ => return None,
        })
    }

    /// What dropout multiplies a weight by.
    pub(crate) fn kept_share(&self, [b, h, i]: [usize; 3], j: usize) -> f64 {
        let Some(dropout) = self.recipe.dropout else {
            return 1.0;
        };
        let place = self.seen.position(b, i, self.recipe.alignment);
        match definition::drops(dropout, b, h, place, j) {
            true => 0.0,
            false if self.recipe.dropout_scaled => 1.0 / (1.0 - dropout.p),
            false => 1.0,
        }
    }

    /// Output of a head, in the order of what is attended over.
    fn output(&self, at @ [b, h, _]: [usize; 3]) -> RowOut {
        let row = self.weighed(at);
        let values = self.head(Kind::V, b, h);
        let width = values.width;
        let zeros_from = match self.recipe.padding {
            Padding::Zeros => self.seen.length(b),
            _ => self.sizes.keys,
        };
        let mut output = vec![0.0; width];
        if row.empty && self.recipe.empty == EmptyRule::Nan {
            output.fill(f64::NAN);
        }
        let dropout = self.recipe.dropout.is_some();
        let weights: Vec<f64> = (0..self.sizes.keys)
            .map(|j| match dropout {
                true => row.weights[j] * self.kept_share(at, j),
                false => row.weights[j],
            })
            .collect();
        let used =
            |j: usize| (row.logits.kept[j] && !row.empty || self.recipe.leak) && j < zeros_from;
        for j in (0..self.sizes.keys).filter(|&j| used(j)) {
            for (out, v) in output.iter_mut().zip(values.row(j)) {
                *out += weights[j] * v;
            }
        }
        let mut out = RowOut {
            worst: vec![0.0; if self.with_bounds { width } else { 0 }],
            usual: vec![0.0; if self.with_bounds { width } else { 0 }],
            values: output,
        };
        if self.with_bounds {
            let (worst, usual) = self.logit_errors(&row.logits, row.max);
            let sums = self.sizes.keys as f64
                + 64.0
                + match self.projected.sizes {
                    Some(_) => self.base.sizes.model_width as f64,
                    None => 0.0,
                };
            for j in (0..self.sizes.keys).filter(|&j| used(j)) {
                let weight = weights[j].abs();
                for c in 0..width {
                    let (v, size) = (values.row(j)[c], values.size(j)[c]);
                    let away = (v - out.values[c]).abs();
                    out.worst[c] += weight * (1.1 * away * worst[j] + sums * size);
                    out.usual[c] += weight * (1.1 * away * usual[j] + 6.0 * v.abs());
                }
            }
        }
        out
    }

    /// The heads of a token side by side, and what follows.
    fn tokens(&self, step: StepName, [b, i]: [usize; 2]) -> Option<RowOut> {
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

/// What half precision makes of a number too large for it.
fn half_range(x: f64) -> f64 {
    const LARGEST: f64 = 65520.0; // from here on it rounds to infinity
    if x.abs() >= LARGEST {
        x.signum() * f64::INFINITY
    } else {
        x
    }
}

/// The largest number; NaN if one of them is, −∞ if there is none.
fn maximum(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(
        f64::NEG_INFINITY,
        |a, b| if b.is_nan() || b > a { b } else { a },
    )
}
