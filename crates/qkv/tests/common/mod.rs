//! What the tests share: a seeded generator, random configurations of every option, the explicit
//! form of every positional rule, and the derived error bound.

#![allow(dead_code)] // each test file uses a part of it

use qkv::{
    Alibi, AnyView, Attention, Bias, Causal, Documents, Dropout, Inputs, KeyLengths, Mask, Result,
    Scale, Sinks, StepName, Steps, Tensor, View, Window, definition, steps,
};

/// Half the distance from 1 to the next `f64`: the relative error of one rounding.
pub const U: f64 = f64::EPSILON / 2.0;

/// SplitMix64: small, seeded, the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Both signs, not symmetric: from −1.5 to 2.5.
    pub fn real(&mut self) -> f64 {
        4.0 * self.unit() - 1.5
    }

    pub fn reals(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.real()).collect()
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// `parts` lengths, zeros among them, that add up to n.
    pub fn split(&mut self, n: usize, parts: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (1..parts).map(|_| self.below(n + 1)).collect();
        cuts.sort_unstable();
        cuts.insert(0, 0);
        cuts.push(n);
        cuts.windows(2).map(|w| w[1] - w[0]).collect()
    }
}

/// An array of any rank up to 4 that broadcasts against the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    pub shape: Vec<usize>,
    pub data: Vec<T>,
}

impl<T: Copy> Array<T> {
    pub fn new(shape: &[usize], data: Vec<T>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len());
        Array {
            shape: shape.to_vec(),
            data,
        }
    }

    pub fn view(&self) -> View<'_, T> {
        View::new(&self.data, &self.shape).unwrap()
    }

    /// The element that serves a place of the full array.
    pub fn at(&self, index: [usize; 4]) -> T {
        let missing = 4 - self.shape.len();
        let mut at = 0;
        for (axis, &size) in self.shape.iter().enumerate() {
            let i = if size == 1 { 0 } else { index[axis + missing] };
            at = at * size + i;
        }
        self.data[at]
    }

    /// The full array.
    pub fn expanded(&self, full: [usize; 4]) -> Array<T> {
        let data = places(full).map(|at| self.at(at)).collect();
        Array::new(&full, data)
    }

    /// The full array with its places taken from elsewhere.
    pub fn gathered(&self, full: [usize; 4], from: impl Fn([usize; 4]) -> [usize; 4]) -> Array<T> {
        let data = places(full).map(|at| self.at(from(at))).collect();
        Array::new(&full, data)
    }
}

/// All indices of a shape, row-major.
pub fn places([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..a * b * c * d).map(move |n| [n / (b * c * d), n / (c * d) % b, n / d % c, n % d])
}

/// One configuration: sizes, numbers and every option, owned.
#[derive(Clone)]
pub struct Case {
    pub b: usize,
    pub h: usize,
    pub hkv: usize,
    pub lq: usize,
    pub lk: usize,
    pub dk: usize,
    pub dv: usize,
    /// How many of the lk keys are handed over as cached ones.
    pub past: usize,
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub scale: Scale,
    pub softcap: Option<f64>,
    pub bias: Option<Array<f64>>,
    pub alibi: Option<Vec<f64>>,
    /// Whether `true` keeps, and the mask.
    pub masks: Vec<(bool, Array<bool>)>,
    pub causal: Option<Causal>,
    pub window: Option<Window>,
    pub lengths: Option<Vec<usize>>,
    /// Lengths in queries and in keys.
    pub documents: Option<(Vec<usize>, Vec<usize>)>,
    pub sinks: Option<Vec<f64>>,
    pub dropout: Option<Dropout>,
}

impl std::fmt::Debug for Case {
    /// Everything but the numbers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let masks: Vec<_> = self.masks.iter().map(|(k, m)| (k, &m.shape)).collect();
        write!(
            f,
            "b {} h {} hkv {} lq {} lk {} dk {} dv {} past {} scale {:?} softcap {:?} bias {:?} \
             alibi {:?} masks {masks:?} causal {:?} window {:?} lengths {:?} documents {:?} \
             sinks {:?} dropout {:?}",
            self.b,
            self.h,
            self.hkv,
            self.lq,
            self.lk,
            self.dk,
            self.dv,
            self.past,
            self.scale,
            self.softcap,
            self.bias.as_ref().map(|bias| &bias.shape),
            self.alibi,
            self.causal,
            self.window,
            self.lengths,
            self.documents,
            self.sinks,
            self.dropout,
        )
    }
}

/// Lengths around the sizes of blocks.
const EDGES: [usize; 8] = [1, 2, 63, 64, 65, 127, 128, 129];

impl Case {
    /// Sizes and numbers, no option.
    pub fn plain(rng: &mut Rng, large: bool) -> Case {
        let hkv = 1 + rng.below(3);
        let groups = 1 + rng.below(3);
        let (b, h, lq, lk) = if large {
            (1, 2, rng.pick(&EDGES), rng.pick(&EDGES))
        } else {
            (
                1 + rng.below(3),
                hkv * groups,
                1 + rng.below(7),
                1 + rng.below(8),
            )
        };
        let hkv = if large { 1 } else { hkv };
        let (dk, dv) = (1 + rng.below(5), 1 + rng.below(4));
        Case {
            b,
            h,
            hkv,
            lq,
            lk,
            dk,
            dv,
            past: 0,
            q: rng.reals(b * h * lq * dk),
            k: rng.reals(b * hkv * lk * dk),
            v: rng.reals(b * hkv * lk * dv),
            scale: Scale::InverseSqrt,
            softcap: None,
            bias: None,
            alibi: None,
            masks: Vec::new(),
            causal: None,
            window: None,
            lengths: None,
            documents: None,
            sinks: None,
            dropout: None,
        }
    }

    /// Sizes, numbers and a random choice of all options.
    pub fn random(rng: &mut Rng, large: bool) -> Case {
        let mut case = Case::plain(rng, large);
        case.with_pointwise(rng);
        case.with_positional(rng);
        case
    }

    /// Options that ask for no position: scale, softcap, bias, masks, sinks.
    pub fn with_pointwise(&mut self, rng: &mut Rng) {
        if rng.chance(0.4) {
            self.scale = Scale::Factor(rng.pick(&[1.0, -0.7, 0.0, 0.125, 1.9]));
        }
        if rng.chance(0.3) {
            self.softcap = Some(rng.pick(&[0.9, 2.0, 30.0]));
        }
        if rng.chance(0.4) {
            self.bias = Some(self.random_bias(rng, 0.15));
        }
        for _ in 0..rng.pick(&[0, 0, 1, 1, 2]) {
            let shape = self.broadcast_shape(rng);
            let n = shape.iter().product();
            let kept = rng.pick(&[0.4, 0.75]);
            let data = (0..n).map(|_| rng.chance(kept)).collect();
            let keeps = rng.chance(0.5);
            self.masks.push((keeps, Array::new(&shape, data)));
        }
        if rng.chance(0.3) {
            self.sinks = Some(rng.reals(self.h));
        }
    }

    /// Options that go by positions: causal, window, lengths, documents, ALiBi, dropout; and past.
    pub fn with_positional(&mut self, rng: &mut Rng) {
        let (lq, lk) = (self.lq, self.lk);
        if rng.chance(0.3) {
            let parts = 1 + rng.below(4);
            let queries = rng.split(lq, parts);
            self.documents = Some((queries, rng.split(lk, parts)));
        }
        if rng.chance(0.6) {
            let offset = rng.below(lk + lq) as i64 - lq as i64;
            self.causal =
                Some(rng.pick(&[Causal::TopLeft, Causal::BottomRight, Causal::Offset(offset)]));
            if lq == lk && self.documents.is_none() && rng.chance(0.5) {
                self.causal = Some(Causal::Square);
            }
        }
        if rng.chance(0.35) {
            let mut side = || rng.chance(0.7).then(|| rng.below(lk + 1));
            self.window = Some(Window {
                back: side(),
                forward: side(),
            });
        }
        if rng.chance(0.35) {
            self.lengths = Some((0..self.b).map(|_| rng.below(lk + 1)).collect());
        }
        if rng.chance(0.3) {
            self.alibi = Some((0..self.h).map(|_| rng.real() * 0.4).collect());
        }
        if rng.chance(0.25) {
            self.dropout = Some(Dropout {
                p: rng.pick(&[0.0, 0.25, 0.7]),
                seed: rng.word(),
            });
        }
        if rng.chance(0.4) {
            self.past = rng.below(lk + 1);
        }
    }

    /// An additive mask of a random broadcastable shape, with this share of −∞.
    pub fn random_bias(&self, rng: &mut Rng, dropped: f64) -> Array<f64> {
        let shape = self.broadcast_shape(rng);
        let n = shape.iter().product();
        let data = (0..n)
            .map(|_| {
                if rng.chance(dropped) {
                    f64::NEG_INFINITY
                } else {
                    rng.real()
                }
            })
            .collect();
        Array::new(&shape, data)
    }

    /// A shape of rank 0 to 4 that broadcasts against the scores.
    pub fn broadcast_shape(&self, rng: &mut Rng) -> Vec<usize> {
        let skip = rng.below(5);
        self.scores()[skip..]
            .iter()
            .map(|&size| if rng.chance(0.35) { 1 } else { size })
            .collect()
    }

    pub fn scores(&self) -> [usize; 4] {
        [self.b, self.h, self.lq, self.lk]
    }

    pub fn attention(&self) -> Attention<'_> {
        Attention {
            scale: self.scale,
            softcap: self.softcap,
            bias: self
                .bias
                .as_ref()
                .map(|bias| Bias(AnyView::from(bias.view()))),
            alibi: self.alibi.clone().map(|slopes| Alibi { slopes }),
            masks: self
                .masks
                .iter()
                .map(|(keeps, mask)| match keeps {
                    true => Mask::keep(mask.view()),
                    false => Mask::drop(mask.view()),
                })
                .collect(),
            causal: self.causal,
            window: self.window,
            lengths: self.lengths.clone().map(KeyLengths),
            documents: self
                .documents
                .clone()
                .map(|(queries, keys)| Documents::with_key_lengths(queries, keys).unwrap()),
            sinks: self.sinks.clone().map(Sinks),
            dropout: self.dropout,
            ..Attention::default()
        }
    }

    /// The first `past` keys and values as cached ones, by strided views into the same data.
    pub fn inputs(&self) -> Inputs<'_, f64> {
        let q = View::new(&self.q, &[self.b, self.h, self.lq, self.dk]).unwrap();
        let part = |data, width: usize, from: usize, len: usize| {
            let row = width as isize;
            let head = (self.lk * width) as isize;
            let strides = [self.hkv as isize * head, head, row, 1];
            View::strided(data, from * width, [self.b, self.hkv, len, width], strides).unwrap()
        };
        let new = self.lk - self.past;
        let k = part(&self.k, self.dk, self.past, new);
        let v = part(&self.v, self.dv, self.past, new);
        let inputs = Inputs::new(q, k, v).unwrap();
        if self.past == 0 {
            return inputs;
        }
        let past_k = part(&self.k, self.dk, 0, self.past);
        let past_v = part(&self.v, self.dv, 0, self.past);
        inputs.with_past(past_k, past_v).unwrap()
    }

    pub fn forward(&self) -> definition::Output<f64> {
        definition::forward(&self.attention(), &self.inputs())
            .unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn steps(&self) -> Steps {
        steps(&self.attention(), &self.inputs()).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub fn weights(&self) -> Tensor<f64> {
        self.steps().get(StepName::Weights).unwrap().clone()
    }

    /// Document of query i and the stretches of its queries and keys.
    fn stretch(&self, i: usize) -> [usize; 4] {
        let Some((queries, keys)) = &self.documents else {
            return [0, self.lq, 0, self.lk];
        };
        let mut at = [0, 0];
        for (&nq, &nk) in queries.iter().zip(keys) {
            if i < at[0] + nq {
                return [at[0], nq, at[1], nk];
            }
            at = [at[0] + nq, at[1] + nk];
        }
        panic!("query {i} is in no document")
    }

    /// Index of the key that query i of a batch entry stands at, i + offset, written from the
    /// design's text: 0, N, or (real keys) − (queries), within the query's own document.
    pub fn stand(&self, b: usize, i: usize) -> i64 {
        let [first_q, nq, first_k, nk] = self.stretch(i).map(|n| n as i64);
        let real = match &self.lengths {
            Some(lengths) => (lengths[b] as i64 - first_k).clamp(0, nk),
            None => nk,
        };
        let offset = match self.causal {
            Some(Causal::TopLeft | Causal::Square) => 0,
            Some(Causal::Offset(n)) => n,
            Some(Causal::BottomRight) | None => real - nq,
        };
        first_k + (i as i64 - first_q) + offset
    }

    /// Causal, window, lengths and documents together, as one keep mask `[b, 1, lq, lk]`.
    pub fn explicit_keep(&self) -> Array<bool> {
        let shape = [self.b, 1, self.lq, self.lk];
        let data = places(shape)
            .map(|[b, _, i, j]| {
                let [_, _, first_k, nk] = self.stretch(i);
                let ahead = j as i64 - self.stand(b, i);
                let window = self.window.unwrap_or(Window {
                    back: None,
                    forward: None,
                });
                (first_k..first_k + nk).contains(&j)
                    && self.lengths.as_ref().is_none_or(|lengths| j < lengths[b])
                    && (self.causal.is_none() || ahead <= 0)
                    && window.back.is_none_or(|back| -ahead <= back as i64)
                    && window.forward.is_none_or(|forward| ahead <= forward as i64)
            })
            .collect();
        Array::new(&shape, data)
    }

    /// Whether query row `[b, h, i]` keeps key j, by every rule.
    pub fn keeps(&self) -> impl Fn([usize; 4]) -> bool + '_ {
        let positional = self.explicit_keep();
        move |at| {
            positional.at(at)
                && self.masks.iter().all(|(keeps, m)| m.at(at) == *keeps)
                && self
                    .bias
                    .as_ref()
                    .is_none_or(|bias| bias.at(at) != f64::NEG_INFINITY)
        }
    }

    /// ALiBi as an explicit bias `[b, h, lq, lk]`.
    pub fn explicit_alibi(&self) -> Option<Array<f64>> {
        let slopes = self.alibi.as_ref()?;
        let data = places(self.scores())
            .map(|[b, h, i, j]| -slopes[h] * (self.stand(b, i) - j as i64).abs() as f64)
            .collect();
        Some(Array::new(&self.scores(), data))
    }
}

/// How far two computations of the same result may be apart.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub output: f64,
    pub lse: f64,
    pub weights: f64,
}

/// The bound for two computations in `f64` that differ in the order of their operations.
///
/// With S a bound on every score that counts, s = scale·Σ q·k + bias − slope·distance:
/// d products and sums, a scale, a cap (Lipschitz 1, a few roundings) and two additions leave
/// each s off by δ = (d + 8)·U·S. The subtraction s − max carries δ twice and rounds a number up
/// to 2S; exp turns the absolute error of its argument into a relative one and adds 2U:
/// ε = 2δ + 2·S·U + 2U. A weight e/Σe is off by a relative 2ε + (L + 3)·U from sum and division,
/// and is at most 1. The output Σ w·v, |v| ≤ V, w multiplied by m = 1/(1−p), is off by
/// m·V·(2ε + (2L + 5)·U). lse = max + ln Σ is off by δ + ε + (L + 2)·U + (S + ln L)·U.
/// Everything twice for two computations. `stages` counts how often such a computation is
/// chained (a merge of parts is two), `shift` is a number added to all scores.
pub fn bound(case: &Case, stages: usize, shift: f64) -> Bound {
    let largest = |numbers: &[f64]| {
        let finite = numbers.iter().filter(|x| x.is_finite());
        finite.fold(0.0_f64, |max, x| max.max(x.abs()))
    };
    let scale = case.scale.factor(case.dk).abs();
    let distance = (0..case.b)
        .flat_map(|b| (0..case.lq).map(move |i| case.stand(b, i).unsigned_abs()))
        .max()
        .unwrap_or(0) as f64
        + case.lk as f64;
    let s = scale * case.dk as f64 * largest(&case.q) * largest(&case.k)
        + case.bias.as_ref().map_or(0.0, |bias| largest(&bias.data))
        + case.alibi.as_ref().map_or(0.0, |a| largest(a) * distance)
        + case.sinks.as_ref().map_or(0.0, |sinks| largest(sinks))
        + shift.abs();
    let len = case.lk as f64 + 1.0; // the sink too
    let delta = (case.dk as f64 + 8.0) * U * s;
    let epsilon = 2.0 * delta + 2.0 * s * U + 2.0 * U;
    let m = case.dropout.map_or(1.0, |dropout| 1.0 / (1.0 - dropout.p));
    let twice = 2.0 * stages as f64;
    Bound {
        output: twice * m * largest(&case.v) * (2.0 * epsilon + (2.0 * len + 5.0) * U),
        lse: twice * (delta + epsilon + (len + 2.0 + s + len.ln()) * U),
        weights: twice * (2.0 * epsilon + (len + 3.0) * U),
    }
}

/// Equal within the bound; infinities must be the same.
#[track_caller]
pub fn assert_near(found: &[f64], expected: &[f64], bound: f64, what: &dyn std::fmt::Debug) {
    assert_eq!(found.len(), expected.len(), "{what:?}");
    for (n, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let near = (f - e).abs() <= bound || f == e;
        assert!(near, "{n}: {f} is not {e} within {bound:e}: {what:?}");
    }
}

/// The same bits (NaN counts as NaN).
#[track_caller]
pub fn assert_bits(found: &[f64], expected: &[f64], what: &dyn std::fmt::Debug) {
    assert_eq!(found.len(), expected.len(), "{what:?}");
    for (n, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f.to_bits() == e.to_bits() || (f.is_nan() && e.is_nan());
        assert!(same, "{n}: {f:?} is not the same as {e:?}: {what:?}");
    }
}

/// Output, lse and empty rows within the bound.
#[track_caller]
pub fn assert_results_near(
    found: &definition::Output<f64>,
    expected: &definition::Output<f64>,
    bound: Bound,
    what: &dyn std::fmt::Debug,
) {
    assert_eq!(found.empty_rows, expected.empty_rows, "{what:?}");
    let (f, e) = (found.output.data(), expected.output.data());
    assert_near(f, e, bound.output, what);
    assert_near(found.lse.data(), expected.lse.data(), bound.lse, what);
}

/// Output, lse and empty rows bit for bit.
#[track_caller]
pub fn assert_results_same(
    found: &definition::Output<f64>,
    expected: &definition::Output<f64>,
    what: &dyn std::fmt::Debug,
) {
    assert_eq!(found.empty_rows, expected.empty_rows, "{what:?}");
    assert_bits(found.output.data(), expected.output.data(), what);
    assert_bits(found.lse.data(), expected.lse.data(), what);
}

/// An owned array from literals.
pub fn tensor(shape: &[usize], data: &[f64]) -> Tensor<f64> {
    Tensor::new(shape, data.to_vec()).unwrap()
}

/// Attention over q, k and v as arrays.
pub fn attend(
    attention: &Attention<'_>,
    q: &Tensor<f64>,
    k: &Tensor<f64>,
    v: &Tensor<f64>,
) -> Result<definition::Output<f64>> {
    let inputs = Inputs::new(q.view()?, k.view()?, v.view()?)?;
    definition::forward(attention, &inputs)
}

/// Queries and keys of zeros, so that the weights are equal over the kept keys: one number a query.
pub fn uniform(queries: usize, v: &[f64], attention: &Attention<'_>) -> Result<Vec<f64>> {
    let q = Tensor::new(&[queries, 1], vec![0.0; queries])?;
    let k = Tensor::new(&[v.len(), 1], vec![0.0; v.len()])?;
    let output = attend(attention, &q, &k, &tensor(&[v.len(), 1], v))?;
    Ok(output.output.into_data())
}

/// The weights of a matrix of raw scores, q·k = scores, under `attention`.
pub fn weights_of(scores: &Tensor<f64>, attention: &Attention<'_>) -> Result<Tensor<f64>> {
    let &[queries, keys] = scores.shape() else {
        panic!("a matrix is needed")
    };
    // q is the scores, k the identity: row i of q times row j of k is scores[i, j].
    let mut identity = vec![0.0; keys * keys];
    for j in 0..keys {
        identity[j * keys + j] = 1.0;
    }
    let identity = tensor(&[keys, keys], &identity);
    let inputs = Inputs::new(scores.view()?, identity.view()?, identity.view()?)?;
    let all = steps(attention, &inputs)?;
    let weights = all.get(StepName::Weights).unwrap().data().to_vec();
    Tensor::new(&[queries, keys], weights)
}
