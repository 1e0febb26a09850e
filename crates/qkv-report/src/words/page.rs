//! What a page in a browser says beside the calculation.

/// The words of a page.
pub(crate) trait Page {
    /// The language as HTML names it.
    fn language(&self) -> &'static str;
    fn skip(&self) -> &'static str;
    fn outline(&self) -> &'static str;
    fn fold_all(&self) -> &'static str;
    fn unfold_all(&self) -> &'static str;
    fn how_to_follow(&self) -> &'static str;
    fn origin(&self) -> &'static str;
    fn no_line(&self) -> &'static str;
    fn go_to_line(&self) -> &'static str;
    fn close(&self) -> &'static str;
    /// What a screen reader says where a learner writes.
    fn blank(&self) -> &'static str;
    /// What a screen reader calls a table.
    fn matrix(&self, name: &str) -> String;
    fn columns_of(&self, name: &str, first: &str, last: &str) -> String;
}
