//! What every part of the explanation asks: sizes, numbers, names, and how much to write out.

use crate::entry::Number;
use crate::explanation::{Block, Cell, Matrix, Part, Shape, Worked};
use crate::expr::Expr;
use crate::labels::label;
use crate::number::{percent, shown};
use crate::words::Words;
use crate::{Origin, Settings, Subject};
use qkv::position::Pairing;
use qkv::{Inputs, StepName, Tensor, definition};
use qkv_check::permute::Positional;

/// More weights than this, and the text shows a choice of rows.
const MANY_WEIGHTS: usize = 200;
/// Longer dot products, and the text shows a choice of rows.
const LONG_DOT: usize = 32;
/// More heads than this, and one is worked out.
const MANY_HEADS: usize = 8;
/// More lines of calculation than this, and the text shows a choice of rows.
const MANY_LINES: usize = 700;
/// Keys written out in a row of a large input: the heaviest.
const KEYS_SHOWN: usize = 8;
/// Columns worked out in a large input.
const COLUMNS_SHOWN: usize = 3;
/// Heat maps of a large input.
const MAPS_SHOWN: usize = 3;
/// The most numbers of a matrix that are printed, of a small and of a large input.
const MATRIX_SHOWN: [usize; 2] = [400, 48];

/// One run, and what of it is written out.
pub(crate) struct Run<'a> {
    pub subject: &'a Subject<'a>,
    pub words: &'a dyn Words,
    pub digits: usize,
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub dk: usize,
    pub dv: usize,
    pub large: bool,
    /// Terms of the longest dot product.
    pub longest_dot: usize,
    /// The queries worked out.
    pub rows: Vec<usize>,
    /// Whether the caller chose them.
    pub rows_chosen: bool,
    /// `[batch, head]` worked out.
    pub groups: Vec<[usize; 2]>,
    /// `[batch, head]` drawn.
    pub maps: Vec<[usize; 2]>,
    /// The tokens of the queries and of the keys, if they have names.
    pub query_labels: Vec<String>,
    pub key_labels: Vec<String>,
    /// Where each query and each key stands in its sequence or document.
    pub places: Option<definition::Places>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        subject: &'a Subject<'a>,
        settings: &Settings,
        words: &'a dyn Words,
    ) -> Run<'a> {
        let size = |name, at: usize| {
            let shape = subject.steps.get(name).map_or(&[][..], |step| step.shape());
            shape.get(at).copied().unwrap_or(0)
        };
        let mut run = Run {
            subject,
            words,
            digits: settings.digits,
            batch: size(StepName::Q, 0),
            heads: size(StepName::Q, 1),
            kv_heads: size(StepName::K, 1),
            queries: size(StepName::Q, 2),
            keys: size(StepName::K, 2),
            dk: size(StepName::Q, 3),
            dv: size(StepName::V, 3),
            large: false,
            longest_dot: 0,
            rows: Vec::new(),
            rows_chosen: false,
            groups: Vec::new(),
            maps: Vec::new(),
            query_labels: Vec::new(),
            key_labels: Vec::new(),
            places: places(subject),
        };
        (run.large, run.longest_dot) = run.measure();
        run.name_tokens();
        if let Some(rows) = &settings.rows {
            run.rows = rows.iter().copied().filter(|&i| i < run.queries).collect();
            run.rows.sort_unstable();
            run.rows.dedup();
            run.rows_chosen = !run.rows.is_empty();
        }
        if !run.rows_chosen {
            run.rows = match run.large {
                true => run.queries.checked_sub(1).into_iter().collect(),
                false => (0..run.queries).collect(),
            };
        }
        let all: Vec<[usize; 2]> = (0..run.batch)
            .flat_map(|b| (0..run.heads).map(move |h| [b, h]))
            .collect();
        let taken = |most: usize| all.iter().copied().take(most).collect();
        run.groups = taken(if run.large { 1 } else { usize::MAX });
        run.maps = taken(if run.large { MAPS_SHOWN } else { usize::MAX });
        run
    }

    /// Gives the tokens to the queries and keys that they belong to.
    fn name_tokens(&mut self) {
        let tokens = self.subject.more.tokens.iter();
        let labels: Vec<String> = tokens.map(|token| label(token)).collect();
        let cross = matches!(
            self.subject.origin,
            Origin::Projected {
                context: Some(_),
                ..
            }
        );
        if cross {
            self.query_labels = labels;
            return;
        }
        // In self-attention the queries are the last tokens.
        let tokens_made_both = matches!(self.subject.origin, Origin::Projected { .. });
        let own = self.queries == self.keys || self.subject.past_len > 0 || tokens_made_both;
        if own && self.queries <= labels.len() {
            self.query_labels = labels[labels.len() - self.queries..].to_vec();
        }
        self.key_labels = labels;
    }

    /// Whether the input is large, and the terms of its longest dot product.
    fn measure(&self) -> (bool, usize) {
        let groups = self.batch * self.heads;
        let scores = groups * self.queries * self.keys;
        let mut lines = 6 * scores + groups * self.queries * (self.dv + 4);
        let mut widths = vec![self.dk];
        if let Origin::Projected { layer, x, context } = self.subject.origin {
            let tokens = |x: &Tensor<f64>| x.shape().iter().take(2).product::<usize>();
            widths.extend([layer.q.in_width(), layer.k.in_width()]);
            lines += tokens(x) * layer.q.out_width();
            lines += tokens(context.unwrap_or(x)) * (layer.k.out_width() + layer.v.out_width());
        }
        if let Some(output) = &self.subject.block.output {
            widths.push(output.in_width());
            lines += self.batch * self.queries * output.out_width();
        }
        let longest = widths.into_iter().max().unwrap_or(0);
        let large = scores > MANY_WEIGHTS
            || longest > LONG_DOT
            || groups > MANY_HEADS
            || lines > MANY_LINES;
        (large, longest)
    }

    pub(crate) fn step(&self, name: StepName) -> Option<&'a Tensor<f64>> {
        self.subject.steps.get(name)
    }

    /// A number of a step; NaN if the step is not in force, which no caller asks for.
    pub(crate) fn at(&self, name: StepName, index: &[usize]) -> f64 {
        self.step(name).map_or(f64::NAN, |step| step.at(index))
    }

    /// A number of a step that remembers which one it is.
    pub(crate) fn entry(&self, name: StepName, index: &[usize]) -> Number {
        Number::named(name.as_str(), index, self.at(name, index))
    }

    /// The last of these steps that is in force.
    pub(crate) fn last_of(&self, names: &[StepName]) -> StepName {
        names
            .iter()
            .copied()
            .rfind(|name| self.step(*name).is_some())
            .unwrap_or(names[0])
    }

    /// The queries that enter the scores.
    pub(crate) fn final_q(&self) -> StepName {
        self.last_of(&[StepName::Q, StepName::QNormed, StepName::QRotated])
    }

    /// The keys that enter the scores.
    pub(crate) fn final_k(&self) -> StepName {
        self.last_of(&[StepName::K, StepName::KNormed, StepName::KRotated])
    }

    /// What the softmax takes, and the letter that the text gives it.
    pub(crate) fn logits(&self) -> (StepName, char) {
        let letter = match self.last_of(&[StepName::Scaled, StepName::Capped, StepName::Biased]) {
            StepName::Biased => 'b',
            StepName::Capped => 'c',
            _ => 's',
        };
        let all = [
            StepName::Scaled,
            StepName::Capped,
            StepName::Biased,
            StepName::Masked,
        ];
        (self.last_of(&all), letter)
    }

    /// The weights that mix the values.
    pub(crate) fn mixing(&self) -> StepName {
        self.last_of(&[StepName::Weights, StepName::Dropped])
    }

    pub(crate) fn kv_head(&self, head: usize) -> usize {
        head / (self.heads / self.kv_heads.max(1)).max(1)
    }

    /// What the command line calls an option that tells positions.
    pub(crate) fn option_name(&self, option: Positional) -> &'static str {
        let pairing = self.subject.block.rotary.as_ref().map(|r| r.pairing);
        match option {
            Positional::Sinusoidal => "--position sinusoidal",
            Positional::Rotary if pairing == Some(Pairing::Interleaved) => {
                "--position rotary-interleaved"
            }
            Positional::Rotary => "--position rotary",
            Positional::Alibi => "--alibi",
            Positional::Causal => "--causal",
            Positional::Window => "--window",
            Positional::Lengths => "--kv-lengths",
            Positional::Documents => "--documents",
            Positional::Dropout => "--dropout",
        }
    }

    /// A number as printed.
    pub(crate) fn show(&self, value: f64) -> String {
        shown(value, self.digits).text
    }

    pub(crate) fn percent(&self, share: f64) -> String {
        percent(share, self.digits)
    }

    /// Heading of a head, if there is more than one.
    pub(crate) fn group_heading(&self, [b, h]: [usize; 2]) -> Option<Block> {
        self.group_name([b, h]).map(Block::Heading)
    }

    pub(crate) fn group_name(&self, [b, h]: [usize; 2]) -> Option<String> {
        let batch = (self.batch > 1).then_some(b);
        let head = (self.heads > 1).then_some(h);
        let kv_head = (self.heads != self.kv_heads).then(|| self.kv_head(h));
        (batch.is_some() || head.is_some()).then(|| self.words.group(batch, head, kv_head))
    }

    /// The keys to write out for a row, in order: all of a small input, else the heaviest.
    pub(crate) fn keys_of(&self, [b, h, i]: [usize; 3]) -> Vec<usize> {
        let mut keys: Vec<usize> = (0..self.keys).collect();
        if self.large && self.keys > KEYS_SHOWN {
            let weight = |j: usize| self.at(StepName::Weights, &[b, h, i, j]);
            keys.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
            keys.truncate(KEYS_SHOWN);
            keys.sort_unstable();
        }
        keys
    }

    /// The columns to work out.
    pub(crate) fn columns(&self, width: usize) -> std::ops::Range<usize> {
        0..if self.large {
            width.min(COLUMNS_SHOWN)
        } else {
            width
        }
    }

    /// The name of row i of a matrix whose rows have this letter, with its token if that is known.
    pub(crate) fn row_name(&self, letter: char, i: usize) -> String {
        let token = match letter {
            'k' | 'v' => self.key_labels.get(i),
            'q' | 'o' | 'x' | 'z' | 'y' | 'r' => self.query_labels.get(i),
            _ => None,
        };
        match token {
            Some(token) => format!("{letter}{i} {token}"),
            None => format!("{letter}{i}"),
        }
    }

    /// "Query 1", with its token if that is known.
    pub(crate) fn query(&self, i: usize) -> String {
        let query = self.words.query(i);
        match self.query_labels.get(i) {
            Some(token) => format!("{query} · {token}"),
            None => query,
        }
    }

    /// A matrix block, or a line that says it is too large.
    pub(crate) fn matrix(
        &self,
        name: String,
        row_name: char,
        column_name: Option<char>,
        values: Vec<Vec<Number>>,
    ) -> Block {
        let columns = values.first().map_or(0, Vec::len);
        if self.too_large(values.len(), columns) {
            return Block::Item(self.words.matrix_left_out(&name, values.len(), columns));
        }
        Block::Matrix(Matrix {
            name,
            rows: (0..values.len())
                .map(|i| self.row_name(row_name, i))
                .collect(),
            columns: (0..columns)
                .map(|j| match column_name {
                    Some(column_name) => self.row_name(column_name, j),
                    None => j.to_string(),
                })
                .collect(),
            cells: values
                .into_iter()
                .map(|row| row.into_iter().map(Cell::Number).collect())
                .collect(),
        })
    }

    /// The `[rows, columns]` of a step at leading indices, as a matrix block.
    pub(crate) fn step_matrix(
        &self,
        name: &str,
        row_name: char,
        column_name: Option<char>,
        step: StepName,
        lead: &[usize],
    ) -> Block {
        match self.step(step) {
            Some(tensor) => {
                let named = (step.as_str(), tensor);
                self.tensor_matrix(name, row_name, column_name, named, lead)
            }
            None => self.matrix(name.into(), row_name, column_name, Vec::new()),
        }
    }

    /// The `[rows, columns]` of an array at leading indices, as a matrix block.
    pub(crate) fn tensor_matrix(
        &self,
        name: &str,
        row_name: char,
        column_name: Option<char>,
        (of, tensor): (&'static str, &Tensor<f64>),
        lead: &[usize],
    ) -> Block {
        match tensor.shape().get(lead.len()..) {
            // Not copied to be left out.
            Some(&[rows, columns]) if self.too_large(rows, columns) => {
                Block::Item(self.words.matrix_left_out(name, rows, columns))
            }
            _ => self.matrix(name.into(), row_name, column_name, rows(of, tensor, lead)),
        }
    }

    fn too_large(&self, rows: usize, columns: usize) -> bool {
        let numbers = rows * columns;
        numbers == 0 || numbers > MATRIX_SHOWN[usize::from(self.large)]
    }

    /// The matrix `[queries, keys]` of a step.
    pub(crate) fn score_matrix(&self, step: StepName, letter: &str, group: [usize; 2]) -> Block {
        self.step_matrix(letter, 'q', Some('k'), step, &group)
    }

    pub(crate) fn part(&self, steps: &[StepName], heading: String, formula: &str) -> Part {
        let mut shapes: Vec<Shape> = Vec::new();
        for &name in steps {
            if let Some(step) = self.step(name) {
                push_shape(&mut shapes, name.as_str(), step, self.words.axes(name));
            }
        }
        part_of(shapes, heading, formula)
    }

    /// Whether any key can have been dropped.
    pub(crate) fn masks_keys(&self) -> bool {
        self.keys > 0 && self.step(StepName::Masked).is_some()
    }

    /// Whether a row of the run keeps no key.
    pub(crate) fn is_empty_row(&self, row: [usize; 3]) -> bool {
        self.subject.steps.empty_rows().contains(&row)
    }

    /// Whether key j takes part in the softmax of a row.
    pub(crate) fn takes_part(&self, [b, h, i, j]: [usize; 4]) -> bool {
        let (logits, _) = self.logits();
        self.at(logits, &[b, h, i, j]) != f64::NEG_INFINITY
    }

    /// The keys that take part in the softmax of a row, and those of them that are written out.
    pub(crate) fn kept_and_written(&self, row: [usize; 3]) -> [Vec<usize>; 2] {
        let [b, h, i] = row;
        let kept = |keys: Vec<usize>| -> Vec<usize> {
            keys.into_iter()
                .filter(|&j| self.takes_part([b, h, i, j]))
                .collect()
        };
        [kept((0..self.keys).collect()), kept(self.keys_of(row))]
    }

    /// The keys that queries of row i's document may see.
    pub(crate) fn own_keys(&self, i: usize) -> std::ops::Range<usize> {
        let Some(documents) = &self.subject.block.attention.documents else {
            return 0..self.keys;
        };
        let (mut query, mut key) = (0, 0);
        for (&queries, &keys) in documents.queries().iter().zip(documents.keys()) {
            if i < query + queries {
                return key..key + keys;
            }
            query += queries;
            key += keys;
        }
        0..self.keys
    }

    /// P(i): the index of the key that stands where query i stands.
    pub(crate) fn position(&self, b: usize, i: usize) -> i64 {
        let place = self
            .places
            .as_ref()
            .map_or(0, |places| places.queries[b][i]);
        place.saturating_add(self.own_keys(i).start as i64)
    }
}

fn places(subject: &Subject<'_>) -> Option<definition::Places> {
    let step = |name| subject.steps.get(name)?.view().ok();
    let (q, k, v) = (step(StepName::Q)?, step(StepName::K)?, step(StepName::V)?);
    let inputs = Inputs::new(q, k, v).ok()?;
    definition::places(&subject.block.attention, &inputs).ok()
}

/// Adds a name to those of the same shape.
pub(crate) fn push_shape(
    shapes: &mut Vec<Shape>,
    name: &'static str,
    tensor: &Tensor<f64>,
    axes: &'static str,
) {
    let same = |shape: &&mut Shape| shape.axes == axes && shape.shape == tensor.shape();
    match shapes.iter_mut().find(same) {
        Some(shape) => shape.steps.push(name),
        None => shapes.push(Shape {
            steps: vec![name],
            shape: tensor.shape().to_vec(),
            axes,
        }),
    }
}

pub(crate) fn part_of(steps: Vec<Shape>, heading: String, formula: &str) -> Part {
    Part {
        steps,
        heading,
        formula: (!formula.is_empty()).then(|| formula.into()),
        blocks: Vec::new(),
    }
}

pub(crate) fn worked(
    label: impl Into<String>,
    chain: Vec<Expr>,
    value: impl Into<Number>,
) -> Block {
    precise(label, chain, value, 0)
}

/// A line that shows more decimals than the others.
pub(crate) fn precise(
    label: impl Into<String>,
    chain: Vec<Expr>,
    value: impl Into<Number>,
    more_digits: usize,
) -> Block {
    Block::Worked(Worked {
        number: None,
        label: label.into(),
        chain,
        value: value.into(),
        more_digits,
    })
}

/// A paragraph that tells results.
pub(crate) fn finding(text: String) -> Block {
    Block::Finding(Box::new(Block::Paragraph(text)))
}

/// The `[rows, columns]` of a tensor at leading indices.
pub(crate) fn rows(name: &'static str, tensor: &Tensor<f64>, lead: &[usize]) -> Vec<Vec<Number>> {
    let size = |axis: usize| tensor.shape().get(lead.len() + axis).copied().unwrap_or(0);
    let number = |r: usize, c: usize| Number::of(name, tensor, &[lead, &[r, c]].concat());
    (0..size(0))
        .map(|r| (0..size(1)).map(|c| number(r, c)).collect())
        .collect()
}
