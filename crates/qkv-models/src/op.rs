//! Attention and rotary positions as operations on candle tensors, with their derivatives.
//!
//! ```text
//! attention   q, k, v → softmax(scale·q·kᵀ + mask)·v
//! rotary      x       → each pair of columns turned by position·frequency
//! ```

use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Result, Shape, Tensor, bail};
use half::{bf16, f16};
use qkv::position::{Pairing, Positions, Rotary};
use qkv::{AnyView, Attention, Element, Float, Inputs, Mask, Options, Saved, View, ViewMut};
use std::sync::Arc;

/// A boolean mask that an operation owns: `true` keeps a key.
///
/// Shape `[batch, heads, queries, keys]`; an axis of length 1 serves all.
#[derive(Clone, Debug)]
pub struct Keep {
    shape: [usize; 4],
    values: Arc<[bool]>,
}

impl Keep {
    /// From values in row-major order.
    ///
    /// # Errors
    /// If there are not as many values as the shape says.
    pub fn new(shape: [usize; 4], values: Vec<bool>) -> qkv::Result<Keep> {
        View::new(&values, &shape)?;
        Ok(Keep {
            shape,
            values: values.into(),
        })
    }

    /// The view that [`Mask::keep`] takes.
    pub(crate) fn view(&self) -> qkv::Result<View<'_, bool>> {
        View::new(&self.values, &self.shape)
    }
}

/// `softmax(scale·q·kᵀ + mask)·v` for candle.
///
/// q `[batch, heads, queries, head_dim]`, k `[batch, kv_heads, keys, head_dim]`,
/// v `[batch, kv_heads, keys, value_dim]`, of any strides and never repeated for grouped heads; the
/// result is `[batch, heads, queries, value_dim]`, or with `heads_last`
/// `[batch, queries, heads, value_dim]`, which the next projection takes without a copy. `f16`, `bf16`,
/// `f32` and `f64`, on the CPU. Gradients of q, k and v come from [`qkv::backward`]; a constant mask
/// or bias has none.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use qkv::{Attention, Causal};
/// use qkv_models::AttentionOp;
/// let q = Var::new(&[[[[1.0_f32, 0.0], [0.0, 1.0]]]], &Device::Cpu)?;
/// let v = Tensor::new(&[[[[1.0_f32], [2.0]]]], &Device::Cpu)?;
/// let op = AttentionOp {
///     attention: Attention { causal: Some(Causal::Square), ..Attention::default() },
///     ..AttentionOp::default()
/// };
/// let output = op.apply(&q, &q, &v)?;
/// assert_eq!(output.flatten_all()?.to_vec1::<f32>()?[0], 1.0); // the first query sees one key
/// let gradients = output.sum_all()?.backward()?;
/// assert!(gradients.get(&q).is_some());
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct AttentionOp {
    /// Every option of attention but masks that belong to somebody.
    pub attention: Attention<'static>,
    /// A mask that the operation owns.
    pub keep: Option<Keep>,
    /// How to compute.
    pub options: Options,
    /// Whether the result is `[batch, queries, heads, value_dim]`.
    pub heads_last: bool,
}

impl AttentionOp {
    /// The operation on tensors, with a gradient.
    ///
    /// # Errors
    /// Those of [`qkv::forward`], and tensors of other axes, types or devices.
    pub fn apply(self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        q.apply_op3(k, v, self)
    }

    pub(crate) fn with_mask(&self) -> qkv::Result<Attention<'_>> {
        let mut attention = self.attention.clone();
        if let Some(keep) = &self.keep {
            attention.masks.push(Mask::keep(keep.view()?));
        }
        Ok(attention)
    }

    fn forward<T: Float>(&self, [q, k, v]: [View<'_, T>; 3]) -> qkv::Result<(Vec<T>, Shape)> {
        let inputs = Inputs::new(q, k, v)?;
        let attention = self.with_mask()?;
        let (batch, heads) = (inputs.batch(), inputs.heads());
        let (queries, width) = (inputs.queries(), inputs.value_dim());
        let mut output = vec![T::default(); batch * heads * queries * width];
        let shape = if self.heads_last {
            [batch, queries, heads, width]
        } else {
            [batch, heads, queries, width]
        };
        let mut to = ViewMut::new(&mut output, &shape)?;
        if self.heads_last {
            to = to.swap_axes(1, 2);
        }
        qkv::forward_into(&attention, &inputs, &self.options, to)?;
        Ok((output, Shape::from_dims(&shape)))
    }

    /// Gradients of q, k and v, row-major; the forward pass again for what it does not keep.
    fn backward<T: Float>(
        &self,
        [q, k, v]: [View<'_, T>; 3],
        mut grad: View<'_, T>,
    ) -> qkv::Result<[Vec<T>; 3]> {
        let inputs = Inputs::new(q, k, v)?;
        let attention = self.with_mask()?;
        if self.heads_last {
            grad = grad.swap_axes(1, 2);
        }
        let output = qkv::forward_with(&attention, &inputs, &self.options)?;
        let saved = Saved::new(&output)?;
        let gradients = qkv::backward(&attention, &inputs, saved, grad, &self.options)?;
        let [q, k, v] = [gradients.q, gradients.k, gradients.v];
        Ok([q.into_data(), k.into_data(), v.into_data()])
    }
}

impl CustomOp3 for AttentionOp {
    fn name(&self) -> &'static str {
        "qkv-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        macro_rules! run {
            ($($variant:ident),*) => {
                match (q, k, v) {
                    $((CpuStorage::$variant(q), CpuStorage::$variant(k), CpuStorage::$variant(v)) => {
                        let views = [view(q, q_layout)?, view(k, k_layout)?, view(v, v_layout)?];
                        let (output, shape) = self.forward(views).map_err(wrap)?;
                        Ok((CpuStorage::$variant(output), shape))
                    })*
                    _ => bail!("qkv-attention: q, k and v have to be of one type, f16, bf16, f32 or f64"),
                }
            };
        }
        run!(F16, BF16, F32, F64)
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        fn run<T: Float + candle_core::WithDType>(
            op: &AttentionOp,
            inputs: [&Tensor; 3],
            grad: &Tensor,
        ) -> Result<[Tensor; 3]> {
            let [q, k, v] = inputs;
            let gradients = with_views([q, k, v, grad], |[q, k, v, grad]: [View<'_, T>; 4]| {
                op.backward([q, k, v], grad).map_err(wrap)
            })?;
            let [dq, dk, dv] = gradients;
            let like = |data: Vec<T>, of: &Tensor| Tensor::from_vec(data, of.shape(), of.device());
            Ok([like(dq, q)?, like(dk, k)?, like(dv, v)?])
        }
        use candle_core::DType;
        let inputs = [q, k, v];
        let [dq, dk, dv] = match q.dtype() {
            DType::F16 => run::<f16>(self, inputs, &grad)?,
            DType::BF16 => run::<bf16>(self, inputs, &grad)?,
            DType::F64 => run::<f64>(self, inputs, &grad)?,
            _ => run::<f32>(self, inputs, &grad)?,
        };
        Ok((Some(dq), Some(dk), Some(dv)))
    }
}

/// Rotary positions for candle: x `[batch, heads, length, head_dim]` of any strides, each pair of the
/// first columns turned by position·frequency; the result is row-major.
///
/// The angles are worked out once, in `f64`, and serve the layers of a model.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use qkv::position::{Positions, Rotary};
/// use qkv_models::RotaryOp;
/// let x = Tensor::new(&[[[[1.0_f32, 0.0], [1.0, 0.0]]]], &Device::Cpu)?;
/// let op = RotaryOp::new(&Rotary::default(), 2, 1, 2, &Positions::From(0)).map_err(candle_core::Error::wrap)?;
/// let turned = op.apply(&x)?.flatten_all()?.to_vec1::<f32>()?;
/// assert_eq!(turned, [1.0, 0.0, 1_f32.cos(), 1_f32.sin()]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RotaryOp {
    pairing: Pairing,
    cos: Arc<qkv::Tensor<f64>>,
    sin: Arc<qkv::Tensor<f64>>,
    /// The derivative turns the other way.
    backwards: bool,
}

impl RotaryOp {
    /// The angles of `length` tokens in each of `batch` entries, for heads of `head_dim` columns.
    ///
    /// # Errors
    /// Those of [`Rotary::table`].
    pub fn new(
        rotary: &Rotary,
        head_dim: usize,
        batch: usize,
        length: usize,
        positions: &Positions<'_>,
    ) -> qkv::Result<RotaryOp> {
        let [cos, sin] = rotary.table(head_dim, batch, length, positions)?;
        Ok(RotaryOp {
            pairing: rotary.pairing,
            cos: Arc::new(cos),
            sin: Arc::new(sin),
            backwards: false,
        })
    }

    /// The operation on a tensor, with a gradient.
    ///
    /// # Errors
    /// If the tensor does not fit the angles.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1(self.clone())
    }

    fn turn<T: Element>(&self, x: View<'_, T>) -> qkv::Result<Vec<T>> {
        let sin = self.sin.view()?;
        let negative: Vec<f64>;
        let sin = if self.backwards {
            negative = self.sin.data().iter().map(|sin| -sin).collect();
            View::new(&negative, self.sin.shape())?
        } else {
            sin
        };
        let turned = self
            .pairing
            .rotate(x, self.cos.view()?.into(), AnyView::from(sin))?;
        Ok(turned.data().iter().map(|&x| T::from_f64(x)).collect())
    }
}

impl CustomOp1 for RotaryOp {
    fn name(&self) -> &'static str {
        "qkv-rotary"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        macro_rules! run {
            ($($variant:ident),*) => {
                match x {
                    $(CpuStorage::$variant(x) => {
                        let turned = self.turn(view(x, layout)?).map_err(wrap)?;
                        Ok((CpuStorage::$variant(turned), layout.shape().clone()))
                    })*
                    _ => bail!("qkv-rotary: x has to be f16, bf16, f32 or f64"),
                }
            };
        }
        run!(F16, BF16, F32, F64)
    }

    fn bwd(&self, _x: &Tensor, _result: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let back = RotaryOp {
            backwards: !self.backwards,
            ..self.clone()
        };
        Ok(Some(back.apply(grad)?))
    }
}

fn wrap(error: qkv::Error) -> candle_core::Error {
    candle_core::Error::wrap(error)
}

/// A candle tensor's numbers as the engine sees them.
fn view<'a, T: Copy>(data: &'a [T], layout: &Layout) -> Result<View<'a, T>> {
    let &[a, b, c, d] = layout.dims() else {
        bail!(
            "qkv: 4 axes are needed, [batch, heads, length, head_dim]; found shape {:?}",
            layout.dims()
        );
    };
    let mut strides = [0; 4];
    for (to, &stride) in strides.iter_mut().zip(layout.stride()) {
        *to = stride as isize;
    }
    View::strided(data, layout.start_offset(), [a, b, c, d], strides).map_err(wrap)
}

/// Runs a closure on the numbers of tensors in memory.
pub(crate) fn with_views<T: candle_core::WithDType, R, const N: usize>(
    tensors: [&Tensor; N],
    run: impl FnOnce([View<'_, T>; N]) -> Result<R>,
) -> Result<R> {
    let stored = tensors.map(Tensor::storage_and_layout);
    let mut views = Vec::with_capacity(N);
    for (storage, layout) in &stored {
        let candle_core::Storage::Cpu(storage) = &**storage else {
            bail!("qkv: the tensor has to be in the processor's memory");
        };
        views.push(view(storage.as_slice::<T>()?, layout)?);
    }
    match views.try_into() {
        Ok(views) => run(views),
        Err(_) => bail!("qkv: {N} tensors are needed"),
    }
}
