//! The gradient.

use super::values;
use clap::Args;

/// Whether the gradient is worked out, and from what.
#[derive(Args, Debug)]
#[command(next_help_heading = "Gradient")]
pub struct BackwardArgs {
    /// Works out the gradient too: back to q, k and v, or to x and every weight
    ///
    /// The loss is Σ result·grad-output; every number goes by the chain rule, and one entry is
    /// checked by a finite difference. JSON gains "gradients" and "finite_difference", a
    /// safetensors file the gradients by name (grad_q, …).
    #[arg(long)]
    pub backward: bool,
    /// Gradient of the loss by the result; 1 everywhere if left out
    ///
    /// It has the shape of the result: of the output, with axes as for --v, or [L,D] or [B,L,D]
    /// where the heads are put side by side.
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub grad_output: Option<String>,
}
