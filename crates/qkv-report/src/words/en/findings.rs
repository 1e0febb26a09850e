//! English: what came out of a row.

use super::{English, count, keys, lower};
use crate::words::{Findings, Heaviest, Leaders, Mix};

/// "in head 0, query 1" or "query 1".
fn query(group: Option<&str>, i: usize) -> String {
    group.map_or(format!("Query {i}"), |group| {
        format!("In {}, query {i}", lower(group))
    })
}

/// "alike", or nearly.
fn alike(best: &Leaders<'_>) -> &'static str {
    match best.equal {
        true => "equally",
        false => "almost equally",
    }
}

impl Findings for English {
    fn best_match(
        &self,
        group: Option<&str>,
        i: usize,
        best: &Leaders<'_>,
        next: Option<(usize, &str)>,
    ) -> String {
        let query = query(group, i);
        let number = best.number;
        match (best.keys, next) {
            (&[first], Some((second, next))) => format!(
                "{query} asks, and key {first} matches it best, with {number}; next comes key \
                 {second} with {next}."
            ),
            (all, _) if all.len() == best.of => format!(
                "{query} asks, and all {} keys match it {}, with {number}.",
                all.len(),
                alike(best)
            ),
            (some, _) => format!(
                "{query} asks, and {} match it best, {} with {number}.",
                keys(some),
                alike(best)
            ),
        }
    }
    fn row_meaning(&self, i: usize, best: &Leaders<'_>, left: Option<&str>) -> String {
        let share = best.number;
        let sink = left.map_or(String::new(), |left| {
            format!("; {left}% goes to the sink, to no key at all")
        });
        let same = match best.equal {
            true => "the same share",
            false => "almost the same share",
        };
        match best.keys {
            [key] if best.of == 1 => match left {
                Some(_) => format!("Query {i} sees key {key} only and gives it {share}%{sink}."),
                None => format!("Query {i} sees key {key} only and gives it all, {share}%."),
            },
            [key] if left.is_none() && share.starts_with("100") => format!(
                "Query {i} gives practically everything to key {key}; next to nothing is left for \
                 the others."
            ),
            [key] if left.is_some() => {
                format!("Query {i} gives {share}% to key {key}, its largest share{sink}.")
            }
            [key] if best.of == 2 => {
                format!("Query {i} gives {share}% to key {key} and the rest to the other key.")
            }
            [key] => {
                let others = match best.of - 1 {
                    1 => "1 other key".into(),
                    others => format!("{} other keys", count(others)),
                };
                format!(
                    "Query {i} gives {share}% to key {key}, its largest share; the rest is spread \
                     over {others}."
                )
            }
            all if all.len() == best.of => {
                let all = match all.len() {
                    2 => "both keys".into(),
                    n => format!("all {} keys", count(n)),
                };
                format!("Query {i} gives {all} {same}, {share}% each{sink}.")
            }
            some => format!(
                "Query {i} gives {same}, {share}%, to each of {}; no other key gets as much{sink}.",
                keys(some)
            ),
        }
    }
    fn output_meaning(&self, i: usize, best: &Leaders<'_>, mix: &Mix) -> String {
        let share = best.number;
        let several = keys(best.keys);
        match (best.keys, mix) {
            (_, Mix::Nothing) => format!("Nothing is left of row {i}, so its output is 0."),
            (_, Mix::One { key, weight: None }) => format!(
                "Row {i} has {share}% on key {key} alone: its output is made of value {key}."
            ),
            (_, Mix::One { key, weight }) => format!(
                "Row {i} has {share}% on key {key} alone: its output is value {key} times {}.",
                weight.as_deref().unwrap_or("1")
            ),
            (_, Mix::Average) => format!(
                "Row {i} puts {share}% on each of its {} keys: its output is the average of their \
                 values.",
                count(best.of)
            ),
            (
                [key],
                Mix::Mostly {
                    nearest: true,
                    one_other,
                },
            ) => format!(
                "Row {i} puts {share}% on key {key}, and its output lies nearer to value {key} \
                 than to {}.",
                if *one_other {
                    "the other"
                } else {
                    "the others"
                }
            ),
            ([key], Mix::Mostly { .. }) => format!(
                "Row {i} puts {share}% on key {key}, so value {key} counts most in its output."
            ),
            ([key], Mix::Blend) => format!(
                "Row {i} puts at most {share}% on one key (key {key}), so its output is a blend \
                 of several values."
            ),
            _ => format!(
                "Row {i} puts {share}% on each of {several}, its largest shares, so its output is \
                 a blend of several values."
            ),
        }
    }
    fn check_row(&self, group: Option<&str>, i: usize, total: &str, best: &Heaviest<'_>) -> String {
        let group = group.map_or(String::new(), |group| format!("{}, ", lower(group)));
        let start = format!("    {group}row {i}: sum {total}");
        match best {
            Heaviest::NoKey => format!("{start}, no key kept"),
            Heaviest::NotFinite => start,
            Heaviest::At(Leaders {
                keys: all,
                number,
                of,
                ..
            }) if all.len() == *of && *of > 1 => {
                format!("{start}, every weight {number}")
            }
            Heaviest::At(best) => format!(
                "{start}, largest weight {} at {}",
                best.number,
                keys(best.keys)
            ),
        }
    }
}
