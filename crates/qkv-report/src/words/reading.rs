//! Sentences about how formulas and shapes are to be read.

pub(crate) trait Reading {
    fn reading_follows(&self) -> String;
    fn read_indices(&self) -> String;
    fn read_transpose(&self) -> String;
    /// `scale` is the one that takes the place of 1/√d_k.
    fn read_root(&self, scale: Option<&str>) -> String;
    fn read_mask(&self, masked: bool) -> String;
    fn read_softmax(&self) -> String;
    fn read_sums(&self) -> String;
    fn read_exp(&self) -> String;
    fn read_tanh(&self) -> String;
    fn read_distance(&self) -> String;
    /// What the four axes of a shape are, on the example of Q.
    fn four_axes(&self, shape: [usize; 4]) -> String;
}
