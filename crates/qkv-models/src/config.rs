//! What a model is, in the words of every family alike.

use crate::dense::{Activation, NormKind};
use crate::image::Cut;
use qkv::Window;
use qkv::position::{Pairing, Rotary, Scaling};

/// What distinguishes the attention of one layer from that of others.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerConfig {
    /// Rotary positions, where the layer has them.
    pub rotary: Option<Rotary>,
    /// A sliding window.
    pub window: Option<Window>,
    /// The factor on q·k.
    pub scale: f64,
}

/// What a model is: every number that its configuration says or implies.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The kind of model: `model_type`.
    pub family: String,
    /// Width of the hidden states.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width between the dense layers.
    pub inner: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Tokens that the model can take, where positions are learned; that it was made for elsewhere.
    pub positions: Option<usize>,
    /// Whether a token sees earlier ones only.
    pub causal: bool,
    /// The softcap on scores.
    pub softcap: Option<f64>,
    /// Which norm.
    pub norm: NormKind,
    /// The norm's ε.
    pub eps: f64,
    /// Whether queries and keys are normed.
    pub qk_norm: bool,
    /// The function between dense layers.
    pub activation: Activation,
    /// What embeddings are multiplied by.
    pub embedding_factor: f64,
    /// The softcap on logits.
    pub logit_softcap: Option<f64>,
    /// Whether the logits come from the embeddings' own weights.
    pub tied: bool,
    /// One entry a layer.
    pub layers: Vec<LayerConfig>,
    /// The padding token whose number learned positions count from, of RoBERTa.
    pub(crate) padding: Option<u32>,
    /// Kinds of segments that embeddings are told apart by; every token here is of the first.
    pub(crate) kinds: usize,
    /// Whether queries, keys and values have a bias.
    pub(crate) biased: bool,
    /// Whether dense layers have one, of the families where that varies.
    pub(crate) mlp_bias: bool,
    /// How pictures become tokens, of models of pictures.
    pub image: Option<Cut>,
    /// Keys of the configuration that are not known, and by their names have nothing to do with
    /// attention.
    pub ignored: Vec<String>,
}

impl Config {
    /// The conventions in force, as they are printed: name and value.
    pub fn conventions(&self) -> Vec<(String, String)> {
        let mut list = Vec::new();
        let mut say = |name: &str, value: String| list.push((name.to_owned(), value));
        say("family", self.family.clone());
        if let Some(Cut {
            channels,
            image: [height, width],
            patch,
        }) = self.image
        {
            let size = format!("{height}×{width} pixels of {channels}");
            say(
                "picture",
                format!(
                    "{size}, in patches of {}×{}, row by row",
                    patch[0], patch[1]
                ),
            );
        }
        say(
            "mask",
            if self.causal {
                "causal"
            } else {
                "none, every token sees every other"
            }
            .into(),
        );
        let shared = self.heads / self.kv_heads.max(1);
        say(
            "heads",
            match shared {
                1 => format!("{} of {}", self.heads, self.head_dim),
                _ => format!(
                    "{} of {}, groups of {shared} on {} key and value heads",
                    self.heads, self.head_dim, self.kv_heads
                ),
            },
        );
        say("scale", self.by_layer(|layer| format!("{}", layer.scale)));
        if let Some(cap) = self.softcap {
            say("softcap", cap.to_string());
        }
        say(
            "rotary",
            self.by_layer(|layer| match &layer.rotary {
                Some(rotary) => rotary_in_words(rotary),
                None => "none".into(),
            }),
        );
        say(
            "window",
            self.by_layer(|layer| match layer.window {
                Some(window) => window_in_words(window),
                None => "none".into(),
            }),
        );
        if self.qk_norm {
            say("q and k", "RMS norm before rotary".into());
        }
        let norm = match self.norm {
            NormKind::Layer => "layer norm",
            NormKind::Rms => "RMS norm",
        };
        // A GGUF holds it in single precision, where 1e-5 is 9.999999747378752e-6.
        let single = self.eps as f32;
        let eps = match f64::from(single) == self.eps {
            true => format!("{single:e}"),
            false => format!("{:e}", self.eps),
        };
        let place = match self.family.as_str() {
            "bert" | "roberta" | "distilbert" => "behind each sum",
            "gemma2" | "gemma3_text" => "before and behind attention and dense layers",
            _ => "before attention and dense layers",
        };
        say("norm", format!("{norm}, epsilon {eps}, {place}"));
        if let Some(cap) = self.logit_softcap {
            say("softcap on logits", cap.to_string());
        }
        if !self.ignored.is_empty() {
            say("keys not used", self.ignored.join(", "));
        }
        list
    }

    /// A property of layers: once where all agree, else with the numbers of those it holds for.
    fn by_layer(&self, says: impl Fn(&LayerConfig) -> String) -> String {
        let mut kinds: Vec<(String, Vec<usize>)> = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let value = says(layer);
            match kinds.iter_mut().find(|(known, _)| *known == value) {
                Some((_, layers)) => layers.push(at),
                None => kinds.push((value, vec![at])),
            }
        }
        if let [(only, _)] = &kinds[..] {
            return only.clone();
        }
        kinds.sort_by_key(|(_, layers)| std::cmp::Reverse(layers.len()));
        let most = kinds.first().map(|(value, _)| value.clone());
        let rest = kinds.iter().skip(1).map(|(value, layers)| {
            let numbers: Vec<String> = layers.iter().map(usize::to_string).collect();
            format!("in layer {}: {value}", numbers.join(", "))
        });
        most.into_iter().chain(rest).collect::<Vec<_>>().join("; ")
    }
}

fn window_in_words(window: Window) -> String {
    match (window.back, window.forward) {
        (Some(back), Some(forward)) => format!("{back} keys back and {forward} forward"),
        (Some(back), None) => format!("{} keys, the own one included", back + 1),
        (None, Some(forward)) => format!("{forward} keys forward"),
        (None, None) => "none".into(),
    }
}

fn rotary_in_words(rotary: &Rotary) -> String {
    let pairing = match rotary.pairing {
        Pairing::Halves => "halves (columns i and i + d/2)",
        Pairing::Interleaved => "interleaved (columns 2i and 2i + 1)",
    };
    let mut words = format!("{pairing}, base {}", rotary.base);
    match rotary.scaling {
        Scaling::None => {}
        Scaling::Linear { factor } => words += &format!(", linear scaling by {factor}"),
        Scaling::Dynamic {
            factor,
            original_length,
            ..
        } => words += &format!(", dynamic scaling by {factor} beyond {original_length} tokens"),
        Scaling::Llama3 {
            factor,
            original_length,
            ..
        } => words += &format!(", llama3 scaling by {factor} from {original_length} tokens"),
        Scaling::Yarn {
            factor,
            original_length,
            magnitude,
            ..
        } => {
            words += &format!(
                ", YaRN scaling by {factor} from {original_length} tokens, magnitude {magnitude}"
            );
        }
        other => words += &format!(", {other:?}"),
    }
    words
}
