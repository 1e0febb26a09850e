//! `qkv.steps` and `qkv.explain`.

use crate::arguments::{Given, Options, count};
use crate::array::Home;
use crate::error::{bad_value, value_error};
use crate::problem::{Problem, by_kind};
use crate::results::hand_over;
use crate::work;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use qkv::{Block, StepName, Steps};
use qkv_report::{Lang, More, Origin, Settings, Subject};

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

/// Every intermediate, and the options back.
fn worked_out(py: Python<'_>, problem: Problem) -> PyResult<(Steps, Options)> {
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
    options: Options,
    steps: Steps,
    settings: Settings,
    contrast: bool,
    tokens: Vec<String>,
}

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
    let [batch, _, queries, _] = problem.output_sizes();
    let keys = problem.weights_sizes()[3];
    let settings = Settings {
        lang: match lang {
            "en" => Lang::En,
            "zh" => Lang::Zh,
            other => {
                return Err(bad_value(
                    "lang",
                    format!("{other:?}"),
                    "choose \"en\" or \"zh\"",
                ));
            }
        },
        digits: match digits {
            Some(digits) => count("digits", digits)?,
            None => Settings::default().digits,
        },
        rows: rows.map(|rows| wanted(rows, queries)).transpose()?,
        ..Settings::default()
    };
    const MOST_DIGITS: usize = 17;
    if settings.digits > MOST_DIGITS {
        return Err(bad_value(
            "digits",
            settings.digits,
            "give at most 17, which is all there are",
        ));
    }
    let tokens = tokens.unwrap_or_default();
    if !tokens.is_empty() && (batch != 1 || tokens.len() != keys) {
        return Err(bad_value(
            "tokens",
            format!(
                "{} names for {batch} batch entries of {keys} keys",
                tokens.len()
            ),
            "give one for each key, of one batch entry",
        ));
    }
    let (steps, options) = worked_out(py, problem)?;
    Ok(Explanation {
        options: options.kept(py)?,
        steps,
        settings,
        contrast,
        tokens,
    })
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

/// How a renderer is called.
type Render = fn(&Subject<'_>, &Settings) -> String;

impl Explanation {
    fn render(&self, render: Render) -> PyResult<String> {
        let block = Block {
            attention: self.options.attention().map_err(value_error)?,
            ..Block::default()
        };
        let width = match self.steps.get(StepName::Q).map(|q| q.shape()) {
            Some(&[_, heads, _, head_dim]) => heads * head_dim,
            _ => 1,
        };
        let contrast = self
            .contrast
            .then(|| qkv_check::contrast(&block.attention, &self.steps, width));
        let subject = Subject {
            block: &block,
            steps: &self.steps,
            origin: Origin::Given,
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
    fn text(&self) -> PyResult<String> {
        self.render(qkv_report::text)
    }

    /// As Markdown.
    fn markdown(&self) -> PyResult<String> {
        self.render(qkv_report::markdown)
    }

    /// As a LaTeX document.
    fn latex(&self) -> PyResult<String> {
        self.render(qkv_report::latex)
    }

    /// As one HTML page that asks for nothing from outside.
    fn html(&self) -> PyResult<String> {
        self.render(qkv_report::html)
    }

    /// Every intermediate by name, as qkv.steps gives it.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        mapping(py, &self.steps)
    }

    fn __str__(&self) -> PyResult<String> {
        self.text()
    }

    fn __repr__(&self) -> String {
        let shape = |name| match self.steps.get(name) {
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

    /// The page in a frame of its own, so that its styles and the notebook's leave each other alone.
    fn _repr_html_(&self) -> PyResult<String> {
        let page = self.html()?.replace('&', "&amp;").replace('"', "&quot;");
        Ok(format!(
            "<iframe srcdoc=\"{page}\" style=\"width:100%;height:40em;border:0\" \
             sandbox=\"allow-scripts\"></iframe>"
        ))
    }
}
