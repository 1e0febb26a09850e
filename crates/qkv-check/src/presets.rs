//! What systems do, in terms of the conventions: data for `--against`.

use crate::claim::Claim;
use crate::conventions::Text;
use crate::problem::{Base, Problem};
use crate::recipe::{Cap, DroppedRule, EmptyRule, MaskRule, Recipe, Split};
use crate::report::Report;
use crate::search::{self, Error};
use crate::watch::Watch;
use qkv::{Causal, Scale};

/// A system.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name after `--against`.
    pub id: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Where it differs from the options as they stand.
    pub choices: &'static [Choice],
    /// The version that was run to see that it does so; none where only its documentation or source
    /// was read.
    pub verified: Option<&'static str>,
}

impl Preset {
    /// Whether `True` in a mask drops a key.
    pub fn true_drops(&self) -> bool {
        self.choices.contains(&Choice::TrueDrops)
    }

    /// Whether it has an alignment of its own; the others take a mask.
    fn aligns(&self) -> bool {
        let causal = [
            Choice::CausalTopLeft,
            Choice::CausalBottomRight,
            Choice::CausalAfterPast,
        ];
        self.choices.iter().any(|choice| causal.contains(choice))
    }
}

/// One thing that a system does in its own way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Query i keeps keys 0 to i.
    CausalTopLeft,
    /// The last query keeps every key.
    CausalBottomRight,
    /// Query i keeps keys up to i + the number of cached keys.
    CausalAfterPast,
    /// A row that keeps no key turns to NaN.
    EmptyRowNan,
    /// A row that keeps no key gives the mean of all values.
    EmptyRowUniform,
    /// Dropped keys get −10,000 added, so that a row without a key is unmasked.
    AddedFill,
    /// The softcap comes after the mask.
    SoftcapAfterMask,
    /// Shared heads are tiled.
    GroupsTiled,
    /// Heads side by side are split without exchanging axes.
    SplitWithoutTranspose,
    /// The scale is 1 unless given.
    ScaleOne,
    /// The window's own end at the back is left out.
    WindowBackExclusive,
    /// ALiBi is slope·(j − i), from the top left.
    AlibiSigned,
    /// `True` in a mask drops a key, where elsewhere it keeps it.
    TrueDrops,
}

/// What a mask of the problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks {
    /// What was meant: every system is given the mask in the polarity that it wants.
    Meant,
    /// The very array that the system was given: one that reads `True` otherwise keeps what this
    /// one drops.
    AsPassed,
}

impl Choice {
    /// The convention of the table that this is.
    pub fn id(self) -> &'static str {
        match self {
            Choice::CausalTopLeft => "causal-top-left",
            Choice::CausalBottomRight | Choice::CausalAfterPast => "causal-bottom-right",
            Choice::EmptyRowNan | Choice::EmptyRowUniform => "empty-row",
            Choice::AddedFill => "mask-fill-weak",
            Choice::SoftcapAfterMask => "softcap-after-mask",
            Choice::GroupsTiled => "groups-tiled",
            Choice::SplitWithoutTranspose => "heads-split-without-transpose",
            Choice::ScaleOne => "scale",
            Choice::WindowBackExclusive => "window-off-by-one",
            Choice::AlibiSigned => "alibi-alignment",
            Choice::TrueDrops => "mask-polarity",
        }
    }

    /// In words.
    pub fn says(self) -> Text {
        let (en, zh) = match self {
            Choice::CausalTopLeft => ("causal from the top left", "因果掩码从左上角对齐"),
            Choice::CausalBottomRight => ("causal to the bottom right", "因果掩码从右下角对齐"),
            Choice::CausalAfterPast => (
                "causal after the cached keys, from the top left without any",
                "因果掩码从缓存的键之后算起，没有缓存则从左上角对齐",
            ),
            Choice::EmptyRowNan => ("a row without a key is NaN", "没有键可看的行为NaN"),
            Choice::EmptyRowUniform => (
                "a row without a key is the mean of all values",
                "没有键可看的行为所有值的平均",
            ),
            Choice::AddedFill => (
                "dropped keys get −10,000 added: a row without a key is unmasked",
                "被屏蔽的键加上−10000：没有键可看的行等于没有掩码",
            ),
            Choice::SoftcapAfterMask => ("softcap after the mask", "softcap在掩码之后"),
            Choice::GroupsTiled => ("shared heads tiled", "共享的头按平铺展开"),
            Choice::SplitWithoutTranspose => (
                "heads side by side split without exchanging axes",
                "并排的头拆分时没有交换轴",
            ),
            Choice::ScaleOne => ("scale 1 unless given", "未给出缩放系数时为1"),
            Choice::WindowBackExclusive => (
                "the window's end at the back is left out",
                "窗口后端不包括边界",
            ),
            Choice::AlibiSigned => (
                "ALiBi is slope·(j − i) from the top left",
                "ALiBi为slope·(j − i)，从左上角算起",
            ),
            Choice::TrueDrops => ("True in a mask drops a key", "掩码中的True表示屏蔽"),
        };
        Text { en, zh }
    }

    fn apply(self, base: &Base<'_>, recipe: &mut Recipe) {
        match self {
            Choice::CausalTopLeft => align(recipe, Causal::TopLeft),
            Choice::CausalBottomRight => align(recipe, Causal::BottomRight),
            Choice::CausalAfterPast => align(recipe, Causal::Offset(base.sizes.past as i64)),
            Choice::EmptyRowNan => recipe.empty = EmptyRule::Nan,
            Choice::EmptyRowUniform => recipe.empty = EmptyRule::Uniform,
            Choice::AddedFill => {
                let attention = base.problem.attention();
                if !base.masks.is_empty() || attention.lengths.is_some() {
                    recipe.dropped = DroppedRule::Added {
                        kept: 0.0,
                        dropped: -1e4,
                    };
                }
            }
            Choice::SoftcapAfterMask if recipe.softcap.is_some() => recipe.cap = Cap::AfterMask,
            Choice::GroupsTiled => recipe.tiled_groups = base.sizes.heads > base.sizes.kv_heads,
            Choice::SplitWithoutTranspose if base.problem.block().concatenate => {
                recipe.split = Split::WithoutTranspose;
            }
            Choice::ScaleOne if base.problem.attention().scale == Scale::InverseSqrt => {
                recipe.scale = 1.0;
            }
            Choice::WindowBackExclusive => {
                if let Some(back) = recipe
                    .window
                    .as_mut()
                    .and_then(|window| window.back.as_mut())
                {
                    *back = back.saturating_sub(1);
                }
            }
            Choice::AlibiSigned if recipe.slopes.is_some() => {
                recipe.distance.signed = true;
                recipe.distance.alignment = Some(Causal::TopLeft);
            }
            Choice::SoftcapAfterMask
            | Choice::SplitWithoutTranspose
            | Choice::ScaleOne
            | Choice::AlibiSigned
            | Choice::TrueDrops => {}
        }
    }
}

/// The causal mask, and everything that goes by where queries stand.
fn align(recipe: &mut Recipe, alignment: Causal) {
    if let Some(rule) = &mut recipe.causal {
        rule.alignment = alignment;
        recipe.alignment = Some(alignment);
    }
}

const fn preset(
    id: &'static str,
    about: &'static str,
    choices: &'static [Choice],
    verified: Option<&'static str>,
) -> Preset {
    Preset {
        id,
        about,
        choices,
        verified,
    }
}

/// All systems.
pub static PRESETS: &[Preset] = &[
    preset(
        "torch-sdpa",
        "PyTorch, scaled_dot_product_attention",
        &[Choice::CausalTopLeft],
        Some("2.15.0"),
    ),
    preset(
        "torch-mha",
        "PyTorch, nn.MultiheadAttention with need_weights=True",
        &[Choice::EmptyRowNan, Choice::TrueDrops],
        Some("2.15.0"),
    ),
    preset(
        "flash-attn-2.0",
        "FlashAttention 2.0",
        &[Choice::CausalTopLeft],
        None,
    ),
    preset(
        "flash-attn",
        "FlashAttention 2.1 and newer",
        &[Choice::CausalBottomRight],
        None,
    ),
    preset(
        "onnx-23",
        "ONNX Attention of opset 23, reference of onnx 1.23",
        &[Choice::CausalAfterPast],
        Some("1.23.2"),
    ),
    preset(
        "onnx-24",
        "ONNX Attention of opset 24, reference of onnx 1.23",
        &[Choice::CausalAfterPast],
        Some("1.23.2"),
    ),
    preset(
        "onnx-25",
        "ONNX Attention of opset 25, reference of onnx 1.23",
        &[Choice::CausalAfterPast],
        Some("1.23.2"),
    ),
    preset(
        "onnx-1.18",
        "ONNX Attention, reference of onnx 1.18",
        &[
            Choice::CausalTopLeft,
            Choice::EmptyRowNan,
            Choice::SoftcapAfterMask,
            Choice::GroupsTiled,
            Choice::SplitWithoutTranspose,
        ],
        None,
    ),
    preset(
        "onnxruntime",
        "ONNX Runtime, Attention of opsets 23 to 25 on the CPU",
        &[Choice::CausalAfterPast],
        Some("1.32.0"),
    ),
    preset(
        "onnxruntime-mha",
        "ONNX Runtime, com.microsoft MultiHeadAttention with key_padding_mask",
        &[Choice::AddedFill],
        Some("1.32.0"),
    ),
    preset(
        "jax",
        "JAX, jax.nn.dot_product_attention",
        &[Choice::CausalTopLeft, Choice::EmptyRowUniform],
        Some("0.10.2"),
    ),
    preset(
        "keras",
        "Keras, MultiHeadAttention",
        &[Choice::CausalTopLeft, Choice::EmptyRowUniform],
        Some("3.15.1"),
    ),
    preset(
        "mlx",
        "MLX, scaled_dot_product_attention on the CPU",
        &[Choice::CausalBottomRight, Choice::EmptyRowUniform],
        Some("0.32.4"),
    ),
    preset(
        "xformers",
        "xFormers, LowerTriangularMask",
        &[Choice::CausalTopLeft],
        None,
    ),
    preset(
        "openvino",
        "OpenVINO, ScaledDotProductAttention on the CPU",
        &[Choice::CausalTopLeft, Choice::EmptyRowNan],
        Some("2026.4.1"),
    ),
    preset(
        "cudnn",
        "cuDNN frontend, with its defaults",
        &[
            Choice::CausalTopLeft,
            Choice::ScaleOne,
            Choice::WindowBackExclusive,
            Choice::AlibiSigned,
        ],
        None,
    ),
    preset(
        "ggml",
        "ggml, flash_attn_ext (causality comes as a mask)",
        &[],
        None,
    ),
    preset(
        "hf-eager",
        "Hugging Face Transformers, eager",
        &[Choice::CausalBottomRight, Choice::EmptyRowUniform],
        Some("5.24.0"),
    ),
    preset(
        "hf-sdpa",
        "Hugging Face Transformers, sdpa",
        &[Choice::CausalBottomRight],
        Some("5.24.0"),
    ),
    preset(
        "candle",
        "Candle, candle-flash-attn",
        &[Choice::CausalBottomRight],
        None,
    ),
    preset(
        "burn",
        "Burn, attention_fallback",
        &[Choice::CausalBottomRight],
        None,
    ),
];

/// The system of this name.
pub fn find(id: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.id == id)
}

/// Numbers held against what systems would give.
#[derive(Clone, Debug)]
pub struct Against {
    /// The system that was asked about.
    pub preset: &'static Preset,
    /// Systems that would give these numbers.
    pub give: Vec<&'static Preset>,
    /// Systems that would not.
    pub others: Vec<&'static Preset>,
    /// How the numbers compare with what the system would give.
    pub report: Report,
}

/// As [`check`](crate::check), against what a system would give instead of the options as they stand:
/// they say what was asked for, the system how it does that. `masks` says whether other systems are
/// thought to be given the same mask or the same array.
///
/// # Errors
/// Those of [`check`](crate::check).
///
/// ```
/// use qkv::{Attention, Block, Causal, DType, StepName, Tensor};
/// use qkv_check::{Claim, Problem, presets};
/// let attention = Attention { causal: Some(Causal::BottomRight), ..Attention::default() };
/// let block = Block { attention, ..Block::default() };
/// let (q, k) = (Tensor::new(&[1, 1, 2, 1], vec![0.0; 2])?, Tensor::new(&[1, 1, 5, 1], vec![0.0; 5])?);
/// let v = Tensor::new(&[1, 1, 5, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0])?;
/// let problem = Problem::Given { block: &block, q: &q, k: &k, v: &v, past: None };
/// let claim = Claim::new(StepName::Output, Tensor::new(&[2, 1], vec![1.0, 1.5])?, DType::F64);
/// let torch = presets::find("torch-sdpa").ok_or("in the table")?;
/// let against = presets::check_against(&problem, &[claim], torch, presets::Masks::Meant)?;
/// assert!(against.report.verdict.agrees());
/// assert!(against.others.iter().any(|preset| preset.id == "flash-attn"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_against(
    problem: &Problem<'_>,
    claims: &[Claim],
    preset: &'static Preset,
    masks: Masks,
) -> Result<Against, Error> {
    let recipe = |base: &Base<'_>, preset: &Preset| {
        let mut recipe = Recipe::new(base);
        for choice in preset.choices {
            choice.apply(base, &mut recipe);
        }
        recipe
    };
    let own = |base: &Base<'_>| recipe(base, preset);
    let other = |base: &Base<'_>, other: &Preset| {
        let mut recipe = recipe(base, other);
        if masks == Masks::AsPassed && other.true_drops() != preset.true_drops() {
            recipe.masks = MaskRule::Inverted;
        }
        recipe
    };
    let others = |base: &Base<'_>| PRESETS.iter().map(|one| other(base, one)).collect();
    let (report, fits) = search::check_as(problem, claims, &Watch::default(), &own, &others)?;
    let causal = problem.attention().causal.is_some();
    let of = |wanted: bool| {
        let pairs = PRESETS.iter().zip(&fits);
        let told = pairs.filter(|(preset, fits)| **fits == wanted && (!causal || preset.aligns()));
        told.map(|(preset, _)| preset).collect()
    };
    Ok(Against {
        preset,
        give: of(true),
        others: of(false),
        report,
    })
}
