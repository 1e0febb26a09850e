//! `qkv.steps` and `qkv.explain`.

use crate::arguments::{Given, Options, count};
use crate::array::Home;
use crate::error::{bad_value, value_error};
use crate::layer::Weights;
use crate::problem::{Problem, by_kind};
use crate::results::hand_over;
use crate::{room, work};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use qkv::{Block, StepName, Steps, Tensor};
use qkv_report::{Lang, More, Origin, Settings, Subject};
use std::sync::Arc;

#[pyfunction]
#[pyo3(signature = (q, k, v, *, layout="bhld", **options))]
#[doc = include_str!("docs/steps.txt")]
pub fn steps<'py>(
    py: Python<'py>,
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    layout: &str,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let problem = Problem::new([q, k, v], &Given::take(options)?, layout)?;
    let (steps, _) = worked_out(py, problem)?;
    mapping(py, &steps)
}

/// Bytes of the steps for each pair of a query and a key: at least scores, scaled, exp and weights,
/// each handed over as an array of its own.
pub const SQUARES: f64 = 64.0;

/// Every intermediate, and the options back.
fn worked_out(py: Python<'_>, problem: Problem) -> PyResult<(Steps, Options)> {
    let scores = room::count(&problem.weights_sizes());
    let vectors: f64 = problem.sizes().iter().map(|sizes| room::count(sizes)).sum();
    let output = room::count(&problem.output_sizes());
    room::check("steps", SQUARES * scores + 16.0 * (vectors + output))?;
    // Plain loops in f64 take about a hundred times as long as the fast path.
    let flops = 100.0 * problem.flops();
    by_kind!(problem.q.kind(), T => work::run(py, flops, move || {
        let steps = problem.with_inputs::<T, _>(|inputs| {
            qkv::steps(&problem.options.attention()?, &inputs)
        })?;
        Ok((steps, problem.options))
    }))?
    .map_err(value_error)
}

/// The steps by name, as arrays of NumPy.
pub fn mapping<'py>(py: Python<'py>, steps: &Steps) -> PyResult<Bound<'py, PyDict>> {
    let mapping = PyDict::new(py);
    for (name, numbers) in steps.iter() {
        let array = hand_over(py, Home::NumPy, numbers.shape(), numbers.data().to_vec())?;
        mapping.set_item(name.as_str(), array)?;
    }
    Ok(mapping)
}

/// The worked calculation, in whatever format it is asked for: print(it) is text, a notebook shows
/// the page.
#[pyclass(frozen, module = "qkv")]
pub struct Explanation {
    shown: Arc<Calculation>,
}

/// What is shown, and how; a thread that writes it out takes its part along.
struct Calculation {
    options: Options,
    steps: Steps,
    settings: Settings,
    contrast: bool,
    tokens: Vec<String>,
    layer: Option<FromTokens>,
}

/// The weights that q, k and v were made with, the tokens and the context.
type FromTokens = (Weights, Tensor<f64>, Option<Tensor<f64>>);

#[allow(clippy::too_many_arguments)] // the function that Python sees
#[pyfunction]
#[pyo3(signature = (
    q, k, v, *, lang="en", digits=None, rows=None, tokens=None, contrast=false, layout="bhld",
    **options
), text_signature = "(q, k, v, *, lang='en', digits=4, rows=None, tokens=None, contrast=False, \
layout='bhld', **options)")]
#[doc = include_str!("docs/explain.txt")]
pub fn explain<'py>(
    py: Python<'py>,
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    lang: &str,
    digits: Option<&Bound<'py, PyAny>>,
    rows: Option<&Bound<'py, PyAny>>,
    tokens: Option<Vec<String>>,
    contrast: bool,
    layout: &str,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Explanation> {
    let problem = Problem::new([q, k, v], &Given::take(options)?, layout)?;
    let shown = Shown {
        lang,
        digits,
        rows,
        tokens,
        contrast,
    };
    shown.check()?;
    let (steps, options) = worked_out(py, problem)?;
    Explanation::new(py, shown, steps, options, None)
}

/// How a calculation is to be shown.
pub struct Shown<'a, 'py> {
    pub lang: &'a str,
    pub digits: Option<&'a Bound<'py, PyAny>>,
    pub rows: Option<&'a Bound<'py, PyAny>>,
    pub tokens: Option<Vec<String>>,
    pub contrast: bool,
}

impl Shown<'_, '_> {
    /// What can be refused before anything is computed.
    fn check(&self) -> PyResult<(Lang, usize)> {
        const MOST_DIGITS: usize = 17;
        let digits = match self.digits {
            Some(digits) => count("digits", digits)?,
            None => Settings::default().digits,
        };
        if digits > MOST_DIGITS {
            let remedy = "give at most 17, which is all there are";
            return Err(bad_value("digits", digits, remedy));
        }
        Ok((language(self.lang)?, digits))
    }
}

impl Explanation {
    /// # Errors
    /// `ValueError` for rows and tokens that there are not.
    pub fn new(
        py: Python<'_>,
        shown: Shown<'_, '_>,
        steps: Steps,
        options: Options,
        layer: Option<FromTokens>,
    ) -> PyResult<Explanation> {
        let (lang, digits) = shown.check()?;
        let size = |name, axis: usize| {
            let shape = steps.get(name).map_or(&[][..], Tensor::shape);
            shape.get(axis).copied().unwrap_or(0)
        };
        let (batch, queries) = (size(StepName::Q, 0), size(StepName::Q, 2));
        let needed = match &layer {
            Some((_, _, Some(_))) => queries,
            _ => size(StepName::K, 2),
        };
        let tokens = shown.tokens.unwrap_or_default();
        if !tokens.is_empty() && (batch != 1 || tokens.len() != needed) {
            return Err(bad_value(
                "tokens",
                format!("{} names", tokens.len()),
                &format!("give {needed}, of one batch entry"),
            ));
        }
        let rows = shown.rows.map(|rows| wanted(rows, queries)).transpose()?;
        Ok(Explanation {
            shown: Arc::new(Calculation {
                options: options.kept(py)?,
                steps,
                settings: Settings {
                    lang,
                    digits,
                    rows,
                    ..Settings::default()
                },
                contrast: shown.contrast,
                tokens,
                layer,
            }),
        })
    }
}

/// A language by its code.
pub fn language(lang: &str) -> PyResult<Lang> {
    match lang {
        "en" => Ok(Lang::En),
        "zh" => Ok(Lang::Zh),
        other => Err(bad_value(
            "lang",
            format!("{other:?}"),
            "choose \"en\" or \"zh\"",
        )),
    }
}

/// The queries to work out: an int or a list of them.
fn wanted(rows: &Bound<'_, PyAny>, queries: usize) -> PyResult<Vec<usize>> {
    let list = match rows.try_iter() {
        Ok(items) => items
            .map(|item| count("rows", &item?))
            .collect::<PyResult<Vec<_>>>()?,
        Err(_) => vec![count("rows", rows)?],
    };
    match list.iter().find(|&&row| row >= queries) {
        Some(row) => Err(bad_value(
            "rows",
            row,
            &format!("there are {queries} queries, counted from 0"),
        )),
        None => Ok(list),
    }
}

/// A page in a frame of its own, so that its styles and a notebook's leave each other alone.
pub fn frame(page: &str) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<iframe srcdoc=\"{page}\" style=\"width:100%;height:40em;border:0\" \
         sandbox=\"allow-scripts\"></iframe>"
    )
}

/// How a renderer is called.
type Render = fn(&Subject<'_>, &Settings) -> String;

impl Explanation {
    /// Away from the interpreter: comparing with mistakes computes attention again for each.
    fn render(&self, py: Python<'_>, render: Render) -> PyResult<String> {
        let shown = self.shown.clone();
        let scores = shown
            .steps
            .get(StepName::Scores)
            .map_or(&[][..], Tensor::shape);
        let runs = if shown.contrast { 1e5 } else { 1e3 };
        let cost = runs * room::count(scores);
        work::run(py, cost, move || shown.render(render))?.map_err(value_error)
    }
}

impl Calculation {
    fn render(&self, render: Render) -> qkv::Result<String> {
        let attention = self.options.attention()?;
        let layer;
        let given;
        let (block, origin, width) = match &self.layer {
            Some((weights, x, context)) => {
                layer = weights.layer(attention);
                let origin = Origin::Projected {
                    layer: &layer,
                    x,
                    context: context.as_ref(),
                };
                (&layer.block, origin, x.shape()[2])
            }
            None => {
                given = Block {
                    attention,
                    ..Block::default()
                };
                let width = match self.steps.get(StepName::Q).map(Tensor::shape) {
                    Some(&[_, heads, _, head_dim]) => heads * head_dim,
                    _ => 1,
                };
                (&given, Origin::Given, width)
            }
        };
        let contrast = self
            .contrast
            .then(|| qkv_check::contrast(&block.attention, &self.steps, width));
        let subject = Subject {
            block,
            steps: &self.steps,
            origin,
            past_len: 0,
            backward: None,
            more: More {
                contrast: contrast.flatten().unwrap_or_default(),
                tokens: self.tokens.clone(),
                ..More::default()
            },
            built_in: false,
            notes: Vec::new(),
        };
        Ok(render(&subject, &self.settings))
    }
}

#[pymethods]
impl Explanation {
    /// As text for a terminal.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        self.render(py, qkv_report::text)
    }

    /// As Markdown.
    fn markdown(&self, py: Python<'_>) -> PyResult<String> {
        self.render(py, qkv_report::markdown)
    }

    /// As a LaTeX document.
    fn latex(&self, py: Python<'_>) -> PyResult<String> {
        self.render(py, qkv_report::latex)
    }

    /// As one HTML page that asks for nothing from outside.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        self.render(py, qkv_report::html)
    }

    /// Every intermediate by name, as qkv.steps gives it.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        mapping(py, &self.shown.steps)
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        self.text(py)
    }

    fn __repr__(&self) -> String {
        let shape = |name| match self.shown.steps.get(name) {
            Some(step) => format!("{:?}", step.shape()),
            None => "[]".into(),
        };
        format!(
            "<qkv.Explanation of q {} k {} v {}; print() it, or .markdown(), .latex(), .html()>",
            shape(StepName::Q),
            shape(StepName::K),
            shape(StepName::V)
        )
    }

    /// The page in a frame of its own.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Ok(frame(&self.html(py)?))
    }
}
