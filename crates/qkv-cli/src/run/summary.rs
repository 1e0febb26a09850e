//! What a run without a file prints.

use super::write::Results;
use crate::args::RunOutputArgs;
use crate::arrays::{Number, dtype_name};
use crate::output;
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
    not_finite: usize,
    empty: Vec<[usize; 3]>,
    rows: usize,
    first_lse: Option<f64>,
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
        let numbers = || results.output.iter().map(|x| qkv::Element::to_f64(*x));
        let finite = || numbers().filter(|x| x.is_finite());
        let workers = results.run.workers;
        Summary {
            shape: shown_shape(&results.output_shape()),
            dtype: dtype_name(results.dtype),
            first: numbers().take(width.min(FIRST)).collect(),
            is_longer: width > FIRST,
            range: finite()
                .next()
                .map(|first| finite().fold([first; 2], |[low, high], x| [low.min(x), high.max(x)])),
            not_finite: results.output.len() - finite().count(),
            empty: results.rows.empty.clone(),
            rows: results.rows.lse.len(),
            first_lse: results.rows.lse.first().copied(),
            milliseconds: results.milliseconds,
            threads: workers.threads,
            path: workers.options.isa().map_or("", |isa| isa.name()),
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
        if self.not_finite > 0 {
            line(words.not_finite, self.not_finite.to_string());
        }
        if let Some(lse) = self.first_lse.as_ref().filter(|_| args.lse) {
            line(words.first_lse, number(lse));
        }
        if let Some(first) = self.empty.first() {
            line(words.empty, (words.of)(self.empty.len(), self.rows, first));
        }
        let time = format!("{:.3} ms", self.milliseconds);
        line(words.time, (words.on)(&time, self.threads, self.path));
        text
    }
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
    from_to: fn(&str, &str) -> String,
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
    from_to: |low, high| format!("from {low} to {high}"),
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
    from_to: |low, high| format!("从{low}到{high}"),
    of: |empty, rows, first| {
        format!("{rows}行中有{empty}行没有保留任何键，第一个是[批, 头, 查询] = {first:?}")
    },
    on: |time, threads, path| format!("{time}，{threads}个线程，{path}"),
};
