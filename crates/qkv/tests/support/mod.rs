//! Random calls of attention, with every option, strides and sizes all different.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part

use qkv::{
    Alibi, Attention, Bias, Causal, Documents, Dropout, Element, EmptyRows, Inputs, KeyLengths,
    Mask, Scale, Sinks, View, Window,
};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 ≤ n < end
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// −1 to 1
    pub fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// An `f32` number of about normal spread, in `f64`.
    pub fn normal(&mut self) -> f64 {
        let sum = self.number() + self.number() + self.number();
        f64::from(sum as f32)
    }
}

/// Data with a layout: shape `[b, h, l, d]`, and how it lies in memory.
#[derive(Clone, Debug)]
pub struct Array<T> {
    pub data: Vec<T>,
    pub offset: usize,
    pub shape: [usize; 4],
    pub strides: [isize; 4],
}

/// How an array lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    Plain,
    /// `[batch, length, heads, head_dim]`
    Blhd,
    /// The length axis runs backwards.
    Reversed,
    /// Every second column.
    Gaps,
    /// Columns run along the length.
    Transposed,
}

pub const LAYOUTS: [Layout; 5] = [
    Layout::Plain,
    Layout::Blhd,
    Layout::Reversed,
    Layout::Gaps,
    Layout::Transposed,
];

impl<T: Copy + Default> Array<T> {
    pub fn new(shape: [usize; 4], layout: Layout, mut value: impl FnMut([usize; 4]) -> T) -> Self {
        let [b, h, l, d] = shape.map(|n| n as isize);
        let (strides, offset) = match layout {
            Layout::Plain => ([h * l * d, l * d, d, 1], 0),
            Layout::Blhd => ([l * h * d, d, h * d, 1], 0),
            Layout::Reversed => ([h * l * d, l * d, -d, 1], (l - 1).max(0) * d),
            Layout::Gaps => ([h * l * 2 * d, l * 2 * d, 2 * d, 2], 0),
            Layout::Transposed => ([h * l * d, l * d, 1, l], 0),
        };
        let count = 2 * b * h * l * d;
        let mut array = Array {
            data: vec![T::default(); count as usize],
            offset: offset as usize,
            shape,
            strides,
        };
        for b in 0..shape[0] {
            for h in 0..shape[1] {
                for l in 0..shape[2] {
                    for d in 0..shape[3] {
                        let at = array.position([b, h, l, d]);
                        array.data[at] = value([b, h, l, d]);
                    }
                }
            }
        }
        array
    }

    pub fn position(&self, index: [usize; 4]) -> usize {
        let mut at = self.offset as isize;
        for axis in 0..4 {
            at += index[axis] as isize * self.strides[axis];
        }
        at as usize
    }

    pub fn get(&self, index: [usize; 4]) -> T {
        self.data[self.position(index)]
    }

    pub fn view(&self) -> View<'_, T> {
        View::strided(&self.data, self.offset, self.shape, self.strides).unwrap()
    }

    /// The same numbers in another layout and type.
    pub fn map<U: Copy + Default>(&self, layout: Layout, to: impl Fn(T) -> U) -> Array<U> {
        Array::new(self.shape, layout, |index| to(self.get(index)))
    }
}

/// One call, in `f64` numbers that are exact in `f32`.
#[derive(Clone, Debug)]
pub struct Call {
    pub q: Array<f64>,
    pub k: Array<f64>,
    pub v: Array<f64>,
    pub past: Option<(Array<f64>, Array<f64>)>,
    pub scale: Scale,
    pub softcap: Option<f64>,
    pub bias: Option<Array<f64>>,
    pub bias_is_f32: bool,
    pub alibi: Option<Vec<f64>>,
    pub masks: Vec<(Array<bool>, bool)>,
    pub causal: Option<Causal>,
    pub window: Option<Window>,
    pub lengths: Option<Vec<usize>>,
    pub documents: Option<(Vec<usize>, Vec<usize>)>,
    pub sinks: Option<Vec<f64>>,
    pub dropout: Option<Dropout>,
}

/// The arrays of a call in the type to be computed in.
pub struct Typed<T> {
    pub q: Array<T>,
    pub k: Array<T>,
    pub v: Array<T>,
    pub past: Option<(Array<T>, Array<T>)>,
    pub bias32: Option<Array<f32>>,
    pub bias64: Option<Array<f64>>,
}

pub const LENGTHS: [usize; 12] = [1, 2, 3, 5, 17, 31, 63, 64, 65, 127, 128, 129];

fn cut(random: &mut Random, total: usize, parts: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..parts).map(|_| random.below(total + 1)).collect();
    ends.push(total);
    ends.sort_unstable();
    let mut before = 0;
    ends.iter()
        .map(|&end| {
            let length = end - before;
            before = end;
            length
        })
        .collect()
}

impl Call {
    /// A random call.
    pub fn random(random: &mut Random) -> Call {
        let batch = random.pick(&[1, 1, 2, 3]);
        let kv_heads = random.pick(&[1, 2, 3]);
        let heads = kv_heads * random.pick(&[1, 1, 2, 4, 5]);
        let mut queries = random.pick(&LENGTHS);
        let mut keys = random.pick(&LENGTHS);
        if random.chance(40) {
            keys = random.pick(&[0, 255, 256, 257, 300, 513]);
        }
        if random.chance(60) {
            keys = random.pick(&[2047, 2048, 2049, 4100]);
            queries = random.pick(&[1, 2, 3]);
        }
        if random.chance(40) {
            queries = random.pick(&[0, 191, 193, 200]);
        }
        let width = |random: &mut Random| match random.below(12) {
            0 => random.pick(&[64, 128, 80]),
            1 if keys < 200 && queries < 40 => random.pick(&[192, 256, 300, 576]),
            _ => 1 + random.below(40),
        };
        let (d_k, d_v) = (width(random), width(random));
        let past = if random.chance(4) {
            random.below(keys + 1)
        } else {
            0
        };
        let mut array = |shape: [usize; 4], spread: f64| {
            Array::new(shape, Layout::Plain, |_| {
                f64::from((random.normal() * spread) as f32)
            })
        };
        let q = array([batch, heads, queries, d_k], 1.0);
        let k = array([batch, kv_heads, keys - past, d_k], 1.0);
        let v = array([batch, kv_heads, keys - past, d_v], 1.0);
        let past = (past > 0).then(|| {
            (
                array([batch, kv_heads, past, d_k], 1.0),
                array([batch, kv_heads, past, d_v], 1.0),
            )
        });
        let scale = match random.below(8) {
            0 => Scale::Factor(0.0),
            1 => Scale::Factor(-0.3),
            2 => Scale::Factor(random.number() * 3.0),
            _ => Scale::InverseSqrt,
        };
        let mut one_or = |n: usize| if random.chance(2) { 1 } else { n };
        let spread = [one_or(batch), one_or(heads), one_or(queries), one_or(keys)];
        let spread2 = [one_or(batch), one_or(heads), one_or(queries), one_or(keys)];
        let layout = random.pick(&LAYOUTS);
        let bias = random.chance(4).then(|| {
            let minus_infinity = random.chance(2);
            Array::new(spread, layout, |_| {
                if minus_infinity && random.chance(3) {
                    f64::NEG_INFINITY
                } else if random.chance(50) {
                    f64::from(f32::MIN)
                } else {
                    f64::from((random.normal() * 2.0) as f32)
                }
            })
        });
        let mut masks = Vec::new();
        for shape in [spread2, spread] {
            if random.chance(4) {
                let dense = random.pick(&[2, 5, 50]);
                let layout = random.pick(&LAYOUTS);
                let keeps = random.chance(2);
                masks.push((
                    Array::new(shape, layout, |_| random.chance(dense) != keeps),
                    keeps,
                ));
            }
        }
        let documents = (random.chance(6) && queries > 0 && keys > 0).then(|| {
            let parts = 1 + random.below(4);
            (cut(random, queries, parts), cut(random, keys, parts))
        });
        let causal = match random.below(8) {
            0 | 1 => Some(Causal::BottomRight),
            2 => Some(Causal::TopLeft),
            3 => Some(Causal::Offset(random.below(keys + 20) as i64 - 10)),
            _ => None,
        };
        let window = random.chance(4).then(|| Window {
            back: random.chance(2).then(|| random.below(40)),
            forward: random.chance(2).then(|| random.below(40)),
        });
        Call {
            q,
            k,
            v,
            past,
            scale,
            softcap: random.chance(6).then(|| random.pick(&[0.5, 5.0, 30.0])),
            bias,
            bias_is_f32: random.chance(2),
            alibi: random
                .chance(6)
                .then(|| (0..heads).map(|_| random.number() * 0.2).collect()),
            masks,
            causal,
            window,
            lengths: random
                .chance(5)
                .then(|| (0..batch).map(|_| random.below(keys + 1)).collect()),
            documents,
            sinks: random
                .chance(5)
                .then(|| (0..heads).map(|_| random.number() * 4.0).collect()),
            dropout: random.chance(8).then(|| Dropout {
                p: random.pick(&[0.1, 0.5]),
                seed: random.bits(),
            }),
        }
    }

    pub fn typed<T: Element + Default>(&self, layouts: [Layout; 3]) -> Typed<T> {
        let [q, k, v] = layouts;
        Typed {
            q: self.q.map(q, T::from_f64),
            k: self.k.map(k, T::from_f64),
            v: self.v.map(v, T::from_f64),
            past: self
                .past
                .as_ref()
                .map(|(pk, pv)| (pk.map(v, T::from_f64), pv.map(k, T::from_f64))),
            bias32: self
                .bias
                .as_ref()
                .filter(|_| self.bias_is_f32)
                .map(|bias| bias.map(Layout::Plain, |x| x as f32)),
            bias64: self.bias.clone().filter(|_| !self.bias_is_f32),
        }
    }

    /// The options, with the bias of `typed`.
    pub fn attention<'a, T>(&'a self, typed: &'a Typed<T>) -> Attention<'a> {
        let bias32 = typed.bias32.as_ref().map(|bias| Bias(bias.view().into()));
        let bias64 = typed.bias64.as_ref().map(|bias| Bias(bias.view().into()));
        Attention {
            scale: self.scale,
            softcap: self.softcap,
            bias: bias32.or(bias64),
            alibi: self.alibi.clone().map(|slopes| Alibi { slopes }),
            masks: self
                .masks
                .iter()
                .map(|(mask, keeps)| {
                    if *keeps {
                        Mask::keep(mask.view())
                    } else {
                        Mask::drop(mask.view())
                    }
                })
                .collect(),
            causal: self.causal,
            window: self.window,
            lengths: self.lengths.clone().map(KeyLengths),
            documents: self
                .documents
                .clone()
                .map(|(q, k)| Documents::with_key_lengths(q, k).unwrap()),
            sinks: self.sinks.clone().map(Sinks),
            dropout: self.dropout,
            empty_rows: EmptyRows::Zero,
        }
    }

    /// What to show of a failing call.
    pub fn describe(&self) -> String {
        format!(
            "q {:?} k {:?} v {:?} past {:?} scale {:?} softcap {:?} bias {:?} alibi {} masks {:?} \
             causal {:?} window {:?} lengths {:?} documents {:?} sinks {} dropout {:?}",
            self.q.shape,
            self.k.shape,
            self.v.shape,
            self.past.as_ref().map(|(k, _)| k.shape),
            self.scale,
            self.softcap,
            self.bias.as_ref().map(|bias| bias.shape),
            self.alibi.is_some(),
            self.masks
                .iter()
                .map(|(mask, _)| mask.shape)
                .collect::<Vec<_>>(),
            self.causal,
            self.window,
            self.lengths,
            self.documents,
            self.sinks.is_some(),
            self.dropout,
        )
    }
}

impl<T: Element + Default> Typed<T> {
    pub fn inputs(&self) -> Inputs<'_, T> {
        let inputs = Inputs::new(self.q.view(), self.k.view(), self.v.view()).unwrap();
        match &self.past {
            Some((k, v)) => inputs.with_past(k.view(), v.view()).unwrap(),
            None => inputs,
        }
    }
}

/// Whether two slices have the same bits, any NaN counting as any other.
pub fn same_bits<T: Element>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            let (a, b) = (a.to_f64(), b.to_f64());
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        })
}
