//! What a case of the suite costs, and what is asked of the engine.

use super::data::Data;
use crate::args::{MaskKind, Mode};
use crate::suite::Case;
use qkv::{Attention, Bias, Causal, Mask, View, Window};

impl Case {
    /// Floating-point operations that count: a multiplication and an addition for each column of
    /// the pairs of query and key, half of them where it is causal, those of the band in a window.
    /// The backward pass has five products of matrices instead of two.
    pub fn flops(&self, mode: Mode) -> f64 {
        let [b, h, _, l_q, l_k, d_k, d_v] = self.shape;
        let pairs = match self.back {
            Some(back) => (0..l_q).map(|i| (i + 1).min(back + 1) as f64).sum(),
            None if self.causal => (l_q * l_k) as f64 / 2.0,
            None => (l_q * l_k) as f64,
        };
        let forward = 2.0 * (b * h * (d_k + d_v)) as f64 * pairs;
        match mode {
            Mode::Forward => forward,
            Mode::Backward => 2.5 * forward,
        }
    }

    /// Bytes of q, k, v, output and mask, each once, and in the backward pass of the gradients.
    pub fn bytes(&self, element: usize, mask: MaskKind, mode: Mode) -> f64 {
        let product = |shape: &[usize]| shape.iter().product::<usize>();
        let arrays = [self.q(), self.k(), self.v(), self.output()];
        let numbers: usize = arrays.iter().map(|shape| product(shape)).sum();
        let numbers = match mode {
            Mode::Forward => numbers,
            Mode::Backward => 2 * numbers,
        };
        let over_scores = match mask {
            MaskKind::None => 0,
            MaskKind::Bool => 1,
            MaskKind::Float => element,
        };
        (numbers * element + product(&self.mask()) * over_scores) as f64
    }

    /// What is asked of the engine.
    pub fn attention<'a, T: qkv::Float>(&self, data: &'a Data<T>) -> qkv::Result<Attention<'a>>
    where
        View<'a, T>: Into<qkv::AnyView<'a>>,
    {
        let mask = match &data.keep {
            Some(keep) => Some(Mask::keep(View::new(keep, &self.mask())?)),
            None => None,
        };
        let bias = match &data.bias {
            Some(bias) => Some(Bias(View::new(bias, &self.mask())?.into())),
            None => None,
        };
        Ok(Attention {
            bias,
            masks: mask.into_iter().collect(),
            causal: self.causal.then_some(Causal::BottomRight),
            window: self.back.map(|back| Window {
                back: Some(back),
                forward: None,
            }),
            ..Attention::default()
        })
    }
}
