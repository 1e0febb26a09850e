//! Lists of values in brackets: `[[1, 0], [0, 1]]`, in a literal or in a JSON file.

use crate::array::Array;
use crate::error::Error;
use crate::fault::TextFault;
use crate::literal::Scanner;
use crate::number::{self, Gathered};

/// What came before, inside brackets.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Open,
    Item,
    Comma,
}

/// Where lists stand, which says what is allowed in them.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lists {
    /// In an argument: at most four axes.
    Literal,
    /// In a file, where numbers have no sign + and no needless zeros, as in JSON and in Python.
    Json,
}

impl Lists {
    /// How many axes they may have.
    fn depth(self) -> usize {
        match self {
            Lists::Literal => 4,
            Lists::Json => 32,
        }
    }
}

/// Reads lists of values: `[[1, 0], [0, 1]]`.
pub(crate) fn parse_lists(text: &str, origin: &str, kind: Lists) -> crate::error::Result<Array> {
    let mut scanner = Scanner::new(text);
    let mut lists = Nest::new(kind);
    let mut before = Before::Open;
    loop {
        let place = scanner.place();
        let fail = |fault| Error::Text {
            origin: origin.to_owned(),
            place,
            fault,
        };
        let Some(c) = scanner.peek() else {
            return lists.finish().map_err(fail);
        };
        if c.is_whitespace() {
            scanner.next();
            continue;
        }
        if lists.done() && c != ']' {
            return Err(fail(TextFault::AfterEnd {
                found: scanner.rest(),
            }));
        }
        before = match c {
            '[' => {
                scanner.next();
                lists.open().map_err(fail)?;
                Before::Open
            }
            ']' => {
                scanner.next();
                if before == Before::Comma {
                    return Err(fail(TextFault::MissingValue));
                }
                lists.close().map_err(fail)?;
                Before::Item
            }
            ',' => {
                scanner.next();
                if before != Before::Item {
                    return Err(fail(TextFault::MissingValue));
                }
                Before::Comma
            }
            ';' => {
                let remedy = "inside brackets separate with commas, or write 1 0; 0 1 without them";
                return Err(fail(TextFault::NotANumber {
                    found: ";".to_owned(),
                    remedy,
                }));
            }
            '"' | '\'' => {
                lists
                    .value(&quoted(&mut scanner, c).map_err(fail)?)
                    .map_err(fail)?;
                Before::Item
            }
            _ => {
                lists.value(&scanner.token(true)).map_err(fail)?;
                Before::Item
            }
        };
    }
}

/// A number in quotation marks: only nan, inf and -inf, which JSON cannot write otherwise.
fn quoted(scanner: &mut Scanner<'_>, mark: char) -> Result<String, TextFault> {
    let mut token = String::new();
    scanner.next();
    loop {
        match scanner.next() {
            Some(c) if c == mark => break,
            Some(c) => token.push(c),
            None => {
                return Err(TextFault::Syntax {
                    says: "a quotation mark is not closed".into(),
                });
            }
        }
    }
    match number::parse(&token) {
        Ok(number::Typed::Number(value, _)) if !value.is_finite() => Ok(token),
        _ => Err(TextFault::NotANumber {
            found: token,
            remedy: "only \"nan\", \"inf\" and \"-inf\" may be in quotation marks; \
                     write numbers without them",
        }),
    }
}

/// Refuses `+1` and `01`, which neither JSON nor Python has: they are codes rather than numbers.
fn refuse_needless(token: &str) -> Result<(), TextFault> {
    let unsigned = token.strip_prefix('-').unwrap_or(token);
    let remedy = if token.starts_with('+') {
        "in a list of a file a number has no sign +: leave it out"
    } else if unsigned.len() > 1
        && unsigned.starts_with('0')
        && unsigned[1..].starts_with(|c: char| c.is_ascii_digit())
    {
        "in a list of a file a number does not begin with a needless 0: leave it out, \
         or save codes as what they stand for"
    } else {
        return Ok(());
    };
    let found = token.to_owned();
    Err(TextFault::NotANumber { found, remedy })
}

/// Nested lists being read: how deep, how long at each depth, and the values.
struct Nest {
    kind: Lists,
    /// Items so far in each open list.
    counts: Vec<usize>,
    /// Length of the first finished list of each depth.
    lengths: Vec<Option<usize>>,
    /// How deep the values lie, once one was read.
    leaf: Option<usize>,
    gathered: Gathered,
}

impl Nest {
    fn new(kind: Lists) -> Self {
        let gathered = Gathered::default();
        Nest {
            kind,
            counts: Vec::new(),
            lengths: Vec::new(),
            leaf: None,
            gathered,
        }
    }

    /// Whether the outermost list is closed.
    fn done(&self) -> bool {
        self.counts.is_empty() && (self.leaf.is_some() || !self.lengths.is_empty())
    }

    /// Index of the item being read at each depth.
    fn path(&self) -> Vec<usize> {
        self.counts.iter().map(|n| n.saturating_sub(1)).collect()
    }

    fn open(&mut self) -> Result<(), TextFault> {
        if let Some(count) = self.counts.last_mut() {
            *count += 1;
        }
        let limit = self.kind.depth();
        if self.counts.len() == limit {
            return Err(TextFault::TooDeep { limit });
        }
        if self.leaf.is_some_and(|leaf| self.counts.len() >= leaf) {
            return Err(TextFault::MixedDepth { path: self.path() });
        }
        self.counts.push(0);
        if self.lengths.len() < self.counts.len() {
            self.lengths.push(None);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), TextFault> {
        let Some(found) = self.counts.pop() else {
            return Err(TextFault::NotOpened { found: ']' });
        };
        if found == 0 {
            return Err(TextFault::NoValues);
        }
        let expected = *self.lengths[self.counts.len()].get_or_insert(found);
        if expected != found {
            let path = self.path();
            return Err(TextFault::RaggedLists {
                path,
                expected,
                found,
            });
        }
        Ok(())
    }

    fn value(&mut self, token: &str) -> Result<(), TextFault> {
        if let Some(count) = self.counts.last_mut() {
            *count += 1;
        }
        if *self.leaf.get_or_insert(self.counts.len()) != self.counts.len()
            || self.lengths.len() > self.counts.len()
        {
            return Err(TextFault::MixedDepth { path: self.path() });
        }
        if self.kind == Lists::Json {
            refuse_needless(token)?;
        }
        self.gathered.push(token)
    }

    fn finish(self) -> Result<Array, TextFault> {
        if !self.counts.is_empty() {
            return Err(TextFault::NotClosed {
                open: self.counts.len(),
            });
        }
        if self.gathered.len() == 0 {
            return Err(TextFault::NoValues);
        }
        let shape = self.lengths.into_iter().flatten().collect();
        Ok(self.gathered.into_array(shape))
    }
}
