//! English: exercises.

use super::English;
use crate::words::{Sheet, list};

impl Sheet for English {
    fn exercise_title(&self) -> String {
        "Exercise: attention, worked out by hand".into()
    }
    fn key_title(&self) -> String {
        "Key to the exercise: attention, worked out by hand".into()
    }
    fn name_and_date(&self) -> String {
        "Name: ………………………………   Date: ……………".into()
    }
    fn task(&self) -> String {
        "Fill in the numbered blanks in order and show your work. Each needs only the numbers \
         above it and the formula of its section."
            .into()
    }
    fn where_to_write(&self) -> String {
        "First write the formula with the numbers put in, then the result, for example \
         2·3 + 1·0 = 6. A number in parentheses in a matrix, such as (2), stands for the result of \
         that blank: copy it there."
            .into()
    }
    fn rounding(&self, digits: usize) -> String {
        let decimals = match digits {
            0 => "whole numbers".into(),
            1 => "1 decimal".into(),
            n => format!("{n} decimals"),
        };
        format!(
            "Round to {decimals}, and write ≈ instead of = as soon as a rounded number enters. If you \
             go on with rounded numbers, your last digits may differ by a few units from those of \
             somebody who keeps all digits: both count as right."
        )
    }
    fn notation(&self) -> String {
        "Counting starts at 0: q0 is the first query, s[0,1] the number in row 0, column 1; Σ w[0,·] \
         is the sum of row 0.".into()
    }
    fn rows_asked(&self, rows: &[usize]) -> String {
        match rows {
            [row] => format!("Only query {row} is asked for."),
            _ => format!("Only queries {} are asked for.", list(rows, ", ")),
        }
    }
    fn shape_asked(&self, steps: &[&str], axes: &str) -> String {
        format!("Shape of {} [{axes}]", steps.join(" and "))
    }
    fn exp_by_calculator(&self) -> String {
        "exp(x) is e to the power of x, e ≈ 2.7183: the key eˣ of a calculator. exp(0) = 1.".into()
    }
    fn exp_table(&self) -> String {
        "exp(x) is e to the power of x, e ≈ 2.7183. This table is all that you need:".into()
    }
    fn how_to_correct(&self, digits: usize) -> String {
        format!(
            "The numbers in parentheses are those of the sheet. Results after \"=\" are exact, \
             those after \"≈\" are rounded to {digits} decimals of a calculation that keeps all \
             digits. Accept what follows from rounded numbers: it may differ in the last digit, \
             and by a few units of it where many rounded numbers are added or multiplied by large \
             ones."
        )
    }
    fn for_programs(&self) -> String {
        "The problem, for the program that corrects this sheet; please leave the line as it is:"
            .into()
    }
}
