//! A trace as one safetensors file.
//!
//! Arrays are named as hooks of layers are, `blocks.{layer}.attn.hook_q|hook_k|hook_v|hook_rot_q|
//! hook_rot_k|hook_attn_scores|hook_pattern|hook_z`, and are `[batch, head, query or key, …]` in f32.
//! Where only the largest weights of each row are kept, `hook_pattern_top` holds them,
//! `[batch, head, query, n]`, and `hook_pattern_top_keys` their keys, −1 where a row has fewer. The
//! residual is `[batch, query, width]`: what goes into a layer `blocks.{layer}.hook_resid_pre`, what comes
//! out of the last `hook_resid_post`, and that after the model's last norm `ln_final.hook_normalized`; with
//! `_norm` behind the name, `[batch, query]`, its sizes. The file's notes hold the facts: `model`, `tokens` (a JSON list of texts, or of such lists for several
//! batch entries), `token_ids`, `padding`, `shape`, `conventions`, `versions`.

mod notes;
mod read;
mod write;

pub use read::TraceFile;
pub use write::{Keep, write};

/// The largest weights of a layer.
fn top_key(layer: usize) -> String {
    format!("blocks.{layer}.attn.hook_pattern_top")
}

/// Their keys.
fn top_keys_key(layer: usize) -> String {
    format!("blocks.{layer}.attn.hook_pattern_top_keys")
}
