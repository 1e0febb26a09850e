//! What `qkv trace` takes.

use super::values::{self, Indices};
use super::{Color, Language};
use clap::{Args, ValueEnum};
use qkv_trace::{By, Keep};
use std::path::PathBuf;

/// Where weights come from, which of them are looked at, and how they are shown.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// A trace file that -o wrote, or a model: a folder, a GGUF file, or a name of the hub
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// The text that the model reads; several are one batch, the shorter ones filled up
    #[arg(value_name = "TEXT")]
    pub texts: Vec<String>,
    /// How the model reads.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Weights from elsewhere.
    #[command(flatten)]
    pub given: GivenArgs,
    /// Layers, heads and rows.
    #[command(flatten)]
    pub part: PartArgs,
    /// Statistics of heads.
    #[command(flatten)]
    pub find: FindArgs,
    /// Format, language, look, files.
    #[command(flatten)]
    pub output: TraceOutputArgs,
}

/// How a model reads its text.
#[derive(Args, Debug)]
#[command(next_help_heading = "Models")]
pub struct ReadingArgs {
    /// Lets the model continue the text by N tokens, the likeliest each time, with cached keys and
    /// values; the rows of all steps are one map
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub generate: Option<usize>,
    /// The side on which shorter texts are filled up: left or right; left out, left where a token sees
    /// earlier ones only
    #[arg(long, value_name = "SIDE", value_enum, hide_possible_values = true)]
    pub pad: Option<Side>,
    /// The picture that a model of pictures looks at: its pixels, [channels, height, width], prepared as
    /// the model wants them
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub pixels: Option<String>,
    /// Threads at most; as many as there are cores if left out
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
}

/// A side of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Before it
    Left,
    /// Behind it
    Right,
}

/// Weights from elsewhere.
#[derive(Args, Debug)]
#[command(next_help_heading = "Weights from elsewhere")]
pub struct GivenArgs {
    /// Weights: [queries, keys], [heads, …], [layers, heads, …] or [layers, batch, heads, …]
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub weights: Option<String>,
    /// Their tokens: a file with a JSON list of texts, or words between blanks
    ///
    /// A list of lists has the tokens of each batch entry, {"keys": […], "queries": […]} those of
    /// cross-attention. Pieces as a vocabulary spells them, such as "Ġcat" or "▁cat", become text.
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<String>,
    /// Key and value heads that the query heads share
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub kv_heads: Option<usize>,
}

/// Which part is looked at.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is looked at")]
pub struct PartArgs {
    /// Layers, from 0; a list or repeated gives several
    #[arg(long, value_name = "L", value_parser = values::indices, allow_negative_numbers = true)]
    pub layer: Vec<Indices>,
    /// Query heads, from 0
    #[arg(long, value_name = "H", value_parser = values::indices, allow_negative_numbers = true)]
    pub head: Vec<Indices>,
    /// Queries, from 0: rows of the weights
    #[arg(long, value_name = "I", value_parser = values::indices, allow_negative_numbers = true)]
    pub rows: Vec<Indices>,
    /// Batch entry, from 0
    #[arg(
        long,
        value_name = "B",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub entry: usize,
    /// The first token, on which many heads rest: shown, or set aside, not drawn and not counted
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Sink::Show, hide_default_value = true)]
    pub sink: Sink,
    /// What -o keeps: some of q,k,v,rot_q,rot_k,scores,weights,z,top:N,resid,resid_norm
    ///
    /// top:N are the N largest weights of each row, resid the residual around each layer (the hidden
    /// states, the last after the model's last norm, too), resid_norm its sizes. Left out, everything
    /// that is there is kept.
    #[arg(long, value_name = "LIST", value_parser = Keep::parse)]
    pub keep: Option<Keep>,
}

/// What happens to the first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sink {
    /// As any other
    Show,
    /// Not drawn, not listed, not in entropy and distance
    Aside,
}

/// How heads are found.
#[derive(Args, Debug)]
#[command(next_help_heading = "Finding heads")]
pub struct FindArgs {
    /// Ranks heads by the average weight on certain keys: previous, first, own, same, induction, or
    /// two words as 'it>animal'; several with commas between
    ///
    /// previous is the token before, own the query's own, same earlier tokens of the same kind,
    /// induction what came after these. Beside each stands a control, another key as target: a
    /// single weight proves little.
    #[arg(long, value_name = "LIST", value_parser = By::parse, value_delimiter = ',')]
    pub heads_by: Vec<By>,
    /// A file of texts, one a line, over all of which --heads-by takes its averages
    ///
    /// The model reads one after the other. Pictures are of TEXT, or of the first line.
    #[arg(long = "texts", value_name = "FILE")]
    pub texts_file: Option<PathBuf>,
    /// The word that is the control of 'it>animal'; the one with most weight if left out
    #[arg(long, value_name = "WORD")]
    pub control: Option<String>,
    /// Heads shown of each ranking
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::count, allow_negative_numbers = true)]
    pub most: usize,
}

/// What is shown, and where.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct TraceOutputArgs {
    /// Writes the map of all heads for a browser: one file that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Writes one head as a drawing; with --layer and --head
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Links listed for each query
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        allow_negative_numbers = true
    )]
    pub links: usize,
    /// Format of what is printed: text or json
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<TraceFormat>,
    /// Short for --format json
    #[arg(long)]
    pub json: bool,
    /// Language of the text, en or zh; that of the environment if left out
    #[arg(long, value_name = "LANG", value_enum, hide_possible_values = true)]
    pub lang: Option<Language>,
    /// Decimals shown, 0 to 17; never changes JSON or trace files
    #[arg(long, value_name = "N", value_parser = values::digits, default_value_t = 4, allow_negative_numbers = true)]
    pub digits: usize,
    /// Columns of the text, 40 to 1000; left out those of the terminal, but 40 to 120, or else 80
    #[arg(long, value_name = "N", value_parser = values::width, allow_negative_numbers = true)]
    pub width: Option<usize>,
    /// Colours: auto, always or never; auto means in a terminal and heeds NO_COLOR and CLICOLOR
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Color::Auto, hide_default_value = true, hide_possible_values = true)]
    pub color: Color,
    /// Writes to a file, whose ending decides the format: .safetensors, .html, .svg, .json or .txt
    ///
    /// A safetensors file is a trace: the arrays that --keep names, which qkv trace FILE shows again
    /// and qkv check A B compares. Where a file is written, nothing is printed but rankings.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The formats of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Heat maps and lists, for people
    Text,
    /// All numbers, for programs
    Json,
}

/// The numbers of one list or several, none if there is no list.
pub fn numbers(lists: &[Indices]) -> Option<Vec<usize>> {
    let numbers: Vec<usize> = lists
        .iter()
        .flat_map(|Indices(list)| list)
        .copied()
        .collect();
    (!lists.is_empty()).then_some(numbers)
}
