//! What `qkv check` takes.

use super::values;
use super::{AttentionArgs, Color, Format, InputArgs, Language, LayerArgs, PositionArgs};
use clap::Args;
use std::path::PathBuf;

/// The problem, and somebody else's numbers.
#[derive(Args, Debug)]
pub struct CheckArgs {
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
}

/// Format, language, look, file.
#[derive(Args, Debug)]
#[command(next_help_heading = "Report")]
pub struct ReportArgs {
    /// Format of the report: text or json
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
    /// Writes to a file, whose ending decides the format: .txt or .json
    #[arg(short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
}
