//! One call of attention with all that it is given.

use super::array::{AnyArray, Array, Gap, Layout};
use half::{bf16, f16};
use qkv::{
    Alibi, Attention, Bias, Causal, DType, Documents, Dropout, Element, EmptyRows, Inputs,
    KeyLengths, Mask, Scale, Sinks, Window,
};

/// One call, in `f64` numbers that are exact in `f32`, the bias in its own dtype.
#[derive(Clone, Debug)]
pub struct Call {
    pub q: Array<f64>,
    pub k: Array<f64>,
    pub v: Array<f64>,
    pub past: Option<(Array<f64>, Array<f64>)>,
    pub scale: Scale,
    pub softcap: Option<f64>,
    pub bias: Option<Array<f64>>,
    pub bias_dtype: DType,
    pub bias_layout: Layout,
    pub alibi: Option<Vec<f64>>,
    pub masks: Vec<(Array<bool>, bool)>,
    pub causal: Option<Causal>,
    pub window: Option<Window>,
    pub lengths: Option<Vec<usize>>,
    pub documents: Option<(Vec<usize>, Vec<usize>)>,
    pub sinks: Option<Vec<f64>>,
    pub dropout: Option<Dropout>,
    pub empty_rows: EmptyRows,
}

/// The arrays of a call in the type to be computed in.
pub struct Typed<T> {
    pub q: Array<T>,
    pub k: Array<T>,
    pub v: Array<T>,
    pub past: Option<(Array<T>, Array<T>)>,
    pub bias: Option<AnyArray>,
}

impl Call {
    /// Only these arrays; no option.
    pub fn plain(q: Array<f64>, k: Array<f64>, v: Array<f64>) -> Call {
        Call {
            q,
            k,
            v,
            past: None,
            scale: Scale::InverseSqrt,
            softcap: None,
            bias: None,
            bias_dtype: DType::F64,
            bias_layout: Layout::Plain,
            alibi: None,
            masks: Vec::new(),
            causal: None,
            window: None,
            lengths: None,
            documents: None,
            sinks: None,
            dropout: None,
            empty_rows: EmptyRows::Zero,
        }
    }

    /// Keys, the cached ones included.
    pub fn keys(&self) -> usize {
        self.k.shape[2] + self.past.as_ref().map_or(0, |(k, _)| k.shape[2])
    }

    /// Whether queries, keys and values have no NaN nor infinity.
    pub fn is_finite(&self) -> bool {
        let past = self.past.iter().flat_map(|(k, v)| [k, v]);
        let arrays = [&self.q, &self.k, &self.v].into_iter().chain(past);
        arrays.flat_map(|array| &array.data).all(|x| x.is_finite())
    }

    /// The same call with numbers that a type has.
    pub fn rounded<T: Element>(&self) -> Call {
        let round = |array: &Array<f64>| array.map(Layout::Plain, |x| T::from_f64(x).to_f64());
        Call {
            q: round(&self.q),
            k: round(&self.k),
            v: round(&self.v),
            past: self.past.as_ref().map(|(k, v)| (round(k), round(v))),
            ..self.clone()
        }
    }

    /// The arrays in a type; the layouts are those of q, k and v, and the other way round of what
    /// is cached.
    pub fn typed<T: Element + Gap>(&self, layouts: [Layout; 3]) -> Typed<T> {
        let [q, k, v] = layouts;
        let layout = self.bias_layout;
        Typed {
            q: self.q.map(q, T::from_f64),
            k: self.k.map(k, T::from_f64),
            v: self.v.map(v, T::from_f64),
            past: self
                .past
                .as_ref()
                .map(|(past_k, past_v)| (past_k.map(v, T::from_f64), past_v.map(k, T::from_f64))),
            bias: self.bias.as_ref().map(|bias| match self.bias_dtype {
                DType::F16 => AnyArray::F16(bias.map(layout, f16::from_f64)),
                DType::Bf16 => AnyArray::Bf16(bias.map(layout, bf16::from_f64)),
                DType::F32 => AnyArray::F32(bias.map(layout, |x| x as f32)),
                DType::F64 => AnyArray::F64(bias.map(layout, |x| x)),
            }),
        }
    }

    /// The options, with the bias of `typed`.
    pub fn attention<'a, T>(&'a self, typed: &'a Typed<T>) -> Attention<'a> {
        let mask = |(mask, keeps): &'a (Array<bool>, bool)| match keeps {
            true => Mask::keep(mask.view()),
            false => Mask::drop(mask.view()),
        };
        Attention {
            bias: typed.bias.as_ref().map(|bias| Bias(bias.view())),
            masks: self.masks.iter().map(mask).collect(),
            ..self.options()
        }
    }

    /// The options without bias and masks.
    pub fn options(&self) -> Attention<'static> {
        Attention {
            scale: self.scale,
            softcap: self.softcap,
            bias: None,
            alibi: self.alibi.clone().map(|slopes| Alibi { slopes }),
            masks: Vec::new(),
            causal: self.causal,
            window: self.window,
            lengths: self.lengths.clone().map(KeyLengths),
            documents: self
                .documents
                .clone()
                .map(|(q, k)| Documents::with_key_lengths(q, k).unwrap()),
            sinks: self.sinks.clone().map(Sinks),
            dropout: self.dropout,
            empty_rows: self.empty_rows,
        }
    }

    /// What to show of a failing call.
    pub fn describe(&self) -> String {
        let bias = self.bias.as_ref().map(|bias| bias.shape);
        let masks = self.masks.iter().map(|(mask, keeps)| (mask.shape, keeps));
        format!(
            "q {:?} k {:?} v {:?} past {:?} bias {bias:?} masks {:?} strides {:?} {:?} {:?} {:?}",
            self.q.shape,
            self.k.shape,
            self.v.shape,
            self.past.as_ref().map(|(k, _)| k.shape),
            masks.collect::<Vec<_>>(),
            self.q.strides,
            self.k.strides,
            self.v.strides,
            self.options(),
        )
    }
}

impl<T: Element + Gap> Typed<T> {
    pub fn inputs(&self) -> Inputs<'_, T> {
        let inputs = Inputs::new(self.q.view(), self.k.view(), self.v.view()).unwrap();
        match &self.past {
            Some((k, v)) => inputs.with_past(k.view(), v.view()).unwrap(),
            None => inputs,
        }
    }
}
