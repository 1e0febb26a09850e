//! English: where queries and keys stand.

use super::{English, lower, many};
use crate::words::{PlaceRule, Places, Stretch, shifted, signed};

impl Places for English {
    fn alibi(&self, slope: &str) -> String {
        format!(
            "ALiBi: a key loses slope × distance, so near keys count more. The slope of head 0 is \
             {slope}; p_i is where query i stands among the keys."
        )
    }
    fn positions(
        &self,
        group: Option<&str>,
        (rule, start): (&PlaceRule, i64),
        offset: Option<i64>,
        places: &[(usize, i64)],
    ) -> String {
        let group = group.map_or(String::new(), |group| format!("In {}, ", lower(group)));
        let p = offset.map_or(String::new(), |offset| format!("p_i = {}", shifted(offset)));
        let first = match start {
            0 => String::new(),
            start => format!(" (and the first key at {})", signed(start)),
        };
        let rule = match rule {
            PlaceRule::End { queries, keys } => {
                let last = |n, one: &str, several: &str| match n {
                    1 => format!("the only {one}"),
                    _ => format!("the last of {}", many(n, one, several)),
                };
                format!(
                    "{} stands at {}{first}, so {p}",
                    last(*queries, "query", "queries"),
                    last(*keys, "key", "keys")
                )
            }
            PlaceRule::Causal => format!("as for the causal mask{first}, {p}"),
            PlaceRule::Document => {
                format!("the last query of a document stands at its last key{first}")
            }
        };
        let places: Vec<String> = places
            .iter()
            .map(|(i, p)| format!("p_{i} = {}", signed(*p)))
            .collect();
        let text = format!("{group}{rule}: {}.", places.join(", "));
        super::capital(&text)
    }
    fn heading_rotary(&self) -> String {
        "Rotary positions".into()
    }
    fn rotary(&self, interleaved: bool, turned: usize, width: usize) -> String {
        let pairs = if interleaved {
            "neighbouring columns form a pair"
        } else {
            "a column of the first half and one of the second half form a pair"
        };
        let rest = if turned < width {
            format!(" Columns {turned} to {} stay as they are.", width - 1)
        } else {
            String::new()
        };
        format!(
            "Queries and keys are turned by an angle that grows with their position p, so that \
             q·k depends on how far apart two tokens are; {pairs}, and pair n turns with its own \
             frequency f, where d = {turned} columns turn. Angles are in radians.{rest}"
        )
    }
    fn frequency(&self, pair: usize, a: usize, b: usize) -> String {
        format!("f of pair {pair} (columns {a} and {b})")
    }
    fn plain_frequency(&self, pair: usize) -> String {
        format!("f of pair {pair} before scaling")
    }
    fn turns(&self, pair: usize) -> String {
        format!("turns of pair {pair}")
    }
    fn ramp(&self, pair: usize) -> String {
        format!("ramp of pair {pair}")
    }
    fn stretch(&self, stretch: &Stretch) -> String {
        match stretch {
            Stretch::Linear { factor } => format!(
                "Scaling, for texts longer than a model was trained on: every f is divided by \
                 {factor}."
            ),
            Stretch::Llama3 {
                factor,
                low,
                high,
                length,
            } => format!(
                "Scaling, for texts longer than the {length} tokens a model was first trained on: \
                 a pair turns {length}·f/(2π) times in such a text, 2π ≈ 6.2832. With more than \
                 {high} turns f stays, with fewer than {low} it is divided by {factor}, and in \
                 between the two are mixed by a ramp from 0 at {low} to 1 at {high} turns."
            ),
        }
    }
    fn option_rotary(&self, interleaved: bool, base: &str, dim: Option<usize>) -> String {
        let pairs = if interleaved {
            "neighbouring columns (interleaved)"
        } else {
            "columns of the two halves"
        };
        let dim = dim.map_or(String::new(), |dim| format!(", first {dim} columns only"));
        format!("rotary positions: pairs of {pairs}, base {base}{dim}")
    }
    fn option_stretch(&self, stretch: &Stretch) -> String {
        match stretch {
            Stretch::Linear { factor } => {
                format!("rotary scaling: every frequency divided by {factor}")
            }
            Stretch::Llama3 {
                factor,
                low,
                high,
                length,
            } => format!(
                "rotary scaling as in Llama 3: factor {factor}, low {low}, high {high}, original \
                 length {length}"
            ),
        }
    }
    fn option_position_offset(&self, start: i64) -> String {
        format!("positions counted from {}", signed(start))
    }
}
