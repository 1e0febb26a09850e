//! `qkv.MultiHeadAttention`.

use crate::arguments::{Given, Options, count, widened};
use crate::array::{Array, Kind};
use crate::error::{bad_value, named, type_error, value_error};
use crate::problem::by_kind;
use crate::results::hand_over;
use crate::steps::{Explanation, SQUARES, Shown, mapping};
use crate::{room, work};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyType};
use qkv::{Attention, Block, Element, Layer, Linear, Steps, Tensor};

/// The weights of a layer.
#[derive(Clone)]
pub struct Weights {
    q: Linear,
    k: Linear,
    v: Linear,
    output: Option<Linear>,
    heads: usize,
    kv_heads: usize,
}

impl Weights {
    /// Refuses weights that no tokens could go through.
    fn fitting(self) -> PyResult<Weights> {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
            return Err(bad_value(
                "heads",
                format!("{heads} heads with {kv_heads} heads of keys and values"),
                "give at least one of each, the first a multiple of the second",
            ));
        }
        for (name, linear, heads) in [
            ("wq", &self.q, heads),
            ("wk", &self.k, kv_heads),
            ("wv", &self.v, kv_heads),
        ] {
            if linear.out_width() % heads != 0 || linear.out_width() == 0 {
                return Err(bad_value(
                    name,
                    format!("{} columns for {heads} heads", linear.out_width()),
                    "the columns must divide evenly among the heads",
                ));
            }
        }
        let (head_dim, value_dim) = (self.q.out_width() / heads, self.v.out_width() / kv_heads);
        let pairs = [(
            "wk",
            "columns",
            self.k.out_width(),
            head_dim * kv_heads,
            "kv_heads times the head_dim of wq",
        )];
        let output = self.output.as_ref().map(|output| {
            (
                "wo",
                "rows",
                output.in_width(),
                value_dim * heads,
                "heads times the value_dim of wv",
            )
        });
        for (name, what, found, needed, meaning) in pairs.into_iter().chain(output) {
            if found != needed {
                return Err(bad_value(
                    name,
                    format!("{found} {what}"),
                    &format!("{needed} are needed, {meaning}; a weight is [in, out] here"),
                ));
            }
        }
        Ok(self)
    }

    /// The layer with these options.
    pub fn layer<'a>(&self, attention: Attention<'a>) -> Layer<'a> {
        Layer {
            q: self.q.clone(),
            k: self.k.clone(),
            v: self.v.clone(),
            heads: self.heads,
            kv_heads: self.kv_heads,
            sinusoidal: None,
            block: Block {
                attention,
                concatenate: true,
                output: self.output.clone(),
                ..Block::default()
            },
            residual: false,
        }
    }
}

#[doc = include_str!("docs/multi_head_attention.txt")]
#[pyclass(frozen, module = "qkv")]
pub struct MultiHeadAttention {
    weights: Weights,
}

/// x, and what keys and values are made from, with the options.
struct Call {
    weights: Weights,
    x: Tensor<f64>,
    context: Option<Tensor<f64>>,
    options: Options,
}

#[pymethods]
impl MultiHeadAttention {
    #[allow(clippy::too_many_arguments)] // the constructor that Python sees
    #[new]
    #[pyo3(signature = (wq, wk, wv, wo=None, *, heads, kv_heads=None, bq=None, bk=None, bv=None, bo=None))]
    fn new(
        wq: &Bound<'_, PyAny>,
        wk: &Bound<'_, PyAny>,
        wv: &Bound<'_, PyAny>,
        wo: Option<&Bound<'_, PyAny>>,
        heads: &Bound<'_, PyAny>,
        kv_heads: Option<&Bound<'_, PyAny>>,
        bq: Option<&Bound<'_, PyAny>>,
        bk: Option<&Bound<'_, PyAny>>,
        bv: Option<&Bound<'_, PyAny>>,
        bo: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if wo.is_none() && bo.is_some() {
            return Err(bad_value("bo", "a bias without wo", "give wo too"));
        }
        let heads = count("heads", heads)?;
        let weights = Weights {
            q: linear(["wq", "bq"], wq, bq)?,
            k: linear(["wk", "bk"], wk, bk)?,
            v: linear(["wv", "bv"], wv, bv)?,
            output: wo.map(|wo| linear(["wo", "bo"], wo, bo)).transpose()?,
            heads,
            kv_heads: kv_heads.map_or(Ok(heads), |kv_heads| count("kv_heads", kv_heads))?,
        };
        Ok(MultiHeadAttention {
            weights: weights.fitting()?,
        })
    }

    /// From the state dict of a torch.nn.MultiheadAttention, whose weights are stored [out, in] and
    /// usually packed into one; prefix is what stands before the names of this layer.
    #[classmethod]
    #[pyo3(signature = (state, heads, *, prefix=""))]
    fn from_torch(
        _class: &Bound<'_, PyType>,
        state: &Bound<'_, PyAny>,
        heads: &Bound<'_, PyAny>,
        prefix: &str,
    ) -> PyResult<Self> {
        if !state.hasattr("get")? {
            return Err(type_error(
                "state",
                named(state)?,
                "give the state dict of a torch.nn.MultiheadAttention, its .state_dict()",
            ));
        }
        let get = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            let found = state.call_method1("get", (format!("{prefix}{name}"),))?;
            Ok((!found.is_none()).then_some(found))
        };
        for name in ["bias_k", "bias_v"] {
            if get(name)?.is_some() {
                return Err(bad_value(
                    "state",
                    format!("{name} (add_bias_kv)"),
                    "append its key and value to a context of your own",
                ));
            }
        }
        let need = |name: &str| {
            get(name)?.ok_or_else(|| {
                bad_value(
                    "state",
                    format!("a state without {prefix}{name}"),
                    "give the state dict of a torch.nn.MultiheadAttention, and its prefix",
                )
            })
        };
        let packed = get("in_proj_weight")?;
        let bias = get("in_proj_bias")?;
        let transposed = |weight: Bound<'_, PyAny>| weight.getattr("T").map(Bound::unbind);
        let py = state.py();
        let mut weights = Vec::new();
        for (at, name) in ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
            .into_iter()
            .enumerate()
        {
            let weight = match &packed {
                Some(packed) => third("in_proj_weight", packed, at)?,
                None => need(name)?,
            };
            let bias = bias
                .as_ref()
                .map(|bias| third("in_proj_bias", bias, at))
                .transpose()?;
            weights.push(linear(
                [
                    ["wq", "in_proj_bias"],
                    ["wk", "in_proj_bias"],
                    ["wv", "in_proj_bias"],
                ][at],
                transposed(weight)?.bind(py),
                bias.as_ref(),
            )?);
        }
        let output = linear(
            ["wo", "out_proj.bias"],
            transposed(need("out_proj.weight")?)?.bind(py),
            get("out_proj.bias")?.as_ref(),
        )?;
        let heads = count("heads", heads)?;
        let [q, k, v] = <[Linear; 3]>::try_from(weights)
            .map_err(|_| bad_value("state", "another number of weights", "three are needed"))?;
        let weights = Weights {
            q,
            k,
            v,
            output: Some(output),
            heads,
            kv_heads: heads,
        };
        Ok(MultiHeadAttention {
            weights: weights.fitting()?,
        })
    }

    /// The layer's output for tokens x, [length, width] or [batch, length, width], in x's dtype; with
    /// a context of the same kind, keys and values are made from that. Options are those of
    /// qkv.attention.
    #[pyo3(signature = (x, context=None, **options))]
    fn __call__(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        context: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let array = Array::new("x", x)?;
        let (kind, rank, home) = (array.kind(), array.rank(), array.home);
        let (steps, _) = self.run(py, x, context, options)?;
        let Some((_, result)) = steps.result() else {
            return Err(bad_value("x", "nothing", "give tokens"));
        };
        let shape = &result.shape()[3 - rank..];
        by_kind!(kind, T => {
            let numbers = result.data().iter().map(|&number| T::from_f64(number)).collect();
            hand_over::<T>(py, home, shape, numbers)
        })
    }

    /// Every intermediate by name, from q to projected, in float64.
    #[pyo3(signature = (x, context=None, **options))]
    fn steps<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        mapping(py, &self.run(py, x, context, options)?.0)
    }

    /// The worked calculation, projections included, as qkv.explain gives it.
    #[pyo3(signature = (x, context=None, *, lang="en", digits=None, rows=None, tokens=None,
                        contrast=false, **options),
           text_signature = "($self, x, context=None, *, lang='en', digits=4, rows=None, tokens=None, \
contrast=False, **options)")]
    #[allow(clippy::too_many_arguments)] // the method that Python sees
    fn explain(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        context: Option<&Bound<'_, PyAny>>,
        lang: &str,
        digits: Option<&Bound<'_, PyAny>>,
        rows: Option<&Bound<'_, PyAny>>,
        tokens: Option<Vec<String>>,
        contrast: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Explanation> {
        let (steps, call) = self.run(py, x, context, options)?;
        let shown = Shown {
            lang,
            digits,
            rows,
            tokens,
            contrast,
        };
        let layer = Some((call.weights, call.x, call.context));
        Explanation::new(py, shown, steps, call.options, layer)
    }

    fn __repr__(&self) -> String {
        let Weights {
            q,
            v,
            heads,
            kv_heads,
            ..
        } = &self.weights;
        format!(
            "<qkv.MultiHeadAttention of {} columns, {heads} query heads of {}, {kv_heads} key and \
             value heads of {}>",
            q.in_width(),
            q.out_width() / heads.max(&1),
            v.out_width() / kv_heads.max(&1)
        )
    }
}

impl MultiHeadAttention {
    fn run(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        context: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Steps, Call)> {
        let given = Given::take(options)?;
        let call = Call {
            weights: self.weights.clone(),
            x: tokens("x", x)?,
            context: context.map(|x| tokens("context", x)).transpose()?,
            options: Options::new(&given, self.weights.heads)?,
        };
        let (length, width) = (call.x.shape()[1] as f64, self.weights.q.out_width() as f64);
        let keys = call.context.as_ref().unwrap_or(&call.x).shape()[1] as f64;
        let batch = call.x.shape()[0] as f64;
        room::check(
            "MultiHeadAttention",
            SQUARES * batch * self.weights.heads as f64 * length * keys
                + 64.0 * batch * (length + keys) * width,
        )?;
        // Plain loops: long before the fast path would be.
        let flops = 100.0 * call.x.data().len() as f64 * (width + length);
        work::run(py, flops, move || {
            let steps = {
                let layer = call.weights.layer(call.options.attention()?);
                layer.steps(&call.x, call.context.as_ref(), None)?
            };
            Ok((steps, call))
        })?
        .map_err(value_error)
    }
}

/// One of the three that torch packs into one, by rows; of a tensor or an array.
fn third<'py>(name: &str, all: &Bound<'py, PyAny>, at: usize) -> PyResult<Bound<'py, PyAny>> {
    let rows = all.len()?;
    if rows % 3 != 0 {
        return Err(bad_value(
            "state",
            format!("{name} of {rows} rows"),
            "it holds those of queries, keys and values, as many of each",
        ));
    }
    let (from, to) = (at * (rows / 3), (at + 1) * (rows / 3));
    all.get_item(PySlice::new(all.py(), from as isize, to as isize, 1))
}

/// Tokens, [batch, length, width].
fn tokens(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Tensor<f64>> {
    let array = Array::new(argument, value)?;
    if array.kind() == Kind::Bool || !(2..4).contains(&array.rank()) {
        return Err(bad_value(
            argument,
            format!("{} of shape {:?}", array.kind().name(), array.shape()),
            "give numbers of shape [length, width] or [batch, length, width]",
        ));
    }
    let numbers = widened(argument, &array)?;
    Tensor::new(&array.sizes()[1..], numbers).map_err(value_error)
}

/// A weight [in, out] with its bias [out].
fn linear(
    [name, bias_name]: [&'static str; 2],
    weight: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
) -> PyResult<Linear> {
    let numbers = |name, value: &Bound<'_, PyAny>| -> PyResult<(Vec<usize>, Vec<f64>)> {
        let array = Array::new(name, value)?;
        if array.kind() == Kind::Bool {
            return Err(type_error(name, "dtype bool", "give numbers"));
        }
        Ok((array.shape().to_vec(), widened(name, &array)?))
    };
    let (shape, weight) = numbers(name, weight)?;
    let weight = Tensor::new(&shape, weight).map_err(value_error)?;
    let bias = bias.map(|bias| numbers(bias_name, bias)).transpose()?;
    if let (Some((shape, _)), &[_, out]) = (&bias, weight.shape())
        && *shape != [out]
    {
        return Err(bad_value(
            bias_name,
            format!("shape {shape:?}"),
            &format!("one number for each column of {name} is needed, [{out}]"),
        ));
    }
    let bias = bias.map(|(_, bias)| bias);
    Linear::new(name, weight, bias).map_err(value_error)
}
