//! `qkv.attention`.

use crate::arguments::Given;
use crate::array::Array;
use crate::error::{bad_value, value_error};
use crate::problem::{Number, Problem, by_kind, laid_out, laid_out_mut, rows_laid_out, same_kind};
use crate::results::hand_over;
use crate::{room, work};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use qkv::{Inputs, Part, forward_into, weights};

#[allow(clippy::too_many_arguments)] // the function that Python sees
#[pyfunction]
#[pyo3(signature = (
    q, k, v, *, scale=None, causal=None, window=None, softcap=None, keep=None, drop=None, bias=None,
    alibi=None, sinks=None, kv_lengths=None, documents=None, dropout=None, seed=None, layout="bhld",
    out=None, return_lse=false, return_weights=false
), text_signature = "(q, k, v, *, scale=None, causal=None, window=None, softcap=None, keep=None, \
drop=None, bias=None, alibi=None, sinks=None, kv_lengths=None, documents=None, dropout=0.0, \
seed=None, layout='bhld', out=None, return_lse=False, return_weights=False)")]
#[doc = include_str!("docs/attention.txt")]
pub fn attention<'py>(
    py: Python<'py>,
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    scale: Option<Bound<'py, PyAny>>,
    causal: Option<Bound<'py, PyAny>>,
    window: Option<Bound<'py, PyAny>>,
    softcap: Option<Bound<'py, PyAny>>,
    keep: Option<Bound<'py, PyAny>>,
    drop: Option<Bound<'py, PyAny>>,
    bias: Option<Bound<'py, PyAny>>,
    alibi: Option<Bound<'py, PyAny>>,
    sinks: Option<Bound<'py, PyAny>>,
    kv_lengths: Option<Bound<'py, PyAny>>,
    documents: Option<Bound<'py, PyAny>>,
    dropout: Option<Bound<'py, PyAny>>,
    seed: Option<Bound<'py, PyAny>>,
    layout: &str,
    out: Option<Bound<'py, PyAny>>,
    return_lse: bool,
    return_weights: bool,
) -> PyResult<Py<PyAny>> {
    let given = Given {
        scale,
        causal,
        window,
        softcap,
        keep,
        drop,
        bias,
        alibi,
        sinks,
        kv_lengths,
        documents,
        dropout,
        seed,
    };
    let problem = Problem::new([q, k, v], &given, layout)?;
    let wanted = Wanted {
        lse: return_lse,
        weights: return_weights,
    };
    by_kind!(problem.q.kind(), T => whole::<T>(py, problem, out, wanted))
}

/// What is wanted besides the output.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub lse: bool,
    pub weights: bool,
}

struct Computed<T> {
    output: Vec<T>,
    lse: Vec<f64>,
    /// With their shape: a cache may have grown since the call was prepared.
    weights: Option<(Vec<T>, [usize; 4])>,
}

/// Computes and hands over.
pub fn whole<T: Number>(
    py: Python<'_>,
    problem: Problem,
    out: Option<Bound<'_, PyAny>>,
    wanted: Wanted,
) -> PyResult<Py<PyAny>> {
    let (home, rank, swapped) = (problem.home(), problem.rank(), problem.swapped);
    let sizes = problem.output_sizes();
    let place = out
        .as_ref()
        .map(|out| {
            let place = Array::new("out", out)?;
            same_kind("out", &place, &problem.q)?;
            let needed = laid_out(sizes, swapped, rank);
            if place.shape() != needed {
                return Err(bad_value(
                    "out",
                    format!("shape {:?}", place.shape()),
                    &format!("the result has shape {needed:?}"),
                ));
            }
            place
                .for_output("out", &problem.arrays())
                .map(|place| place.heads_first(swapped))
        })
        .transpose()?;
    // Also lse, and the list of queries without a key.
    let mut bytes = 32.0 * room::count(&sizes[..3]);
    if place.is_none() {
        bytes += size_of::<T>() as f64 * room::count(&sizes);
    }
    if wanted.weights {
        bytes += size_of::<T>() as f64 * room::count(&problem.weights_sizes());
    }
    room::check("attention", bytes)?;
    let computed = work::run(py, problem.flops(), move || {
        compute::<T>(&problem, place, wanted)
    })?
    .map_err(value_error)?;
    let output = match out {
        Some(out) => out.unbind(),
        None => hand_over(py, home, &laid_out(sizes, swapped, rank), computed.output)?,
    };
    if !wanted.lse && computed.weights.is_none() {
        return Ok(output);
    }
    let mut all = vec![output];
    if wanted.lse {
        let shape = rows_laid_out(sizes, rank);
        all.push(hand_over(py, home, &shape, computed.lse)?);
    }
    if let Some((weights, sizes)) = computed.weights {
        all.push(hand_over(py, home, &sizes[4 - rank..], weights)?);
    }
    Ok(PyTuple::new(py, all)?.into_any().unbind())
}

fn compute<T: Number>(
    problem: &Problem,
    place: Option<Array>,
    wanted: Wanted,
) -> qkv::Result<Computed<T>> {
    problem.with_inputs(|inputs| compute_from(problem, &inputs, place, wanted))
}

fn compute_from<T: Number>(
    problem: &Problem,
    inputs: &Inputs<'_, T>,
    place: Option<Array>,
    wanted: Wanted,
) -> qkv::Result<Computed<T>> {
    let attention = problem.options.attention()?;
    attention.check(inputs)?;
    let options = work::options(problem.flops());
    let mut output = Vec::new();
    let rows = match place {
        Some(mut place) => forward_into(&attention, inputs, &options, place.view_mut()?)?,
        None => {
            let sizes = problem.output_sizes();
            output = vec![T::from_f64(0.0); sizes.iter().product()];
            let view = laid_out_mut(&mut output, sizes, problem.swapped)?;
            forward_into(&attention, inputs, &options, view)?
        }
    };
    let weights = if wanted.weights {
        let all = Part::all(inputs);
        let numbers = weights(&attention, inputs, &options, &all)?;
        Some((numbers.into_data(), inputs.scores_shape()))
    } else {
        None
    };
    Ok(Computed {
        output,
        lse: rows.lse.into_data(),
        weights,
    })
}
