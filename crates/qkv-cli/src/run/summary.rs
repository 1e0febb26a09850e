//! What a run without a file prints.

use super::write::Results;
use crate::args::RunOutputArgs;
use crate::arrays::{Number, dtype_name};
use crate::output;
use qkv::Element;
use qkv_io::{Chunk, many, shown_shape};
use qkv_report::Lang;
use std::fmt::Write;

/// Numbers of the first row that are shown.
const FIRST: usize = 6;

/// A few words and numbers about a result.
pub struct Summary {
    shape: String,
    dtype: &'static str,
    first: Vec<f64>,
    is_longer: bool,
    range: Option<[f64; 2]>,
    /// How many numbers are infinite or NaN, and where in the output the first of them is.
    not_finite: Option<(usize, Vec<usize>)>,
    empty: Vec<[usize; 3]>,
    rows: usize,
    first_lse: Option<f64>,
    /// Name, shape, smallest and largest number.
    gradients: Vec<(&'static str, String, Option<[f64; 2]>)>,
    milliseconds: f64,
    threads: usize,
    path: &'static str,
}

impl Summary {
    pub fn new<T: Number>(results: &Results<'_, T>) -> Summary
    where
        for<'c> Chunk<'c>: From<&'c [T]>,
    {
        let width = results.inputs.value_dim();
        let numbers = || results.output.iter().map(|x| Element::to_f64(*x));
        let gradients = results.named_gradients().into_iter();
        let workers = results.run.workers;
        Summary {
            shape: shown_shape(&results.output_shape()),
            dtype: dtype_name(results.dtype),
            first: numbers().take(width.min(FIRST)).collect(),
            is_longer: width > FIRST,
            range: range(results.output),
            not_finite: numbers().position(|x| !x.is_finite()).map(|first| {
                let count = numbers().filter(|x| !x.is_finite()).count();
                (count, index(first, &results.output_shape()))
            }),
            gradients: gradients
                .map(|(name, shape, numbers)| (name, shown_shape(&shape), range(numbers)))
                .collect(),
            empty: results.rows.empty.clone(),
            rows: results.rows.lse.len(),
            first_lse: results.rows.lse.first().copied(),
            milliseconds: results.milliseconds,
            threads: workers.threads,
            path: workers
                .options
                .isa()
                .map_or("", |isa| isa.of(T::DTYPE).name()),
        }
    }

    /// As it is printed.
    pub fn text(&self, args: &RunOutputArgs) -> String {
        let words = match output::language(args.lang) {
            Lang::En => EN,
            Lang::Zh => ZH,
        };
        let digits = args.digits;
        let number = |x: &f64| format!("{x:.digits$}");
        let mut text = String::new();
        let mut line = |name: &str, says: String| {
            let gap = 11_usize.saturating_sub(display_width(name)).max(1);
            let _ = writeln!(text, "{name}{:gap$}{says}", "");
        };
        line(words.output, format!("{}, {}", self.shape, self.dtype));
        if !self.first.is_empty() {
            let numbers: Vec<String> = self.first.iter().map(number).collect();
            let more = if self.is_longer { " …" } else { "" };
            line(words.first, format!("{}{more}", numbers.join(" ")));
        }
        if let Some([low, high]) = &self.range {
            line(words.range, (words.from_to)(&number(low), &number(high)));
        }
        if let Some((count, first)) = &self.not_finite {
            line(words.not_finite, (words.at)(*count, first));
        }
        if let Some(lse) = self.first_lse.as_ref().filter(|_| args.lse) {
            line(words.first_lse, number(lse));
        }
        for (name, shape, range) in &self.gradients {
            let range = range.as_ref().map(|[low, high]| {
                let range = (words.from_to)(&number(low), &number(high));
                format!("{}{range}", words.comma)
            });
            line(name, format!("{shape}{}", range.unwrap_or_default()));
        }
        if let Some(first) = self.empty.first() {
            line(words.empty, (words.of)(self.empty.len(), self.rows, first));
        }
        let time = format!("{:.3} ms", self.milliseconds);
        line(words.time, (words.on)(&time, self.threads, self.path));
        text
    }
}

/// The smallest and the largest finite number.
fn range<T: Element>(numbers: &[T]) -> Option<[f64; 2]> {
    let mut finite = numbers.iter().map(|x| x.to_f64()).filter(|x| x.is_finite());
    let first = finite.next()?;
    Some(finite.fold([first; 2], |[low, high], x| [low.min(x), high.max(x)]))
}

/// Where the number at this place of the memory is along each axis.
fn index(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = Vec::with_capacity(shape.len());
    for &size in shape.iter().rev() {
        index.push(at % size);
        at /= size;
    }
    index.reverse();
    index
}

/// Columns of a terminal that a text takes: Chinese characters take two.
fn display_width(text: &str) -> usize {
    text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum()
}

struct Words {
    output: &'static str,
    first: &'static str,
    range: &'static str,
    not_finite: &'static str,
    first_lse: &'static str,
    empty: &'static str,
    time: &'static str,
    comma: &'static str,
    from_to: fn(&str, &str) -> String,
    at: fn(usize, &[usize]) -> String,
    of: fn(usize, usize, &[usize; 3]) -> String,
    on: fn(&str, usize, &str) -> String,
}

const EN: Words = Words {
    output: "output",
    first: "first row",
    range: "numbers",
    not_finite: "not finite",
    first_lse: "first lse",
    empty: "empty rows",
    time: "time",
    comma: ", ",
    from_to: |low, high| format!("from {low} to {high}"),
    at: |count, first| format!("{count} of the numbers, the first at {first:?}"),
    of: |empty, rows, first| {
        format!("{empty} of {rows} keep no key, the first is [batch, head, query] = {first:?}")
    },
    on: |time, threads, path| format!("{time}, {}, {path}", many(threads as u64, "thread")),
};

const ZH: Words = Words {
    output: "输出",
    first: "第一行",
    range: "数值",
    not_finite: "非有限数",
    first_lse: "第一个lse",
    empty: "空行",
    time: "用时",
    comma: "，",
    from_to: |low, high| format!("从{low}到{high}"),
    at: |count, first| format!("{count}个，第一个在{first:?}"),
    of: |empty, rows, first| {
        format!("{rows}行中有{empty}行没有保留任何键，第一个是[批, 头, 查询] = {first:?}")
    },
    on: |time, threads, path| format!("{time}，{threads}个线程，{path}"),
};
