//! Keywords to an [`Attention`].

use crate::array::{Array, Item};
use crate::error::{bad_value, named, type_error, value_error};
use crate::{dlpack, room};
use half::{bf16, f16};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use qkv::position::slopes;
use qkv::{
    Alibi, Attention, Bias, Causal, Documents, Dropout, Error, KeyLengths, Mask, Scale, Sinks,
    View, Window,
};

macro_rules! keywords {
    ($($name:ident)*) => {
        /// The options of attention as the caller wrote them.
        #[derive(Default)]
        pub struct Given<'py> {
            $(pub $name: Option<Bound<'py, PyAny>>,)*
        }

        impl<'py> Given<'py> {
            /// From the keywords of a call.
            ///
            /// # Errors
            /// `TypeError` for a keyword that there is not.
            pub fn take(keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
                let mut given = Given::default();
                for (key, value) in keywords.into_iter().flatten() {
                    let key = key.cast::<PyString>()?.to_string_lossy().into_owned();
                    let value = (!value.is_none()).then_some(value);
                    match key.as_str() {
                        $(stringify!($name) => given.$name = value,)*
                        _ => {
                            return Err(PyTypeError::new_err(format!(
                                "got an unexpected keyword argument '{key}'; {}the options are {}",
                                elsewhere(&key),
                                [$(stringify!($name)),*].join(", ")
                            )));
                        }
                    }
                }
                Ok(given)
            }
        }
    };
}

keywords! {
    scale causal window softcap keep drop bias alibi sinks kv_lengths documents dropout seed
}

/// What other libraries' keywords are called here.
fn elsewhere(keyword: &str) -> &'static str {
    match keyword {
        "is_causal" => "write causal=True, \"top-left\" or \"bottom-right\"; ",
        "mask" | "attn_mask" | "attention_mask" => {
            "write keep= (bool, True takes part), drop= (bool, True is left out) or bias= (numbers \
             added to the scores); "
        }
        "key_padding_mask" => "write kv_lengths=, or drop= of shape [batch, 1, 1, keys]; ",
        "dropout_p" => "write dropout=, and seed=; ",
        "enable_gqa" => "heads of q that share heads of k and v need no option; ",
        "scaling" | "softmax_scale" | "sm_scale" => "write scale=; ",
        "window_size" | "sliding_window" => "write window=(back, forward); ",
        "logits_soft_cap" | "logit_cap" | "soft_cap" => "write softcap=; ",
        "alibi_slopes" => "write alibi=; ",
        "s_aux" | "sink" => "write sinks=; ",
        "need_weights" | "output_attentions" => "write return_weights=True to attention; ",
        _ => "",
    }
}

/// The options, with the arrays that they borrow.
#[derive(Default)]
pub struct Options {
    scale: Scale,
    softcap: Option<f64>,
    causal: Option<Causal>,
    window: Option<Window>,
    lengths: Option<KeyLengths>,
    documents: Option<Documents>,
    keep: Option<Array>,
    drop: Option<Array>,
    bias: Option<Array>,
    alibi: Option<Alibi>,
    sinks: Option<Sinks>,
    dropout: Option<Dropout>,
}

impl Options {
    /// From keywords; `heads` is the number of query heads.
    ///
    /// # Errors
    /// `TypeError` or `ValueError` for what means nothing. What does not fit the inputs is found
    /// by the engine.
    pub fn new(given: &Given<'_>, heads: usize) -> PyResult<Options> {
        let array = |name, value: &Option<Bound<'_, PyAny>>| {
            value
                .as_ref()
                .map(|value| Array::new(name, value))
                .transpose()
        };
        let mask = |name, value| {
            array(name, value)?
                .map(|mask| mask.with_truths_checked(name))
                .transpose()
        };
        let bias = array("bias", &given.bias)?;
        if let Some(bias) = &bias
            && bias.kind() == bool::KIND
        {
            return Err(type_error(
                "bias",
                "dtype bool",
                "a bias is added to the scores; a mask goes to keep= (True takes part) or drop=",
            ));
        }
        Ok(Options {
            scale: match &given.scale {
                Some(scale) => Scale::Factor(number("scale", scale)?),
                None => Scale::InverseSqrt,
            },
            softcap: given
                .softcap
                .as_ref()
                .map(|cap| number("softcap", cap))
                .transpose()?,
            causal: given.causal.as_ref().map_or(Ok(None), causal)?,
            window: given.window.as_ref().map(window).transpose()?,
            lengths: given
                .kv_lengths
                .as_ref()
                .map(|lengths| counts("kv_lengths", lengths).map(KeyLengths))
                .transpose()?,
            documents: given.documents.as_ref().map(documents).transpose()?,
            keep: mask("keep", &given.keep)?,
            drop: mask("drop", &given.drop)?,
            bias,
            alibi: given
                .alibi
                .as_ref()
                .map_or(Ok(None), |value| alibi(value, heads))?,
            sinks: given
                .sinks
                .as_ref()
                .map(|sinks| numbers("sinks", sinks).map(Sinks))
                .transpose()?,
            dropout: dropout(given)?,
        })
    }

    /// What the engine is asked for.
    ///
    /// # Errors
    /// None once the arrays were checked.
    pub fn attention(&self) -> qkv::Result<Attention<'_>> {
        let mut masks = Vec::new();
        if let Some(keep) = &self.keep {
            masks.push(Mask::keep(keep.view()?));
        }
        if let Some(drop) = &self.drop {
            masks.push(Mask::drop(drop.view()?));
        }
        Ok(Attention {
            scale: self.scale,
            softcap: self.softcap,
            bias: self
                .bias
                .as_ref()
                .map(Array::any_view)
                .transpose()?
                .map(Bias),
            alibi: self.alibi.clone(),
            masks,
            causal: self.causal,
            window: self.window,
            lengths: self.lengths.clone(),
            documents: self.documents.clone(),
            sinks: self.sinks.clone(),
            dropout: self.dropout,
            ..Attention::default()
        })
    }

    /// Axes of the bias, if there is one.
    pub fn bias_rank(&self) -> Option<usize> {
        self.bias.as_ref().map(Array::rank)
    }

    /// The same with arrays of its own, for keeping.
    ///
    /// # Errors
    /// Those of handing numbers to NumPy.
    pub fn kept(mut self, py: Python<'_>) -> PyResult<Options> {
        for array in [&mut self.keep, &mut self.drop, &mut self.bias] {
            if let Some(seen) = array {
                *array = Some(seen.copied(py)?);
            }
        }
        Ok(self)
    }

    /// The arrays, by keyword.
    pub fn arrays(&self) -> impl Iterator<Item = (&'static str, &Array)> {
        [
            ("keep", &self.keep),
            ("drop", &self.drop),
            ("bias", &self.bias),
        ]
        .into_iter()
        .filter_map(|(name, array)| Some((name, array.as_ref()?)))
    }
}

/// Whether lengths come before heads.
///
/// # Errors
/// `ValueError` for a layout that there is not.
pub fn swapped(layout: &str) -> PyResult<bool> {
    match layout {
        "bhld" => Ok(false),
        "blhd" => Ok(true),
        other => Err(bad_value(
            "layout",
            format!("{other:?}"),
            "choose \"bhld\" ([batch, heads, length, head_dim]) or \"blhd\" ([batch, length, heads, \
             head_dim])",
        )),
    }
}

/// A finite or other number; not a truth value.
pub fn number(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    if truth(value).is_some() {
        return Err(type_error(argument, "a bool", "give a number"));
    }
    value.extract().or_else(|_| {
        Err(if value.is_instance_of::<PyInt>() {
            bad_value(argument, "an int beyond all floats", "give a finite number")
        } else {
            type_error(argument, named(value)?, "give a number")
        })
    })
}

/// A truth value of Python's or NumPy's.
fn truth(value: &Bound<'_, PyAny>) -> Option<bool> {
    if let Ok(truth) = value.cast::<PyBool>() {
        return Some(truth.is_true());
    }
    let kind = value.get_type();
    let name = kind.name().ok()?.to_string();
    let numpys = matches!(&*name, "bool" | "bool_") && kind.module().ok()? == "numpy";
    numpys.then(|| value.is_truthy().ok()).flatten()
}

fn causal(value: &Bound<'_, PyAny>) -> PyResult<Option<Causal>> {
    const REMEDY: &str = "give True (as many keys as queries), \"top-left\", \"bottom-right\", or an \
                          int N (query i sees keys 0 to i + N)";
    if let Some(on) = truth(value) {
        return Ok(on.then_some(Causal::Square));
    }
    if let Ok(name) = value.cast::<PyString>() {
        return match &*name.to_string_lossy() {
            "top-left" => Ok(Some(Causal::TopLeft)),
            "bottom-right" => Ok(Some(Causal::BottomRight)),
            other => Err(bad_value("causal", format!("{other:?}"), REMEDY)),
        };
    }
    if value.is_instance_of::<PyFloat>() {
        return Err(type_error("causal", "a float", REMEDY));
    }
    match value.extract() {
        Ok(offset) => Ok(Some(Causal::Offset(offset))),
        Err(_) if value.is_instance_of::<PyInt>() => Err(bad_value(
            "causal",
            value.str()?,
            "give an offset that fits 64 bits",
        )),
        Err(_) => Err(type_error("causal", named(value)?, REMEDY)),
    }
}

fn window(value: &Bound<'_, PyAny>) -> PyResult<Window> {
    const REMEDY: &str = "give (back, forward): how many keys before and after the own one are \
                          seen, None for no limit; \"w keys, the own one included\" is (w - 1, 0)";
    let is_pair = value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>();
    if !is_pair || value.len()? != 2 {
        return Err(type_error("window", value.repr()?, REMEDY));
    }
    let side = |at| -> PyResult<Option<usize>> {
        let side = value.get_item(at)?;
        if side.is_none() {
            return Ok(None);
        }
        count("window", &side).map(Some)
    };
    Ok(Window {
        back: side(0)?,
        forward: side(1)?,
    })
}

fn documents(value: &Bound<'_, PyAny>) -> PyResult<Documents> {
    // Two lists in a tuple: numbers of queries and of keys.
    if let Ok(pair) = value.cast::<PyTuple>()
        && pair.len() == 2
        && !pair.get_item(0)?.is_instance_of::<PyInt>()
    {
        let queries = counts("documents", &pair.get_item(0)?)?;
        let keys = counts("documents", &pair.get_item(1)?)?;
        return Documents::with_key_lengths(queries, keys).map_err(value_error);
    }
    counts("documents", value).map(Documents::new)
}

fn alibi(value: &Bound<'_, PyAny>, heads: usize) -> PyResult<Option<Alibi>> {
    if let Some(on) = truth(value) {
        return Ok(on.then(|| Alibi {
            slopes: slopes(heads),
        }));
    }
    numbers("alibi", value).map(|slopes| Some(Alibi { slopes }))
}

fn dropout(given: &Given<'_>) -> PyResult<Option<Dropout>> {
    let p = match &given.dropout {
        Some(value) => number("dropout", value)?,
        None => 0.0,
    };
    if p == 0.0 {
        return Ok(None);
    }
    let Some(seed) = &given.seed else {
        return Err(bad_value(
            "dropout",
            format!("{p} without a seed"),
            "give seed=, an int: the same seed drops the same weights, in the backward pass too",
        ));
    };
    let seed = seed.extract().map_err(|_| {
        type_error(
            "seed",
            "not a whole number of 64 bits",
            "give an int from 0 to 2**64 - 1",
        )
    })?;
    Ok(Some(Dropout { p, seed }))
}

/// A number of something, from 0.
pub fn count(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let whole = (!value.is_instance_of::<PyFloat>() && truth(value).is_none())
        .then(|| value.extract::<i64>().ok())
        .flatten();
    match whole.map(usize::try_from) {
        Some(Ok(count)) => Ok(count),
        Some(Err(_)) => Err(bad_value(
            argument,
            value.str()?,
            "give an int of at least 0",
        )),
        None => Err(type_error(
            argument,
            value.repr()?,
            "give ints of at least 0",
        )),
    }
}

/// A list of such.
pub fn counts(argument: &str, values: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let items = values
        .try_iter()
        .map_err(|_| type_error(argument, "no list", "give a list of ints"))?;
    items.map(|item| count(argument, &item?)).collect()
}

/// A list of numbers: a sequence, or an array of one axis.
pub fn numbers(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    match Array::new(argument, value) {
        Ok(array) if array.kind() != bool::KIND => {
            if array.rank() != 1 {
                return Err(bad_value(
                    argument,
                    format!("shape {:?}", array.shape()),
                    "a list of numbers is needed, one axis",
                ));
            }
            return widened(argument, &array);
        }
        // A tensor that is refused must not be read number by number, past what it was refused for.
        Err(error) if dlpack::exchange(value)?.is_some() => return Err(error),
        _ => {}
    }
    let items = value
        .try_iter()
        .map_err(|_| type_error(argument, "no list", "give a list of numbers"))?;
    items.map(|item| number(argument, &item?)).collect()
}

/// The numbers of an argument in `f64`, row-major.
///
/// # Errors
/// `MemoryError` for more than fit, `ValueError` for truth values.
pub fn widened(argument: &str, array: &Array) -> PyResult<Vec<f64>> {
    room::check(argument, 8.0 * room::count(array.shape()))?;
    f64s(array).map_err(value_error)
}

/// The numbers of an array in `f64`, row-major.
///
/// # Errors
/// [`Error::Option`] for truth values.
pub fn f64s(array: &Array) -> qkv::Result<Vec<f64>> {
    fn widened<T: Item + qkv::Element>(array: &Array) -> Result<Vec<f64>, Error> {
        Ok(in_order(array.view::<T>()?).map(T::to_f64).collect())
    }
    match array.kind() {
        f16::KIND => widened::<f16>(array),
        bf16::KIND => widened::<bf16>(array),
        f32::KIND => widened::<f32>(array),
        _ => widened::<f64>(array),
    }
}

/// The elements of a view, row-major.
pub fn in_order<T: Copy>(view: View<'_, T>) -> impl Iterator<Item = T> {
    let [a, b, c, d] = view.shape();
    (0..a).flat_map(move |i| {
        (0..b).flat_map(move |j| {
            (0..c).flat_map(move |k| (0..d).map(move |l| view.get([i, j, k, l])))
        })
    })
}
