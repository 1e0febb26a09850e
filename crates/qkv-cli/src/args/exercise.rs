//! Exercises.

use clap::{Args, ValueEnum};

/// Whether the calculation is left to a learner.
#[derive(Args, Debug)]
#[command(next_help_heading = "Exercise")]
pub struct ExerciseArgs {
    /// Writes a sheet with blanks for the results, and the key beside it (needs -o)
    ///
    /// -o sheet.md writes sheet.md and sheet.key.md; every blank has a number, which is the same
    /// in the key. The problem is the one given, or the built-in example; "random" draws one whose
    /// numbers are kind to a pencil from --seed. A long problem is asked for one query, the last
    /// or that of --row.
    #[arg(
        long,
        value_name = "PROBLEM",
        value_enum,
        num_args = 0..=1,
        default_missing_value = "given",
        hide_possible_values = true
    )]
    pub exercise: Option<Problem>,
}

/// Which problem is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Problem {
    /// That of the other options
    Given,
    /// One that is drawn
    Random,
}
