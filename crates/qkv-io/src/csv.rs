//! csv: a table of numbers between commas, semicolons or tabs.

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::array::Array;
use crate::error::{Error, Result};
use crate::fault::{Place, TextFault};
use crate::literal::Rows;
use crate::number::{self, Gathered};

/// Reads a table; a first line without any number is a header and skipped, if numbers follow it.
pub(crate) fn read(text: &str, delimiter: u8, origin: &str) -> Result<Array> {
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let mut gathered = Gathered::default();
    let mut rows = Rows::default();
    let mut record = StringRecord::new();
    let mut line = 1;
    let mut first = true;
    // The line and the first word of a header, until a number shows that it is one.
    let mut unproven: Option<(usize, String)> = None;
    let fail = |line, column, fault| Error::Text {
        origin: origin.to_owned(),
        place: Place::Cell { line, column },
        fault,
    };
    let syntax = |line, says: &str| {
        let says = says.to_owned();
        fail(line, 1, TextFault::Syntax { says })
    };
    if let Some(line) = open_quotation(text) {
        return Err(syntax(line, "a quotation mark is not closed"));
    }
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => return Err(syntax(line, "this is no table")),
        }
        line = record
            .position()
            .map_or(line, |p| usize::try_from(p.line()).unwrap_or(line));
        if std::mem::take(&mut first) && header(&record) {
            if record.get(0) == Some("") {
                return Err(fail(line, 1, TextFault::IndexColumn));
            }
            unproven = record.get(0).map(|cell| (line, cell.to_owned()));
            continue;
        }
        if !record.iter().any(is_value)
            && let Some((line, cell)) = unproven.take()
        {
            return Err(no_number(&cell, |fault| fail(line, 1, fault)));
        }
        unproven = None;
        for (column, cell) in record.iter().enumerate() {
            gathered
                .push(cell)
                .map_err(|fault| fail(line, column + 1, fault))?;
        }
        rows.current = record.len();
        rows.end()
            .map_err(|fault| fail(line, record.len(), fault))?;
    }
    match rows.shape() {
        Some(shape) => Ok(gathered.into_array(shape)),
        None => Err(match unproven {
            Some((line, cell)) => no_number(&cell, |fault| fail(line, 1, fault)),
            None => fail(line, 1, TextFault::NoValues),
        }),
    }
}

/// The error about a word where numbers should begin.
fn no_number(cell: &str, fail: impl Fn(TextFault) -> Error) -> Error {
    fail(number::parse(cell).err().unwrap_or(TextFault::NoValues))
}

/// The line of the quotation mark that is open at the end.
fn open_quotation(text: &str) -> Option<usize> {
    if text.matches('"').count().is_multiple_of(2) {
        return None;
    }
    let uneven = |line: &str| !line.matches('"').count().is_multiple_of(2);
    text.lines().position(uneven).map(|line| line + 1)
}

/// Whether a cell is a value, or so near to one that it was meant as one.
fn is_value(cell: &str) -> bool {
    number::parse(cell).is_ok()
        || (cell.contains(|c: char| c.is_ascii_digit()) && number::looks_like_number(cell))
}

/// Whether a record names columns: no cell is a value, and not all are blank.
fn header(record: &StringRecord) -> bool {
    let blank_first = record.len() > 1 && record.get(0) == Some("");
    record.iter().any(|cell| !cell.is_empty()) && (blank_first || !record.iter().any(is_value))
}
