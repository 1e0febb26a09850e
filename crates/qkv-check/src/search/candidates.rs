//! Which conventions, alone or in pairs, explain the numbers.

use super::Case;
use super::compare::{Compared, Trial, compare};
use super::{fit, sinks};
use crate::claim::Claim;
use crate::conventions::{Convention, Variant, table};
use crate::recipe::Recipe;
use crate::report::{Cause, Parameters, Value};
use rayon::prelude::*;

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    pub causes: Vec<Cause>,
    pub indistinguishable: Vec<Vec<String>>,
    /// How each of the causes computes.
    pub recipes: Vec<Recipe>,
}

/// What comes after the whole table.
const LAST: usize = usize::MAX / 8;

/// A hypothesis: one or several changes of the right recipe.
pub(super) struct Hypothesis {
    pub ids: Vec<&'static str>,
    pub parameters: Parameters,
    pub recipe: Recipe,
    /// Numbers that were fitted.
    pub fitted: usize,
    /// Place in the table.
    pub rank: usize,
}

/// A hypothesis that fits everything.
struct Survivor {
    hypothesis: Hypothesis,
    compared: Compared,
    level: usize,
}

/// What an explanation has to do better than the right answer.
struct Bar {
    /// The level at which the right answer fits.
    finest: usize,
    /// Its noise.
    noise: f64,
    /// Its largest difference.
    max_abs_error: f64,
    /// What is no rounding: a hundredth of their largest number, beyond the digits typed.
    much: f64,
    /// How many levels an explanation may fit at.
    allowed: usize,
    /// Whether the numbers are stored in a half precision.
    coarse: bool,
    /// How many numbers differ beside one unknown a row.
    beside: usize,
}

impl Bar {
    /// An explanation has to fit at a finer level. Where the right answer fits too, if every
    /// intermediate is stored in the very format, rounding alone could do it: then only a simple
    /// explanation without unknowns counts, which leaves much less noise in many numbers.
    fn is_cleared(&self, hypothesis: &Hypothesis, compared: &Compared, level: usize) -> bool {
        const MANY: usize = 24;
        const LESS: f64 = 4.0;
        const TELLING: usize = 64;
        let same_format = level / 2 == self.finest / 2;
        let simple = hypothesis.ids.len() == 1 && hypothesis.fitted == 0;
        let telling = simple && compared.of >= MANY && LESS * compared.noise < self.noise;
        // Where every intermediate is rounded coarsely, pairs and unknown numbers fit too easily,
        // unless hardly more is left than storing the numbers does.
        let loose = level % 2 == 1 && !simple && self.coarse && compared.noise > 1.0;
        // A format between that of the numbers and that in which they were stored before is neither.
        let between = level >= 2 && level + 2 < self.allowed;
        let left = compared.max_abs_error;
        // What is left is next to nothing, unless a bound without end lets anything pass.
        let vacuous = left > 0.1 * self.max_abs_error && left > self.much;
        let better = left < self.max_abs_error && !vacuous;
        let unknowns = hypothesis.recipe.row_shift && self.coarse && self.beside < TELLING;
        let fits = level < self.finest && better && (!same_format || telling);
        fits && !loose && !between && !unknowns
    }
}

/// A change of the table, with its place in it.
struct Change {
    rank: usize,
    convention: &'static Convention,
    variant: Variant,
}

/// Rows that are looked at first.
pub(super) type Probes = Vec<(usize, usize)>;

/// Explanations that fit at a finer level than `finest`, at which the right answer itself fits.
pub(crate) fn search(case: &Case<'_>, right: Option<&Compared>, finest: usize) -> Found {
    let probes = probes(case, right);
    let bar = Bar {
        finest,
        noise: right.map_or(f64::INFINITY, |right| right.noise),
        max_abs_error: right.map_or(f64::INFINITY, |right| right.max_abs_error),
        much: case.claims.iter().map(much).fold(0.0, f64::max),
        allowed: case.allowed,
        coarse: case.is_coarse(),
        beside: right.map_or(0, |right| beside(case, right)),
    };
    let changes: Vec<Change> = table()
        .enumerate()
        .filter(|(_, convention)| convention.id != LOW_PRECISION || finest >= case.allowed)
        .filter(|(_, convention)| convention.id != OVERFLOW || case.overflows)
        .flat_map(|(rank, convention)| {
            let variants = (convention.variants)(&case.base, &case.right);
            variants.into_iter().map(move |variant| Change {
                rank: rank + if variant.undeclared { LAST } else { 0 },
                convention,
                variant,
            })
        })
        .collect();
    let singles: Vec<Hypothesis> = changes.iter().map(|change| single(case, change)).collect();
    let mut survivors = confirm(case, singles, &probes, &bar);
    if finest < 2 {
        // The right answer fits in the format of the numbers: nothing but a simple explanation is
        // believed then.
        return report(case, survivors);
    }
    // Rounding needs no shift.
    let differs = finest == usize::MAX;
    if survivors.is_empty() && differs && case.has_scores() {
        survivors = confirm(case, shifted(case), &probes, &bar);
    }
    if survivors.is_empty() {
        survivors = confirm(case, fitted(case, &probes), &probes, &bar);
    }
    if survivors.is_empty() {
        survivors = confirm(case, pairs(case, &changes), &probes, &bar);
    }
    if survivors.is_empty() {
        let likely: Vec<(usize, &'static str, &Parameters, Recipe)> = changes
            .iter()
            .filter(|change| in_pairs(change))
            .map(|change| {
                let mut recipe = case.right.clone();
                (change.variant.edit)(&mut recipe);
                let (id, parameters) = (change.convention.id, &change.variant.parameters);
                (change.rank, id, parameters, recipe)
            })
            .collect();
        survivors = confirm(case, fit::pairs(case, &likely, &probes), &probes, &bar);
    }
    if survivors.is_empty() {
        survivors = confirm(case, triples(case, &changes, &probes), &probes, &bar);
    }
    if survivors.is_empty() && differs && !case.has_scores() {
        survivors = confirm(case, shifted(case), &probes, &bar);
    }
    report(case, survivors)
}

/// Numbers of the rows that differ, less one for each.
fn beside(case: &Case<'_>, right: &Compared) -> usize {
    let rows = right.differing.iter().zip(case.claims);
    rows.map(|(rows, claim)| {
        let width = claim.values.shape().last().copied().unwrap_or(1);
        rows.len() * width.saturating_sub(1)
    })
    .sum()
}

/// Changes with a number that nobody told.
fn fitted(case: &Case<'_>, probes: &Probes) -> Vec<Hypothesis> {
    let mut fitted = fit::singles(case, probes);
    fitted.extend(sinks::of_each_head(case));
    fitted
}

fn much(claim: &Claim) -> f64 {
    let finite = claim.values.data().iter().filter(|x| x.is_finite());
    0.01 * finite.fold(0.0_f64, |most, x| most.max(x.abs())) + 2.0 * claim.half_unit
}

/// The right recipe, with a constant of its own in each row.
fn shifted(case: &Case<'_>) -> Vec<Hypothesis> {
    let mut recipe = case.right.clone();
    recipe.row_shift = true;
    vec![Hypothesis {
        ids: vec!["row-shift"],
        parameters: Parameters::new(),
        recipe,
        fitted: 1,
        rank: LAST,
    }]
}

/// Every two changes of different conventions.
fn pairs(case: &Case<'_>, changes: &[Change]) -> Vec<Hypothesis> {
    let mut pairs = Vec::new();
    for (at, a) in changes
        .iter()
        .enumerate()
        .filter(|(_, change)| in_pairs(change))
    {
        for b in changes[at + 1..].iter().filter(|change| in_pairs(change)) {
            if a.convention.id != b.convention.id {
                pairs.extend(pair(case, a, b));
            }
        }
    }
    pairs
}

/// The pairs that come nearest, each with every other change.
fn triples(case: &Case<'_>, changes: &[Change], probes: &Probes) -> Vec<Hypothesis> {
    const NEAREST: usize = 16;
    let few: Probes = probes.iter().copied().take(3).collect();
    let pairs = pairs(case, changes);
    let mut costs: Vec<(f64, usize)> = pairs
        .par_iter()
        .enumerate()
        .map(|(at, pair)| (fit::squares(case, &pair.recipe, &few), at))
        .collect();
    costs.retain(|(cost, _)| cost.is_finite());
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    // What is the same to the last digit is the same pair, told otherwise.
    costs.dedup_by(|a, b| a.0 == b.0);
    let mut triples = Vec::new();
    for (_, at) in costs.into_iter().take(NEAREST) {
        for change in changes.iter().filter(|change| in_pairs(change)) {
            if !pairs[at].ids.contains(&change.convention.id) {
                triples.extend(third(case, &pairs[at], change));
            }
        }
    }
    triples
}

/// A pair with one more change.
fn third(case: &Case<'_>, two: &Hypothesis, c: &Change) -> Option<Hypothesis> {
    let mut recipe = two.recipe.clone();
    (c.variant.edit)(&mut recipe);
    let alone = single(case, c).recipe;
    if recipe == two.recipe || recipe == alone || recipe == case.right {
        return None;
    }
    let mut ids = two.ids.clone();
    ids.push(c.convention.id);
    ids.sort_by_key(|id| table().position(|convention| convention.id == *id));
    let mut parameters = two.parameters.clone();
    parameters.extend(c.variant.parameters.clone());
    Some(Hypothesis {
        ids,
        parameters,
        recipe,
        fitted: 0,
        rank: two.rank + c.rank,
    })
}

/// Its numbers are right in the format that it names, so that it needs numbers in a finer one.
const LOW_PRECISION: &str = "softmax-low-precision";

/// What is beyond half precision is seen before.
const OVERFLOW: &str = "fp16-overflow";

/// Of the many query offsets only the likeliest come with something else, and low precision alone.
fn in_pairs(change: &Change) -> bool {
    if change.convention.id == LOW_PRECISION {
        return false;
    }
    match change.variant.parameters.get("offset") {
        Some(Value::Whole(offset)) if change.convention.id == "rotary-query-offset" => {
            offset.abs() <= 2
        }
        _ => true,
    }
}

fn single(case: &Case<'_>, change: &Change) -> Hypothesis {
    let mut recipe = case.right.clone();
    (change.variant.edit)(&mut recipe);
    Hypothesis {
        ids: vec![change.convention.id],
        parameters: change.variant.parameters.clone(),
        recipe,
        fitted: 0,
        rank: change.rank,
    }
}

fn pair(case: &Case<'_>, a: &Change, b: &Change) -> Option<Hypothesis> {
    let (mut one, mut other) = (case.right.clone(), case.right.clone());
    (a.variant.edit)(&mut one);
    (b.variant.edit)(&mut other);
    let mut recipe = one.clone();
    (b.variant.edit)(&mut recipe);
    // One of them undoes or repeats the other.
    if recipe == one || recipe == other || recipe == case.right {
        return None;
    }
    let mut parameters = a.variant.parameters.clone();
    parameters.extend(b.variant.parameters.clone());
    Some(Hypothesis {
        ids: vec![a.convention.id, b.convention.id],
        parameters,
        recipe,
        fitted: 0,
        rank: a.rank + b.rank,
    })
}

/// Rows of each claim that tell most: the first and the last that differ, some between, and some
/// that do not differ.
fn probes(case: &Case<'_>, right: Option<&Compared>) -> Probes {
    let mut probes = Vec::new();
    for claim in 0..case.claims.len() {
        let width = case.claims[claim]
            .values
            .shape()
            .last()
            .copied()
            .unwrap_or(1)
            .max(1);
        let rows = case.claims[claim].values.data().len() / width;
        let differing: &[usize] = right.map_or(&[], |right| &right.differing[claim]);
        let mut own: Vec<usize> = Vec::new();
        let mut spread = |from: &[usize], count: usize| {
            for n in 0..count.min(from.len()) {
                let at = from[n * (from.len() - 1) / (count.min(from.len()) - 1).max(1)];
                if !own.contains(&at) {
                    own.push(at);
                }
            }
        };
        spread(differing, 6);
        let all: Vec<usize> = (0..rows).collect();
        spread(&all, 4);
        probes.extend(own.into_iter().map(|row| (claim, row)));
    }
    probes
}

/// Those that fit every number, at the finest level that any of them fits at.
fn confirm(
    case: &Case<'_>,
    hypotheses: Vec<Hypothesis>,
    probes: &Probes,
    bar: &Bar,
) -> Vec<Survivor> {
    case.watch.more(hypotheses.len());
    let likely: Vec<Hypothesis> = hypotheses
        .into_par_iter()
        .filter(|hypothesis| {
            let passes = passes(case, &hypothesis.recipe, probes);
            case.watch.tried();
            passes
        })
        .collect();
    let mut survivors: Vec<Survivor> = Vec::new();
    for hypothesis in likely {
        let Some(compared) = compare(case, &hypothesis.recipe, false) else {
            continue;
        };
        let Some(level) = compared.level.filter(|level| *level < case.allowed) else {
            continue;
        };
        if bar.is_cleared(&hypothesis, &compared, level) {
            survivors.push(Survivor {
                hypothesis,
                compared,
                level,
            });
        }
    }
    let best = survivors.iter().map(|survivor| survivor.level).min();
    survivors.retain(|survivor| Some(survivor.level) == best);
    survivors
}

/// Whether the rows that tell most fit.
pub(super) fn passes(case: &Case<'_>, recipe: &Recipe, probes: &Probes) -> bool {
    let Some(trial) = Trial::new(case, recipe, true) else {
        return false;
    };
    let fits = |&(claim, row): &(usize, usize)| {
        row >= trial.rows(claim) || trial.row(claim, row).level < case.allowed
    };
    probes.iter().all(fits)
}

/// One entry for each set of ids, the simplest first, and which of them give the same numbers.
fn report(case: &Case<'_>, mut survivors: Vec<Survivor>) -> Found {
    const MOST: usize = 12;
    let quietest = survivors
        .iter()
        .map(|survivor| survivor.compared.noise)
        .fold(f64::INFINITY, f64::min);
    let noisy = |survivor: &Survivor| survivor.compared.noise > 1.2 * quietest + 1e-3;
    survivors.sort_by_key(|survivor| {
        let hypothesis = &survivor.hypothesis;
        (
            hypothesis.ids.len(),
            hypothesis.fitted,
            noisy(survivor),
            hypothesis.rank,
        )
    });
    let mut kept: Vec<Survivor> = Vec::new();
    for survivor in survivors {
        let known = kept
            .iter()
            .any(|kept| kept.hypothesis.ids == survivor.hypothesis.ids);
        if !known && kept.len() < MOST {
            kept.push(survivor);
        }
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in 0..kept.len() {
        let same = groups.iter_mut().find(|group| {
            let (a, b) = (&kept[group[0]], &kept[at]);
            same_numbers(case, &a.hypothesis.recipe, &b.hypothesis.recipe, a.level)
        });
        match same {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    let recipes = kept.iter().map(|kept| kept.hypothesis.recipe.clone());
    let recipes = recipes.collect();
    let causes: Vec<Cause> = kept
        .into_iter()
        .map(|survivor| {
            let mut parameters = survivor.hypothesis.parameters;
            if survivor.hypothesis.recipe.row_shift {
                let trial = Trial::new(case, &survivor.hypothesis.recipe, true);
                if let Some(shift) = trial.and_then(|trial| trial.first_shift()) {
                    parameters.insert("shift", Value::Number(shift));
                }
            }
            Cause {
                ids: survivor.hypothesis.ids,
                parameters,
                max_abs_error: survivor.compared.max_abs_error,
            }
        })
        .collect();
    let ids = |group: &Vec<usize>| group.iter().map(|at| causes[*at].id()).collect();
    Found {
        indistinguishable: groups
            .iter()
            .filter(|group| group.len() > 1)
            .map(ids)
            .collect(),
        causes,
        recipes,
    }
}

/// Whether two recipes give the same numbers for this input, but for rounding.
fn same_numbers(case: &Case<'_>, a: &Recipe, b: &Recipe, level: usize) -> bool {
    let trials = (Trial::new(case, a, true), Trial::new(case, b, true));
    let (Some(a), Some(b)) = trials else {
        return false;
    };
    (0..case.claims.len()).all(|claim| {
        let levels = &case.levels[claim];
        let level = levels[level.min(levels.len() - 1)];
        let extra = case.claims[claim].half_unit;
        a.rows(claim) == b.rows(claim)
            && (0..a.rows(claim)).all(|row| {
                let rows = (a.predicted(claim, row), b.predicted(claim, row));
                let (Some(a), Some(b)) = rows else {
                    return matches!(rows, (None, None));
                };
                let near = |c: usize| {
                    let apart = crate::recompute::difference(a.values[c], b.values[c]);
                    apart == 0.0 || apart <= level.allows(&a, c) + extra
                };
                a.values.len() == b.values.len() && (0..a.values.len()).all(near)
            })
    })
}
