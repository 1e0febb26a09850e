//! Where the residual is looked at.

/// A place of the residual: the numbers that each layer reads and adds to, in the model's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// What goes into a layer: of the first, the embeddings.
    Into(usize),
    /// What comes out of a layer, which is what goes into the next.
    OutOf(usize),
    /// What comes out of the last layer, after the model's last norm.
    Normed,
}

impl Stage {
    /// Its array's name in a trace file.
    pub fn key(self) -> String {
        match self {
            Stage::Into(layer) => format!("blocks.{layer}.hook_resid_pre"),
            Stage::OutOf(layer) => format!("blocks.{layer}.hook_resid_post"),
            Stage::Normed => "ln_final.hook_normalized".into(),
        }
    }

    /// The name of its sizes, ‖x‖ of each token, in a trace file.
    pub fn norm_key(self) -> String {
        format!("{}_norm", self.key())
    }

    /// The stages around some layers, ascending: into each, and out of those whose next is not among
    /// them.
    pub fn around(layers: &[usize]) -> Vec<Stage> {
        let mut stages = Vec::with_capacity(layers.len() + 1);
        for (at, &layer) in layers.iter().enumerate() {
            stages.push(Stage::Into(layer));
            if layers.get(at + 1) != Some(&(layer + 1)) {
                stages.push(Stage::OutOf(layer));
            }
        }
        stages
    }

    /// Which of these a walk over layers in ascending order comes to at this layer.
    pub(crate) fn is_of(self, layer: usize, last: bool) -> bool {
        match self {
            Stage::Into(of) | Stage::OutOf(of) => of == layer,
            Stage::Normed => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stage::{Into, OutOf};
    use super::*;

    #[test]
    fn what_comes_out_is_named_once() {
        let stages = Stage::around(&[0, 1, 4]);
        assert_eq!(stages, [Into(0), Into(1), OutOf(1), Into(4), OutOf(4)]);
        assert_eq!(Stage::around(&[]), []);
    }
}
