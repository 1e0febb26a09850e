//! What a source can give of a head.

/// One of the things that a head did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Queries before rotary positions, `[rows, head_dim]`.
    Q,
    /// Keys before rotary positions, `[keys, head_dim]`, of the key and value head.
    K,
    /// Values, `[keys, value_dim]`, of the key and value head.
    V,
    /// Queries after rotary positions, where a layer has them.
    RotatedQ,
    /// Keys after rotary positions, where a layer has them.
    RotatedK,
    /// Scores as the softmax saw them, `[rows, keys]`: scaled, capped, biased, −∞ where dropped.
    Scores,
    /// Weights, `[rows, keys]`.
    Weights,
    /// The weighted sum of values, `[rows, value_dim]`.
    Z,
}

impl Kind {
    /// All of them, in the order in which they are worked out.
    pub const ALL: [Kind; 8] = [
        Kind::Q,
        Kind::K,
        Kind::V,
        Kind::RotatedQ,
        Kind::RotatedK,
        Kind::Scores,
        Kind::Weights,
        Kind::Z,
    ];

    /// As `--keep` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Q => "q",
            Kind::K => "k",
            Kind::V => "v",
            Kind::RotatedQ => "rot_q",
            Kind::RotatedK => "rot_k",
            Kind::Scores => "scores",
            Kind::Weights => "weights",
            Kind::Z => "z",
        }
    }

    /// The last part of its name in a trace file.
    pub fn hook(self) -> &'static str {
        match self {
            Kind::Q => "hook_q",
            Kind::K => "hook_k",
            Kind::V => "hook_v",
            Kind::RotatedQ => "hook_rot_q",
            Kind::RotatedK => "hook_rot_k",
            Kind::Scores => "hook_attn_scores",
            Kind::Weights => "hook_pattern",
            Kind::Z => "hook_z",
        }
    }

    /// Its array's name in a trace file.
    pub fn key(self, layer: usize) -> String {
        format!("blocks.{layer}.attn.{}", self.hook())
    }

    /// Whether it has a row for each key, and belongs to a key and value head, rather than a row for
    /// each query.
    pub fn is_of_keys(self) -> bool {
        matches!(self, Kind::K | Kind::V | Kind::RotatedK)
    }
}
