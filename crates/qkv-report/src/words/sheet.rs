//! What only an exercise says.

/// The sentences of sheet and key.
pub(crate) trait Sheet {
    fn exercise_title(&self) -> String;
    fn key_title(&self) -> String;
    fn name_and_date(&self) -> String;
    fn task(&self) -> String;
    fn where_to_write(&self) -> String;
    fn rounding(&self, digits: usize) -> String;
    fn notation(&self) -> String;
    fn rows_asked(&self, rows: &[usize]) -> String;
    fn shape_asked(&self, steps: &[&str], axes: &str) -> String;
    fn exp_by_calculator(&self) -> String;
    fn exp_table(&self) -> String;

    // The key
    fn how_to_correct(&self, digits: usize) -> String;

    /// Before the line that a program reads.
    fn for_programs(&self) -> String;
}
