//! What stays the same during one call: the options in the form that the kernels take.

use super::real::{Float, Real, Stored};
use super::simd::{Arithmetic, BLOCK, Isa, Kernels, Rows, Span, Storage, prefetch};
use super::visible::{Sight, Stretch, Visible};
use crate::attention::{Attention, Bias, Inputs, Scale, Sinks};
use crate::error::{Error, Result};
use crate::view::{AnyView, DType, Element, View};
use std::ops::Range;

/// Queries of a key and value head up to which reading keys as they lie is faster than turning them.
const MOST_BY_DOTS: usize = 2;

/// A checked call.
pub struct Call<'a, T: Stored> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) inputs: &'a Inputs<'a, T>,
    pub(super) storage: &'static Storage<T>,
    pub(super) kernels: &'static Kernels<T::Real>,
    pub(super) visible: Visible<'a>,
    /// Query heads of a key and value head.
    pub(super) group: usize,
    /// Whether scores are summed as `dots` does: for calls of very few queries, if allowed.
    pub(super) by_dots: bool,
    /// What queries are multiplied by: 1, or −1 or 0 where the scale's sign is.
    pub(super) sign: T::Real,
    /// The exponent is (x − max)·c.
    pub(super) c: T::Real,
    /// x times this is in natural units.
    pub(super) natural: f64,
    /// Scale, softcap, bias and ALiBi, where x is more than q·k.
    bend: Option<Bending<'a, T::Real>>,
    masks: Vec<(View<'a, bool>, bool)>,
}

struct Bending<'a, T> {
    inner: Option<T>,
    factor: T,
    bias: Option<AnyView<'a>>,
}

/// How scores that are q·k become exponents: (sign·q·k − max)·c, where max·natural is in natural
/// units.
pub(super) struct Exponent<T> {
    pub(super) sign: T,
    pub(super) c: T,
    pub(super) natural: f64,
}

impl<T: Real> Exponent<T> {
    pub(super) fn new(scale: f64) -> Self {
        let c: T = finite((scale.abs() * std::f64::consts::LOG2_E).min(f64::MAX));
        if c == T::ZERO {
            return Exponent {
                sign: T::ZERO,
                c: T::ONE,
                natural: 0.0,
            };
        }
        Exponent {
            sign: T::from_f64(scale.signum()),
            c,
            natural: scale.abs(),
        }
    }
}

/// Refuses a scale that the type computed in does not hold, of which a row's weights would be
/// another's without a word.
#[inline(always)] // a small call would notice
pub(super) fn check_scale<T: Float>(attention: &Attention<'_>) -> Result<()> {
    match attention.scale {
        Scale::Factor(factor) if !holds::<T>(factor) => Err(*other_scale(factor, T::DTYPE)),
        _ => Ok(()),
    }
}

/// Whether the scale, and what the kernels make of it, log2(e) times as much, are 0 or have all their
/// digits. What `f64` loses at its ends the definition loses, too.
#[inline(always)]
fn holds<T: Float>(factor: f64) -> bool {
    const MOST: f64 = f32::MAX as f64 / std::f64::consts::LOG2_E;
    let held = f32::MIN_POSITIVE as f64..=MOST;
    T::Real::DTYPE == DType::F64 || factor == 0.0 || held.contains(&factor.abs())
}

/// Boxed, as the errors of views.
#[cold]
fn other_scale(factor: f64, given: DType) -> Box<Error> {
    let of = match given {
        DType::F16 => ", in which f16 is computed,",
        DType::Bf16 => ", in which bf16 is computed,",
        DType::F32 | DType::F64 => "",
    };
    Box::new(Error::Option {
        option: "scale",
        value: format!("{factor:e} in single precision (f32){of}"),
        remedy: "give 0 or a number of size 1.2e-38 to 2.3e38 and multiply q by the rest, or give \
                 q, k and v in double precision (f64)",
    })
}

/// Query heads of a key and value head.
fn group<T: Element>(inputs: &Inputs<'_, T>) -> usize {
    inputs.heads() / inputs.kv_heads().max(1)
}

/// Whether queries are so few that keys would be read as they lie, if sums may have another order.
pub(super) fn takes_keys_as_they_lie<T: Element>(inputs: &Inputs<'_, T>) -> bool {
    group(inputs) * inputs.queries() <= MOST_BY_DOTS
}

/// What the maxima take along.
pub(super) enum Direct<'a, T> {
    /// A mask, and what its value is for kept keys.
    Mask(View<'a, bool>, bool),
    /// A bias, and the scale.
    Bias(View<'a, T>, T),
}

impl<'a, T: Float> Call<'a, T> {
    /// The options must have passed [`Attention::check`] for these inputs.
    pub(super) fn new(
        attention: &'a Attention<'a>,
        inputs: &'a Inputs<'a, T>,
        isa: Isa,
        reproducible: bool,
    ) -> Self {
        let shape = inputs.scores_shape();
        let scale = attention.scale.factor(inputs.head_dim());
        let bias = attention.bias.and_then(|Bias(view)| view.broadcast(shape));
        let softcap = attention
            .softcap
            .filter(|&cap| cap < T::Real::MAX.to_f64().powf(0.8));
        let bends = softcap.is_some() || bias.is_some() || attention.alibi.is_some();
        let (sign, c, natural, bend) = if bends {
            let bend = Bending {
                inner: softcap.map(|cap| finite(scale / cap)),
                factor: finite(softcap.unwrap_or(scale)),
                bias,
            };
            (
                T::Real::ONE,
                T::Real::from_f64(std::f64::consts::LOG2_E),
                1.0,
                Some(bend),
            )
        } else {
            let Exponent { sign, c, natural } = Exponent::new(scale);
            (sign, c, natural, None)
        };
        let storage = T::storage(isa);
        Call {
            attention,
            inputs,
            storage,
            kernels: storage.kernels,
            visible: Visible::new(attention, inputs),
            group: group(inputs),
            by_dots: !reproducible && storage.depth == 1 && takes_keys_as_they_lie(inputs),
            sign,
            c,
            natural,
            bend,
            masks: attention
                .masks
                .iter()
                .filter_map(|mask| Some((mask.view().broadcast(shape)?, mask.true_keeps())))
                .collect(),
        }
    }

    /// Places of numbers that a query or key takes.
    pub(super) fn slots(&self) -> usize {
        self.inputs.head_dim().div_ceil(self.storage.depth)
    }

    /// Whether single keys may be dropped from what a query sees.
    pub(super) fn drops_single_keys(&self) -> bool {
        !self.masks.is_empty() || self.bias().is_some()
    }

    /// Whether x is more than q·k.
    pub(super) fn bends(&self) -> bool {
        self.bend.is_some() || !self.masks.is_empty()
    }

    /// Whether nothing comes between scores, softmax and values.
    pub(super) fn is_plain(&self) -> bool {
        !self.bends() && self.attention.dropout.is_none()
    }

    /// The mask or bias, if x is q·k but for it and the scale, and its rows are in one piece each.
    pub(super) fn direct(&self) -> Option<Direct<'a, T::Real>> {
        match (&self.masks[..], &self.bend) {
            ([(mask, kept)], None) if mask.strides()[3] == 1 => Some(Direct::Mask(*mask, *kept)),
            ([], Some(bend)) if bend.inner.is_none() && self.attention.alibi.is_none() => {
                let bias = T::Real::same(&bend.bias?)?;
                (bias.strides()[3] == 1).then_some(Direct::Bias(bias, bend.factor))
            }
            _ => None,
        }
    }

    /// scale/softcap, if there is a softcap.
    pub(super) fn softcap_inner(&self) -> Option<T::Real> {
        self.bend.as_ref().and_then(|bend| bend.inner)
    }

    /// Where row `[batch, head, query]` of [`Call::direct`] begins.
    pub(super) fn direct_row(&self, row: [usize; 3]) -> usize {
        match self.direct() {
            None => 0,
            Some(Direct::Mask(mask, _)) => start(&mask, row),
            Some(Direct::Bias(bias, _)) => start(&bias, row),
        }
    }

    fn bias(&self) -> Option<AnyView<'a>> {
        self.bend.as_ref().and_then(|bend| bend.bias)
    }

    /// The sink of a head.
    pub(super) fn sink(&self, head: usize) -> Option<f64> {
        let Sinks(sinks) = self.attention.sinks.as_ref()?;
        Some(sinks[head])
    }

    /// The mask of row `[batch, head, query]` for `keys`, if there are masks, and what its value
    /// is for kept keys.
    pub(super) fn mask_row<'r>(
        &self,
        [b, h, i]: [usize; 3],
        keys: Range<usize>,
        buffer: &'r mut Vec<bool>,
    ) -> Option<(&'r [bool], bool)>
    where
        'a: 'r,
    {
        if let [(mask, kept)] = &self.masks[..]
            && let Some(row) = piece(mask, [b, h, i], keys.clone())
        {
            return Some((row, *kept));
        }
        let ((mask, kept), others) = self.masks.split_first()?;
        let row = buffer;
        row.clear();
        row.extend(keys.clone().map(|j| mask.get([b, h, i, j]) == *kept));
        for (mask, kept) in others {
            for (to, j) in row.iter_mut().zip(keys.clone()) {
                *to &= mask.get([b, h, i, j]) == *kept;
            }
        }
        Some((row, true))
    }

    /// The arithmetic of row `[batch, head, query]` for `keys` of a stretch.
    pub(super) fn arithmetic<'r>(
        &self,
        [b, h, i]: [usize; 3],
        stretch: &Stretch,
        keys: Range<usize>,
        sight: Sight,
        buffer: &'r mut Vec<T::Real>,
    ) -> Option<Arithmetic<'r, T::Real>>
    where
        'a: 'r,
    {
        let bend = self.bend.as_ref()?;
        let bias = bend.bias.map(|bias| {
            if let Some(view) = T::Real::same(&bias)
                && let Some(row) = piece(&view, [b, h, i], keys.clone())
            {
                return row;
            }
            if let Some(view) = T::same(&bias)
                && let Some(row) = piece(&view, [b, h, i], keys.clone())
            {
                buffer.resize(row.len(), T::Real::ZERO);
                let row = Rows::new(row, 0, 0, 1, row.len());
                (self.storage.widen)(row, buffer);
                return &buffer[..];
            }
            buffer.clear();
            buffer.extend(
                keys.clone()
                    .map(|j| finite::<T::Real>(bias.get([b, h, i, j]))),
            );
            &buffer[..]
        });
        Some(Arithmetic {
            inner: bend.inner,
            factor: bend.factor,
            bias,
            alibi: self.attention.alibi.as_ref().map(|alibi| {
                let first = (keys.start - stretch.keys.start) as i64;
                let position = sight.position.saturating_sub(first);
                (finite(alibi.slopes[h]), T::Real::from_f64(position as f64))
            }),
        })
    }

    /// Asks for the memory of a row's masks and bias, as far as it is in one piece.
    pub(super) fn prefetch_rows(&self, row: [usize; 3], keys: Range<usize>) {
        if keys.is_empty() {
            return;
        }
        for (mask, _) in &self.masks {
            prefetch(piece(mask, row, keys.clone()).unwrap_or_default());
        }
        if let Some(view) = self.bias().and_then(|bias| T::Real::same(&bias)) {
            prefetch(piece(&view, row, keys.clone()).unwrap_or_default());
        }
        if let Some(view) = self.bias().and_then(|bias| T::same(&bias)) {
            prefetch(piece(&view, row, keys).unwrap_or_default());
        }
    }

    /// Whether a mask or bias keeps key j of row `[batch, head, query]`.
    pub(super) fn keeps(&self, [b, h, i, j]: [usize; 4]) -> bool {
        self.masks
            .iter()
            .all(|(mask, kept)| mask.get([b, h, i, j]) == *kept)
            && self
                .bias()
                .is_none_or(|bias| bias.get([b, h, i, j]) != f64::NEG_INFINITY)
    }

    /// Sets which keys of the span of a block row `[batch, head, query]` keeps, of all others that it
    /// does not. Not by its scores: that of a kept key is −∞ where q or k is infinite.
    pub(super) fn mark_kept(
        &self,
        [b, h, i]: [usize; 3],
        first_key: usize,
        span: Span,
        kept: &mut [bool; BLOCK],
    ) {
        kept.fill(false);
        for j in span.range() {
            kept[j] = self.keeps([b, h, i, first_key + j]);
        }
    }

    /// The keys, cached and new.
    pub(super) fn k(&self) -> Parts<'a, T> {
        Parts {
            past: self.inputs.past().map(|(k, _)| k),
            new: self.inputs.k(),
        }
    }

    /// The values, cached and new.
    pub(super) fn v(&self) -> Parts<'a, T> {
        Parts {
            past: self.inputs.past().map(|(_, v)| v),
            new: self.inputs.v(),
        }
    }
}

/// The nearest number of the type, but not an infinite one for a finite one.
fn finite<T: Real>(x: f64) -> T {
    let y = T::from_f64(x);
    if x.is_finite() && !y.to_f64().is_finite() {
        return if x > 0.0 { T::MAX } else { -T::MAX };
    }
    y
}

/// Where a row of a mask or bias begins, which has keys.
fn start<T: Copy>(view: &View<'_, T>, [b, h, i]: [usize; 3]) -> usize {
    let ((_, offset), strides) = (view.raw(), view.strides());
    let row = b as isize * strides[0] + h as isize * strides[1] + i as isize * strides[2];
    (offset as isize + row) as usize
}

/// Some neighbouring keys of a row of a mask or bias, if they are neighbours in memory.
pub(super) fn piece<'a, T: Copy>(
    view: &View<'a, T>,
    row: [usize; 3],
    keys: Range<usize>,
) -> Option<&'a [T]> {
    if view.strides()[3] != 1 {
        return None;
    }
    let (data, _) = view.raw();
    let start = start(view, row) + keys.start;
    Some(&data[start..start + keys.len()])
}

/// Rows of one head whose columns are neighbours, if they are.
#[inline(always)] // a small call is mostly this
pub(super) fn neighbours<'a, T: Copy>(
    view: &View<'a, T>,
    b: usize,
    h: usize,
    rows: Range<usize>,
) -> Option<Rows<'a, T>> {
    let (shape, strides) = (view.shape(), view.strides());
    if strides[3] != 1 && shape[3] > 1 {
        return None;
    }
    let (data, offset) = view.raw();
    if rows.is_empty() || shape[3] == 0 {
        return Some(Rows::new(&[], 0, 0, rows.len(), shape[3]));
    }
    let start = offset as isize
        + b as isize * strides[0]
        + h as isize * strides[1]
        + rows.start as isize * strides[2];
    Some(Rows::new(
        data,
        start as usize,
        strides[2],
        rows.len(),
        shape[3],
    ))
}

/// Calls `each` with some rows of one head, copied to `spare` if their columns are not neighbours.
pub(super) fn with_neighbours<T: Copy>(
    view: &View<'_, T>,
    b: usize,
    h: usize,
    rows: Range<usize>,
    spare: &mut Vec<T>,
    each: impl FnOnce(Rows<'_, T>),
) {
    if let Some(rows) = neighbours(view, b, h, rows.clone()) {
        return each(rows);
    }
    let (count, width) = (rows.len(), view.shape()[3]);
    spare.clear();
    copy(view, b, h, rows, spare);
    each(Rows::new(spare, 0, width as isize, count, width));
}

/// Keys or values: those cached, then the new ones.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a, T> {
    past: Option<View<'a, T>>,
    new: View<'a, T>,
}

impl<'a, T: Element + Default> Parts<'a, T> {
    pub(super) fn width(&self) -> usize {
        self.new.shape()[3]
    }

    /// One number.
    pub(super) fn get(&self, [b, g, j, c]: [usize; 4]) -> T {
        let cached = self.past.map_or(0, |past| past.shape()[2]);
        match self.past {
            Some(past) if j < cached => past.get([b, g, j, c]),
            _ => self.new.get([b, g, j - cached, c]),
        }
    }

    /// Calls `each(rows, first)` for at most two runs of rows that are `range`; `first` counts
    /// from the range's start. Rows whose columns are not neighbours are copied to `spare`.
    pub(super) fn rows(
        &self,
        b: usize,
        g: usize,
        range: Range<usize>,
        spare: &mut Vec<T>,
        mut each: impl FnMut(Rows<'_, T>, usize),
    ) {
        let cached = self.past.map_or(0, |past| past.shape()[2]);
        let middle = range.end.min(cached).max(range.start);
        let old = (self.past, range.start..middle, 0);
        let new = (Some(self.new), middle..range.end, cached);
        for (view, part, before) in [old, new] {
            let Some(view) = view.filter(|_| !part.is_empty()) else {
                continue;
            };
            let first = part.start - range.start;
            let part = part.start - before..part.end - before;
            with_neighbours(&view, b, g, part, spare, |rows| each(rows, first));
        }
    }

    /// The rows as they are, if they are one run with neighbouring columns.
    pub(super) fn one_piece(&self, b: usize, g: usize, range: Range<usize>) -> Option<Rows<'a, T>> {
        let cached = self.past.map_or(0, |past| past.shape()[2]);
        match self.past {
            Some(past) if range.end <= cached => neighbours(&past, b, g, range),
            _ if range.start >= cached => {
                neighbours(&self.new, b, g, range.start - cached..range.end - cached)
            }
            _ => None,
        }
    }

    /// The same as one run, copied where it is two.
    pub(super) fn one_run(
        &self,
        b: usize,
        g: usize,
        range: Range<usize>,
        spare: &mut Vec<T>,
        each: impl FnOnce(Rows<'_, T>),
    ) {
        if let Some(rows) = self.one_piece(b, g, range.clone()) {
            return each(rows);
        }
        spare.clear();
        self.copy(b, g, range.clone(), spare);
        each(Rows::new(
            spare,
            0,
            self.width() as isize,
            range.len(),
            self.width(),
        ));
    }

    /// Adds rows to `to`, one after the other.
    pub(super) fn copy(&self, b: usize, g: usize, range: Range<usize>, to: &mut Vec<T>) {
        let cached = self.past.map_or(0, |past| past.shape()[2]);
        let middle = range.end.min(cached).max(range.start);
        if let Some(past) = self.past {
            copy(&past, b, g, range.start..middle, to);
        }
        let new = middle.max(cached) - cached..range.end.max(cached) - cached;
        copy(&self.new, b, g, new, to);
    }
}

/// Adds rows, one after the other.
fn copy<T: Copy>(view: &View<'_, T>, b: usize, h: usize, rows: Range<usize>, to: &mut Vec<T>) {
    let (data, offset) = view.raw();
    let (strides, width) = (view.strides(), view.shape()[3]);
    for i in rows {
        let at = offset as isize
            + b as isize * strides[0]
            + h as isize * strides[1]
            + i as isize * strides[2];
        if strides[3] == 1 && width > 0 {
            to.extend_from_slice(&data[at as usize..][..width]);
        } else {
            to.extend((0..width).map(|c| data[(at + c as isize * strides[3]) as usize]));
        }
    }
}
