//! The worked calculation of attention, from a run's intermediates to something to read.
//!
//! [`text`], [`markdown`], [`latex`] and [`html`] are for people: every number of the run, with the
//! formula and the numbers that lead to it, in English or Chinese; [`exercise()`] leaves blanks for
//! the results and gives the key. [`json`] is for programs: every intermediate in full precision.
//!
//! ```
//! use qkv::{Block, Inputs, View};
//! use qkv_report::{More, Origin, Settings, Subject, json, text};
//!
//! let identity = [1.0, 0.0, 0.0, 1.0];
//! let v = [2.0, 0.0, 0.0, 4.0];
//! let inputs = Inputs::new(
//!     View::new(&identity, &[2, 2])?,
//!     View::new(&identity, &[2, 2])?,
//!     View::new(&v, &[2, 2])?,
//! )?;
//! let block = Block::default();
//! let steps = block.steps(&inputs)?;
//! let subject = Subject {
//!     block: &block,
//!     steps: &steps,
//!     origin: Origin::Given,
//!     past_len: 0,
//!     backward: None,
//!     more: More::default(),
//!     built_in: false,
//!     notes: Vec::new(),
//! };
//! assert!(text(&subject, &Settings::default()).contains("0.6698"));
//! assert_eq!(json(&subject)["shapes"]["output"], serde_json::json!([1, 1, 2, 2]));
//! # Ok::<(), qkv::Error>(())
//! ```

mod apart;
mod check;
mod correct;
mod describe;
mod dumps;
mod entry;
mod exercise;
mod explanation;
mod expr;
mod found;
mod heat;
mod html;
mod json;
mod labels;
mod latex;
mod map;
mod markdown;
mod more;
mod notation;
mod number;
mod printed;
mod redone;
mod sheet;
mod text;
mod words;

pub use apart::Separated;
pub use check::{against_findings, against_json, check_findings, check_json, check_text};
pub use correct::{BadSheet, Corrected, Correction, Sheet, State, correct};
pub use dumps::{dumps_findings, dumps_json};
pub use exercise::{Exercise, NoExercise, Paper, exercise};
pub use found::Findings;
pub use html::html;
pub use json::{json, write_json};
pub use latex::latex;
pub use map::{MapView, map_html, map_json, map_svg, map_text};
pub use markdown::markdown;
pub use more::More;
pub use sheet::{sheet_findings, sheet_json};
pub use text::text;

/// The language of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lang {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

/// How the text looks. None of it changes a number, only how many of its digits are seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The language.
    pub lang: Lang,
    /// Decimals shown.
    pub digits: usize,
    /// Columns of the terminal.
    pub width: usize,
    /// Whether headings and heat maps may use ANSI colours.
    pub color: bool,
    /// The queries to work out in full; if left out all of them, or one of a large input.
    pub rows: Option<Vec<usize>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lang: Lang::En,
            digits: 4,
            width: 80,
            color: false,
            rows: None,
        }
    }
}

/// What was computed, and from what.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The options in force.
    pub block: &'a qkv::Block<'a>,
    /// Every intermediate of the run.
    pub steps: &'a qkv::Steps,
    /// Where q, k and v came from.
    pub origin: Origin<'a>,
    /// Number of cached keys in front of the new ones.
    pub past_len: usize,
    /// The gradient, if it is to be worked out too.
    pub backward: Option<Backward<'a>>,
    /// What else is shown, if the caller asked for it.
    pub more: More,
    /// Whether this is the built-in example, which the text then says.
    pub built_in: bool,
    /// Remarks of the caller, in the language of the text, for example how weights were drawn.
    pub notes: Vec<String>,
}

/// The gradient of a run.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a> {
    /// Every gradient, from the last step back to q, k, v or the tokens and weights.
    pub gradients: &'a qkv::GradientSteps,
    /// One entry checked by a finite difference.
    pub difference: Option<&'a qkv::FiniteDifference>,
    /// Whether the caller gave the last step's gradient; else it is 1 everywhere.
    pub given: bool,
}

/// Where q, k and v came from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// They were given as they are.
    Given,
    /// They were given with the columns of all heads side by side, and split.
    Split,
    /// A layer made them from token rows.
    Projected {
        /// The layer.
        layer: &'a qkv::Layer<'a>,
        /// Its tokens, `[B, L_q, D]`.
        x: &'a qkv::Tensor<f64>,
        /// What keys and values are made from instead of x, `[B, L, D_c]`.
        context: Option<&'a qkv::Tensor<f64>>,
    },
}
