//! What `qkv check` takes.

use super::values;
use super::{AttentionArgs, Color, Format, InputArgs, Language, LayerArgs, PositionArgs};
use clap::Args;
use std::path::PathBuf;

/// The problem, and somebody else's numbers.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Two files of intermediates to compare, the right one first, instead of --q, --k, --v
    ///
    /// safetensors, npz or JSON, as qkv explain -o steps.safetensors writes them. Arrays of the same
    /// name are compared layer by layer, step by step.
    #[arg(value_name = "FILE", value_parser = values::array, num_args = 0..=2)]
    pub files: Vec<String>,
    /// A filled-in sheet of qkv explain --exercise, as text or Markdown: every blank right or wrong
    #[arg(long, value_name = "FILE")]
    pub sheet: Option<String>,
    /// Holds the numbers against what a system would give: torch-sdpa, flash-attn, onnx-25, jax, …
    ///
    /// The options say what was asked for, the system how it does that: its causal alignment, what a
    /// row without a key gives, and the like. A bare --causal is then allowed. docs/conventions.md
    /// lists the systems.
    #[arg(long, value_name = "SYSTEM")]
    pub against: Option<String>,
    /// The boolean mask as the system of --against was given it: what True means is the system's
    #[arg(long, value_name = "ARRAY", value_parser = values::array)]
    pub mask: Option<String>,
    /// Writes an input that tells the explanations apart, where there are several, to a .safetensors
    /// or .npz file
    ///
    /// It has the same options, and other numbers and lengths; the file also holds what each of the
    /// explanations gives for it, and the report says how to read it.
    #[arg(long, value_name = "FILE")]
    pub tell_apart: Option<PathBuf>,
    /// Arrays.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Projections.
    #[command(flatten)]
    pub layer: LayerArgs,
    /// Somebody else's numbers.
    #[command(flatten)]
    pub claims: ClaimArgs,
    /// Options of attention.
    #[command(flatten)]
    pub attention: AttentionArgs,
    /// Positions.
    #[command(flatten)]
    pub position: PositionArgs,
    /// Format, language, look.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Somebody else's numbers, to be checked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Numbers to check")]
pub struct ClaimArgs {
    /// Their q·k, before the scale, [L_q,L_k], [H,L_q,L_k] or [B,H,L_q,L_k]
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub scores: Option<String>,
    /// Their scores times the scale
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub scaled: Option<String>,
    /// Their weights, after the softmax
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub weights: Option<String>,
    /// Their output: of each head, of all heads side by side, or after --wo, as its shape says
    ///
    /// Given twice, the second is of a repeated run of the same.
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub output: Vec<String>,
    /// Their logarithm of each row's sum of exp(score), [L_q], [H,L_q] or [B,H,L_q]
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub lse: Option<String>,
    /// Gradient of the loss by the output, for --dq, --dk, --dv, --dbias and --dsinks: its shape is that of the output
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub grad_output: Option<String>,
    /// Their gradient of the queries
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub dq: Option<String>,
    /// Their gradient of the keys, cached ones first; with --x a width, as qkv explain has it
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub dk: Option<String>,
    /// Their gradient of the values, cached ones first; with --x a width
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub dv: Option<String>,
    /// Their gradient of --bias, in its shape: summed over what it repeats
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub dbias: Option<String>,
    /// Their gradient of --sinks, [H]
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub dsinks: Option<String>,
}

impl ClaimArgs {
    /// The first option of a step's numbers.
    pub fn step(&self) -> Option<&'static str> {
        let given = [
            ("--scores", self.scores.is_some()),
            ("--scaled", self.scaled.is_some()),
            ("--weights", self.weights.is_some()),
            ("--output", !self.output.is_empty()),
            ("--lse", self.lse.is_some()),
        ];
        given
            .iter()
            .find(|(_, given)| *given)
            .map(|(name, _)| *name)
    }

    /// The first option about gradients.
    pub fn gradient(&self) -> Option<&'static str> {
        let given = [
            ("--grad-output", &self.grad_output),
            ("--dq", &self.dq),
            ("--dk", &self.dk),
            ("--dv", &self.dv),
            ("--dbias", &self.dbias),
            ("--dsinks", &self.dsinks),
        ];
        let mut given = given.iter().filter(|(_, text)| text.is_some());
        given.next().map(|(name, _)| *name)
    }
}

/// Format, language, look, file.
#[derive(Args, Debug)]
#[command(next_help_heading = "Report")]
pub struct ReportArgs {
    /// Format of the report: text, markdown, latex, html or json
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<Format>,
    /// Short for --format json
    #[arg(long)]
    pub json: bool,
    /// Language of the text, en or zh; that of the environment if left out
    #[arg(long, value_name = "LANG", value_enum, hide_possible_values = true)]
    pub lang: Option<Language>,
    /// Decimals shown, 0 to 17; never changes JSON
    #[arg(long, value_name = "N", value_parser = values::digits, default_value_t = 4, allow_negative_numbers = true)]
    pub digits: usize,
    /// Columns of the text, 40 to 1000; left out those of the terminal, but 40 to 120, or else 80
    #[arg(long, value_name = "N", value_parser = values::width, allow_negative_numbers = true)]
    pub width: Option<usize>,
    /// Colours: auto, always or never; auto means in a terminal and heeds NO_COLOR and CLICOLOR
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Color::Auto, hide_default_value = true, hide_possible_values = true)]
    pub color: Color,
    /// Writes to a file, whose ending decides the format: .txt, .md, .tex, .html or .json
    #[arg(short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
}
