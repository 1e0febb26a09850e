//! What is odd about a problem or somebody's numbers, before anything is compared.

use crate::bound::roundoff;
use crate::claim::Claim;
use crate::conventions::Text;
use crate::model::{Kind, Model, Shared};
use crate::problem::{Base, Problem};
use crate::recipe::Recipe;
use crate::report::{Lint, Parameters, Value};
use crate::shape::Reading;
use qkv::{DType, StepName};
use rayon::prelude::*;

/// One thing that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which never changes.
    pub id: &'static str,
    /// What it means, with parameters in braces.
    pub says: Text,
}

const fn rule(id: &'static str, en: &'static str, zh: &'static str) -> Rule {
    Rule {
        id,
        says: Text { en, zh },
    }
}

/// The rule for problems without a number.
const NOTHING: &str = "nothing-to-compare";

/// Everything that is looked for, in the order in which it is reported.
pub static RULES: &[Rule] = &[
    rule(
        "reference-nan",
        "The right answer itself holds NaN, since a number that is kept is NaN.",
        "正确答案本身就含有NaN，因为参与计算的数中有NaN。",
    ),
    rule(
        "reference-is-nan",
        "The first file, which the other is held against, is NaN at {at}: it does not say what is \
         right there.",
        "作为参照的第一个文件在{at}处是NaN：无法说明那里什么是对的。",
    ),
    rule(
        NOTHING,
        "There is no number to compare: a size is 0.",
        "没有可以比较的数：有一个尺寸是0。",
    ),
    rule(
        "bias-nan",
        "The bias holds NaN ({count} of its numbers, first at {at}): every row that keeps one turns \
         to NaN.",
        "偏置中有NaN（共{count}个，第一个在{at}）：只要一行保留了其中一个，整行都变成NaN。",
    ),
    rule(
        "bias-of-0-and-1",
        "The bias holds nothing but 0 and 1, as a mask does. Added to the scores, 1 against 0 changes \
         the odds by e only: give it as --keep or --drop if it is a mask.",
        "偏置只含0和1，像是掩码。加到得分上，1与0只让权重比相差e倍：如果它是掩码，请用--keep或--drop。",
    ),
    rule(
        "bias-fill-weak",
        "The bias fills dropped keys with {fill} rather than −∞, which scores can beat: such a key \
         carries weight {weight} at {at}.",
        "偏置用{fill}而不是−∞来屏蔽键，得分可以超过它：{at}处这样的键仍占权重{weight}。",
    ),
    rule(
        "bias-fill-only",
        "{count} rows, first {at}, consist of keys that the bias fills with a finite number alone: they \
         have no real key, and yet give no zero row, since only −∞ drops.",
        "有{count}行（第一行{at}）的键全部被偏置用有限数填充：没有真正可看的键，结果却不是零行，因为只有−∞才算屏蔽。",
    ),
    rule(
        "rows-without-key",
        "{count} rows keep no key, first {at}: their output is 0 here, NaN or a mean elsewhere.",
        "有{count}行没有保留任何键，第一行是{at}：这里输出0，别处可能是NaN或平均值。",
    ),
    rule(
        "layout-ambiguous",
        "There are as many tokens as heads ({size}): [B,H,L,d] and [B,L,H,d] have the same shape, so \
         that a wrong --layout goes unnoticed.",
        "词元数与头数相同（{size}）：[B,H,L,d]和[B,L,H,d]形状一样，--layout写错也不会被发现。",
    ),
    rule(
        "fp16-overflow",
        "q·k is {score} at {at}, {scaled} after the scale: the largest number of fp16 is 65504, so a \
         pipeline in fp16 overflows here.",
        "{at}处q·k为{score}，缩放后为{scaled}：fp16最大只能表示65504，用fp16计算会在此溢出。",
    ),
    rule(
        "weight-on-padding",
        "A masked position carries weight {weight}: padding, at {at} of their weights.",
        "被屏蔽的位置占有权重{weight}：填充，位于对方权重的{at}。",
    ),
    rule(
        "weight-above-causal",
        "A masked position carries weight {weight}: a later key than the causal mask keeps, at {at} of \
         their weights.",
        "被屏蔽的位置占有权重{weight}：因果掩码之外的后面的键，位于对方权重的{at}。",
    ),
    rule(
        "weight-on-dropped",
        "A masked position carries weight {weight}: a dropped key, at {at} of their weights.",
        "被屏蔽的位置占有权重{weight}：被屏蔽的键，位于对方权重的{at}。",
    ),
    rule(
        "weights-columns-sum-to-1",
        "Their weights sum to 1 down the columns rather than along the rows (row {at} sums to {sum}): \
         the softmax ran over the queries.",
        "对方的权重每列之和为1，而不是每行之和为1（第{at}行之和为{sum}）：softmax作用在了查询轴上。",
    ),
    rule(
        "weights-sum-to-1-in-all",
        "All weights of a head together sum to 1 (row {at} sums to {sum}): one softmax ran over queries \
         and keys.",
        "每个头的全部权重加起来才是1（第{at}行之和为{sum}）：softmax同时作用在了查询和键上。",
    ),
    rule(
        "weights-do-not-sum-to-1",
        "Their weights do not sum to 1 along the rows: row {at} sums to {sum}.",
        "对方的权重每行之和不是1：第{at}行之和为{sum}。",
    ),
];

/// The rule of this id.
pub fn find(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

/// Largest finite number of half precision.
const FP16_MAX: f64 = 65504.0;

/// A finding with its place and numbers.
fn finding<const N: usize>(id: &'static str, with: [(&'static str, Value); N]) -> Lint {
    Lint {
        id,
        parameters: Parameters::from(with),
    }
}

/// Said where there was no number to compare.
pub(crate) fn nothing_to_compare() -> Lint {
    finding(NOTHING, [])
}

fn place(index: &[usize]) -> Value {
    Value::Wholes(index.iter().map(|n| *n as i64).collect())
}

/// Everything odd, in the order of [`RULES`].
pub(crate) fn lint(
    base: &Base<'_>,
    shared: &Shared,
    right: &Recipe,
    claims: &[Claim],
) -> Vec<Lint> {
    let mut found = Vec::new();
    let bias = Bias::of(base);
    if let Some(bias) = &bias {
        bias.report(&mut found);
    }
    layout(base, &mut found);
    let weights: Vec<(&Claim, Reading)> = claims
        .iter()
        .filter(|claim| claim.step == StepName::Weights)
        .filter_map(|claim| Some((claim, Reading::new(base, right, claim)?)))
        .collect();
    let fills = bias.and_then(|bias| bias.fills());
    let sizes = base.sizes;
    let heads: Vec<Head> = (0..sizes.batch * sizes.heads)
        .into_par_iter()
        .filter_map(|at| {
            let model = Model::new(base, shared, right, false)?;
            let (b, h) = (at / sizes.heads, at % sizes.heads);
            Some(Head::look(base, &model, [b, h], fills.as_ref(), &weights))
        })
        .collect();
    Head::join(heads).report(right.scale, &mut found);
    for (claim, _) in &weights {
        found.extend(sums(base, claim));
    }
    let rank = |lint: &Lint| RULES.iter().position(|rule| rule.id == lint.id);
    found.sort_by_key(rank);
    found
}

/// The distinct numbers of a bias, as far as they matter.
struct Bias {
    nan: usize,
    first_nan: Vec<usize>,
    has_one: bool,
    has_zero: bool,
    /// Anything but 0 and 1.
    has_other: bool,
    /// Negative finite numbers; no more than a few are kept.
    negative: Vec<f64>,
    has_positive: bool,
    /// A finite number below [`Fills::LOW`].
    has_low: bool,
    many: bool,
}

impl Bias {
    /// More different numbers than this are no mask.
    const FEW: usize = 4;

    fn of(base: &Base<'_>) -> Option<Bias> {
        // As it was given: what is repeated is looked at once.
        let qkv::Bias(view) = base.problem.attention().bias?;
        let mut bias = Bias {
            nan: 0,
            first_nan: Vec::new(),
            has_one: false,
            has_zero: false,
            has_other: false,
            negative: Vec::new(),
            has_positive: false,
            has_low: false,
            many: false,
        };
        let [batch, heads, queries, keys] = view.shape();
        for at in 0..batch * heads * queries {
            let (b, h, i) = (at / (heads * queries), at / queries % heads, at % queries);
            for j in 0..keys {
                bias.note(view.get([b, h, i, j]), [b, h, i, j]);
            }
        }
        Some(bias)
    }

    fn note(&mut self, number: f64, at: [usize; 4]) {
        self.has_zero |= number == 0.0;
        self.has_one |= number == 1.0;
        self.has_other |= number != 0.0 && number != 1.0;
        self.has_positive |= number > 0.0;
        if number.is_nan() {
            if self.nan == 0 {
                self.first_nan = at.to_vec();
            }
            self.nan += 1;
        }
        let negative = number < 0.0 && number.is_finite();
        self.has_low |= negative && number <= Fills::LOW;
        if negative && !self.many && !self.negative.contains(&number) {
            self.negative.push(number);
            self.many = self.negative.len() > Bias::FEW;
        }
    }

    fn report(&self, found: &mut Vec<Lint>) {
        if self.nan > 0 {
            let count = Value::Whole(self.nan as i64);
            let at = place(&self.first_nan);
            found.push(finding("bias-nan", [("count", count), ("at", at)]));
        }
        if self.has_one && self.has_zero && !self.has_other {
            found.push(finding("bias-of-0-and-1", []));
        }
    }

    /// Which numbers stand for −∞, if any do.
    fn fills(&self) -> Option<Fills> {
        let all_low = self.negative.iter().all(|number| *number <= -5.0);
        let tiny = self.negative.len() == 1 && self.negative[0] > -1e-3;
        let like_a_mask = !self.many && !self.has_positive && (all_low || tiny);
        let few = match like_a_mask {
            true => self.negative.clone(),
            false => Vec::new(),
        };
        (self.has_low || !few.is_empty()).then_some(Fills { few })
    }
}

/// Finite numbers of a bias that stand for −∞: those far below any score, and if there is little
/// else but 0, those below usual scores, or the only one next to nothing.
struct Fills {
    few: Vec<f64>,
}

impl Fills {
    const LOW: f64 = -1000.0;

    fn contains(&self, number: f64) -> bool {
        number.is_finite() && number <= Fills::LOW || self.few.contains(&number)
    }
}

/// Shapes that fit by accident.
fn layout(base: &Base<'_>, found: &mut Vec<Lint>) {
    let sizes = base.sizes;
    let alike = sizes.queries == sizes.heads && sizes.keys == sizes.kv_heads;
    let given = matches!(base.problem, Problem::Given { .. });
    if given && alike && sizes.heads > 1 && sizes.past == 0 {
        let size = Value::Whole(sizes.heads as i64);
        found.push(finding("layout-ambiguous", [("size", size)]));
    }
}

/// What is found in the rows of a head, or of all.
#[derive(Default)]
struct Head {
    empty: Rows,
    fill_only: Rows,
    /// The largest weight of a filled key, with the fill.
    fill: Option<(Largest, f64)>,
    score: Largest,
    on_padding: Largest,
    above_causal: Largest,
    on_dropped: Largest,
}

#[derive(Default)]
struct Rows {
    count: usize,
    first: Vec<usize>,
}

impl Rows {
    fn add(&mut self, count: usize, first: &[usize]) {
        if self.count == 0 && count > 0 {
            self.first = first.to_vec();
        }
        self.count += count;
    }

    fn report(self, id: &'static str, found: &mut Vec<Lint>) {
        if self.count > 0 {
            let count = Value::Whole(self.count as i64);
            found.push(finding(id, [("count", count), ("at", place(&self.first))]));
        }
    }
}

#[derive(Clone, Default)]
struct Largest {
    number: f64,
    at: Vec<usize>,
}

impl Largest {
    fn note(&mut self, number: f64, at: [usize; 4]) {
        if number.abs() > self.number.abs() {
            *self = Largest {
                number,
                at: at.to_vec(),
            };
        }
    }

    fn or(self, other: Largest) -> Largest {
        match other.number.abs() > self.number.abs() {
            true => other,
            false => self,
        }
    }
}

impl Head {
    fn look(
        base: &Base<'_>,
        model: &Model<'_>,
        [b, h]: [usize; 2],
        fills: Option<&Fills>,
        weights: &[(&Claim, Reading)],
    ) -> Head {
        let mut head = Head::default();
        let sizes = base.sizes;
        let length = base.problem.attention().lengths.as_ref();
        let length = length.map_or(sizes.keys, |lengths| lengths.0[b]);
        let may_overflow = may_overflow(base, model, [b, h]);
        for i in 0..sizes.queries {
            let at = [b, h, i];
            if may_overflow && let Some(row) = model.step(StepName::Scores, &at) {
                for (j, score) in row.values.iter().enumerate().filter(|s| s.1.is_finite()) {
                    head.score.note(*score, [b, h, i, j]);
                }
            }
            let Some(masked) = model.step(StepName::Masked, &at) else {
                continue;
            };
            let dropped = |j: usize| masked.values[j] == f64::NEG_INFINITY;
            if (0..sizes.keys).all(dropped) {
                head.empty.add(1, &at);
            }
            if let (Some(bias), Some(fills)) = (&base.bias, fills) {
                head.filled(model, at, &dropped, fills, &|j| bias.get([b, h, i, j]));
            }
            let causal = model.causal_edge(b, i);
            for (claim, reading) in weights {
                let row = ((b * sizes.heads + h) * sizes.queries + i) * reading.width();
                let theirs = &claim.values.data()[row..][..reading.width()];
                for (j, weight) in theirs.iter().enumerate().filter(|(j, _)| dropped(*j)) {
                    let kind = match () {
                        () if j >= length => &mut head.on_padding,
                        () if causal.is_some_and(|edge| j as i64 > edge) => &mut head.above_causal,
                        () => &mut head.on_dropped,
                    };
                    let seen = weight.abs() > claim.half_unit;
                    kind.note(if seen { *weight } else { 0.0 }, [b, h, i, j]);
                }
            }
        }
        head
    }

    /// Weight of keys whose bias stands for −∞.
    fn filled(
        &mut self,
        model: &Model<'_>,
        at @ [b, h, i]: [usize; 3],
        dropped: &dyn Fn(usize) -> bool,
        fills: &Fills,
        bias: &dyn Fn(usize) -> f64,
    ) {
        let Some(weights) = model.step(StepName::Weights, &at) else {
            return;
        };
        let count = weights.values.len();
        let filled = |j: &usize| fills.contains(bias(*j));
        let kept = || (0..count).filter(|j| !dropped(*j));
        if kept().next().is_some() && kept().all(|j| filled(&j)) {
            self.fill_only.add(1, &at);
            return;
        }
        for j in kept().filter(filled) {
            let weight = weights.values[j];
            if self
                .fill
                .as_ref()
                .is_none_or(|(largest, _)| weight > largest.number)
            {
                let mut largest = Largest::default();
                largest.note(weight, [b, h, i, j]);
                self.fill = Some((largest, bias(j)));
            }
        }
    }

    fn join(heads: Vec<Head>) -> Head {
        heads.into_iter().fold(Head::default(), |mut all, head| {
            all.empty.add(head.empty.count, &head.empty.first);
            all.fill_only
                .add(head.fill_only.count, &head.fill_only.first);
            all.fill = match (all.fill, head.fill) {
                (Some(a), Some(b)) if b.0.number > a.0.number => Some(b),
                (a, b) => a.or(b),
            };
            all.score = all.score.or(head.score);
            all.on_padding = all.on_padding.or(head.on_padding);
            all.above_causal = all.above_causal.or(head.above_causal);
            all.on_dropped = all.on_dropped.or(head.on_dropped);
            all
        })
    }

    fn report(self, scale: f64, found: &mut Vec<Lint>) {
        self.empty.report("rows-without-key", found);
        self.fill_only.report("bias-fill-only", found);
        // Less than this is lost among the other weights in single precision.
        let lost = roundoff(DType::F32);
        if let Some((Largest { number, at }, fill)) = self.fill
            && number > lost
        {
            let with = [
                ("fill", Value::Number(fill)),
                ("weight", Value::Number(number)),
                ("at", place(&at)),
            ];
            found.push(finding("bias-fill-weak", with));
        }
        if self.score.number.abs() > FP16_MAX {
            let with = [
                ("score", Value::Number(self.score.number)),
                ("scaled", Value::Number(scale * self.score.number)),
                ("at", place(&self.score.at)),
            ];
            found.push(finding("fp16-overflow", with));
        }
        let each = [
            ("weight-on-padding", self.on_padding),
            ("weight-above-causal", self.above_causal),
            ("weight-on-dropped", self.on_dropped),
        ];
        for (id, Largest { number, at }) in each {
            if number != 0.0 {
                let weight = Value::Number(number);
                found.push(finding(id, [("weight", weight), ("at", place(&at))]));
            }
        }
    }
}

/// Whether a score of this head can be beyond half precision: |q·k| ≤ ‖q‖·‖k‖.
fn may_overflow(base: &Base<'_>, model: &Model<'_>, [b, h]: [usize; 2]) -> bool {
    let sizes = base.sizes;
    let group = h / (sizes.heads / sizes.kv_heads.max(1)).max(1);
    let norm = |kind: Kind, h: usize, rows: usize| {
        (0..rows)
            .map(|t| model.ready(kind, [b, h, t]).row)
            .map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt())
            .fold(0.0, f64::max)
    };
    norm(Kind::Q, h, sizes.queries) * norm(Kind::K, group, sizes.keys) > FP16_MAX
}

/// Weights whose rows do not sum to 1, and what does.
fn sums(base: &Base<'_>, claim: &Claim) -> Option<Lint> {
    let attention = base.problem.attention();
    if attention.sinks.is_some() || attention.dropout.is_some() {
        return None; // less than 1 is right
    }
    let (queries, keys) = (base.sizes.queries, base.sizes.keys);
    let data = claim.values.data();
    if queries == 0 || keys == 0 || data.iter().any(|weight| !weight.is_finite()) {
        return None;
    }
    // Each weight as coarse as formats are, and as it was typed: Σ|w|·2⁻⁸ + n·half a unit.
    let near = |sum: f64, to: f64, terms: usize| {
        (sum - to).abs() <= roundoff(DType::Bf16) * to + terms as f64 * claim.half_unit
    };
    let row_sums: Vec<f64> = data.chunks(keys).map(|row| row.iter().sum()).collect();
    let wrong = |sum: &f64| !near(*sum, 1.0, keys) && *sum != 0.0;
    let at = row_sums.iter().position(wrong)?;
    let heads = || data.chunks(queries * keys);
    let columns = heads().all(|head| {
        (0..keys).all(|j| {
            let sum = head.chunks(keys).map(|row| row[j]).sum();
            sum == 0.0 || near(sum, 1.0, queries)
        })
    });
    let in_all = || heads().all(|head| near(head.iter().sum(), 1.0, queries * keys));
    let id = match () {
        () if columns => "weights-columns-sum-to-1",
        () if in_all() => "weights-sum-to-1-in-all",
        () => "weights-do-not-sum-to-1",
    };
    let sizes = base.sizes;
    let index = [
        at / queries / sizes.heads,
        at / queries % sizes.heads,
        at % queries,
    ];
    let sum = Value::Number(row_sums[at]);
    Some(finding(id, [("at", place(&index)), ("sum", sum)]))
}
