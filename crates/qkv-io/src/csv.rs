//! csv: a table of numbers between commas, semicolons or tabs.

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::array::Array;
use crate::error::{Error, Result};
use crate::fault::{Place, TextFault};
use crate::literal::Rows;
use crate::number::{self, Gathered};

/// Reads a table; a first line without any number is a header and skipped.
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
    let fail = |line, column, fault| Error::Text {
        origin: origin.to_owned(),
        place: Place::Cell { line, column },
        fault,
    };
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                return Err(fail(
                    line,
                    1,
                    TextFault::Syntax {
                        says: error.to_string(),
                    },
                ));
            }
        }
        line = record
            .position()
            .map_or(line, |p| usize::try_from(p.line()).unwrap_or(line));
        if std::mem::take(&mut first) && header(&record) {
            if record.get(0) == Some("") {
                return Err(fail(line, 1, TextFault::IndexColumn));
            }
            continue;
        }
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
        None => Err(fail(line, 1, TextFault::NoValues)),
    }
}

/// Whether a record names columns: no cell is a value, and not all are blank.
fn header(record: &StringRecord) -> bool {
    let value =
        |cell: &str| cell.contains(|c: char| c.is_ascii_digit()) && number::looks_like_number(cell);
    let blank_first = record.len() > 1 && record.get(0) == Some("");
    record.iter().any(|cell| !cell.is_empty())
        && (blank_first
            || !record
                .iter()
                .any(|cell| value(cell) || number::parse(cell).is_ok()))
}
