//! `qkv.trace`, `qkv.trace_weights`: what the heads of a model did.

use crate::arguments::{count, f64s};
use crate::array::{Array, Home, Kind as Dtype};
use crate::error::{bad_value, type_error, value_error};
use crate::results::hand_over;
use crate::room;
use crate::steps::language;
use crate::work;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use qkv_models::{Batch, Padding, Recording};
use qkv_report::{Lang, MapView, Settings, map_html, map_svg, map_text};
use qkv_trace::{
    Arrays, By, Chosen, Error, Facts, HeadsBy, Keep, Kind, Place, Selection, Source, Token,
    TraceFile,
};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Operations that a model is taken to need: enough to look for Ctrl-C meanwhile.
const LONG: f64 = 1e12;

/// Where the numbers come from.
enum From {
    Model(Box<Recording>),
    File(Box<TraceFile>),
    Weights(Box<Arrays>),
}

impl From {
    fn source(&mut self) -> &mut (dyn Source + Send) {
        match self {
            From::Model(recording) => recording.as_mut(),
            From::File(file) => file.as_mut(),
            From::Weights(arrays) => arrays.as_mut(),
        }
    }
}

/// What the heads of a model did: numbers of a head on demand, heads by what they look at, and maps. A
/// notebook shows the map of all heads; print() is text.
#[pyclass(frozen, module = "qkv")]
pub struct Trace {
    from: Arc<Mutex<From>>,
    facts: Facts,
    lang: Lang,
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What a source refused, with what to do in Python where its remedy is an option of the command.
fn refused_by_source(error: Error) -> PyErr {
    const REMEDY: &str = "name it in keep= of Trace.save when the trace is made";
    match error {
        Error::NotKept { kind, layer, .. } => {
            refused(format!("{kind}: not kept of layer {layer}; {REMEDY}"))
        }
        Error::NoResidual { kind, stage } => {
            refused(format!("{kind}: {stage} was not kept; {REMEDY}"))
        }
        other => refused(other),
    }
}

#[pyfunction]
#[pyo3(signature = (model, text=None, *, generate=None, pad=None, lang="en"))]
#[doc = include_str!("docs/trace.txt")]
pub fn trace(
    py: Python<'_>,
    model: PathBuf,
    text: Option<&Bound<'_, PyAny>>,
    generate: Option<&Bound<'_, PyAny>>,
    pad: Option<&str>,
    lang: &str,
) -> PyResult<Trace> {
    let lang = language(lang)?;
    let Some(text) = text else {
        if model.extension().is_none_or(|end| end != "safetensors") {
            return Err(type_error(
                "text",
                "none",
                "give the text that the model reads, or a trace file (.safetensors) without a text",
            ));
        }
        let file = TraceFile::open(&model).map_err(refused)?;
        return Ok(Trace::new(From::File(Box::new(file)), lang));
    };
    let texts: Vec<String> = match text.extract::<String>() {
        Ok(text) => vec![text],
        Err(_) => text
            .extract()
            .map_err(|_| type_error("text", text.get_type(), "give a str or a list of str"))?,
    };
    let generate = generate.map(|n| count("generate", n)).transpose()?;
    let pad = match pad {
        None => None,
        Some("left") => Some(Padding::Left),
        Some("right") => Some(Padding::Right),
        Some(other) => {
            let remedy = "choose \"left\" or \"right\"";
            return Err(bad_value("pad", format!("{other:?}"), remedy));
        }
    };
    if generate.is_some() && pad == Some(Padding::Right) && texts.len() > 1 {
        let remedy = "texts that a model continues are filled up on the left";
        return Err(bad_value("pad", "\"right\" with generate", remedy));
    }
    let options = work::options(LONG);
    let recording = work::run(py, LONG, move || -> qkv_models::Result<_> {
        let path = qkv_models::find(&model.to_string_lossy())?;
        let opened = Arc::new(qkv_models::open(&path)?);
        let tokens = texts.iter().map(|text| opened.tokens.encode(text));
        let tokens = tokens.collect::<qkv_models::Result<Vec<_>>>()?;
        let usual = match opened.model.config().causal {
            true => Padding::Left,
            false => Padding::Right,
        };
        let batch = Batch::new(&tokens, pad.unwrap_or(usual), opened.tokens.padding())?;
        match generate {
            Some(tokens) => Recording::generate(&opened, &batch, tokens, options),
            None => Recording::new(&opened, &batch, options),
        }
    })?;
    let recording = Box::new(recording.map_err(refused)?);
    Ok(Trace::new(From::Model(recording), lang))
}

#[pyfunction]
#[pyo3(signature = (weights, tokens=None, *, kv_heads=None, lang="en"))]
#[doc = include_str!("docs/trace_weights.txt")]
pub fn trace_weights(
    weights: &Bound<'_, PyAny>,
    tokens: Option<Vec<String>>,
    kv_heads: Option<&Bound<'_, PyAny>>,
    lang: &str,
) -> PyResult<Trace> {
    let lang = language(lang)?;
    // One array is one layer; a tuple has one for each, as models of transformers give them.
    let layers: Vec<Array> = match Array::new("weights", weights) {
        Ok(array) => vec![array],
        Err(error) => {
            let layers = weights.try_iter().map_err(|_| error)?;
            layers
                .map(|layer| Array::new("weights", &layer?))
                .collect::<PyResult<_>>()?
        }
    };
    let Some(first) = layers.first() else {
        return Err(bad_value("weights", "no layer", "give at least one array"));
    };
    let [entries, heads, queries, keys] = first.sizes();
    if let Some(other) = layers.iter().find(|layer| layer.sizes() != first.sizes()) {
        return Err(bad_value(
            "weights",
            format!(
                "a layer of shape {:?} beside one of {:?}",
                other.shape(),
                first.shape()
            ),
            "give [batch, heads, queries, keys] of every layer, all alike",
        ));
    }
    // Once in f64 while a layer is read, and in f32 for good.
    let numbers = room::count(&first.sizes()) * layers.len() as f64;
    room::check("weights", 4.0 * numbers + 8.0 * room::count(&first.sizes()))?;
    let tokens = match tokens {
        Some(texts) if entries > 1 => {
            return Err(bad_value(
                "tokens",
                format!("{} for {entries} batch entries", texts.len()),
                "give one batch entry's weights, for example layer[:1] of each",
            ));
        }
        Some(texts) => vec![texts.iter().map(|text| Token::new(text)).collect()],
        None => vec![
            (0..keys)
                .map(|key| Token::new(&format!("k{key}")))
                .collect();
            entries
        ],
    };
    let shape = [layers.len(), entries, heads, queries, keys];
    let mut facts = Facts::of_weights(&shape, tokens).map_err(refused)?;
    if let Some(kv_heads) = kv_heads {
        facts.kv_heads = count("kv_heads", kv_heads)?;
    }
    let mut arrays = Arrays::new(facts).map_err(refused)?;
    for (number, layer) in layers.iter().enumerate() {
        if layer.kind() == Dtype::Bool {
            return Err(Dtype::refused("weights", "bool"));
        }
        let numbers = f64s(layer).map_err(value_error)?;
        let numbers = numbers.into_iter().map(|x| x as f32).collect();
        arrays = arrays.with_weights(number, numbers).map_err(refused)?;
    }
    Ok(Trace::new(From::Weights(Box::new(arrays)), lang))
}

impl Trace {
    fn new(mut from: From, lang: Lang) -> Trace {
        Trace {
            facts: from.source().facts().clone(),
            from: Arc::new(Mutex::new(from)),
            lang,
        }
    }

    /// Looks at the source, away from the interpreter: a model runs as far as it is looked at.
    fn look<R: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut From) -> qkv_trace::Result<R> + Send + 'static,
    ) -> PyResult<R> {
        let from = self.from.clone();
        work::run(py, LONG, move || {
            work(&mut from.lock().unwrap_or_else(PoisonError::into_inner))
        })?
        .map_err(refused_by_source)
    }

    fn settings(&self) -> Settings {
        Settings {
            lang: self.lang,
            ..Settings::default()
        }
    }
}

#[pymethods]
impl Trace {
    /// The model's name; empty for weights from elsewhere.
    #[getter]
    fn model(&self) -> &str {
        &self.facts.model
    }

    /// Numbers of the layers.
    #[getter]
    fn layers(&self) -> Vec<usize> {
        self.facts.layers.clone()
    }

    /// Numbers of the query heads.
    #[getter]
    fn heads(&self) -> Vec<usize> {
        self.facts.heads.clone()
    }

    /// The text of each token, a list for each batch entry.
    #[getter]
    fn tokens(&self) -> Vec<Vec<String>> {
        let texts = |tokens: &Vec<Token>| tokens.iter().map(|token| token.text.clone()).collect();
        self.facts.tokens.iter().map(texts).collect()
    }

    /// The conventions in force: pairing and base of rotary positions, scale, groups, windows, norms.
    #[getter]
    fn conventions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, value) in &self.facts.conventions {
            all.set_item(name, value)?;
        }
        Ok(all)
    }

    /// Numbers of one head, an array of float32 of two axes.
    ///
    /// kind is "q", "k", "v", "rot_q", "rot_k" (after rotary positions; of keys and values head is that
    /// of keys and values), "scores" (as the softmax saw them), "weights" or "z".
    #[pyo3(signature = (kind, layer, head, *, entry=0))]
    fn get(
        &self,
        py: Python<'_>,
        kind: &str,
        layer: usize,
        head: usize,
        entry: usize,
    ) -> PyResult<Py<PyAny>> {
        let Some(kind) = Kind::ALL.into_iter().find(|known| known.name() == kind) else {
            let names = Kind::ALL.map(Kind::name).join(", ");
            let remedy = format!("choose one of {names}");
            return Err(bad_value("kind", format!("{kind:?}"), &remedy));
        };
        let place = Place { entry, layer, head };
        let rows = self.facts.rows_of(kind);
        let numbers = self.look(py, move |from| {
            let mut numbers = Vec::new();
            from.source().rows(kind, place, 0..rows, &mut numbers)?;
            Ok(numbers)
        })?;
        let shape = [rows, numbers.len() / rows.max(1)];
        hand_over(py, Home::NumPy, &shape, numbers)
    }

    /// The weights of one head, [queries, keys].
    #[pyo3(signature = (layer, head, *, entry=0))]
    fn weights(
        &self,
        py: Python<'_>,
        layer: usize,
        head: usize,
        entry: usize,
    ) -> PyResult<Py<PyAny>> {
        self.get(py, "weights", layer, head, entry)
    }

    /// Heads by the average weight on certain keys, the largest first: "previous", "first", "own",
    /// "same", "induction", or two words as "it>animal".
    ///
    /// Each is a dict of layer, head, mean and control: the average weight on another key, since a single
    /// weight proves little; control names the word that is it, if not the one with most weight.
    #[pyo3(signature = (by, *, control=None, most=10))]
    fn heads_by<'py>(
        &self,
        py: Python<'py>,
        by: &str,
        control: Option<String>,
        most: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let by = By::parse(by).map_err(refused)?;
        let rankings = self.look(py, move |from| {
            let mut heads = HeadsBy::new(vec![by], control);
            heads.add(from.source())?;
            heads.rankings()
        })?;
        let list = PyList::empty(py);
        for head in rankings
            .iter()
            .flat_map(|ranking| &ranking.heads)
            .take(most)
        {
            let entry = PyDict::new(py);
            entry.set_item("layer", head.layer)?;
            entry.set_item("head", head.head)?;
            entry.set_item("mean", head.mean)?;
            entry.set_item("control", head.control)?;
            list.append(entry)?;
        }
        Ok(list)
    }

    /// The likeliest next tokens of a model with a head for them, each with its probability.
    #[pyo3(signature = (*, entry=0, most=5))]
    fn next_tokens(
        &self,
        py: Python<'_>,
        entry: usize,
        most: usize,
    ) -> PyResult<Vec<(String, f32)>> {
        if entry >= self.facts.entries() {
            let remedy = format!("there are {}, counted from 0", self.facts.entries());
            return Err(bad_value("entry", entry, &remedy));
        }
        self.look(py, move |from| match from {
            From::Model(recording) => {
                let tokens = recording
                    .next_tokens(entry, most)
                    .map_err(|error| Error::Source(Box::new(error)))?;
                let text =
                    |(id, share): (u32, f32)| (recording.tokens().texts(&[id]).concat(), share);
                Ok(tokens.into_iter().map(text).collect())
            }
            From::File(_) | From::Weights(_) => Err(Error::Source(
                "next_tokens: there is no model; trace one".into(),
            )),
        })
    }

    /// The map of all heads: one page that asks for nothing from outside.
    #[pyo3(signature = (*, entry=0))]
    fn html(&self, py: Python<'_>, entry: usize) -> PyResult<String> {
        let (settings, view) = (self.settings(), self.view(entry)?);
        self.look(py, move |from| map_html(from.source(), &view, &settings))
    }

    /// One head as a drawing.
    #[pyo3(signature = (layer, head, *, entry=0))]
    fn svg(&self, py: Python<'_>, layer: usize, head: usize, entry: usize) -> PyResult<String> {
        let (settings, view) = (self.settings(), self.view(entry)?);
        self.look(py, move |from| {
            let selection = Selection {
                layers: Some(vec![layer]),
                heads: Some(vec![head]),
                rows: None,
            };
            let mut chosen = Chosen::new(from.source(), &selection)?;
            map_svg(&mut chosen, Place { entry, layer, head }, &view, &settings)
        })
    }

    /// As text for a terminal: the strongest links, and a heat map of one head if layer and head are
    /// given.
    #[pyo3(signature = (*, layer=None, head=None, entry=0))]
    fn text(
        &self,
        py: Python<'_>,
        layer: Option<usize>,
        head: Option<usize>,
        entry: usize,
    ) -> PyResult<String> {
        let (settings, mut view) = (self.settings(), self.view(entry)?);
        view.few_heads = layer.is_some() || head.is_some();
        let selection = Selection {
            layers: layer.map(|layer| vec![layer]),
            heads: head.map(|head| vec![head]),
            rows: None,
        };
        self.look(py, move |from| {
            let mut chosen = Chosen::new(from.source(), &selection)?;
            map_text(&mut chosen, &view, &settings)
        })
    }

    /// Writes a trace file (safetensors), which qkv.trace(path) opens again.
    ///
    /// keep lists what is kept of each head, as "q,k,weights" or "top:16" for the largest weights of
    /// each row; everything that is there if left out.
    #[pyo3(signature = (path, *, keep=None))]
    fn save(&self, py: Python<'_>, path: PathBuf, keep: Option<&str>) -> PyResult<()> {
        let keep = match keep {
            Some(list) => Keep::parse(list).map_err(|error| refused(format!("keep: {error}")))?,
            None => Keep::default(),
        };
        self.look(py, move |from| {
            qkv_trace::write(&path, from.source(), &keep)
        })
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        self.text(py, None, None, 0)
    }

    fn __repr__(&self) -> String {
        let of = match self.facts.model.as_str() {
            "" => String::new(),
            model => format!(" of {model}"),
        };
        format!(
            "<qkv.Trace{of}: {} layers, {} heads, {} tokens; .weights(layer, head), .heads_by(…), .html()>",
            self.facts.layers.len(),
            self.facts.heads.len(),
            self.facts.keys()
        )
    }

    /// The page in a frame of its own.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Ok(crate::steps::frame(&self.html(py, 0)?))
    }
}

impl Trace {
    fn view(&self, entry: usize) -> PyResult<MapView> {
        if entry >= self.facts.entries() {
            let remedy = format!("there are {}, counted from 0", self.facts.entries());
            return Err(bad_value("entry", entry, &remedy));
        }
        Ok(MapView {
            entry,
            ..MapView::default()
        })
    }
}
