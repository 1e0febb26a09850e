//! One way to compute attention, right or wrong: every decision in it as a value.
//!
//! The right way is what [`Recipe::new`] reads from the problem; each convention changes one
//! decision. [`Model`](crate::model::Model) computes what a recipe gives.

use crate::problem::Base;
use qkv::position::Rotary;
use qkv::{Causal, DType, Dropout, Place, Sinks, Window};

/// Every decision on the way from tokens to the result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recipe {
    pub projection: Projection,
    pub split: Split,
    pub arrangement: Arrangement,
    pub tiled_groups: bool,
    pub swap: Swap,
    pub norm: Norm,
    pub rotary: Turning,
    /// The factor on q·k.
    pub scale: f64,
    /// The factor on the weights.
    pub scale_after: f64,
    pub softcap: Option<f64>,
    pub cap: Cap,
    /// The factor on a bias: 0 leaves it out.
    pub bias_factor: f64,
    /// One slope a head; none without ALiBi.
    pub slopes: Option<Vec<f64>>,
    pub distance: Distance,
    /// Where queries stand for windows, ALiBi, dropout and rotary.
    pub alignment: Option<Causal>,
    pub causal: Option<CausalRule>,
    pub window: Option<Window>,
    pub padding: Padding,
    pub documents: DocumentRule,
    pub masks: MaskRule,
    /// Keeps exactly what all masks together drop.
    pub inverted: bool,
    pub dropped: DroppedRule,
    pub axis: Axis,
    pub sinks: Option<Vec<f64>>,
    /// Keys that nobody has, with score 0 and value 0.
    pub phantoms: Phantoms,
    /// Added to where every query stands.
    pub shift: i64,
    /// Whether the shift holds for masks and ALiBi, and for the rotary embedding.
    pub shift_masks: bool,
    pub shift_rotary: bool,
    pub ignore_past: bool,
    pub empty: EmptyRule,
    pub leak: bool,
    pub dropout: Option<Dropout>,
    pub dropout_scaled: bool,
    /// Scores beyond the range of half precision become infinite, and scaled scores too.
    pub half_range: [bool; 2],
    /// What is rounded to a format coarser than that of the rest.
    pub low: Option<Low>,
    pub lse_base_2: bool,
    pub lse_with_sink: bool,
    pub merge: Merge,
    pub shown: Shown,
    /// Each row of scores or outputs may be shifted by a constant.
    pub row_shift: bool,
}

/// What makes q, k and v, and the result from the heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Projection {
    /// Weights used as their transpose: W_Q, W_K, W_V, W_O.
    pub transposed: [bool; 4],
    /// Biases left out, in the same order.
    pub unbiased: [bool; 4],
    /// W_K and b_K where W_V and b_V belong, and the other way round.
    pub swapped: bool,
    /// No W_O at all.
    pub no_output: bool,
    pub no_residual: bool,
    pub no_positions: bool,
    /// Positions count from the first token that is not left padding; the padding itself is here.
    pub unpadded: Option<usize>,
}

/// Which numbers of a token's columns are which head's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Split {
    /// Columns h·d to (h+1)·d.
    Usual,
    /// The memory of `[L, H, d]` read as `[H, L, d]`.
    WithoutTranspose,
    /// Column c·H + h is column c of head h.
    Interleaved,
    /// q, k and v in one array, written in one order of chunks and read in another.
    Fused { written: Order, read: Order },
}

/// The order of the heads' q, k and v in a fused array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// All q, all k, all v.
    Blocks,
    /// For each key and value head: its queries, its key, its value.
    Groups,
}

/// Over which axis it is attended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrangement {
    Tokens,
    /// Heads and tokens exchanged.
    Heads,
    /// Batch entries and tokens exchanged.
    Batch,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Swap {
    None,
    KeysValues,
    QueriesKeys,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Norm {
    BeforeRotary,
    AfterRotary,
    Missing,
    /// Divided by the root mean square, but not multiplied by the gains.
    WithoutGain,
    /// Multiplied by 1 + gain.
    GainPlusOne,
    /// Divided by the root mean square, though the options have no norm.
    Undeclared {
        eps: f64,
    },
    /// Divided by their length, though the options have no norm.
    Length,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turning {
    pub rotary: Option<Rotary>,
    pub place: Place,
    pub queries: bool,
    pub keys: bool,
    pub values: bool,
    /// The other way round.
    pub inverse: bool,
    /// Added to the places of queries only.
    pub query_offset: i64,
    /// Places of queries, of keys or of both leave out left padding.
    pub unpadded: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cap {
    Usual,
    /// tanh(s/c), not multiplied by c.
    Unscaled,
    /// −∞ becomes −c.
    AfterMask,
    /// scale·c·tanh(q·k/c).
    BeforeScale,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distance {
    /// j − P(i) instead of its absolute value with a minus sign.
    pub signed: bool,
    /// Added to P(i) for the distance alone.
    pub shift: i64,
    /// Whether P(i) is i + L_k − L_q, whatever the causal mask says; or i itself.
    pub alignment: Option<Causal>,
    /// Bias and ALiBi come before the scale, and are scaled too.
    pub before_scale: bool,
}

/// A causal mask that keeps j ≤ P(i) + diagonal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CausalRule {
    pub alignment: Causal,
    pub diagonal: i64,
    /// Keeps j ≥ P(i) + diagonal instead.
    pub reversed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Padding {
    Dropped,
    /// Not dropped.
    Kept,
    /// The other way round.
    Inverted,
    /// The lengths are off by this.
    Shifted(i64),
    /// Padded keys and values count as zeros.
    Zeros,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DocumentRule {
    Apart,
    /// One sequence.
    Mixed,
    /// One sequence for the masks, while positions start anew.
    MixedButCounted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MaskRule {
    Given,
    Inverted,
    Ignored,
}

/// What becomes of a key that a mask drops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DroppedRule {
    /// Nothing.
    Left,
    /// These are added to the scores of kept and of dropped keys.
    Added { kept: f64, dropped: f64 },
    /// Its score becomes this.
    Filled(f64),
    /// Its weight becomes 0 after the softmax.
    AfterSoftmax,
    /// The least finite number is added once for each mask that drops it, which overflows.
    Overflow,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Axis {
    Keys,
    Queries,
    Heads,
    Joint,
}

/// A softmax in low precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Low {
    pub dtype: DType,
    pub scores: LowScores,
    pub weights: LowWeights,
}

/// Which scores are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LowScores {
    Exact,
    /// What enters the softmax.
    Last,
    /// After each of q·k, scale, softcap and bias.
    Each,
}

/// What of the softmax is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LowWeights {
    Exact,
    /// Its result.
    Last,
    /// exp(s − max) as it is multiplied with V; the sum is of the exact ones.
    Exponentials,
    /// Difference, exponential, sum and quotient.
    Each,
}

/// How many keys there are that nobody has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phantoms {
    Count(f64),
    /// As many as complete the last block of this length.
    Block(usize),
}

impl Phantoms {
    pub fn count(self, keys: usize) -> f64 {
        match self {
            Phantoms::Count(count) => count,
            Phantoms::Block(block) => (keys.next_multiple_of(block.max(1)) - keys) as f64,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EmptyRule {
    Zero,
    Nan,
    Uniform,
    Unmasked,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Merge {
    Usual,
    WithoutTranspose,
    Interleaved,
}

/// How the other side shows its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shown {
    Plain,
    /// One row more in front.
    ExtraFirst,
    /// The first row is missing.
    WithoutFirst,
    /// The mean over heads.
    Averaged,
    /// Heads and tokens exchanged.
    Swapped,
}

impl Recipe {
    /// The right way.
    pub fn new(base: &Base<'_>) -> Recipe {
        let (block, attention) = (base.problem.block(), base.problem.attention());
        Recipe {
            projection: Projection::default(),
            split: Split::Usual,
            arrangement: Arrangement::Tokens,
            tiled_groups: false,
            swap: Swap::None,
            norm: Norm::BeforeRotary,
            rotary: Turning {
                rotary: block.rotary,
                place: block.place.clone(),
                queries: true,
                keys: true,
                values: false,
                inverse: false,
                query_offset: 0,
                unpadded: [false; 2],
            },
            scale: attention.scale.factor(base.sizes.head_dim),
            scale_after: 1.0,
            softcap: attention.softcap,
            cap: Cap::Usual,
            bias_factor: 1.0,
            slopes: attention.alibi.as_ref().map(|alibi| alibi.slopes.clone()),
            distance: Distance {
                signed: false,
                shift: 0,
                alignment: None,
                before_scale: false,
            },
            alignment: attention.causal,
            causal: attention.causal.map(|alignment| CausalRule {
                alignment,
                diagonal: 0,
                reversed: false,
            }),
            window: attention.window,
            padding: Padding::Dropped,
            documents: DocumentRule::Apart,
            masks: MaskRule::Given,
            inverted: false,
            dropped: DroppedRule::Left,
            axis: Axis::Keys,
            sinks: attention.sinks.as_ref().map(|Sinks(sinks)| sinks.clone()),
            phantoms: Phantoms::Count(0.0),
            shift: 0,
            shift_masks: true,
            shift_rotary: true,
            ignore_past: false,
            empty: EmptyRule::Zero,
            leak: false,
            dropout: attention.dropout,
            dropout_scaled: true,
            half_range: [false; 2],
            low: None,
            lse_base_2: false,
            lse_with_sink: false,
            merge: Merge::Usual,
            shown: Shown::Plain,
            row_shift: false,
        }
    }
}
