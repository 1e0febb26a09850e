//! What is shown beside the calculation.

use crate::args::MoreArgs;
use crate::error::Result;
use qkv::{Block, StepName, Steps};
use qkv_report::{More, Origin};

/// What was computed.
#[derive(Clone, Copy)]
pub struct Computed<'a> {
    pub block: &'a Block<'a>,
    pub steps: &'a Steps,
    pub origin: Origin<'a>,
}

/// Computes what the options ask for.
pub fn read(args: &MoreArgs, computed: Computed<'_>) -> Result<More> {
    let mut more = More::default();
    if args.contrast {
        let Computed { block, steps, .. } = computed;
        let contrast = qkv_check::contrast(&block.attention, steps, model_width(computed));
        more.contrast = contrast.unwrap_or_default();
    }
    Ok(more)
}

/// The width of x, or of all heads together where there is no x.
fn model_width(computed: Computed<'_>) -> usize {
    let shape = match computed.origin {
        Origin::Projected { x, .. } => x.shape(),
        Origin::Given => computed
            .steps
            .get(StepName::Q)
            .map_or(&[][..], |q| q.shape()),
    };
    match *shape {
        [_, heads, _, head_dim] => heads * head_dim,
        _ => shape.last().copied().unwrap_or(1),
    }
}
