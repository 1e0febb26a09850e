//! Two files of intermediates.

use super::claims::half_unit;
use crate::args::CheckArgs;
use crate::arrays::{Reader, dtype_of};
use crate::error::{Error, Result};
use qkv::{DType, Tensor};
use qkv_check::dumps::{Named, NothingInCommon, Report, compare};
use qkv_io::{Entry, Values, shown};

/// Reads both and compares.
pub fn run(args: &CheckArgs, reader: &mut Reader<'_>) -> Result<Report> {
    let [first, second] = &args.files[..] else {
        return Err(Error::Missing {
            argument: "a second file".into(),
            remedy: "qkv check A B compares two files: give both, the right one first".into(),
        });
    };
    if let Some(option) = alone(args) {
        return Err(Error::Conflict {
            argument: option,
            other: "two files".into(),
            remedy: "compare two files of dumps, or give the inputs with the numbers to check",
        });
    }
    let (a, b) = (read("A", first, reader)?, read("B", second, reader)?);
    compare(&a, &b).map_err(|NothingInCommon { first, second }| Error::Value {
        argument: "B",
        value: format!("no name of {} ({})", listed(&first), listed(&second)),
        remedy: "give the arrays the same names in both files".into(),
    })
}

/// An option that means something else is being checked.
pub fn alone(args: &CheckArgs) -> Option<&'static str> {
    let inputs = &args.inputs;
    let given = [
        ("--q", inputs.q.is_some()),
        ("--k", inputs.k.is_some()),
        ("--v", inputs.v.is_some()),
        ("--x", args.layer.x.is_some()),
    ];
    let mut given = given.iter().filter(|(_, given)| *given);
    let input = given.next().map(|(name, _)| *name);
    input
        .or_else(|| args.claims.step())
        .or_else(|| args.claims.gradient())
}

/// All arrays of numbers of a file.
fn read(argument: &'static str, file: &str, reader: &mut Reader<'_>) -> Result<Vec<Named>> {
    let entries = qkv_io::arrays_in(file).map_err(Error::io(argument))?;
    if entries.is_empty() {
        return Ok(vec![one(argument, (file, "numbers"), true, reader)?]);
    }
    let each = entries
        .iter()
        .filter(|entry| is_step(&entry.name, &entries))
        .map(|entry| {
            one(
                argument,
                (&format!("{file}:{}", entry.name), &entry.name),
                false,
                reader,
            )
        });
    each.collect()
}

/// What qkv explain --json prints holds sizes and options beside the steps.
fn is_step(name: &str, entries: &[Entry]) -> bool {
    let explained = entries.iter().any(|entry| entry.name == "shapes.output");
    let beside = ["shapes.", "options.", "empty_rows"];
    !(explained && beside.iter().any(|start| name.starts_with(start)))
}

fn one(
    argument: &'static str,
    (text, name): (&str, &str),
    typed: bool,
    reader: &mut Reader<'_>,
) -> Result<Named> {
    let array = reader.array(argument, text)?;
    let dtype = match array.values {
        Values::I64(_) | Values::U64(_) | Values::Bool(_) => DType::F64,
        _ => dtype_of(&array).unwrap_or(DType::F64),
    };
    let shape = match array.shape.is_empty() {
        true => vec![1],
        false => array.shape.clone(),
    };
    let numbers = array.to_f64().map_err(Error::io(argument))?;
    Ok(Named {
        name: name.to_owned(),
        values: Tensor::new(&shape, numbers).map_err(Error::about(argument))?,
        dtype,
        // A program wrote what has a name.
        half_unit: if typed { half_unit(&array) } else { 0.0 },
    })
}

/// The first names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let first: Vec<String> = names.iter().take(SHOWN).map(|name| shown(name)).collect();
    match names.len() > SHOWN {
        true => format!("{}, …", first.join(", ")),
        false => first.join(", "),
    }
}
