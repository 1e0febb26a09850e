//! The rows of queries, keys and values that attention takes.

use super::Model;
use crate::recipe::{Norm, Order, Split, Swap};
use qkv::RmsNorm;
use qkv::position::Pairing;
use std::rc::Rc;
use std::sync::Arc;

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Q,
    K,
    V,
}

/// Sine and cosine of each pair of columns.
pub(super) type Angles = Rc<[(f64, f64)]>;

/// A row, and the size that rounding goes by: |x| or Σ|x|·|W|.
#[derive(Clone)]
pub(crate) struct Sized {
    pub row: Vec<f64>,
    pub size: Vec<f64>,
}

/// All rows of a key and value head.
pub(crate) struct Head {
    pub width: usize,
    pub rows: Vec<f64>,
    pub sizes: Vec<f64>,
}

impl Head {
    pub fn row(&self, j: usize) -> &[f64] {
        &self.rows[j * self.width..][..self.width]
    }

    pub fn size(&self, j: usize) -> &[f64] {
        &self.sizes[j * self.width..][..self.width]
    }
}

impl Model<'_> {
    /// The key and value head of a query head, in the order of what is attended over.
    pub(super) fn kv_head(&self, h: usize) -> usize {
        let sizes = self.sizes;
        match self.recipe.tiled_groups {
            true => h % sizes.kv_heads.max(1),
            false => h / (sizes.heads / sizes.kv_heads.max(1)).max(1),
        }
    }

    /// All keys or values that a query head sees.
    pub(super) fn head(&self, kind: Kind, b: usize, h: usize) -> Arc<Head> {
        let g = self.kv_head(h);
        if let Some(head) = self.keys.borrow().get(&(kind, b, g)) {
            return Arc::clone(head);
        }
        let make = || {
            let (mut rows, mut sizes) = (Vec::new(), Vec::new());
            // Without keys too a row has its width.
            let swapped = self.recipe.swap == Swap::KeysValues;
            let width = match (kind == Kind::V) != swapped {
                true => self.base.sizes.value_dim,
                false => self.base.sizes.head_dim,
            };
            for j in 0..self.sizes.keys {
                let [b, g, j] = self.inner([b, g, j]);
                let one = self.ready(kind, [b, g, j]);
                rows.extend(one.row);
                sizes.extend(one.size);
            }
            Head { width, rows, sizes }
        };
        let way = self.ways[usize::from(kind == Kind::V)];
        let head = self.shared.head((way, kind, b, g), make);
        self.keys
            .borrow_mut()
            .insert((kind, b, g), Arc::clone(&head));
        head
    }

    /// A query as it is multiplied with keys.
    pub(super) fn query(&self, at: [usize; 3]) -> Sized {
        self.ready(Kind::Q, self.inner(at))
    }

    /// A row after norm and rotation, by batch entry, head and token.
    pub(crate) fn ready(&self, kind: Kind, [b, h, t]: [usize; 3]) -> Sized {
        let past = self.base.sizes.past;
        if kind != Kind::Q && t < past {
            return self.cached(kind, [b, h, t]);
        }
        let new = if kind == Kind::Q { t } else { t - past };
        let raw = self.raw(kind, [b, h, new]);
        match self.recipe.norm {
            Norm::AfterRotary => self.normed(kind, self.turned(kind, raw, [b, t])),
            _ => self.turned(kind, self.normed(kind, raw), [b, t]),
        }
    }

    fn cached(&self, kind: Kind, [b, h, t]: [usize; 3]) -> Sized {
        let swapped = self.recipe.swap == Swap::KeysValues;
        let past = self.base.problem.past();
        let row = past.map_or(&[][..], |(k, v)| match (kind == Kind::K) != swapped {
            true => k.row(&[b, h, t]),
            false => v.row(&[b, h, t]),
        });
        plain(row.to_vec())
    }

    /// A row before norm and rotation.
    pub(crate) fn raw(&self, kind: Kind, [b, h, t]: [usize; 3]) -> Sized {
        let kind = match (self.recipe.swap, kind) {
            (Swap::KeysValues, Kind::K) => Kind::V,
            (Swap::KeysValues, Kind::V) => Kind::K,
            (Swap::QueriesKeys, Kind::Q) => Kind::K,
            (Swap::QueriesKeys, Kind::K) => Kind::Q,
            (_, kind) => kind,
        };
        let sizes = self.base.sizes;
        let heads = if kind == Kind::Q {
            sizes.heads
        } else {
            sizes.kv_heads
        };
        match self.recipe.split {
            Split::Usual => self.stored(kind, [b, h, t]),
            Split::WithoutTranspose => {
                let length = self.projected.rows[kind as usize].shape()[2];
                let at = h * length + t;
                self.stored(kind, [b, at % heads, at / heads])
            }
            Split::Interleaved => {
                let width = self.projected.rows[kind as usize].shape()[3];
                let (mut row, mut size) = (Vec::new(), Vec::new());
                for c in 0..width {
                    let column = c * heads + h;
                    let from = self.stored(kind, [b, column / width, t]);
                    row.push(from.row[column % width]);
                    size.push(from.size[column % width]);
                }
                Sized { row, size }
            }
            Split::Fused { written, read } => {
                let at = read.place(kind, h, sizes.heads, sizes.kv_heads);
                let (kind, h) = written.chunk(at, sizes.heads, sizes.kv_heads);
                self.stored(kind, [b, h, t])
            }
        }
    }

    fn stored(&self, kind: Kind, at: [usize; 3]) -> Sized {
        let row = self.projected.rows[kind as usize].row(&at);
        match &self.projected.sizes {
            Some(sizes) => Sized {
                row: row.to_vec(),
                size: sizes[kind as usize].row(&at).to_vec(),
            },
            None => plain(row.to_vec()),
        }
    }

    pub(crate) fn normed(&self, kind: Kind, mut x: Sized) -> Sized {
        let undeclared = match self.recipe.norm {
            _ if kind == Kind::V => None,
            Norm::Undeclared { eps } => Some((x.row.len() as f64, eps)),
            Norm::Length => Some((1.0, 0.0)),
            _ => None,
        };
        if let Some((count, eps)) = undeclared {
            let root = (x.row.iter().map(|x| x * x).sum::<f64>() / count + eps).sqrt();
            // As torch's normalize: a row of zeros stays one.
            let root = if root > 0.0 { root } else { 1.0 };
            x.row.iter_mut().for_each(|x| *x /= root);
            x.size.iter_mut().for_each(|x| *x /= root);
            return x;
        }
        let block = self.base.problem.block();
        let norm = match kind {
            Kind::Q => &block.q_norm,
            Kind::K => &block.k_norm,
            Kind::V => &None,
        };
        let Some(RmsNorm { gain, eps }) = norm else {
            return x;
        };
        if self.recipe.norm == Norm::Missing {
            return x;
        }
        let mean = x.row.iter().map(|x| x * x).sum::<f64>() / x.row.len() as f64;
        let root = (mean + eps).sqrt();
        for (c, gain) in gain.iter().enumerate() {
            let factor = match self.recipe.norm {
                Norm::WithoutGain => 1.0,
                Norm::GainPlusOne => 1.0 + gain,
                _ => *gain,
            } / root;
            x.row[c] *= factor;
            x.size[c] *= factor.abs();
        }
        x
    }

    /// A row turned by the rotary embedding of its place, on or back.
    pub(crate) fn turned_by(
        &self,
        kind: Kind,
        row: &[f64],
        [b, t]: [usize; 2],
        on: bool,
    ) -> Vec<f64> {
        let turning = &self.recipe.rotary;
        let turns = match kind {
            Kind::Q => turning.queries,
            Kind::K => turning.keys,
            Kind::V => false,
        };
        let (Some(rotary), true) = (&turning.rotary, turns) else {
            return row.to_vec();
        };
        let place = self.place(kind == Kind::Q, b, t);
        let place = if turning.inverse == on { -place } else { place };
        let row = plain(row.to_vec());
        turn(rotary.pairing, &self.angles(place), row).row
    }

    /// Sine and cosine of each pair of columns at a place; heads have the same.
    fn angles(&self, place: i64) -> Angles {
        let mut known = self.angles.borrow_mut();
        let angles = known
            .entry(place)
            .or_insert_with(|| angles(&self.frequencies, place));
        Rc::clone(angles)
    }

    fn turned(&self, kind: Kind, x: Sized, [b, t]: [usize; 2]) -> Sized {
        let turning = &self.recipe.rotary;
        let Some(rotary) = &turning.rotary else {
            return x;
        };
        let turns = match kind {
            Kind::Q => turning.queries,
            Kind::K => turning.keys,
            Kind::V => turning.values,
        };
        if !turns {
            return x;
        }
        let place = self.place(kind == Kind::Q, b, t);
        let place = if turning.inverse { -place } else { place };
        let angles = match x.row.len() == self.base.sizes.head_dim {
            true => self.angles(place),
            false => {
                let own = rotary.inverse_frequencies(x.row.len()).unwrap_or_default();
                angles(&own, place)
            }
        };
        turn(rotary.pairing, &angles, x)
    }

    /// The place of a query or a key for the rotary embedding.
    fn place(&self, is_query: bool, b: usize, t: usize) -> i64 {
        let (turning, past) = (&self.recipe.rotary, self.base.sizes.past);
        let extra = match is_query {
            true if self.recipe.shift_rotary => turning.query_offset + self.recipe.shift,
            true => turning.query_offset,
            false => 0,
        };
        let unpadded = turning.unpadded[usize::from(!is_query)];
        let pads = match (unpadded, self.base.left_padding.get(b)) {
            (true, Some(pads)) => *pads as i64,
            _ => 0,
        };
        let place = match &turning.place {
            qkv::Place::Given(places) => places[b][if is_query { t } else { t - past }],
            qkv::Place::Counted { start } => {
                let counted = match (is_query, self.base.is_self_attention()) {
                    (true, false) => {
                        self.seen.position(b, t, self.recipe.alignment) - self.seen.start(t) as i64
                    }
                    (true, true) => self.seen.key_place(t + past),
                    (false, _) => self.seen.key_place(t),
                };
                counted.saturating_add(*start)
            }
        };
        let place = place.saturating_add(extra);
        if pads > 0 {
            (place - pads).max(0)
        } else {
            place
        }
    }
}

fn plain(row: Vec<f64>) -> Sized {
    let size = row.iter().map(|x| x.abs()).collect();
    Sized { row, size }
}

fn angles(frequencies: &[f64], place: i64) -> Angles {
    let angles = frequencies.iter().map(|f| (place as f64 * f).sin_cos());
    angles.collect()
}

fn turn(pairing: Pairing, angles: &[(f64, f64)], mut x: Sized) -> Sized {
    let half = angles.len();
    for (i, (sin, cos)) in angles.iter().enumerate() {
        let (left, right) = match pairing {
            Pairing::Halves => (i, i + half),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (a, b) = (x.row[left], x.row[right]);
        x.row[left] = a * cos - b * sin;
        x.row[right] = a * sin + b * cos;
        let (a, b) = (x.size[left], x.size[right]);
        x.size[left] = a * cos.abs() + b * sin.abs();
        x.size[right] = a * sin.abs() + b * cos.abs();
    }
    x
}

impl Order {
    /// Where a chunk stands.
    fn place(self, kind: Kind, h: usize, heads: usize, kv_heads: usize) -> usize {
        let group = heads / kv_heads.max(1);
        match (self, kind) {
            (Order::Blocks, Kind::Q) => h,
            (Order::Blocks, Kind::K) => heads + h,
            (Order::Blocks, Kind::V) => heads + kv_heads + h,
            (Order::Groups, Kind::Q) => h / group * (group + 2) + h % group,
            (Order::Groups, Kind::K) => h * (group + 2) + group,
            (Order::Groups, Kind::V) => h * (group + 2) + group + 1,
        }
    }

    /// Which chunk stands there.
    fn chunk(self, at: usize, heads: usize, kv_heads: usize) -> (Kind, usize) {
        let group = heads / kv_heads.max(1);
        match self {
            Order::Blocks if at < heads => (Kind::Q, at),
            Order::Blocks if at < heads + kv_heads => (Kind::K, at - heads),
            Order::Blocks => (Kind::V, at - heads - kv_heads),
            Order::Groups => {
                let (g, within) = (at / (group + 2), at % (group + 2));
                match within {
                    w if w < group => (Kind::Q, g * group + w),
                    w if w == group => (Kind::K, g),
                    _ => (Kind::V, g),
                }
            }
        }
    }
}
