//! `qkv.rotary`.

use crate::arguments::{count, in_order, number, swapped};
use crate::array::{Array, Kind};
use crate::error::{bad_value, named, type_error, value_error};
use crate::problem::{Number, by_kind, laid_out, operand};
use crate::results::hand_over;
use crate::{room, work};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use qkv::position::{Pairing, Positions, Rotary, Scaling};

#[allow(clippy::too_many_arguments)] // the function that Python sees
#[pyfunction]
#[pyo3(signature = (x, positions=None, *, base=None, interleaved=false, dim=None, scaling=None, cos=None, sin=None, layout="bhld"),
       text_signature = "(x, positions=None, *, base=10000.0, interleaved=False, dim=None, \
scaling=None, cos=None, sin=None, layout='bhld')")]
#[doc = include_str!("docs/rotary.txt")]
pub fn rotary(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    positions: Option<&Bound<'_, PyAny>>,
    base: Option<&Bound<'_, PyAny>>,
    interleaved: bool,
    dim: Option<&Bound<'_, PyAny>>,
    scaling: Option<&Bound<'_, PyAny>>,
    cos: Option<&Bound<'_, PyAny>>,
    sin: Option<&Bound<'_, PyAny>>,
    layout: &str,
) -> PyResult<Py<PyAny>> {
    let swapped = swapped(layout)?;
    let x = operand("x", x, swapped)?;
    let rotary = Rotary {
        pairing: if interleaved {
            Pairing::Interleaved
        } else {
            Pairing::Halves
        },
        base: base.map_or(Ok(10_000.0), |base| number("base", base))?,
        dim: dim.map(|dim| count("dim", dim)).transpose()?,
        scaling: scaling.map_or(Ok(Scaling::None), read_scaling)?,
    };
    let places = match (positions, cos, sin) {
        (None, Some(cos), Some(sin)) => Places::Tables(table("cos", cos)?, table("sin", sin)?),
        (_, None, None) => match positions {
            None => Places::From(0),
            Some(positions) => read_places(positions, x.sizes()[0])?,
        },
        _ => {
            return Err(bad_value(
                "cos, sin",
                "one without the other, or beside positions,",
                "give both, a row for each token, or neither",
            ));
        }
    };
    let (home, sizes, rank) = (x.home, x.sizes(), x.rank());
    let numbers = room::count(&sizes);
    by_kind!(x.kind(), T => {
        room::check("rotary", numbers * (8.0 + size_of::<T>() as f64))?;
        let numbers = work::run(py, 100.0 * numbers, move || turned::<T>(&rotary, &x, &places, swapped))?;
        hand_over(py, home, &laid_out(sizes, swapped, rank), numbers.map_err(value_error)?)
    })
}

enum Places {
    From(i64),
    Each(Vec<Vec<i64>>),
    Tables(Array, Array),
}

/// A table of cosines or sines, [length, dim/2] or [batch, length, dim/2], as [batch, 1, length,
/// dim/2].
fn table(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<Array> {
    let table = Array::new(argument, value)?;
    if table.kind() == Kind::Bool || !(2..4).contains(&table.rank()) {
        return Err(bad_value(
            argument,
            format!("{} of shape {:?}", table.kind().name(), table.shape()),
            "give numbers of shape [length, dim/2] or [batch, length, dim/2]",
        ));
    }
    // Three axes are seen as [1, batch, length, dim/2].
    Ok(table.with_axes_exchanged(0, 1))
}

fn turned<T: Number>(
    rotary: &Rotary,
    x: &Array,
    places: &Places,
    swapped: bool,
) -> qkv::Result<Vec<T>> {
    let x = x.view::<T>()?;
    let turned = match places {
        Places::From(start) => rotary.apply(x, &Positions::From(*start))?,
        Places::Each(lists) => rotary.apply(x, &Positions::Each(lists))?,
        Places::Tables(cos, sin) => rotary.pairing.rotate(x, cos.any_view()?, sin.any_view()?)?,
    };
    let mut view = turned.view()?;
    if swapped {
        view = view.swap_axes(1, 2);
    }
    Ok(in_order(view).map(T::from_f64).collect())
}

/// An int for the first token, a list for all batch entries, or a list for each.
fn read_places(positions: &Bound<'_, PyAny>, batch: usize) -> PyResult<Places> {
    const REMEDY: &str = "give an int (where the first token stands), or ints of shape [length] or \
                          [batch, length]";
    let refuse = |value: &Bound<'_, PyAny>| -> PyErr {
        match value.repr() {
            Ok(text) => type_error("positions", text, REMEDY),
            Err(error) => error,
        }
    };
    if positions.is_instance_of::<PyInt>() {
        let start = positions.extract().map_err(|_| {
            let remedy = "give positions from -2^53 to 2^53";
            bad_value("positions", "an int beyond 64 bits", remedy)
        })?;
        return Ok(Places::From(start));
    }
    let mut lists: Vec<Vec<i64>> = Vec::new();
    let mut flat = Vec::new();
    for item in positions.try_iter().map_err(|_| refuse(positions))? {
        let item = item?;
        match item.extract::<i64>() {
            Ok(place) => flat.push(place),
            Err(_) => lists.push(item.extract().map_err(|_| refuse(&item))?),
        }
    }
    match (flat.is_empty(), lists.is_empty()) {
        (false, false) => Err(refuse(positions)),
        (_, true) => Ok(Places::Each(vec![flat; batch])),
        (true, false) => Ok(Places::Each(lists)),
    }
}

/// A factor, or what a Hugging Face configuration says under "rope_scaling".
fn read_scaling(scaling: &Bound<'_, PyAny>) -> PyResult<Scaling> {
    let Ok(table) = scaling.cast::<PyDict>() else {
        let factor = number("scaling", scaling)?;
        return Ok(Scaling::Linear { factor });
    };
    let get = |key: &str| -> PyResult<f64> {
        match table.get_item(key)? {
            Some(value) => number(key, &value),
            None => Err(bad_value(
                "scaling",
                format!("a table without {key:?}"),
                "add it",
            )),
        }
    };
    let kind = match table.get_item("rope_type")? {
        Some(kind) => Some(kind),
        None => table.get_item("type")?,
    };
    let kind = match &kind {
        Some(kind) => match kind.cast::<PyString>() {
            Ok(kind) => kind.to_string_lossy().into_owned(),
            Err(_) => return Err(type_error("scaling", named(kind)?, "rope_type is a str")),
        },
        None => String::new(),
    };
    match kind.as_str() {
        "default" => Ok(Scaling::None),
        "linear" => Ok(Scaling::Linear {
            factor: get("factor")?,
        }),
        "llama3" => Ok(Scaling::Llama3 {
            factor: get("factor")?,
            low_freq_factor: get("low_freq_factor")?,
            high_freq_factor: get("high_freq_factor")?,
            original_length: get("original_max_position_embeddings")?,
        }),
        "yarn" => yarn(
            table,
            get("factor")?,
            get("original_max_position_embeddings")?,
        ),
        other => Err(bad_value(
            "scaling",
            format!("rope_type {other:?}"),
            "\"default\", \"linear\", \"llama3\" and \"yarn\" are known here",
        )),
    }
}

/// YaRN, whose table says much only where it departs from the paper.
fn yarn(table: &Bound<'_, PyDict>, factor: f64, original_length: f64) -> PyResult<Scaling> {
    let get = |key: &str| -> PyResult<Option<f64>> {
        let value = table.get_item(key)?.filter(|value| !value.is_none());
        value.map(|value| number(key, &value)).transpose()
    };
    let part = |scale: Option<f64>| {
        scale
            .filter(|scale| *scale != 0.0)
            .map(|scale| scale * (Scaling::yarn_magnitude(factor) - 1.0) + 1.0)
    };
    let parts = (part(get("mscale")?), part(get("mscale_all_dim")?));
    let magnitude = match (get("attention_factor")?, parts) {
        (Some(given), _) => given,
        (None, (Some(one), Some(all))) => one / all,
        _ => Scaling::yarn_magnitude(factor),
    };
    Ok(Scaling::Yarn {
        factor,
        beta_fast: get("beta_fast")?.unwrap_or(32.0),
        beta_slow: get("beta_slow")?.unwrap_or(1.0),
        original_length,
        whole: match table.get_item("truncate")? {
            Some(whole) => whole.is_truthy()?,
            None => true,
        },
        magnitude,
    })
}
