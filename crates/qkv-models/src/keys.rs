//! The keys of a configuration: each is used, known to change nothing here, or refused by name.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A JSON object whose keys are asked for by name, and that knows which nobody asked for.
pub(crate) struct Keys<'a> {
    path: &'a str,
    /// The keys around this object, with a dot behind.
    around: String,
    map: &'a Map<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

/// Parts of names of keys that say how attention is computed: such a key that is not known is
/// refused.
const TELLING: &[&str] = &[
    "attn",
    "attention",
    "rope",
    "rotary",
    "position",
    "head",
    "window",
    "mask",
    "scale",
    "scaling",
    "softcap",
    "alibi",
    "sink",
    "norm",
    "layer_type",
    "causal",
    "expert",
    "moe",
    "qk_",
    "query",
    "key_",
    "kv_",
    "lora",
    "multiplier",
    "parallel",
    "cross",
    "sparse",
    "quantization",
    "bias",
];

/// Keys of every family that change nothing that is computed here, or that hold for training only.
const HARMLESS: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_activation",
    "classifier_bias",
    "classifier_dropout",
    "classifier_pooling",
    "cls_token_id",
    "decoder_bias",
    "decoder_start_token_id",
    "deterministic_flash_attn",
    "dropout",
    "dtype",
    "embd_pdrop",
    "embedding_dropout",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "id2label",
    "initializer_cutoff_factor",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "mask_token_id",
    "max_length",
    "mlp_dropout",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "qa_dropout",
    "reference_compile",
    "reorder_and_upcast_attn",
    "repad_logits_with_grad",
    "resid_pdrop",
    "return_dict",
    "sep_token_id",
    "seq_classif_dropout",
    "sparse_pred_ignore_index",
    "sparse_prediction",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tie_weights_",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
    "_attn_implementation_autoset",
    "layer_norm_epsilon_",
];

impl<'a> Keys<'a> {
    pub(crate) fn new(path: &'a str, map: &'a Map<String, Value>) -> Self {
        Keys {
            path,
            around: String::new(),
            map,
            used: RefCell::default(),
        }
    }

    /// An error about a key.
    pub(crate) fn wrong(&self, key: &str, found: String, remedy: &str) -> Error {
        Error::Config {
            path: self.path.to_owned(),
            key: format!("{}{key}", self.around),
            found,
            remedy: remedy.to_owned(),
        }
    }

    /// The value, marked as used; null is as good as none.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.used.borrow_mut().insert(key.to_owned());
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        read(value).map(Some).ok_or_else(|| {
            let found = format!("is {}", shortened(value));
            self.wrong(key, found, &format!("{what} is needed"))
        })
    }

    /// A count, which sizes are made of: none is as large as to overflow a product of two.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>> {
        const MOST: u64 = 1 << 31;
        let read = |value: &Value| {
            let count = value.as_u64().or_else(|| {
                value
                    .as_f64()
                    .filter(|x| x.fract() == 0.0 && *x >= 0.0)
                    .map(|x| x as u64)
            });
            count
                .filter(|count| (1..=MOST).contains(count))
                .map(|count| count as usize)
        };
        self.typed(key, "a whole number from 1 up to 2^31", read)
    }

    /// A number of layers, which memory is taken for before their weights are seen.
    pub(crate) fn layers(&self, key: &str) -> Result<usize> {
        const MOST: usize = 10_000;
        let layers = self.needed(key)?;
        if layers <= MOST {
            return Ok(layers);
        }
        Err(self.wrong(key, format!("is {layers}"), "at most 10000 are read"))
    }

    pub(crate) fn needed(&self, key: &str) -> Result<usize> {
        self.count(key)?.ok_or_else(|| {
            self.wrong(
                key,
                "is missing".into(),
                "the model cannot be built without it",
            )
        })
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", |value| {
            value.as_f64().filter(|x| x.is_finite())
        })
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn word(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.wrong(key, format!("is {}", shortened(value)), "a word is needed"))
    }

    /// An object in the object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Keys<'a>>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let Some(map) = value.as_object() else {
            let found = format!("is {}", shortened(value));
            return Err(self.wrong(key, found, "an object is needed"));
        };
        Ok(Some(Keys {
            path: self.path,
            around: format!("{}{key}.", self.around),
            map,
            used: RefCell::default(),
        }))
    }

    /// Whether there is a key, without using it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// Whether a key is there and null.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    /// Refuses a key whose value is another than the one that is supported.
    pub(crate) fn only(&self, key: &str, supported: &Value) -> Result<()> {
        match self.get(key) {
            Some(value) if value != supported => Err(self.wrong(
                key,
                format!("is {}", shortened(value)),
                &format!("only {supported} is supported"),
            )),
            _ => Ok(()),
        }
    }

    /// Refuses what nobody asked for if it may change attention; `strict` refuses everything. The
    /// names of those left are returned.
    pub(crate) fn finish(self, strict: bool) -> Result<Vec<String>> {
        let used = self.used.borrow();
        let mut ignored = Vec::new();
        for (key, value) in self.map {
            let off = matches!(value, Value::Null | Value::Bool(false))
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty);
            if used.contains(key) || off && !strict || HARMLESS.contains(&key.as_str()) {
                continue;
            }
            let lower = key.to_lowercase();
            if strict || TELLING.iter().any(|part| lower.contains(part)) {
                let found = format!("is {}", shortened(value));
                let remedy = "this key is not supported and may change the attention, so that what \
                              would be shown might not be what the model does";
                return Err(self.wrong(key, found, remedy));
            }
            ignored.push(key.clone());
        }
        Ok(ignored)
    }
}

fn shortened(value: &Value) -> String {
    qkv_io::shown_within(&value.to_string(), 60)
}
