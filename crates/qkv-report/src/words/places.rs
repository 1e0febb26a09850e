//! Sentences about where queries and keys stand.

/// What is done to the frequencies of a rotation; numbers as they are printed.
pub(crate) enum Stretch {
    Linear {
        factor: String,
    },
    Llama3 {
        factor: String,
        low: String,
        high: String,
        length: String,
    },
}

/// Why query i stands where it does.
pub(crate) enum PlaceRule {
    /// The last query at the last key that is there.
    End { queries: usize, keys: usize },
    /// As the causal mask has it.
    Causal,
    /// In its own document.
    Document,
}

pub(crate) trait Places {
    fn alibi(&self, slope: &str) -> String;
    /// p_i of some queries; the first key stands at `start`, and the offset is p_i − i where one
    /// says it for all.
    fn positions(
        &self,
        group: Option<&str>,
        rule_and_start: (&PlaceRule, i64),
        offset: Option<i64>,
        places: &[(usize, i64)],
    ) -> String;

    fn heading_rotary(&self) -> String;
    fn rotary(&self, interleaved: bool, turned: usize, width: usize) -> String;
    fn frequency(&self, pair: usize, a: usize, b: usize) -> String;
    /// Names of what leads to a scaled frequency.
    fn plain_frequency(&self, pair: usize) -> String;
    fn turns(&self, pair: usize) -> String;
    fn ramp(&self, pair: usize) -> String;
    fn stretch(&self, stretch: &Stretch) -> String;

    fn option_rotary(&self, interleaved: bool, base: &str, dim: Option<usize>) -> String;
    fn option_stretch(&self, stretch: &Stretch) -> String;
    fn option_position_offset(&self, start: i64) -> String;
}
