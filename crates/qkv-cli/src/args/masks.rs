//! Options of attention: scale, masks, biases, positions.

use super::values::{self, Lengths};
use clap::{Args, ValueEnum};
use qkv::position::Scaling;
use qkv::{Causal, Window};

/// Options of attention itself.
#[derive(Args, Debug)]
#[command(next_help_heading = "Masks and scores")]
pub struct AttentionArgs {
    /// Factor on q·k; 1/√d_k if left out
    ///
    /// Any finite number. `qkv run` computes half and single precision in single precision (f32), where
    /// it is 0 or of size 1.2e-38 to 2.3e38.
    #[arg(long, value_name = "S", value_parser = values::number, allow_hyphen_values = true)]
    pub scale: Option<f64>,
    /// Caps scaled scores softly: C·tanh(score/C), before bias and masks
    #[arg(long, value_name = "C", value_parser = values::number, allow_hyphen_values = true)]
    pub softcap: Option<f64>,
    /// Hides later keys: top-left, bottom-right or an offset N
    ///
    /// Query i sees keys 0 to i + offset; the offset is 0 for top-left, L_k - L_q for
    /// bottom-right. Where there are as many keys as queries they are the same and --causal
    /// alone is enough; otherwise one must be named.
    #[arg(
        long,
        value_name = "ALIGNMENT",
        value_parser = values::causal,
        num_args = 0..=1,
        default_missing_value = "square",
        allow_negative_numbers = true
    )]
    pub causal: Option<Causal>,
    /// Keeps keys from BACK before to FORWARD after the own position; inf leaves a side open
    ///
    /// Both ends are kept: `--causal --window 2,0` sees three keys, the own one included.
    /// Without --causal the last query stands at the last key, with --kv-lengths at the last real
    /// one; the same place counts for --alibi. Write padding of an encoder's batch as --keep.
    #[arg(long, value_name = "BACK,FORWARD", value_parser = values::window, allow_hyphen_values = true)]
    pub window: Option<Window>,
    /// Number of real keys of each batch entry; those after it are padding and dropped
    #[arg(long, value_name = "N,...", value_parser = values::lengths, allow_hyphen_values = true)]
    pub kv_lengths: Option<Lengths>,
    /// Lengths of packed documents, which do not see each other
    ///
    /// An item QUERIES:KEYS gives a document other numbers of queries and of keys.
    #[arg(long, value_name = "N,...", value_parser = values::documents, allow_hyphen_values = true)]
    pub documents: Option<qkv::Documents>,
    /// Mask whose 1 (true) keeps a key; up to four axes, aligned to the right
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub keep: Option<String>,
    /// Mask whose 1 (true) drops a key
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub drop: Option<String>,
    /// Numbers added to the scores; only -inf drops a key
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub bias: Option<String>,
    /// Linear biases by distance; slopes, one for each head, or the usual ones if left out
    #[arg(
        long,
        value_name = "SLOPES",
        value_parser = values::array,
        num_args = 0..=1,
        allow_negative_numbers = true
    )]
    pub alibi: Option<Option<String>>,
    /// One logit for each head that joins the softmax's denominator only
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub sinks: Option<String>,
    /// Drops this share of the weights and multiplies the others by 1/(1-P)
    #[arg(long, value_name = "P", value_parser = values::number, allow_hyphen_values = true)]
    pub dropout: Option<f64>,
    /// Seed of all that is drawn at random (--dropout; explain's --init, --exercise); 0 if left out
    #[arg(long, value_name = "N", value_parser = values::seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// A row that keeps no key: a zero row, which is reported, or an error
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Empty::Zero, hide_default_value = true)]
    pub empty_rows: Empty,
}

impl AttentionArgs {
    /// The seed of all that is drawn.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }
}

/// What a row that keeps no key gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Empty {
    /// A zero row (the default)
    Zero,
    /// An error that names the first
    Error,
}

/// Positions.
#[derive(Args, Debug)]
#[command(next_help_heading = "Positions")]
pub struct PositionArgs {
    /// How positions are told
    #[arg(long, value_name = "KIND", value_enum)]
    pub position: Option<PositionKind>,
    /// How far apart the rotary frequencies are; 10000 if left out
    #[arg(long, value_name = "B", value_parser = values::number, allow_hyphen_values = true)]
    pub rotary_base: Option<f64>,
    /// How many columns of each head turn, the first ones; all if left out
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub rotary_dim: Option<usize>,
    /// Slower frequencies: linear:FACTOR or llama3:FACTOR,LOW,HIGH,ORIGINAL
    #[arg(long, value_name = "KIND", value_parser = values::scaling)]
    pub rotary_scaling: Option<Scaling>,
    /// Place of the first token; 0 if left out
    #[arg(long, value_name = "N", value_parser = values::offset, allow_negative_numbers = true)]
    pub position_offset: Option<i64>,
}

/// How positions are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PositionKind {
    /// Turns columns i and i + d/2 of q and k together (GPT-NeoX, Llama in Hugging Face's layout)
    Rotary,
    /// Turns columns 2i and 2i + 1 together (GPT-J, Llama in Meta's layout)
    RotaryInterleaved,
    /// Adds sines and cosines to the tokens of --x, for explain
    Sinusoidal,
}
