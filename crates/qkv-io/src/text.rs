//! Text from a file or from standard input: which notation is it?

use crate::array::Array;
use crate::detect::Format;
use crate::error::{Error, Result, STDIN};
use crate::fault::{Place, TextFault};
use crate::{csv, json, literal, number};

/// Reads text; its content decides between rows, lists, JSON objects and csv.
///
/// Text from standard input was perhaps typed, so that one line of it is read as an argument is:
/// `1;2;3` is a column. In a file, where it may be a row of a table, it is refused.
pub(crate) fn read(bytes: &[u8], name: Option<&str>, origin: &str) -> Result<Array> {
    let text = utf8(bytes, origin)?;
    let notation = notation(text, origin == STDIN).map_err(|fault| at_line(fault, origin))?;
    let unnamed = |format| match name {
        Some(name) => Err(Error::NameGiven {
            origin: origin.to_owned(),
            format,
            name: name.to_owned(),
        }),
        None => Ok(()),
    };
    match notation {
        Notation::Object => json::read_object(text, name, origin),
        Notation::Lists => unnamed(Format::Json).and_then(|()| json::read_list(text, origin)),
        Notation::Rows => {
            unnamed(Format::Rows).and_then(|()| literal::parse_rows(text, origin, true))
        }
        Notation::Csv(delimiter) => {
            unnamed(Format::Csv).and_then(|()| csv::read(text, delimiter, origin))
        }
    }
}

/// The text of these bytes, without a mark of its encoding in front.
pub(crate) fn utf8<'a>(bytes: &'a [u8], origin: &str) -> Result<&'a str> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Error::Encoding {
            origin: origin.to_owned(),
            encoding: "not UTF-8 (perhaps Latin-1, GBK or binary)",
            offset: at as u64,
            bytes: bytes[at..bytes.len().min(at + 4)].to_vec(),
        }
    })
}

/// Refuses an argument of several lines that a file of the same text would be read differently
/// from: an argument has rows between semicolons, a table may have cells between them.
pub(crate) fn refuse_two_readings(text: &str, origin: &str) -> Result<()> {
    let text = text.trim();
    if !text.contains('\n') || !text.contains([';', '；']) || text.starts_with(['[', '［']) {
        return Ok(());
    }
    match notation(text, true) {
        Ok(Notation::Csv(b';')) => Err(at_line((1, two(CELLS_OR_ROWS)), origin)),
        Err(fault @ (_, TextFault::TwoReadings { .. })) => Err(at_line(fault, origin)),
        _ => Ok(()),
    }
}

/// A fault of a whole line, with the line.
type LineFault = (usize, TextFault);

fn at_line((line, fault): LineFault, origin: &str) -> Error {
    Error::Text {
        origin: origin.to_owned(),
        place: Place::Character { line, column: 1 },
        fault,
    }
}

fn two(readings: &'static str) -> TextFault {
    TextFault::TwoReadings { readings }
}

/// How a text writes its numbers.
#[derive(Debug, PartialEq)]
enum Notation {
    Object,
    Lists,
    Rows,
    Csv(u8),
}

const ONE_LINE: &str = "one row of numbers between semicolons, or one number in each row; \
                        write 1,2,3 or [[1,2,3]] for a row, [[1],[2],[3]] for a column";
const DECIMAL_COMMAS: &str = "decimal commas between semicolons, or rows between semicolons on \
                              several lines; write decimal points, or one row on each line";

const CELLS_OR_ROWS: &str = "semicolons between rows, or between the cells of a table; write one \
                             row on each line with commas or blanks between its numbers";

/// Tells the notation, or the line that has two readings or none; `typed` if one line is what
/// somebody typed rather than a table.
fn notation(text: &str, typed: bool) -> std::result::Result<Notation, LineFault> {
    let lines = lines(text);
    let Some((line, first)) = lines.clone().next() else {
        return Ok(Notation::Rows);
    };
    let first = first.trim_start();
    if first.starts_with('{') {
        return Ok(Notation::Object);
    }
    if let Some(start) = number::printed(first) {
        let start = start.to_owned();
        return Err((line, TextFault::Printed { start }));
    }
    if first.starts_with(['[', '［']) {
        return Ok(Notation::Lists);
    }
    let any = |c: &[char]| lines.clone().any(|(_, line)| line.contains(c));
    if any(&[';', '；']) {
        return semicolons(lines, line, typed);
    }
    let blank = |line: &str| line.contains(char::is_whitespace);
    Ok(if any(&[',']) {
        Notation::Csv(b',')
    } else if lines.clone().all(|(_, line)| line.contains('\t')) {
        // Before and after a tab a cell may be blank, which must not go unnoticed.
        Notation::Csv(b'\t')
    } else if any(&['，']) || lines.clone().any(|(_, line)| blank(line)) {
        Notation::Rows
    } else {
        Notation::Csv(b',') // one column
    })
}

/// The lines that hold something, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> + Clone {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim_matches([' ', '\r'])))
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
}

/// Semicolons separate rows in a literal and cells in a csv file.
fn semicolons<'a>(
    lines: impl Iterator<Item = (usize, &'a str)> + Clone,
    first: usize,
    typed: bool,
) -> std::result::Result<Notation, LineFault> {
    let cells = |line: &'a str| line.split([';', '；']).map(str::trim);
    // A header may hold any words.
    let header = lines.clone().next().is_some_and(|(_, line)| {
        cells(line).all(|cell| number::parse(cell).is_err())
            && !line.contains(|c: char| c.is_ascii_digit())
    });
    let (mut count, mut any_inner, mut all_inner) = (0, false, true);
    let (mut blanks, mut commas) = (false, false);
    for (_, line) in lines.skip(usize::from(header)) {
        count += 1;
        // Whether semicolons stand inside the line, not only at its end.
        let ends = cells(line).next_back().is_some_and(str::is_empty);
        let inner = cells(line).count() > if ends { 2 } else { 1 };
        any_inner |= inner;
        all_inner &= inner;
        blanks |= cells(line).any(|cell| cell.contains(char::is_whitespace));
        commas |= line.contains([',', '，']);
    }
    if !header && !any_inner {
        return Ok(Notation::Rows); // every row ends in a semicolon
    }
    if count > 1 && all_inner && commas && !blanks {
        return Err((first, two(DECIMAL_COMMAS)));
    }
    if blanks || commas {
        return Ok(Notation::Rows);
    }
    if count == 1 && !header {
        return if typed {
            Ok(Notation::Rows)
        } else {
            Err((first, two(ONE_LINE)))
        };
    }
    Ok(Notation::Csv(b';'))
}
