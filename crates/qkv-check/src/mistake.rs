//! Mistakes that people make with attention, by name.

use qkv::{Attention, Scale};

/// One way to get attention wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The softmax runs over the queries: w\[i,j] = exp(s\[i,j]) / Σ_i exp(s\[i,j]), so that the
    /// columns sum to 1.
    SoftmaxOverQueries,
    /// One softmax over queries and keys together: w\[i,j] = exp(s\[i,j]) / Σ_i Σ_j exp(s\[i,j]),
    /// so that all weights of a head sum to 1.
    SoftmaxJoint,
    /// Another factor on q·k.
    Scale(WrongScale),
    /// What a mask should drop is kept, and what it should keep is dropped: all masks together
    /// (keep, drop, causal, window, lengths, documents). A bias of −∞ drops its key still.
    MaskPolarity,
}

/// Which factor stands in the place of the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongScale {
    /// None: s = q·k.
    Missing,
    /// 1/√d_model, the width of the model instead of that of a head.
    ModelWidth(usize),
}

impl Mistake {
    /// The five that are shown beside a calculation, for a model of this width.
    pub fn usual(model_width: usize) -> [Mistake; 5] {
        [
            Mistake::SoftmaxOverQueries,
            Mistake::SoftmaxJoint,
            Mistake::Scale(WrongScale::Missing),
            Mistake::Scale(WrongScale::ModelWidth(model_width)),
            Mistake::MaskPolarity,
        ]
    }

    /// The name in JSON, which never changes.
    pub fn id(self) -> &'static str {
        match self {
            Mistake::SoftmaxOverQueries => "softmax-over-queries",
            Mistake::SoftmaxJoint => "softmax-joint",
            Mistake::Scale(_) => "scale",
            Mistake::MaskPolarity => "mask-polarity",
        }
    }

    /// The factor on q·k under this mistake.
    pub fn factor(self, attention: &Attention<'_>, head_dim: usize) -> f64 {
        match self {
            Mistake::Scale(WrongScale::Missing) => 1.0,
            Mistake::Scale(WrongScale::ModelWidth(width)) => Scale::InverseSqrt.factor(width),
            _ => attention.scale.factor(head_dim),
        }
    }
}
