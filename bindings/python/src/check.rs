//! `qkv.check`.

use crate::arguments::{Given, widened};
use crate::array::{Array, Kind};
use crate::error::{bad_value, value_error};
use crate::problem::Problem;
use crate::steps::{SQUARES, language};
use crate::{room, work};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use qkv::{Block, DType, StepName, Tensor};
use qkv_check::Claim;
use qkv_report::{Lang, Settings, check_json, check_text};

#[allow(clippy::too_many_arguments)] // the function that Python sees
#[pyfunction]
#[pyo3(signature = (
    q, k, v, *, scores=None, scaled=None, weights=None, output=None, lse=None, lang="en",
    layout="bhld", **options
))]
#[doc = include_str!("docs/check.txt")]
pub fn check(
    py: Python<'_>,
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    scores: Option<&Bound<'_, PyAny>>,
    scaled: Option<&Bound<'_, PyAny>>,
    weights: Option<&Bound<'_, PyAny>>,
    output: Option<&Bound<'_, PyAny>>,
    lse: Option<&Bound<'_, PyAny>>,
    lang: &str,
    layout: &str,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Report> {
    let lang = language(lang)?;
    let problem = Problem::new([q, k, v], &Given::take(options)?, layout)?;
    let mut claims = Vec::new();
    for (name, step, value) in [
        ("scores", StepName::Scores, scores),
        ("scaled", StepName::Scaled, scaled),
        ("weights", StepName::Weights, weights),
        ("output", StepName::Output, output),
        ("lse", StepName::Lse, lse),
    ] {
        if let Some(value) = value {
            let array = Array::new(name, value)?;
            let swapped = problem.swapped && step == StepName::Output;
            claims.push(claim(name, step, array.heads_first(swapped))?);
        }
    }
    if claims.is_empty() {
        return Err(bad_value(
            "check",
            "no numbers of somebody else's",
            "give scores, scaled, weights, output or lse",
        ));
    }
    let vectors: f64 = problem.sizes().iter().map(|sizes| room::count(sizes)).sum();
    let scores = room::count(&problem.weights_sizes());
    room::check("check", SQUARES * scores + 16.0 * vectors)?;
    // Every convention is tried: as long as a great many runs by definition.
    let flops = 1e4 * problem.flops();
    let report = work::run(py, flops, move || -> Result<_, qkv_check::Error> {
        let [q, k, v] = problem.tensors()?;
        let block = Block {
            attention: problem.options.attention()?,
            ..Block::default()
        };
        let problem = qkv_check::Problem::Given {
            block: &block,
            q: &q,
            k: &k,
            v: &v,
            past: None,
        };
        qkv_check::check(&problem, &claims)
    })?;
    match report {
        Ok(report) => Ok(Report { report, lang }),
        Err(qkv_check::Error::Problem(error)) => Err(value_error(error)),
        Err(qkv_check::Error::Shape {
            step,
            shape,
            expected,
        }) => Err(PyValueError::new_err(format!(
            "{step}: shape {shape:?} fits neither the right one, {expected:?}, nor that of a known \
             mistake; check layout, and that it belongs to these inputs"
        ))),
        Err(other) => Err(PyValueError::new_err(other.to_string())),
    }
}

fn claim(name: &str, step: StepName, array: Array) -> PyResult<Claim> {
    let dtype = match array.kind() {
        Kind::F16 => DType::F16,
        Kind::Bf16 => DType::Bf16,
        Kind::F32 => DType::F32,
        Kind::F64 => DType::F64,
        Kind::Bool => return Err(Kind::refused(name, "bool")),
    };
    let values = Tensor::new(array.shape(), widened(name, &array)?).map_err(value_error)?;
    Ok(Claim::new(step, values, dtype))
}

/// What a check finds; print() says it in words.
#[pyclass(frozen, module = "qkv")]
pub struct Report {
    report: qkv_check::Report,
    lang: Lang,
}

#[pymethods]
impl Report {
    /// "equal", "rounding", "different" or "undecided".
    #[getter]
    fn verdict(&self) -> &'static str {
        self.report.verdict.as_str()
    }

    /// Whether the numbers are right, to within rounding.
    #[getter]
    fn agrees(&self) -> bool {
        self.report.verdict.agrees()
    }

    /// Ids of the explanations that fit, the simplest first; "a+b" where two come together.
    #[getter]
    fn causes(&self) -> Vec<String> {
        self.report
            .causes
            .iter()
            .map(qkv_check::Cause::id)
            .collect()
    }

    /// The largest difference.
    #[getter]
    fn max_abs_error(&self) -> f64 {
        self.report.max_abs_error
    }

    /// The error allowed at the first difference, or the largest allowed anywhere.
    #[getter]
    fn bound(&self) -> f64 {
        self.report.bound
    }

    /// Everything, as `qkv check --json` prints it.
    fn json(&self) -> String {
        check_json(&self.report, self.lang).to_string()
    }

    /// Everything, as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = PyString::new(py, &self.json());
        py.import("json")?.call_method1("loads", (text,))
    }

    fn __str__(&self) -> String {
        let settings = Settings {
            lang: self.lang,
            ..Settings::default()
        };
        check_text(&self.report, &settings)
    }

    fn __repr__(&self) -> String {
        let causes = self.causes().join(", ");
        format!(
            "<qkv.Report: {}{}{causes}>",
            self.verdict(),
            if causes.is_empty() { "" } else { ": " }
        )
    }
}
