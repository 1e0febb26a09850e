//! English: the page in a browser.

use super::English;
use crate::words::Page;

impl Page for English {
    fn language(&self) -> &'static str {
        "en"
    }
    fn skip(&self) -> &'static str {
        "Skip to the calculation"
    }
    fn outline(&self) -> &'static str {
        "Steps"
    }
    fn fold_all(&self) -> &'static str {
        "Fold all steps"
    }
    fn unfold_all(&self) -> &'static str {
        "Unfold all steps"
    }
    fn how_to_follow(&self) -> &'static str {
        "Point at a number, or tap it, to see where it came from: its own line appears below and \
         the numbers in that line light up wherever they stand. With the keyboard: Tab to a matrix \
         or a calculation, arrow keys from number to number, Enter to go to its line, Escape to \
         close."
    }
    fn origin(&self) -> &'static str {
        "Where the number came from"
    }
    fn no_line(&self) -> &'static str {
        "given, or not worked out on this page"
    }
    fn go_to_line(&self) -> &'static str {
        "Go to the line"
    }
    fn close(&self) -> &'static str {
        "Close"
    }
    fn blank(&self) -> &'static str {
        "blank"
    }
    fn matrix(&self, name: &str) -> String {
        format!("Matrix {name}")
    }
    fn columns_of(&self, name: &str, first: &str, last: &str) -> String {
        format!("Matrix {name}, columns {first} to {last}")
    }
}
