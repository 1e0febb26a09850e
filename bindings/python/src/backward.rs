//! `qkv.attention_backward` and `qkv.merge`.

use crate::arguments::{Given, in_order, numbers, swapped, widened};
use crate::array::Array;
use crate::error::{bad_value, named, type_error, value_error};
use crate::problem::{
    Number, Problem, by_kind, laid_out, laid_out_mut, operand, rows_laid_out, same_kind,
};
use crate::results::hand_over;
use crate::{room, work};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use qkv::{GradientsMut, Inputs, Output, Saved, Sinks, Store, Tensor, ViewMut, backward_into};

/// What attention_backward returns: the gradients q, k, v, and bias and sinks where there are any.
#[pyclass(frozen, get_all, module = "qkv")]
pub struct Gradients {
    /// [batch, heads, queries, head_dim]
    q: Py<PyAny>,
    /// [batch, kv_heads, keys, head_dim]
    k: Py<PyAny>,
    /// [batch, kv_heads, keys, value_dim]
    v: Py<PyAny>,
    /// The shape of the bias.
    bias: Option<Py<PyAny>>,
    /// [heads]
    sinks: Option<Py<PyAny>>,
}

#[pymethods]
impl Gradients {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut parts = Vec::new();
        for (name, value) in [
            ("q", Some(&self.q)),
            ("k", Some(&self.k)),
            ("v", Some(&self.v)),
            ("bias", self.bias.as_ref()),
            ("sinks", self.sinks.as_ref()),
        ] {
            if let Some(value) = value {
                parts.push(format!("{name}={}", value.bind(py).repr()?));
            }
        }
        Ok(format!("Gradients({})", parts.join(", ")))
    }
}

#[allow(clippy::too_many_arguments)] // the function that Python sees
#[pyfunction]
#[pyo3(signature = (
    grad_output, q, k, v, output, lse, *, bias_gradient=true, layout="bhld", **options
))]
#[doc = include_str!("docs/attention_backward.txt")]
pub fn attention_backward(
    py: Python<'_>,
    grad_output: &Bound<'_, PyAny>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    output: &Bound<'_, PyAny>,
    lse: &Bound<'_, PyAny>,
    bias_gradient: bool,
    layout: &str,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Gradients> {
    let given = Given::take(options)?;
    let problem = Problem::new([q, k, v], &given, layout)?;
    let output = operand("output", output, problem.swapped)?;
    let grad_output = operand("grad_output", grad_output, problem.swapped)?;
    same_kind("output", &output, &problem.q)?;
    same_kind("grad_output", &grad_output, &problem.q)?;
    let lse = Array::new("lse", lse)?;
    let lse = lse_of(
        &lse,
        problem.output_sizes(),
        "give what attention(…, return_lse=True) gave, one a query and head",
    )?;
    let call = Call {
        problem,
        output,
        grad_output,
        lse,
        bias_gradient,
    };
    by_kind!(call.problem.q.kind(), T => whole::<T>(py, call))
}

/// lse as numbers, which there have to be one of for each query and head.
fn lse_of(lse: &Array, sizes: [usize; 4], remedy: &str) -> PyResult<Vec<f64>> {
    let found = room::count(lse.shape());
    if found != room::count(&sizes[..3]) {
        return Err(bad_value("lse", format!("{found} numbers"), remedy));
    }
    widened("lse", lse)
}

struct Call {
    problem: Problem,
    output: Array,
    grad_output: Array,
    lse: Vec<f64>,
    bias_gradient: bool,
}

/// Numbers of the gradients, in the caller's layout.
struct Computed<T> {
    qkv: [Vec<T>; 3],
    bias: Option<(Vec<T>, [usize; 4])>,
    sinks: Option<Vec<T>>,
}

fn whole<T: Number>(py: Python<'_>, call: Call) -> PyResult<Gradients> {
    let (home, swapped) = (call.problem.home(), call.problem.swapped);
    let sizes = call.problem.sizes();
    let ranks = call.problem.ranks();
    let bias_rank = call.problem.options.bias_rank();
    // Five products in place of two.
    let flops = 2.5 * call.problem.flops();
    // The gradients, and sums in f32 of those of half precision; a number a query.
    let numbers: f64 = sizes.iter().map(|sizes| room::count(sizes)).sum();
    let rows = room::count(&call.problem.output_sizes()[..3]);
    room::check(
        "attention_backward",
        (size_of::<T>() as f64 + 4.0) * numbers + 16.0 * rows,
    )?;
    let computed = work::run(py, flops, move || compute::<T>(&call))?.map_err(value_error)?;
    let [q, k, v] = computed.qkv;
    let give =
        |numbers, at: usize| hand_over(py, home, &laid_out(sizes[at], swapped, ranks[at]), numbers);
    Ok(Gradients {
        q: give(q, 0)?,
        k: give(k, 1)?,
        v: give(v, 2)?,
        bias: computed
            .bias
            .zip(bias_rank)
            .map(|((numbers, sizes), rank)| hand_over(py, home, &sizes[4 - rank..], numbers))
            .transpose()?,
        sinks: computed
            .sinks
            .map(|numbers| hand_over(py, home, &[numbers.len()], numbers))
            .transpose()?,
    })
}

fn compute<T: Number>(call: &Call) -> qkv::Result<Computed<T>> {
    call.problem
        .with_inputs(|inputs| compute_from(call, &inputs))
}

fn compute_from<T: Number>(call: &Call, inputs: &Inputs<'_, T>) -> qkv::Result<Computed<T>> {
    let problem = &call.problem;
    let attention = problem.options.attention()?;
    attention.check(inputs)?;
    let zeros = |count| vec![T::from_f64(0.0); count];
    let sizes = problem.sizes();
    let mut qkv = sizes.map(|sizes| zeros(sizes.iter().product()));
    let mut bias = attention
        .bias
        .filter(|_| call.bias_gradient)
        .map(|bias| (zeros(bias.0.shape().iter().product()), bias.0.shape()));
    let mut sinks = attention.sinks.as_ref().map(|sinks| zeros(sinks.0.len()));
    let [q, k, v] = &mut qkv;
    let to = GradientsMut {
        q: laid_out_mut(q, sizes[0], problem.swapped)?,
        k: laid_out_mut(k, sizes[1], problem.swapped)?,
        v: laid_out_mut(v, sizes[2], problem.swapped)?,
        bias: bias
            .as_mut()
            .map(|(numbers, shape)| ViewMut::new(numbers, &*shape))
            .transpose()?,
        sinks: sinks.as_deref_mut(),
        store: Store::Replace,
    };
    let saved = Saved {
        output: call.output.view()?,
        lse: &call.lse,
    };
    backward_into(
        &attention,
        inputs,
        saved,
        call.grad_output.view()?,
        &work::options(problem.flops()),
        to,
    )?;
    Ok(Computed { qkv, bias, sinks })
}

#[pyfunction]
#[pyo3(signature = (parts, *, sinks=None, layout="bhld"))]
#[doc = include_str!("docs/merge.txt")]
pub fn merge(
    py: Python<'_>,
    parts: &Bound<'_, PyAny>,
    sinks: Option<&Bound<'_, PyAny>>,
    layout: &str,
) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let swapped = swapped(layout)?;
    let mut read: Vec<(Array, Vec<f64>)> = Vec::new();
    const REMEDY: &str = "give a list of pairs (output, lse), as attention(…, return_lse=True) \
                          returns them";
    let pairs = parts
        .try_iter()
        .or_else(|_| Err(type_error("parts", named(parts)?, REMEDY)))?;
    for part in pairs {
        let part = part?;
        let Some(pair) = part.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2) else {
            return Err(type_error(
                "parts",
                format!("{} in it", named(&part)?),
                REMEDY,
            ));
        };
        let (output, lse) = (pair.get_item(0)?, pair.get_item(1)?);
        let output = operand("output", &output, swapped)?;
        if let Some((first, _)) = read.first() {
            same_kind("output", &output, first)?;
        }
        let lse = Array::new("lse", &lse)?;
        let lse = lse_of(
            &lse,
            output.sizes(),
            "give one a query and head of its output",
        )?;
        read.push((output, lse));
    }
    let Some((first, _)) = read.first() else {
        return Err(bad_value(
            "parts",
            "an empty list",
            "give at least one (output, lse)",
        ));
    };
    let sinks = sinks
        .map(|sinks| numbers("sinks", sinks).map(Sinks))
        .transpose()?;
    let (kind, sizes, rank, home) = (first.kind(), first.sizes(), first.rank(), first.home);
    let (numbers, parts) = (room::count(&sizes), read.len() as f64);
    by_kind!(kind, T => {
        // The parts are copied, and added up in f64.
        room::check("merge", numbers * (size_of::<T>() as f64 * (parts + 2.0) + 8.0))?;
        let computed = work::run(py, 100.0 * numbers * parts, move || merged::<T>(&read, sinks.as_ref(), swapped))?;
        let (output, lse) = computed.map_err(value_error)?;
        Ok((
            hand_over(py, home, &laid_out(sizes, swapped, rank), output)?,
            hand_over(py, home, &rows_laid_out(sizes, rank), lse)?,
        ))
    })
}

fn merged<T: Number>(
    parts: &[(Array, Vec<f64>)],
    sinks: Option<&Sinks>,
    swapped: bool,
) -> qkv::Result<(Vec<T>, Vec<f64>)> {
    let parts = parts.iter().map(|(output, lse)| {
        let sizes = output.sizes();
        Ok(Output {
            output: Tensor::new(&sizes, in_order(output.view::<T>()?).collect())?,
            lse: Tensor::new(&sizes[..3], lse.clone())?,
            empty_rows: Vec::new(),
        })
    });
    let merged = qkv::merge(&parts.collect::<qkv::Result<Vec<_>>>()?, sinks)?;
    let lse = merged.lse.into_data();
    let output = if swapped {
        in_order(merged.output.view()?.swap_axes(1, 2)).collect()
    } else {
        merged.output.into_data()
    };
    Ok((output, lse))
}
