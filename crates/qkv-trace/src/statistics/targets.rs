//! Which keys of a row a statistic looks at, and which its control.

use super::By;
use super::survey::first_key;
use crate::Facts;

/// Keys of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    pub keys: Vec<usize>,
    pub control: Vec<usize>,
}

/// For each row that counts the keys whose weights are summed; none for a pair, which has its own way.
pub(crate) fn targets(by: &By, facts: &Facts, entry: usize) -> Vec<(usize, Targets)> {
    let tokens = &facts.tokens[entry];
    let first = first_key(facts, entry);
    let rows = (0..facts.rows()).filter_map(|row| {
        let own = facts.own_key(row);
        let query = facts.query(entry, row).filter(|query| !query.padding)?;
        let back = |steps: usize| {
            let key = own?.checked_sub(steps)?;
            (key >= first && !tokens[key].padding).then_some(key)
        };
        let one = |key: usize, control: Option<usize>| Targets {
            keys: vec![key],
            control: control.into_iter().collect(),
        };
        let found = match by {
            By::Previous => one(back(1)?, back(2)),
            By::Own => one(own?, back(1)),
            By::First => {
                let second = (first + 1 < tokens.len()).then_some(first + 1);
                if own == Some(first) {
                    return None;
                }
                one(first, second.filter(|key| own != Some(*key)))
            }
            By::Same | By::Induction => {
                let own = own?;
                let earlier: Vec<usize> = (first..own)
                    .filter(|key| !tokens[*key].padding && tokens[*key].is_same(query))
                    .collect();
                let next: Vec<usize> = earlier
                    .iter()
                    .map(|key| key + 1)
                    .filter(|key| *key < own)
                    .collect();
                let (keys, control) = match by {
                    By::Same => (earlier, next),
                    _ => (next, earlier),
                };
                if keys.is_empty() {
                    return None;
                }
                Targets { keys, control }
            }
            By::Pair { .. } => return None,
        };
        Some((row, found))
    });
    rows.collect()
}
