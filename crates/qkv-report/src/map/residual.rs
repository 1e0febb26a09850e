//! How large the residual is at each token, layer by layer.

use qkv_trace::{Result, Source, Stage};

/// The sizes ‖x‖ of every row at one stage.
pub(super) struct Sizes {
    pub(super) stage: Stage,
    pub(super) norms: Vec<f32>,
}

/// Those of a batch entry, as far as they are there, in the order in which they came about.
pub(super) fn sizes(source: &mut dyn Source, entry: usize) -> Result<Vec<Sizes>> {
    let facts = source.facts();
    let (rows, layers) = (facts.rows(), facts.layers.clone());
    let mut all = Vec::new();
    for stage in Stage::around(&layers).into_iter().chain([Stage::Normed]) {
        if source.has_residual_norms(stage) {
            let mut norms = Vec::new();
            source.residual_norms(stage, entry, 0..rows, &mut norms)?;
            all.push(Sizes { stage, norms });
        }
    }
    Ok(all)
}
