//! Every intermediate of attention by name.

use crate::attention::{Attention, Bias, Inputs};
use crate::definition::{self, Row};
use crate::error::Result;
use crate::view::{Element, Tensor};
use std::fmt;

macro_rules! names {
    ($(#[$about:meta])* $type:ident: $($variant:ident $name:literal $doc:literal)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $type {
            $(#[doc = $doc] $variant,)*
        }

        impl $type {
            /// All of them, in order.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// The name in files and JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

names! {
    /// The name of a step, in the order in which they are worked out.
    StepName:
    XPositioned "x_positioned" "x with sinusoidal positions added, `[B, L_q, D]`."
    ContextPositioned "context_positioned" "The context with sinusoidal positions added, `[B, L, D]`."
    Q "q" "Queries, `[B, H, L_q, d_k]`."
    K "k" "Keys, `[B, H_kv, L_k, d_k]`, cached ones first (as they were cached)."
    V "v" "Values, `[B, H_kv, L_k, d_v]`, cached ones first."
    QNormed "q_normed" "Queries after their RMS norm."
    KNormed "k_normed" "Keys after their RMS norm; cached ones as they were cached."
    QRotated "q_rotated" "Queries after the rotary embedding."
    KRotated "k_rotated" "Keys after the rotary embedding; cached ones as they were cached."
    Scores "scores" "q·k, before the scale, `[B, H, L_q, L_k]`."
    Scaled "scaled" "Scores times the scale."
    Capped "capped" "softcap·tanh(scaled/softcap)."
    Biased "biased" "With bias and ALiBi added."
    Masked "masked" "−∞ where a key is dropped."
    Max "max" "The largest masked score of each row, `[B, H, L_q]`."
    Exp "exp" "exp(masked − max); 0 where dropped."
    Sum "sum" "Σ exp of each row, the sink included, `[B, H, L_q]`."
    Weights "weights" "exp / sum, before dropout."
    Dropped "dropped" "The weights after dropout."
    Output "output" "Σ weight·v for each head, `[B, H, L_q, d_v]`."
    Lse "lse" "max + ln Σ exp, natural, without the sink, `[B, H, L_q]`."
    Concatenated "concatenated" "The heads side by side, `[B, L_q, H·d_v]`."
    Projected "projected" "Concatenated heads times W_O, `[B, L_q, D]`."
    Residual "residual" "x + projected, `[B, L_q, D]`."
}

names! {
    /// The name of a gradient, in the order in which they are worked out: `grad_` and the name of
    /// what it is the gradient of. Each has the shape of that.
    GradientName:
    GradResidual "grad_residual" "What the caller gave, for the layer's output with its residual."
    GradProjected "grad_projected" "Of the output projection's result, `[B, L_q, D]`."
    GradWo "grad_wo" "Of W_O: concatenatedᵀ·grad_projected."
    GradBo "grad_bo" "Of W_O's bias: grad_projected summed over batch and queries."
    GradConcatenated "grad_concatenated" "grad_projected·W_Oᵀ, `[B, L_q, H·d_v]`."
    GradOutput "grad_output" "Of each head's output, `[B, H, L_q, d_v]`."
    GradV "grad_v" "Σ dropped·grad_output over the queries and heads that use a value."
    GradDropped "grad_dropped" "grad_output·v, `[B, H, L_q, L_k]`; 0 where dropped by a mask."
    GradWeights "grad_weights" "grad_dropped times the dropout factor (dP)."
    Delta "delta" "Σ weights·grad_weights of each row, `[B, H, L_q]`."
    GradMasked "grad_masked" "weights·(grad_weights − delta), the gradient through softmax (dS)."
    GradSinks "grad_sinks" "−Σ (the sink's weight)·delta over the rows of a head, `[H]`."
    GradBias "grad_bias" "grad_masked summed over the axes that the bias repeats."
    GradScaled "grad_scaled" "grad_masked·(1 − tanh²(scaled/softcap))."
    GradScores "grad_scores" "scale·grad_scaled."
    GradQRotated "grad_q_rotated" "Σ grad_scores·k, of rotated queries."
    GradKRotated "grad_k_rotated" "Σ grad_scores·q, of rotated keys, the cached ones first."
    GradQNormed "grad_q_normed" "Of normed queries."
    GradKNormed "grad_k_normed" "Of normed keys, the cached ones first."
    GradQNorm "grad_q_norm" "Of the gain of the queries' norm, `[d_k]`."
    GradKNorm "grad_k_norm" "Of the gain of the keys' norm, `[d_k]`."
    GradQ "grad_q" "Of the queries, `[B, H, L_q, d_k]`."
    GradK "grad_k" "Of the keys, the cached ones first (through their cached form)."
    GradWq "grad_wq" "Of W_Q: xᵀ·grad_q, heads side by side."
    GradBq "grad_bq" "Of W_Q's bias."
    GradWk "grad_wk" "Of W_K."
    GradBk "grad_bk" "Of W_K's bias."
    GradWv "grad_wv" "Of W_V."
    GradBv "grad_bv" "Of W_V's bias."
    GradX "grad_x" "Of x, `[B, L_q, D]`."
    GradContext "grad_context" "Of the context."
}

/// Intermediates by name, in order. A step that is not in force is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps<Name = StepName> {
    steps: Vec<(Name, Tensor<f64>)>,
    empty_rows: Vec<[usize; 3]>,
}

impl<Name> Default for Steps<Name> {
    fn default() -> Self {
        Steps {
            steps: Vec::new(),
            empty_rows: Vec::new(),
        }
    }
}

impl<Name: Copy + PartialOrd> Steps<Name> {
    /// The numbers of a step, if it is in force.
    ///
    /// ```
    /// use qkv::{Attention, Inputs, StepName, View, steps};
    /// let (q, k, v) = ([1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 4.0]);
    /// let inputs = Inputs::new(
    ///     View::new(&q, &[2, 2])?,
    ///     View::new(&k, &[2, 2])?,
    ///     View::new(&v, &[2, 2])?,
    /// )?;
    /// let steps = steps(&Attention::default(), &inputs)?;
    /// let weights = steps.get(StepName::Weights).ok_or("always there")?;
    /// assert!((weights.at(&[0, 0, 0, 0]) - 0.669_761).abs() < 1e-6);
    /// assert!(steps.get(StepName::Capped).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, name: Name) -> Option<&Tensor<f64>> {
        self.iter()
            .find(|(step, _)| *step == name)
            .map(|(_, tensor)| tensor)
    }

    /// All steps in order.
    pub fn iter(&self) -> impl Iterator<Item = (Name, &Tensor<f64>)> {
        self.steps.iter().map(|(name, tensor)| (*name, tensor))
    }

    /// Rows that keep no key, as `[batch, head, query]`.
    pub fn empty_rows(&self) -> &[[usize; 3]] {
        &self.empty_rows
    }

    pub(crate) fn push(&mut self, name: Name, tensor: Tensor<f64>) {
        debug_assert!(self.steps.last().is_none_or(|(last, _)| *last < name));
        self.steps.push((name, tensor));
    }
}

impl Steps {
    /// What the run ends with: the residual, or what is projected, concatenated, or put out by
    /// each head.
    pub fn result(&self) -> Option<(StepName, &Tensor<f64>)> {
        let ends = [
            StepName::Residual,
            StepName::Projected,
            StepName::Concatenated,
            StepName::Output,
        ];
        ends.into_iter()
            .find_map(|name| self.get(name).map(|step| (name, step)))
    }
}

/// Every intermediate of `softmax(scale·q·kᵀ + mask)·v`, from `q` to `lse`.
///
/// Holds several arrays of `[batch, heads, queries, keys]` in `f64`: meant for inputs that
/// somebody looks at.
///
/// # Errors
/// Those of [`definition::forward`].
pub fn steps<T: Element>(attention: &Attention<'_>, inputs: &Inputs<'_, T>) -> Result<Steps> {
    attention.check(inputs)?;
    let mut steps = Steps::default();
    steps.push(
        StepName::Q,
        collect(inputs.q().shape(), |at| inputs.q().get(at)),
    );
    steps.push(
        StepName::K,
        with_past(inputs.past().map(|(k, _)| k), inputs.k()),
    );
    steps.push(
        StepName::V,
        with_past(inputs.past().map(|(_, v)| v), inputs.v()),
    );
    push_rows(&mut steps, attention, inputs)?;
    Ok(steps)
}

/// Cached rows in front of new ones, in `f64`.
pub(crate) fn with_past<T: Element>(
    past: Option<crate::View<'_, T>>,
    new: crate::View<'_, T>,
) -> Tensor<f64> {
    let past_len = past.map_or(0, |past| past.shape()[2]);
    let [batch, heads, len, width] = new.shape();
    collect(
        [batch, heads, past_len + len, width],
        |[b, h, j, c]| match past {
            Some(past) if j < past_len => past.get([b, h, j, c]),
            _ => new.get([b, h, j - past_len, c]),
        },
    )
}

fn collect<T: Element>(shape: [usize; 4], get: impl Fn([usize; 4]) -> T) -> Tensor<f64> {
    let mut tensor = Tensor::filled(&shape, 0.0);
    for b in 0..shape[0] {
        for h in 0..shape[1] {
            for i in 0..shape[2] {
                for c in 0..shape[3] {
                    *tensor.at_mut(&[b, h, i, c]) = get([b, h, i, c]).to_f64();
                }
            }
        }
    }
    tensor
}

/// The part of a row that a step shows.
type Part = fn(&Row) -> &[f64];

/// Adds the steps from `scores` to `lse`.
pub(crate) fn push_rows<T: Element>(
    steps: &mut Steps,
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
) -> Result<()> {
    let masks_in_force = !attention.masks.is_empty()
        || attention.causal.is_some()
        || attention.window.is_some()
        || attention.lengths.is_some()
        || attention.documents.is_some()
        || attention.bias.as_ref().is_some_and(Bias::drops_keys);
    let biases_in_force = attention.bias.is_some() || attention.alibi.is_some();
    let parts: [(StepName, bool, Part); 11] = [
        (StepName::Scores, true, |row| &row.scores),
        (StepName::Scaled, true, |row| &row.scaled),
        (StepName::Capped, attention.softcap.is_some(), |row| {
            &row.capped
        }),
        (StepName::Biased, biases_in_force, |row| &row.biased),
        (StepName::Masked, masks_in_force, |row| &row.masked),
        (StepName::Max, true, |row| std::slice::from_ref(&row.max)),
        (StepName::Exp, true, |row| &row.exp),
        (StepName::Sum, true, |row| std::slice::from_ref(&row.sum)),
        (StepName::Weights, true, |row| &row.weights),
        (StepName::Dropped, attention.dropout.is_some(), |row| {
            &row.dropped
        }),
        (StepName::Output, true, |row| &row.output),
    ];
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); parts.len()];
    let mut lse = Vec::new();
    steps.empty_rows = definition::for_each_row(attention, inputs, |_, _, _, row| {
        for (column, (_, in_force, part)) in columns.iter_mut().zip(&parts) {
            if *in_force {
                column.extend_from_slice(part(&row));
            }
        }
        lse.push(row.lse);
    })?;

    let [batch, heads, queries, keys] = inputs.scores_shape();
    for (data, (name, in_force, _)) in columns.into_iter().zip(parts) {
        let shape: &[usize] = match name {
            StepName::Max | StepName::Sum => &[batch, heads, queries],
            StepName::Output => &[batch, heads, queries, inputs.value_dim()],
            _ => &[batch, heads, queries, keys],
        };
        if in_force {
            steps.push(name, Tensor::new(shape, data)?);
        }
    }
    steps.push(StepName::Lse, Tensor::new(&[batch, heads, queries], lse)?);
    Ok(())
}
