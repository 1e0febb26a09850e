//! What is between two attentions: dense layers, norms, activations, in `f32`.

use crate::error::Result;
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor, bail};
use std::sync::Arc;

/// Products that are summed one after the other; such sums are added up. One chain over the whole width
/// has two to five times the rounding error, which shows where single numbers of the residual are a
/// hundred thousand; shorter ones take longer.
const CHAIN: usize = 192;

/// `x·Wᵀ + b`; the weight is `[outputs, inputs]`.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    /// x `[batch, length, inputs]` to `[batch, length, outputs]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, inputs) = x.dims3()?;
        let outputs = self.weight.dim(0)?;
        let flat = x.reshape((batch * length, inputs))?;
        let weight = self.weight.t()?;
        let mut y = flat.narrow(1, 0, inputs.min(CHAIN))?;
        y = y.matmul(&weight.narrow(0, 0, inputs.min(CHAIN))?)?;
        for start in (CHAIN..inputs).step_by(CHAIN) {
            let count = CHAIN.min(inputs - start);
            let x = flat.narrow(1, start, count)?;
            y = (y + x.matmul(&weight.narrow(0, start, count)?)?)?;
        }
        if let Some(bias) = &self.bias {
            y = y.broadcast_add(bias)?;
        }
        Ok(y.reshape((batch, length, outputs))?)
    }
}

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// (x − mean)/√(variance + ε)·gain + bias.
    Layer,
    /// x/√(mean of squares + ε)·gain.
    Rms,
}

/// A norm over the last axis; sums in `f64`.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    pub(crate) kind: NormKind,
    pub(crate) gain: Arc<[f32]>,
    pub(crate) bias: Option<Arc<[f32]>>,
    pub(crate) eps: f64,
}

impl Norm {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.contiguous()?.apply_op1_no_bwd(self)?)
    }

    fn row(&self, x: &[f32], to: &mut [f32]) {
        let n = x.len() as f64;
        let mean = match self.kind {
            NormKind::Layer => x.iter().map(|&x| f64::from(x)).sum::<f64>() / n,
            NormKind::Rms => 0.0,
        };
        let squares = x
            .iter()
            .map(|&x| (f64::from(x) - mean).powi(2))
            .sum::<f64>()
            / n;
        let factor = 1.0 / (squares + self.eps).sqrt();
        for (i, (to, &x)) in to.iter_mut().zip(x).enumerate() {
            let normed = (f64::from(x) - mean) * factor * f64::from(self.gain[i]);
            let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[i]));
            *to = (normed + bias) as f32;
        }
    }
}

impl CustomOp1 for Norm {
    fn name(&self) -> &'static str {
        "qkv-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let width = self.gain.len();
        let (CpuStorage::F32(x), Some((start, end))) = (x, layout.contiguous_offsets()) else {
            bail!("a norm takes contiguous f32");
        };
        if layout.dims().last() != Some(&width) {
            bail!("a norm of width {width} on shape {:?}", layout.dims());
        }
        let x = &x[start..end];
        let mut y = vec![0.0; x.len()];
        for (x, y) in x.chunks(width).zip(y.chunks_mut(width)) {
            self.row(x, y);
        }
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }
}

/// The function between two dense layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x·Φ(x), with the error function.
    Gelu,
    /// x·Φ(x), with the hyperbolic tangent.
    GeluTanh,
    /// x/(1 + e^−x).
    Silu,
    /// max(x, 0).
    Relu,
}

impl Activation {
    pub(crate) fn forward(self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Activation::Gelu => x.gelu_erf()?,
            Activation::GeluTanh => x.gelu()?,
            Activation::Silu => x.silu()?,
            Activation::Relu => x.relu()?,
        })
    }
}

/// The dense part of a layer.
#[derive(Clone, Debug)]
pub(crate) enum Mlp {
    /// down(f(up(x))).
    Plain {
        up: Linear,
        down: Linear,
        activation: Activation,
    },
    /// down(f(gate(x))·up(x)).
    Gated {
        gate: Linear,
        up: Linear,
        down: Linear,
        activation: Activation,
    },
}

impl Mlp {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Mlp::Plain {
                up,
                down,
                activation,
            } => down.forward(&activation.forward(&up.forward(x)?)?),
            Mlp::Gated {
                gate,
                up,
                down,
                activation,
            } => {
                let gate = activation.forward(&gate.forward(x)?)?;
                down.forward(&(gate * up.forward(x)?)?)
            }
        }
    }
}
