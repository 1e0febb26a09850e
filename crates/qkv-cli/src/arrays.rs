//! Array arguments: read once, kept, and seen as the four axes that attention works on.

mod stored;

pub use stored::{BiasArray, Number, Stored, common_dtype, dtype_of, name as dtype_name};

use crate::args::Layout;
use crate::error::{Error, Result};
use crate::memory;
use qkv::{Tensor, View};
use qkv_io::{Array, Given, Values, many, shown_shape};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads array arguments; standard input can be read by one of them only.
pub struct Reader<'a> {
    stdin: &'a mut dyn Read,
    reader_of_stdin: Option<&'static str>,
    files: Vec<(&'static str, PathBuf)>,
    /// Values that may still be read.
    left: u64,
    /// The arrays as literals, if they are asked for.
    literals: Option<Vec<(&'static str, String)>>,
    /// Whether numbers of large files stay in them.
    in_place: bool,
}

impl<'a> Reader<'a> {
    pub fn new(stdin: &'a mut dyn Read) -> Self {
        Reader {
            stdin,
            reader_of_stdin: None,
            files: Vec::new(),
            left: memory::MOST_VALUES,
            literals: None,
            in_place: false,
        }
    }

    /// Leaves numbers of large files where they are, and reads as many values as there is memory for.
    pub fn in_place(stdin: &'a mut dyn Read) -> Self {
        Reader {
            left: memory::most_values(),
            in_place: true,
            ..Reader::new(stdin)
        }
    }

    /// Keeps every array as a literal too.
    pub fn keep_literals(&mut self) {
        self.literals = Some(Vec::new());
    }

    /// The arrays that were read, by option.
    pub fn literals(&self) -> &[(&'static str, String)] {
        self.literals.as_deref().unwrap_or_default()
    }

    /// The array that an option names, read.
    pub fn array(&mut self, argument: &'static str, text: &str) -> Result<Array> {
        self.claim_stdin(argument, text)?;
        let array = qkv_io::read_argument_within(text, self.stdin, self.left)
            .map_err(Error::io(argument))?;
        self.take(argument, text, &array)?;
        if let Some(literals) = &mut self.literals {
            literals.push((argument, literal(argument, &array)?));
        }
        Ok(array)
    }

    /// The array that an option names, read or in its file.
    pub fn given(&mut self, argument: &'static str, text: &str) -> Result<Given> {
        if !self.in_place {
            return self.array(argument, text).map(Given::Read);
        }
        self.claim_stdin(argument, text)?;
        let given = qkv_io::open_argument_within(text, self.stdin, self.left)
            .map_err(Error::io(argument))?;
        match &given {
            Given::Read(array) => self.take(argument, text, array)?,
            Given::Mapped(_) => self.remember(argument, text),
        }
        Ok(given)
    }

    /// Standard input is for one argument.
    fn claim_stdin(&mut self, argument: &'static str, text: &str) -> Result<()> {
        if text != "-" && !text.starts_with("-:") {
            return Ok(());
        }
        if let Some(other) = self.reader_of_stdin {
            return Err(Error::Conflict {
                argument,
                other: format!("{other} on standard input"),
                remedy: "standard input can be read once; put one of the arrays into a file",
            });
        }
        self.reader_of_stdin = Some(argument);
        Ok(())
    }

    /// Counts and checks an array that was read.
    fn take(&mut self, argument: &'static str, text: &str, array: &Array) -> Result<()> {
        self.left = self.left.saturating_sub(array.len() as u64);
        self.remember(argument, text);
        if array.is_empty() && !is_modest(&array.shape) {
            return Err(Error::Value {
                argument,
                value: format!(
                    "an array of shape {} without a value",
                    shown_shape(&array.shape)
                ),
                remedy: "check what wrote it".into(),
            });
        }
        Ok(())
    }

    /// Notes which file an argument was read from: the text, or what stands before a colon in it.
    fn remember(&mut self, argument: &'static str, text: &str) {
        let before_colons = text.rmatch_indices(':').map(|(at, _)| &text[..at]);
        let file = std::iter::once(text)
            .chain(before_colons)
            .find_map(|path| Path::new(path).canonicalize().ok());
        if let Some(file) = file {
            self.files.push((argument, file));
        }
    }

    /// The option whose array was read from this file, if there is one.
    pub fn reader_of(&self, path: &Path) -> Option<&'static str> {
        let path = path.canonicalize().ok()?;
        let (argument, _) = self.files.iter().find(|(_, file)| *file == path)?;
        Some(argument)
    }

    /// The numbers that an option names, in `f64`, and their shape.
    pub fn numbers(
        &mut self,
        argument: &'static str,
        text: &str,
    ) -> Result<(Vec<usize>, Vec<f64>)> {
        let array = self.array(argument, text)?;
        refuse_truths(argument, &array)?;
        let numbers = array.to_f64().map_err(Error::io(argument))?;
        Ok((array.shape, numbers))
    }

    /// A list: one axis, or several of which all but one have length 1.
    pub fn list(&mut self, argument: &'static str, text: &str) -> Result<Vec<f64>> {
        let (shape, numbers) = self.numbers(argument, text).map_err(finite)?;
        if shape.iter().filter(|&&size| size != 1).count() > 1 {
            return Err(Error::Axes {
                argument,
                shape,
                remedy: "a list is needed, for example \"1 2 3\"".into(),
            });
        }
        Ok(numbers)
    }

    /// A weight, `[in, out]`.
    pub fn matrix(&mut self, argument: &'static str, text: &str) -> Result<Tensor<f64>> {
        let (shape, numbers) = self.numbers(argument, text)?;
        if shape.len() != 2 {
            return Err(Error::Axes {
                argument,
                shape,
                remedy: "a weight has 2, [in, out]".into(),
            });
        }
        tensor(argument, &shape, numbers)
    }

    /// Token rows, `[L, D]` or `[B, L, D]`, as `[B, L, D]`.
    pub fn tokens(&mut self, argument: &'static str, text: &str) -> Result<Tensor<f64>> {
        let (shape, numbers) = self.numbers(argument, text)?;
        match shape[..] {
            [len, width] => tensor(argument, &[1, len, width], numbers),
            [_, _, _] => tensor(argument, &shape, numbers),
            _ => Err(Error::Axes {
                argument,
                remedy: format!("tokens have 2, [L, D], or 3, [B, L, D]{}", as_rows(&shape)),
                shape,
            }),
        }
    }

    /// A row for each token, `[L, D]` or `[B, L, D]`, as `[B, L, D]`.
    pub fn rows(&mut self, argument: &'static str, text: &str) -> Result<Tensor<f64>> {
        let (shape, numbers) = self.numbers(argument, text)?;
        match shape[..] {
            [len, width] => tensor(argument, &[1, len, width], numbers),
            [_, _, _] => tensor(argument, &shape, numbers),
            _ => Err(Error::Axes {
                argument,
                remedy: format!(
                    "here it has a row for each token, 2, [L, D], or 3, [B, L, D]{}",
                    as_rows(&shape)
                ),
                shape,
            }),
        }
    }

    /// q, k or v.
    pub fn operand(&mut self, argument: &'static str, text: &str, axes: Axes) -> Result<Operand> {
        let (shape, numbers) = self.numbers(argument, text)?;
        Ok(Operand {
            argument,
            seen: axes.see(argument, &shape)?,
            numbers,
        })
    }

    /// A mask of 0 and 1.
    pub fn mask(&mut self, argument: &'static str, text: &str) -> Result<Grid<bool>> {
        let array = self.array(argument, text)?;
        let values = array.to_bools().map_err(Error::io(argument))?;
        grid(argument, array.shape, values)
    }

    /// q, k or v in the number format that they have.
    pub fn stored(&mut self, argument: &'static str, text: &str, axes: Axes) -> Result<Stored> {
        let given = self.numbers_given(argument, text)?;
        let shape = shape(&given).to_vec();
        Ok(Stored {
            argument,
            seen: axes.see(argument, &shape)?,
            shape,
            given,
        })
    }

    /// Numbers for the scores, in the format that they have.
    pub fn bias(&mut self, argument: &'static str, text: &str) -> Result<BiasArray> {
        let given = match self.numbers_given(argument, text)? {
            Given::Read(array) if dtype_of(&array).is_none() => Given::Read(Array {
                values: array.to_f64().map_err(Error::io(argument))?.into(),
                ..array
            }),
            given => given,
        };
        check_rank(argument, shape(&given))?;
        Ok(BiasArray { argument, given })
    }

    fn numbers_given(&mut self, argument: &'static str, text: &str) -> Result<Given> {
        let given = self.given(argument, text)?;
        if let Given::Read(array) = &given {
            refuse_truths(argument, array)?;
        }
        Ok(given)
    }
}

fn refuse_truths(argument: &'static str, array: &Array) -> Result<()> {
    let Values::Bool(_) = array.values else {
        return Ok(());
    };
    Err(Error::Value {
        argument,
        value: format!(
            "an array of truth values (shape {})",
            shown_shape(&array.shape)
        ),
        remedy: "numbers are needed; masks are given by --keep or --drop".into(),
    })
}

fn shape(given: &Given) -> &[usize] {
    match given {
        Given::Read(array) => &array.shape,
        Given::Mapped(mapped) => mapped.shape(),
    }
}

/// What to type for an array to get all its digits.
fn literal(argument: &'static str, array: &Array) -> Result<String> {
    let numbers: Vec<String> = match &array.values {
        Values::Bool(values) => values.iter().map(|v| u8::from(*v).to_string()).collect(),
        _ => {
            let numbers = array.to_f64().map_err(Error::io(argument))?;
            numbers.iter().map(|v| shortest(*v)).collect()
        }
    };
    Ok(nested(&array.shape, &mut numbers.into_iter()))
}

/// The shortest decimal of a number.
fn shortest(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn nested(shape: &[usize], numbers: &mut impl Iterator<Item = String>) -> String {
    match shape.split_first() {
        None => numbers.next().unwrap_or_default(),
        Some((&len, inner)) => {
            let items: Vec<String> = (0..len).map(|_| nested(inner, numbers)).collect();
            format!("[{}]", items.join(","))
        }
    }
}

/// An error of a list, where infinity is of no use for a number that is too large.
fn finite(error: Error) -> Error {
    match error {
        Error::Io { argument, source } => match *source {
            qkv_io::Error::Text {
                fault: qkv_io::TextFault::Overflow { found },
                ..
            } => Error::Value {
                argument,
                value: format!("\"{}\"", qkv_io::shown(&found)),
                remedy: "it is too large for a 64-bit number (at most about 1.8e308); give a \
                         smaller one"
                    .into(),
            },
            source => Error::Io {
                argument,
                source: Box::new(source),
            },
        },
        other => other,
    }
}

/// Whether the axes that are not 0 could be walked through. Where there are values, the values
/// themselves see to that.
fn is_modest(shape: &[usize]) -> bool {
    const MOST: usize = 1 << 24;
    shape
        .iter()
        .filter(|&&size| size > 0)
        .try_fold(1_usize, |product, &size| product.checked_mul(size))
        .is_some_and(|product| product <= MOST)
}

fn tensor(argument: &'static str, shape: &[usize], numbers: Vec<f64>) -> Result<Tensor<f64>> {
    Tensor::new(shape, numbers).map_err(Error::about(argument))
}

/// What to type for one axis, which could be a row or a column.
fn as_rows(shape: &[usize]) -> &'static str {
    match shape.len() {
        0 | 1 => "; type \"1 0\" for one row of two columns, \"1; 0\" for two rows of one",
        _ => "",
    }
}

/// What lies over the scores: at most four axes, aligned to the right.
pub struct Grid<T> {
    argument: &'static str,
    shape: Vec<usize>,
    values: Vec<T>,
}

fn check_rank(argument: &'static str, shape: &[usize]) -> Result<()> {
    if shape.len() <= 4 {
        return Ok(());
    }
    Err(Error::Axes {
        argument,
        shape: shape.to_vec(),
        remedy: "at most 4 are possible, [batch, heads, queries, keys]".into(),
    })
}

fn grid<T>(argument: &'static str, shape: Vec<usize>, values: Vec<T>) -> Result<Grid<T>> {
    check_rank(argument, &shape)?;
    Ok(Grid {
        argument,
        shape,
        values,
    })
}

impl<T: Copy> Grid<T> {
    pub fn view(&self) -> Result<View<'_, T>> {
        View::new(&self.values, &self.shape).map_err(Error::about(self.argument))
    }
}

/// How the axes of q, k, v and of cached ones are read.
#[derive(Clone, Copy, Debug)]
pub struct Axes {
    /// The order of three and four axes.
    pub layout: Layout,
    /// Heads to split columns into, and the option that says so.
    pub split: Option<(usize, &'static str)>,
}

impl Axes {
    /// The four axes of an array, without moving a number.
    pub fn see(self, argument: &'static str, shape: &[usize]) -> Result<Seen> {
        let blhd = self.layout == Layout::Blhd;
        let (stored, swapped) = match (shape, self.split) {
            (&[len, width], None) => ([1, 1, len, width], false),
            (&[a, b, width], None) => ([1, a, b, width], blhd),
            (&[a, b, c, width], None) => ([a, b, c, width], blhd),
            (&[len, width], Some((heads, option))) => (
                [
                    1,
                    len,
                    heads,
                    head_width(argument, shape, width, heads, option)?,
                ],
                true,
            ),
            (&[batch, len, width], Some((heads, option))) => (
                [
                    batch,
                    len,
                    heads,
                    head_width(argument, shape, width, heads, option)?,
                ],
                true,
            ),
            (&[a, b, c, width], Some((heads, option))) => {
                let found = if blhd { c } else { b };
                if found != heads {
                    let order = if blhd { "[B, L, H, d]" } else { "[B, H, L, d]" };
                    return Err(Error::Value {
                        argument,
                        value: format!("shape {shape:?}, {order} with {},", many(found, "head")),
                        remedy: format!("{option} says {heads}: leave it out or correct it"),
                    });
                }
                ([a, b, c, width], blhd)
            }
            _ => {
                return Err(Error::Axes {
                    argument,
                    remedy: format!(
                        "2, 3 or 4 are possible, [L, d], [H, L, d] or [B, H, L, d]{}",
                        as_rows(shape)
                    ),
                    shape: shape.to_vec(),
                });
            }
        };
        Ok(Seen { stored, swapped })
    }
}

fn head_width(
    argument: &'static str,
    shape: &[usize],
    width: usize,
    heads: usize,
    option: &'static str,
) -> Result<usize> {
    if width.is_multiple_of(heads) {
        return Ok(width / heads);
    }
    Err(Error::Value {
        argument,
        value: format!(
            "splitting {} (shape {shape:?}) into {} ({option})",
            many(width, "column"),
            many(heads, "head")
        ),
        remedy: "the columns must divide evenly among the heads".into(),
    })
}

/// How an array is seen as `[B, H, L, d]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its four axes as they are in memory.
    pub stored: [usize; 4],
    /// Whether heads and length are the other way round in memory.
    pub swapped: bool,
}

impl Seen {
    /// `[B, H, L, d]`.
    pub fn view<'a, T: Copy>(
        self,
        argument: &'static str,
        numbers: &'a [T],
    ) -> Result<View<'a, T>> {
        let view = View::new(numbers, &self.stored).map_err(Error::about(argument))?;
        Ok(if self.swapped {
            view.swap_axes(1, 2)
        } else {
            view
        })
    }
}

/// q, k or v: numbers as they were stored, and how they are seen as `[B, H, L, d]`.
#[derive(Debug)]
pub struct Operand {
    argument: &'static str,
    numbers: Vec<f64>,
    seen: Seen,
}

impl Operand {
    /// `[B, H, L, d]`.
    pub fn view(&self) -> Result<View<'_, f64>> {
        self.seen.view(self.argument, &self.numbers)
    }

    /// A copy in the order of the axes.
    pub fn to_tensor(&self) -> Result<Tensor<f64>> {
        let view = self.view()?;
        let shape = view.shape();
        let [batch, heads, len, width] = shape;
        let mut numbers = Vec::new();
        let size = self.numbers.len();
        if numbers.try_reserve_exact(size).is_err() {
            return Err(Error::Room {
                argument: self.argument,
                what: format!("a copy of the array of shape {shape:?}"),
                bytes: size as u128 * 8,
                remedy: "give a smaller one",
            });
        }
        for b in 0..batch {
            for h in 0..heads {
                for t in 0..len {
                    numbers.extend((0..width).map(|c| view.get([b, h, t, c])));
                }
            }
        }
        tensor(self.argument, &shape, numbers)
    }
}
