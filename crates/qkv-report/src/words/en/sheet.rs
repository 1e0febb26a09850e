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
        "Name: ______________________________   Date: ____________".into()
    }
    fn task(&self) -> String {
        "Fill in every numbered blank, in order, and show your work. Each needs nothing but the \
         numbers above it and the formula of its section."
            .into()
    }
    fn where_to_write(&self) -> String {
        "Write the numbers put in first and the result last: (1) = 2·3 + 1·0 = 6. Where a number \
         such as (1) stands in a matrix, it is the result of that blank once more."
            .into()
    }
    fn rounding(&self, digits: usize) -> String {
        let decimals = match digits {
            0 => "whole numbers".into(),
            1 => "1 decimal".into(),
            n => format!("{n} decimals"),
        };
        format!(
            "Round to {decimals} what does not come out even, and write ≈ before it. Who goes on \
             with rounded numbers may get another last digit than who keeps all digits: both are \
             right."
        )
    }
    fn notation(&self) -> String {
        "Everything is counted from 0: q0 is the first query, s[0,1] the entry in row 0, \
         column 1."
            .into()
    }
    fn rows_asked(&self, rows: &[usize]) -> String {
        match rows {
            [row] => format!("The problem is long: only query {row} is worked out."),
            _ => format!("Only queries {} are worked out.", list(rows, ", ")),
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
