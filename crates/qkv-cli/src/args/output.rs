//! Where the result goes, and how it looks.

use super::values;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Format, language, look, file.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Format of the result: text, markdown, latex, html or json
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<Format>,
    /// Short for --format json
    #[arg(long)]
    pub json: bool,
    /// Language of the text, en or zh; that of the environment if left out
    ///
    /// Messages about errors are in English.
    #[arg(long, value_name = "LANG", value_enum, hide_possible_values = true)]
    pub lang: Option<Language>,
    /// Decimals shown, 0 to 17; never changes JSON or files of numbers
    #[arg(long, value_name = "N", value_parser = values::digits, default_value_t = 4, allow_negative_numbers = true)]
    pub digits: usize,
    /// Columns of the text, 40 to 1000; left out those of the terminal, but 40 to 120, or else 80
    #[arg(long, value_name = "N", value_parser = values::width, allow_negative_numbers = true)]
    pub width: Option<usize>,
    /// Colours: auto, always or never; auto means in a terminal and heeds NO_COLOR and CLICOLOR
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Color::Auto, hide_default_value = true, hide_possible_values = true)]
    pub color: Color,
    /// Writes to a file, whose ending decides the format: .txt, .md, .tex,
    /// .html, .json or .safetensors
    ///
    /// A safetensors file holds every step under its name. The file is replaced only when the
    /// whole result is there, and never one of the inputs.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The formats of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The worked calculation, for people
    Text,
    /// The worked calculation in Markdown
    Markdown,
    /// The worked calculation as a LaTeX document
    Latex,
    /// The worked calculation as a page for a browser
    Html,
    /// Every step in full precision, for programs
    Json,
}

/// The languages of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// English
    En,
    /// Chinese
    Zh,
}

/// When the text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// In a terminal
    Auto,
    /// Also in files and pipes
    Always,
    /// Not at all
    Never,
}
