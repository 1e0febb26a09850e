//! The header of an npy: a Python dictionary, read strictly and never evaluated.

use crate::bytes::Element;
use crate::shown::shown_within;

/// What an npy header says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    pub(crate) element: Element,
    pub(crate) big_endian: bool,
    pub(crate) column_major: bool,
    pub(crate) shape: Vec<usize>,
    /// Where the data starts.
    pub(crate) data: u64,
}

/// What is wrong with a header, at a byte of it.
pub(crate) enum Fault {
    Damaged(usize, String),
    Dtype(usize, String),
}

/// Reads the text of a header; `data` is where the data starts.
pub(crate) fn parse(text: &[u8], data: u64) -> Result<Header, Fault> {
    Dictionary { text, at: 0 }.header(data)
}

/// The header's dictionary, read strictly: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
struct Dictionary<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Dictionary<'a> {
    fn header(mut self, data: u64) -> Result<Header, Fault> {
        let (mut descr, mut column_major, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while self.peek() != Some(b'}') {
            let key_at = self.at;
            let key = self.string()?;
            let twice = match key {
                b"descr" => descr.is_some(),
                b"fortran_order" => column_major.is_some(),
                b"shape" => shape.is_some(),
                _ => false,
            };
            if twice {
                let key = String::from_utf8_lossy(key);
                return Err(Fault::Damaged(
                    key_at,
                    format!("the key '{key}' comes twice"),
                ));
            }
            self.expect(b':')?;
            match key {
                b"descr" => {
                    self.peek();
                    let at = self.at;
                    descr = Some((at, self.dtype()?));
                }
                b"fortran_order" => column_major = Some(self.truth()?),
                b"shape" => shape = Some(self.shape()?),
                _ => {
                    let key = shown_within(&String::from_utf8_lossy(key), 40);
                    return Err(Fault::Damaged(
                        key_at,
                        format!("the key '{key}' is not known"),
                    ));
                }
            }
            if self.peek() == Some(b',') {
                self.at += 1;
            } else {
                break;
            }
        }
        self.expect(b'}')?;
        if let Some(rest) = self.peek() {
            return Err(Fault::Damaged(
                self.at,
                format!("byte {rest:02X} after the dictionary"),
            ));
        }
        let missing = |key: &str| Fault::Damaged(0, format!("the key '{key}' is missing"));
        let (at, descr) = descr.ok_or_else(|| missing("descr"))?;
        let column_major = column_major.ok_or_else(|| missing("fortran_order"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        let (big_endian, element) = match element(&descr) {
            Some(element) => element,
            None if is_numpys(&descr) => return Err(Fault::Dtype(at, descr)),
            None => {
                let descr = shown_within(&descr, 40);
                let found = format!("the type '{descr}' is not known (one is '<f4')");
                return Err(Fault::Damaged(at, found));
            }
        };
        Ok(Header {
            element,
            big_endian,
            column_major,
            shape,
            data,
        })
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected(&format!("'{}'", byte as char)))
    }

    fn unexpected(&mut self, wanted: &str) -> Fault {
        let found = match self.peek() {
            Some(byte) => format!("byte {byte:02X}"),
            None => "the end of the header".to_owned(),
        };
        Fault::Damaged(self.at, format!("{found} where {wanted} should be"))
    }

    /// Bytes for as long as they satisfy a condition.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        self.peek();
        let rest = &self.text[self.at.min(self.text.len())..];
        let length = rest.iter().position(|&b| !belongs(b)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn string(&mut self) -> Result<&'a [u8], Fault> {
        let mark = match self.peek() {
            Some(mark @ (b'\'' | b'"')) => mark,
            _ => return Err(self.unexpected("a quoted word")),
        };
        self.at += 1;
        let start = self.at;
        let length = self.text[start..].iter().position(|&b| b == mark);
        let length = length.ok_or(Fault::Damaged(start, "a quotation never ends".to_owned()))?;
        self.at = start + length + 1;
        Ok(&self.text[start..start + length])
    }

    /// A type: a word, or the list of a structured type's fields as it stands.
    fn dtype(&mut self) -> Result<String, Fault> {
        let text = match self.peek() {
            Some(b'[') => {
                let start = self.at;
                let mut depth = 0_usize;
                for (i, &byte) in self.text[start..].iter().enumerate() {
                    match byte {
                        b'[' => depth += 1,
                        b']' => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        self.at = start + i + 1;
                        break;
                    }
                }
                if self.at == start {
                    return Err(Fault::Damaged(start, "a list never ends".to_owned()));
                }
                &self.text[start..self.at]
            }
            _ => self.string()?,
        };
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn truth(&mut self) -> Result<bool, Fault> {
        self.peek();
        let at = self.at;
        match self.run(|b| b.is_ascii_alphabetic()) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => {
                self.at = at;
                Err(self.unexpected("True or False"))
            }
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, Fault> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while self.peek() != Some(b')') {
            let at = self.at;
            let digits = self.run(|b| b.is_ascii_digit());
            let length = std::str::from_utf8(digits).ok().filter(|d| !d.is_empty());
            let Some(length) = length else {
                return Err(self.unexpected("an axis length"));
            };
            let too_long = |_| {
                Fault::Damaged(
                    at,
                    format!("an axis of length {}", shown_within(length, 40)),
                )
            };
            shape.push(length.parse().map_err(too_long)?);
            if self.text.get(self.at) == Some(&b'L') {
                self.at += 1; // as Python 2 wrote long integers
            }
            if self.peek() == Some(b',') {
                self.at += 1;
            } else {
                break;
            }
        }
        self.expect(b')')?;
        Ok(shape)
    }
}

/// Byte order and element type of a numpy type string such as `<f4`.
fn element(descr: &str) -> Option<(bool, Element)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let element = match kind {
        "f2" => Element::F16,
        "f4" => Element::F32,
        "f8" => Element::F64,
        "i1" => Element::I8,
        "i2" => Element::I16,
        "i4" => Element::I32,
        "i8" => Element::I64,
        "u1" => Element::U8,
        "u2" => Element::U16,
        "u4" => Element::U32,
        "u8" => Element::U64,
        "b1" => Element::Bool,
        _ => return None,
    };
    match order {
        "<" => Some((false, element)),
        ">" => Some((true, element)),
        "=" => Some((cfg!(target_endian = "big"), element)),
        "|" if element.size() == 1 => Some((false, element)),
        _ => None,
    }
}

/// Whether NumPy writes a type of this name, if only for arrays that are not read.
fn is_numpys(descr: &str) -> bool {
    if descr.starts_with('[') {
        return true;
    }
    let parts = descr
        .split_at_checked(1)
        .and_then(|(order, kind)| Some((order, kind.split_at_checked(1)?)));
    let Some((order @ ("<" | ">" | "=" | "|"), (letter, size))) = parts else {
        return false;
    };
    match letter {
        "f" => order != "|" && matches!(size, "2" | "4" | "8" | "12" | "16"),
        "c" => order != "|" && matches!(size, "8" | "16" | "24" | "32"),
        "M" | "m" => {
            let unit = size.strip_prefix('8');
            unit.is_some_and(|unit| unit.is_empty() || unit.starts_with('['))
        }
        "O" => size.bytes().all(|b| b.is_ascii_digit()),
        "U" | "S" | "a" | "T" | "V" => !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()),
        _ => false,
    }
}

/// What to do about a type of NumPy's that is not read.
pub(crate) fn dtype_remedy(descr: &str) -> &'static str {
    let kind = descr.trim_start_matches(['<', '>', '=', '|']);
    match kind.chars().next() {
        _ if kind == "V2" => {
            "two bytes without a type are most likely bfloat16, which npy cannot name: \
             save x.astype('float32'), or save bf16 as safetensors"
        }
        _ if kind == "V1" => {
            "one byte without a type is most likely an 8-bit float, which npy cannot name: \
             save x.astype('float32')"
        }
        Some('O') => {
            "Python objects are pickled, and nothing is unpickled here: \
             save numpy.array(x, dtype='float64'), with rows of one length"
        }
        Some('c') => "complex numbers are not read: save x.real or x.imag",
        Some('U' | 'S' | 'a' | 'T') => "text is not read: save numbers",
        Some('M' | 'm') => "dates are not read: save numbers",
        Some('[' | 'V') => "records are not read: save one field as a plain array",
        _ => "this precision is not read: save x.astype('float64')",
    }
}
