//! Two files of intermediates, compared name by name in the order in which they were worked out.
//!
//! Nobody says here how the numbers were computed, so the bound comes from the numbers themselves:
//! see `dumps/bound.rs`.

mod bound;
mod names;
mod relation;

use crate::bound::stored_in;
use crate::conventions::table;
use crate::lint::nothing_to_compare;
use crate::recompute::difference;
use crate::report::{Cause, Lint, Parameters, Places, Value, Verdict};
use bound::{Row, Scale};
use names::{Key, pairs};
use qkv::{DType, StepName, Tensor};
use relation::Relation;

/// A named array of a dump.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name in the file.
    pub name: String,
    /// Its numbers.
    pub values: Tensor<f64>,
    /// The format that they are stored in.
    pub dtype: DType,
    /// Half a unit of the last digit that was typed, where numbers were typed rounded.
    pub half_unit: f64,
}

/// What the comparison of two dumps finds.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whether they agree in every name that both have.
    pub verdict: Verdict,
    /// The coarser format whose rounding explains the difference.
    pub rounding: Option<DType>,
    /// The first array that differs, and where.
    pub first_difference: Option<FirstDifference>,
    /// Names that agree and come before it; all of them where nothing differs.
    pub equal: Vec<String>,
    /// Names that differ.
    pub differing: Vec<String>,
    /// What relates the first array that differs to the other, if anything simple does.
    pub causes: Vec<Cause>,
    /// The error allowed at the first difference, or else the largest allowed anywhere.
    pub bound: f64,
    /// Largest |theirs − right| of the first array that differs, or else of all.
    pub max_abs_error: f64,
    /// Where the first array differs.
    pub places: Option<Places>,
    /// What is odd about the numbers.
    pub lint: Vec<Lint>,
    /// Names of the first file that the second has not.
    pub missing: Vec<String>,
    /// Names of the second file that the first has not.
    pub extra: Vec<String>,
    /// Whether the right numbers are those of a first file, rather than worked out.
    pub of_files: bool,
}

/// The first array that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstDifference {
    /// Its name in each file.
    pub names: [String; 2],
    /// Its layer, where the name says so.
    pub layer: Option<usize>,
    /// Which step of attention it is, where the name says so.
    pub step: Option<&'static str>,
    /// Steps of the same layer that come before it and agree.
    pub equal_inputs: Vec<&'static str>,
    /// Its shape in each file, where they differ.
    pub shapes: Option<[Vec<usize>; 2]>,
    /// Index of the first number that differs, with the numbers; none where the shapes differ.
    pub at: Option<(Vec<usize>, f64, f64)>,
}

/// That two dumps have no name in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingInCommon {
    /// Names of the first.
    pub first: Vec<String>,
    /// Names of the second.
    pub second: Vec<String>,
}

/// Compares two dumps; the first is the right one.
///
/// # Errors
/// If they have no name in common.
///
/// ```
/// use qkv::{DType, Tensor};
/// use qkv_check::dumps::{Named, compare};
/// let dump = |weights: f64| -> qkv::Result<Vec<Named>> {
///     let one = |name: &str, numbers: Vec<f64>| -> qkv::Result<Named> {
///         let values = Tensor::new(&[1, 2], numbers)?;
///         Ok(Named { name: name.into(), values, dtype: DType::F64, half_unit: 0.0 })
///     };
///     Ok(vec![one("scores", vec![1.0, 1.0])?, one("weights", vec![weights, 0.5])?])
/// };
/// let report = compare(&dump(0.5)?, &dump(0.55)?).map_err(|_| "a name in common")?;
/// assert_eq!(report.differing, ["weights"]);
/// assert_eq!(report.equal, ["scores"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compare(right: &[Named], theirs: &[Named]) -> Result<Report, NothingInCommon> {
    let matched = pairs(right, theirs);
    if matched.pairs.is_empty() {
        let names = |dump: &[Named]| dump.iter().map(|one| one.name.clone()).collect();
        return Err(NothingInCommon {
            first: names(right),
            second: names(theirs),
        });
    }
    let scale = Scale::new(right);
    let mut all = Comparison::default();
    for (key, a, b) in matched.pairs {
        all.add(right, &scale, key, [&right[a], &theirs[b]]);
    }
    let names =
        |dump: &[Named], at: Vec<usize>| at.iter().map(|at| dump[*at].name.clone()).collect();
    Ok(all.report(
        names(right, matched.only_first),
        names(theirs, matched.only_second),
    ))
}

/// Everything compared so far.
#[derive(Default)]
struct Comparison {
    /// The coarsest format of what came so far.
    held: Option<DType>,
    level: Option<DType>,
    coarser: bool,
    compared: usize,
    nan_in_both: usize,
    right_is_nan: Option<(String, Vec<usize>)>,
    allowed: f64,
    largest: f64,
    equal: Vec<(Key, String)>,
    differing: Vec<String>,
    first: Option<First>,
}

/// The first array that differs.
struct First {
    difference: FirstDifference,
    cause: Option<Cause>,
    allowed: f64,
    largest: f64,
    places: Option<Places>,
}

/// An array compared.
#[derive(Default)]
struct Array {
    /// The finest format in which all numbers fit.
    level: Option<DType>,
    largest: f64,
    allowed: f64,
    first: Option<(Vec<usize>, f64, f64, f64)>,
    places: Places,
}

/// From fine to coarse.
const FORMATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::Bf16];

pub(crate) fn place_of(dtype: DType) -> usize {
    FORMATS
        .iter()
        .position(|format| *format == dtype)
        .unwrap_or(0)
}

fn coarser(a: DType, b: DType) -> DType {
    FORMATS[place_of(a).max(place_of(b))]
}

impl Comparison {
    fn add(&mut self, dump: &[Named], scale: &Scale, key: Key, [a, b]: [&Named; 2]) {
        let own = coarser(a.dtype, b.dtype);
        for one in [a, b] {
            let stored = stored_in(one.values.data()).filter(|_| one.half_unit == 0.0);
            let format = stored.unwrap_or(one.dtype);
            self.held = Some(self.held.map_or(format, |held| coarser(held, format)));
        }
        let Some(theirs) = relation::same_shape(&a.values, &b.values) else {
            self.different_shapes(key, [a, b]);
            return;
        };
        let rows = Rows {
            a,
            theirs: &theirs,
            half_unit: a.half_unit + b.half_unit,
        };
        let array = rows.compare(dump, scale, &key, own, self.held.unwrap_or(own));
        self.note_nan(&rows);
        self.compared += array.places.of;
        self.allowed = self.allowed.max(array.allowed);
        self.largest = self.largest.max(array.largest);
        if let Some(level) = array.level {
            // Numbers that are held in a format say more than how far they are off.
            let level = match (self.held, place_of(level) > place_of(own)) {
                (Some(held), true) => coarser(level, held),
                _ => level,
            };
            self.coarser |= place_of(level) > place_of(own);
            self.level = Some(self.level.map_or(level, |known| coarser(known, level)));
            self.equal.push((key, a.name.clone()));
            return;
        }
        self.differing.push(a.name.clone());
        if self.first.is_some() {
            return;
        }
        let allowed = array.first.as_ref().map_or(array.allowed, |first| first.3);
        let cause = relation::between(key.step, &a.values, &theirs, allowed)
            .map(|relation| cause(&relation, allowed));
        let mut difference = self.first_difference(key, [a, b]);
        difference.at = array
            .first
            .map(|(index, right, theirs, _)| (index, right, theirs));
        self.first = Some(First {
            difference,
            cause,
            allowed,
            largest: array.largest,
            places: Some(array.places),
        });
    }

    fn different_shapes(&mut self, key: Key, [a, b]: [&Named; 2]) {
        self.differing.push(a.name.clone());
        if self.first.is_some() {
            return;
        }
        let cause = relation::of_shapes(key.step, &a.values, &b.values);
        let mut difference = self.first_difference(key, [a, b]);
        let shape = |one: &Named| one.values.shape().to_vec();
        difference.shapes = Some([shape(a), shape(b)]);
        self.first = Some(First {
            difference,
            cause: cause.map(|relation| cause_of_shapes(&relation)),
            allowed: 0.0,
            largest: f64::INFINITY,
            places: None,
        });
    }

    fn first_difference(&self, key: Key, [a, b]: [&Named; 2]) -> FirstDifference {
        let before = self
            .equal
            .iter()
            .filter(|(other, _)| other.layer == key.layer);
        FirstDifference {
            names: [a.name.clone(), b.name.clone()],
            layer: key.layer,
            step: key.step.map(StepName::as_str),
            equal_inputs: before
                .filter_map(|(other, _)| Some(other.step?.as_str()))
                .collect(),
            shapes: None,
            at: None,
        }
    }

    fn note_nan(&mut self, rows: &Rows<'_>) {
        let pairs = rows.a.values.data().iter().zip(rows.theirs);
        for (at, (a, b)) in pairs.enumerate().filter(|(_, (a, _))| a.is_nan()) {
            self.nan_in_both += usize::from(a.is_nan() && b.is_nan());
            self.right_is_nan
                .get_or_insert_with(|| (rows.a.name.clone(), index_of(rows.a.values.shape(), at)));
        }
    }

    fn report(self, missing: Vec<String>, extra: Vec<String>) -> Report {
        let nothing = self.compared == 0 || self.nan_in_both > 0;
        let verdict = match &self.first {
            Some(_) => Verdict::Different,
            None if nothing => Verdict::Undecided,
            None if self.coarser => Verdict::Rounding,
            None => Verdict::Equal,
        };
        let mut lint = Vec::new();
        if verdict == Verdict::Undecided && self.compared == 0 {
            lint.push(nothing_to_compare());
        }
        if let Some((_, index)) = &self.right_is_nan {
            let at = index.iter().map(|n| *n as i64).collect();
            lint.push(Lint {
                id: "reference-is-nan",
                parameters: Parameters::from([("at", Value::Wholes(at))]),
            });
        }
        let (allowed, largest) = (self.allowed, self.largest);
        let mut report = Report {
            verdict,
            rounding: self.level.filter(|_| verdict == Verdict::Rounding),
            first_difference: None,
            equal: self.equal.into_iter().map(|(_, name)| name).collect(),
            differing: self.differing,
            causes: Vec::new(),
            bound: allowed,
            max_abs_error: largest,
            places: None,
            lint,
            missing,
            extra,
            of_files: true,
        };
        if let Some(first) = self.first {
            report.bound = first.allowed;
            report.max_abs_error = first.largest;
            report.places = first.places;
            report.causes = first.cause.into_iter().collect();
            report.first_difference = Some(first.difference);
        }
        report
    }
}

fn cause(relation: &Relation, left: f64) -> Cause {
    Cause {
        max_abs_error: left,
        ..cause_of_shapes(relation)
    }
}

fn cause_of_shapes(relation: &Relation) -> Cause {
    debug_assert!(table().any(|convention| convention.id == relation.id));
    Cause {
        ids: vec![relation.id],
        parameters: relation.parameters.clone(),
        max_abs_error: 0.0,
    }
}

/// Two arrays of one shape.
struct Rows<'a> {
    a: &'a Named,
    theirs: &'a [f64],
    half_unit: f64,
}

impl Rows<'_> {
    /// Compares in formats from `own` on; from half precision on there has to be a sign that it was
    /// in force: numbers that are `held` in it, or differences that look like noise.
    fn compare(&self, dump: &[Named], scale: &Scale, key: &Key, own: DType, held: DType) -> Array {
        let shape = self.a.values.shape();
        let width = shape.last().copied().unwrap_or(1).max(1);
        let right = self.a.values.data();
        let logits = bound::logits(dump, key, shape);
        let mut array = Array::default();
        let mut level = place_of(own);
        let mut noise = Noise::default();
        let mut ratio = Ratio::default();
        for (at, (a, b)) in right
            .chunks(width)
            .zip(self.theirs.chunks(width))
            .enumerate()
        {
            let row = Row::new(scale, logits, key, a, at);
            for (c, (&a, &b)) in a.iter().zip(b).enumerate() {
                if a.is_nan() && b.is_nan() {
                    continue; // nobody knows
                }
                array.places.of += 1;
                let apart = difference(a, b);
                let allows = |format: DType| row.allows(c, format) + self.half_unit;
                let allowed = allows(own);
                array.largest = array.largest.max(apart);
                array.allowed = array.allowed.max(allowed);
                noise.note(b - a, apart);
                while level < FORMATS.len() && apart > allows(FORMATS[level]) {
                    level += 1;
                }
                if apart > allowed {
                    array.places.count += 1;
                    let index = index_of(shape, at * width + c);
                    note_place(&mut array.places, &index);
                    ratio.note(array.first.is_none(), at, a, b, allowed);
                    array.first.get_or_insert((index, a, b, allowed));
                }
            }
        }
        array.places.ratio = ratio.found();
        let told = level <= place_of(DType::F32) || level <= place_of(own) || noise.is_likely();
        let format = FORMATS.get(level).copied();
        array.level = format.filter(|_| told || place_of(held) >= level);
        array
    }
}

/// Batch entry, head and row of an index: those of the last three axes but the innermost.
pub(crate) fn note_place(places: &mut Places, index: &[usize]) {
    let mut note = |known: fn(&mut Places) -> &mut Vec<usize>, back: usize| {
        if let Some(at) = index.len().checked_sub(back) {
            let known = known(places);
            if let Err(place) = known.binary_search(&index[at]) {
                known.insert(place, index[at]);
            }
        }
    };
    note(|places| &mut places.rows, 2);
    if index.len() == 4 {
        note(|places| &mut places.heads, 3);
        note(|places| &mut places.batches, 4);
    }
}

/// theirs ÷ right of the first row that differs.
#[derive(Default)]
pub(crate) struct Ratio {
    row: usize,
    known: Option<f64>,
    many: bool,
}

impl Ratio {
    pub(crate) fn note(&mut self, first: bool, row: usize, a: f64, b: f64, allowed: f64) {
        if first {
            self.row = row;
        }
        if row != self.row || a.abs() <= 1e3 * allowed {
            return;
        }
        let share = b / a;
        let known = *self.known.get_or_insert(share);
        let allowed = 1e-6 * known.abs() + 2.0 * allowed / a.abs();
        self.many |= difference(share, known) > allowed;
    }

    pub(crate) fn found(&self) -> Option<f64> {
        self.known.filter(|known| !self.many && known.is_finite())
    }
}

/// Whether differences look like rounding: most numbers have one, and their signs cancel.
#[derive(Default)]
struct Noise {
    numbers: usize,
    differing: usize,
    signs: f64,
}

impl Noise {
    /// Fewer numbers say nothing about their signs.
    const ENOUGH: usize = 16;

    fn note(&mut self, sign: f64, apart: f64) {
        self.numbers += 1;
        if apart > 0.0 {
            self.differing += 1;
            self.signs += if sign > 0.0 { 1.0 } else { -1.0 };
        }
    }

    fn is_likely(&self) -> bool {
        let count = self.differing as f64;
        // Four standard deviations of as many coins.
        self.differing >= Noise::ENOUGH
            && 2 * self.differing >= self.numbers
            && self.signs.abs() <= 4.0 * count.sqrt()
    }
}

/// The index of number `at` of an array.
pub(crate) fn index_of(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        let size = shape[axis].max(1);
        index[axis] = at % size;
        at /= size;
    }
    index
}
