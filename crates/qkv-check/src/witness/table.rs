//! For each convention of the table an input that tells it from its neighbours.

use super::draw::Draw;
use super::scene::Scene;
use crate::conventions::{Number, find};
use crate::model::Shared;
use crate::problem::Base;
use crate::recipe::Recipe;
use crate::recompute::largest_difference;
use qkv::position::{Pairing, Rotary, Scaling, slopes};
use qkv::{
    Alibi, Attention, Block, Causal, Documents, Dropout, KeyLengths, Layer, Linear, Place, Result,
    RmsNorm, Scale, Sinks, StepName, Tensor, Window,
};

/// An input, and the step in which the convention shows.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The input.
    pub scene: Scene,
    /// The step whose numbers tell.
    pub step: StepName,
    /// Its right numbers.
    pub right: Tensor<f64>,
    /// What each way to do what the convention says gives instead, as far as it differs here.
    pub gives: Vec<Tensor<f64>>,
}

/// Sizes and options, before there are numbers.
struct Plan {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    past: usize,
    head_dim: usize,
    value_dim: usize,
    /// Size of queries and keys.
    size: f64,
    tokens: bool,
    keep: bool,
    /// The second batch entry has two tokens of padding in front.
    padding: bool,
    /// The last value is NaN.
    nan: bool,
    bias: bool,
    attention: Attention<'static>,
    rotary: bool,
    norms: bool,
    residual: bool,
    sinusoidal: bool,
    step: StepName,
}

/// The input for a convention; `None` for those that have no recipe, but are told from the numbers
/// themselves: dropout of one run, a shift of each row, slips of a hand.
///
/// ```
/// use qkv_check::{Claim, check, witness};
/// let tiled = witness("groups-tiled").ok_or("it has one")?;
/// let sizes = tiled.scene.with(|problem| match problem {
///     qkv_check::Problem::Given { q, k, .. } => (q.shape()[1], k.shape()[1]),
///     qkv_check::Problem::Tokens { layer, .. } => (layer.heads, layer.kv_heads),
/// })?;
/// assert!(sizes.0 > sizes.1 && sizes.1 > 1); // or else tiling is repeating
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn witness(id: &str) -> Option<Witness> {
    let convention = find(id)?;
    let plan = plan(id)?;
    let step = plan.step;
    let scene = plan.scene().ok()?;
    let numbers = scene.with(|problem| {
        let base = Base::new(*problem).ok()?;
        let shared = Shared::default();
        let right = Recipe::new(&base);
        let mut recipes: Vec<Recipe> = Vec::new();
        for variant in (convention.variants)(&base, &right) {
            let mut recipe = right.clone();
            (variant.edit)(&mut recipe);
            recipes.push(recipe);
        }
        for unknown in convention.fits {
            // Any number that is not a special one.
            let grid = (unknown.grid)(&base, &right);
            if let Some(number) = grid.get(2 * grid.len() / 3) {
                let mut recipe = right.clone();
                let number = match unknown.number {
                    Number::Real => 1.07 * number,
                    Number::Whole | Number::Listed => *number,
                };
                (unknown.set)(&base, &mut recipe, number);
                recipes.push(recipe);
            }
        }
        let numbers = |recipe: &Recipe| super::numbers(&base, &shared, recipe, step);
        let own = numbers(&right)?;
        let mut gives: Vec<Tensor<f64>> = recipes.iter().filter_map(&numbers).collect();
        gives
            .retain(|gives| gives.shape() != own.shape() || largest_difference(gives, &own) > 1e-9);
        Some((own, gives))
    });
    let (right, gives) = numbers.ok()??;
    Some(Witness {
        scene,
        step,
        right,
        gives,
    })
}

fn plan(id: &str) -> Option<Plan> {
    let mut plan = Plan {
        batch: 2,
        heads: 4,
        kv_heads: 2,
        queries: 5,
        keys: 7,
        past: 0,
        head_dim: 8,
        value_dim: 6,
        size: 1.0,
        tokens: false,
        keep: false,
        padding: false,
        nan: false,
        bias: false,
        attention: Attention::default(),
        rotary: false,
        norms: false,
        residual: false,
        sinusoidal: false,
        step: StepName::Output,
    };
    let attention = &mut plan.attention;
    match id {
        "causal-top-left" => {
            // With one length for all it is a shift of the cache.
            attention.causal = Some(Causal::BottomRight);
            attention.lengths = Some(KeyLengths(vec![5, 7]));
        }
        "causal-bottom-right"
        | "causal-missing"
        | "causal-strict"
        | "causal-one-ahead"
        | "causal-reversed" => attention.causal = Some(Causal::TopLeft),
        "mask-polarity" | "mask-ignored" | "mask-added-as-01" | "mask-multiplied"
        | "mask-after-softmax" | "mask-fill-weak" | "empty-row" => plan.keep = true,
        "padding-polarity" | "padding-ignored" | "lengths-off-by-one" => {
            attention.causal = Some(Causal::TopLeft);
            attention.lengths = Some(KeyLengths(vec![3, 5]));
        }
        "masked-nan-leak" => {
            // A fill that leaves no weight lets NaN pass too, but not in a row without a key.
            (plan.keep, plan.nan) = (true, true);
            attention.lengths = Some(KeyLengths(vec![3, 5]));
        }
        "mask-fill-overflow" => {
            plan.keep = true;
            attention.causal = Some(Causal::TopLeft);
        }
        "scale"
        | "scale-after-softmax"
        | "softmax-over-queries"
        | "softmax-over-heads"
        | "softmax-low-precision"
        | "softmax-joint"
        | "groups-tiled"
        | "alibi-undeclared"
        | "rotary-undeclared"
        | "qk-norm-undeclared"
        | "sinks-undeclared"
        | "position-extra"
        | "position-missing" => {}
        "softcap-missing"
        | "softcap-after-mask"
        | "softcap-unscaled"
        | "softcap-before-scale"
        | "softcap-value" => {
            attention.softcap = Some(1.5);
            plan.size = 2.0;
            plan.keep = id == "softcap-after-mask";
        }
        // An odd number of keys lacks 1 to the next even one.
        "softmax-plus-one" | "phantom-keys" => plan.keys = 6,
        "layout-swapped" | "batch-first" => plan.keys = plan.queries,
        "keys-values-swapped" => plan.value_dim = plan.head_dim,
        "queries-keys-swapped" => {
            plan.keys = plan.queries;
            plan.kv_heads = plan.heads;
        }
        "heads-split-without-transpose"
        | "heads-merged-without-transpose"
        | "heads-interleaved"
        | "qkv-fused-layout"
        | "projection-bias-missing"
        | "output-projection-missing"
        | "residual-missing"
        | "sinusoidal-missing"
        | "weight-transposed"
        | "padding-positions" => {
            plan.tokens = true;
            plan.keys = plan.queries;
            plan.value_dim = plan.head_dim;
            plan.padding = id == "padding-positions";
            plan.residual = id == "residual-missing";
            plan.sinusoidal = id == "sinusoidal-missing" || plan.padding;
        }
        "rotary-pairing"
        | "rotary-missing"
        | "rotary-direction"
        | "rotary-base"
        | "rotary-scaling"
        | "rotary-partial"
        | "rotary-query-offset"
        | "rotary-keys-only"
        | "rotary-queries-only"
        | "rotary-on-values" => plan.rotary = true,
        "qk-norm-missing" | "qk-norm-order" | "qk-norm-gain-missing" | "qk-norm-gain-plus-one" => {
            plan.rotary = true;
            plan.norms = true;
        }
        "sinks-ignored" | "sinks-scaled" | "lse-with-sink" => {
            attention.sinks = Some(Sinks(vec![0.5, -1.0, 1.5, 0.25]));
            if id == "lse-with-sink" {
                plan.step = StepName::Lse;
            }
        }
        "alibi-sign" | "alibi-missing" | "alibi-slopes" | "alibi-alignment" => {
            attention.alibi = Some(Alibi { slopes: slopes(4) });
        }
        "bias-before-scale" | "bias-missing" | "bias-sign" | "bias-twice" => plan.bias = true,
        "window-off-by-one" | "window-ignored" | "window-one-sided" => {
            // One side more than one key further than the other.
            attention.window = Some(Window {
                back: Some(4),
                forward: Some(2),
            });
            (plan.queries, plan.keys) = (9, 12);
        }
        "window-undeclared" => (plan.queries, plan.keys) = (9, 12),
        "cache-offset" | "cache-ignored" => {
            attention.causal = Some(Causal::BottomRight);
            plan.rotary = true;
            (plan.queries, plan.keys, plan.past) = (4, 4, 3);
        }
        "documents-mixed" => {
            attention.documents = Some(Documents::with_key_lengths(vec![2, 3], vec![3, 4]).ok()?);
        }
        "dropout-unscaled" | "dropout-missing" => {
            attention.dropout = Some(Dropout { p: 0.3, seed: 7 });
        }
        "heads-averaged" => plan.step = StepName::Weights,
        "lse-base-2" => plan.step = StepName::Lse,
        "fp16-overflow" => {
            // So small a scale that weights of rows without overflow show how scores were rounded.
            attention.scale = Scale::Factor(1e-4);
            plan.size = 150.0;
        }
        _ => return None,
    }
    Some(plan)
}

impl Plan {
    fn scene(self) -> Result<Scene> {
        let mut draw = Draw::new(1);
        let (batch, heads, kv_heads) = (self.batch, self.heads, self.kv_heads);
        let (d, dv) = (self.head_dim, self.value_dim);
        let mut masks = Vec::new();
        let all_keys = self.keys + self.past;
        if self.keep {
            // The first row of each batch entry keeps nothing, or, beside a causal mask, not the
            // first two keys.
            let kept = (0..batch * self.queries * all_keys).map(|at| {
                let (i, j) = (at / all_keys % self.queries, at % all_keys);
                match self.attention.causal {
                    Some(_) => j > 1,
                    None => i > 0 && draw.chance(0.6),
                }
            });
            let kept = kept.collect();
            masks.push((
                Tensor::new(&[batch, 1, self.queries, all_keys], kept)?,
                true,
            ));
        }
        if self.padding {
            let kept = (0..batch * all_keys).map(|at| at / all_keys == 0 || at % all_keys > 1);
            masks.push((Tensor::new(&[batch, 1, 1, all_keys], kept.collect())?, true));
        }
        let bias = match self.bias {
            true => Some(draw.tensor(&[1, heads, self.queries, all_keys], 1.0)?),
            false => None,
        };
        let gains = |draw: &mut Draw| RmsNorm::new((0..d).map(|_| 0.5 + draw.unit()).collect());
        let (q_norm, k_norm) = match self.norms {
            true => (Some(gains(&mut draw)), Some(gains(&mut draw))),
            false => (None, None),
        };
        let rotary = self.rotary.then_some(Rotary {
            pairing: Pairing::Halves,
            base: 10_000.0,
            dim: None,
            scaling: Scaling::None,
        });
        let mut block = Block {
            q_norm,
            k_norm,
            rotary,
            place: Place::default(),
            attention: self.attention.clone(),
            concatenate: self.tokens,
            output: None,
        };
        let past = match self.past {
            0 => None,
            past => Some((
                draw.tensor(&[batch, kv_heads, past, d], self.size)?,
                draw.tensor(&[batch, kv_heads, past, dv], 1.0)?,
            )),
        };
        let (mut given, mut tokens) = (None, None);
        if self.tokens {
            let width = heads * d;
            let mut linear = |inner: usize, out: usize| {
                let weight = draw.tensor(&[inner, out], 1.0 / (inner as f64).sqrt())?;
                let bias = (0..out).map(|_| draw.normal()).collect();
                Linear::new("W", weight, Some(bias))
            };
            let (q, k) = (linear(width, heads * d)?, linear(width, kv_heads * d)?);
            let (v, o) = (linear(width, kv_heads * dv)?, linear(heads * dv, width)?);
            block.output = Some(o);
            let layer = Layer {
                q,
                k,
                v,
                heads,
                kv_heads,
                sinusoidal: self.sinusoidal.then_some(0),
                block: block.clone(),
                residual: self.residual,
            };
            let x = draw.tensor(&[batch, self.queries, width], 1.0)?;
            tokens = Some((layer, x, None));
        } else {
            let mut v = draw.tensor(&[batch, kv_heads, self.keys, dv], 1.0)?;
            if let (true, Some(last)) = (self.nan, v.data_mut().last_mut()) {
                *last = f64::NAN;
            }
            given = Some([
                draw.tensor(&[batch, heads, self.queries, d], self.size)?,
                draw.tensor(&[batch, kv_heads, self.keys, d], self.size)?,
                v,
            ]);
        }
        Ok(Scene {
            given,
            tokens,
            past,
            block,
            masks,
            bias,
        })
    }
}
