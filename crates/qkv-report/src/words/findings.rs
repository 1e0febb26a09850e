//! Sentences that tell what came out of a row.

/// The keys with the largest number of a row, as it is printed.
pub(crate) struct Leaders<'a> {
    /// One, or several with the same printed number.
    pub keys: &'a [usize],
    /// That number as printed.
    pub number: &'a str,
    /// Whether it is the same number, not only the same print.
    pub equal: bool,
    /// All the keys among which they were sought.
    pub of: usize,
}

/// The largest weight of a row.
pub(crate) enum Heaviest<'a> {
    NoKey,
    NotFinite,
    At(Leaders<'a>),
}

/// What an output is made of.
pub(crate) enum Mix {
    /// Dropout left nothing.
    Nothing,
    /// One value, whole or times this printed weight.
    One { key: usize, weight: Option<String> },
    /// Several values; one has more than half.
    Mostly {
        /// Whether the output lies strictly nearer to its value than to any other.
        nearest: bool,
        /// The other values are one.
        one_other: bool,
    },
    /// Several values, none with more than half.
    Blend,
    /// All values with equal weights that add up to 1.
    Average,
}

pub(crate) trait Findings {
    /// `group` names the head and the batch entry.
    fn best_match(
        &self,
        group: Option<&str>,
        i: usize,
        best: &Leaders<'_>,
        next: Option<(usize, &str)>,
    ) -> String;
    /// `best` has percents, `left` is the sink's share.
    fn row_meaning(&self, i: usize, best: &Leaders<'_>, left: Option<&str>) -> String;
    fn output_meaning(&self, i: usize, best: &Leaders<'_>, mix: &Mix) -> String;
    fn check_row(&self, group: Option<&str>, i: usize, total: &str, best: &Heaviest<'_>) -> String;
}
