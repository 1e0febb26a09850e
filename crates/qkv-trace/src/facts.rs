//! What is known about a run besides its numbers.

use crate::{Error, Kind, Place, Result};
use std::ops::Range;

/// A token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// Its number in the vocabulary, where known; without it the text says which tokens are the same.
    pub id: Option<u32>,
    /// Its text in readable form: bytes of one character that tokens share stand at the first.
    pub text: String,
    /// Whether it only fills up its row of the batch.
    pub padding: bool,
}

impl Token {
    /// A token that is known by its text.
    pub fn new(text: &str) -> Token {
        Token {
            text: text.into(),
            ..Token::default()
        }
    }

    /// Whether this is the same token of the vocabulary.
    pub fn is_same(&self, other: &Token) -> bool {
        match (self.id, other.id) {
            (Some(a), Some(b)) => a == b,
            _ => self.text == other.text,
        }
    }
}

/// Whose queries the rows are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queries {
    /// Those of keys of the same text: row r is the query of the token that key `of[r]` comes from.
    OfKeys(Vec<usize>),
    /// Those of another text, `[entry][row]`: cross-attention.
    Elsewhere(Vec<Vec<Token>>),
}

/// What is known about a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The model's name; empty for weights from elsewhere.
    pub model: String,
    /// Numbers of the recorded layers, ascending.
    pub layers: Vec<usize>,
    /// Numbers of the recorded query heads, ascending.
    pub heads: Vec<usize>,
    /// Query heads of a layer of the model.
    pub all_heads: usize,
    /// Key and value heads of a layer of the model.
    pub kv_heads: usize,
    /// Width of queries and keys; 0 where unknown.
    pub head_dim: usize,
    /// Width of values; 0 where unknown.
    pub value_dim: usize,
    /// The tokens that the keys come from, `[entry][key]`, all entries of one length.
    pub tokens: Vec<Vec<Token>>,
    /// Whose queries the rows are.
    pub queries: Queries,
    /// What scores are multiplied by, where one number says it.
    pub scale: Option<f64>,
    /// Weights of a row that were kept, where not all were: the largest ones.
    pub top: Option<usize>,
    /// The conventions in force, as they are printed: name and value.
    pub conventions: Vec<(String, String)>,
    /// Programs that took part, with their versions.
    pub versions: Vec<(String, String)>,
}

impl Facts {
    /// The facts of weights from elsewhere, whose shape is `[layers, heads, queries, keys]` for one
    /// text and `[layers, entries, heads, queries, keys]` for several. With fewer queries than keys,
    /// these are those of the last tokens.
    ///
    /// # Errors
    /// If the tokens do not fit the shape.
    pub fn of_weights(shape: &[usize], tokens: Vec<Vec<Token>>) -> Result<Facts> {
        let [layers, entries, heads, rows, keys] = axes(shape)?;
        check_texts(&tokens, "keys", keys, entries)?;
        if rows > keys {
            return Err(Error::Facts {
                what: "weights",
                found: format!("{rows} queries with {keys} keys"),
                remedy: "name the queries' own tokens too: {\"queries\": […], \"keys\": […]}",
            });
        }
        Ok(Facts {
            model: String::new(),
            layers: (0..layers).collect(),
            heads: (0..heads).collect(),
            all_heads: heads,
            kv_heads: heads,
            head_dim: 0,
            value_dim: 0,
            tokens,
            queries: Queries::OfKeys((keys - rows..keys).collect()),
            scale: None,
            top: None,
            conventions: Vec::new(),
            versions: Vec::new(),
        })
    }

    /// The same for cross-attention, whose queries have tokens of their own.
    ///
    /// # Errors
    /// If the tokens do not fit the shape.
    pub fn of_cross_weights(
        shape: &[usize],
        keys: Vec<Vec<Token>>,
        queries: Vec<Vec<Token>>,
    ) -> Result<Facts> {
        let [layers, entries, heads, rows, key_count] = axes(shape)?;
        check_texts(&queries, "queries", rows, entries)?;
        let own = Facts::of_weights(&[layers, entries, heads, 1, key_count], keys)?;
        Ok(Facts {
            queries: Queries::Elsewhere(queries),
            ..own
        })
    }

    /// Batch entries.
    pub fn entries(&self) -> usize {
        self.tokens.len()
    }

    /// Keys, as many in each batch entry; padding counts.
    pub fn keys(&self) -> usize {
        self.tokens.first().map_or(0, Vec::len)
    }

    /// Rows: recorded queries.
    pub fn rows(&self) -> usize {
        match &self.queries {
            Queries::OfKeys(of) => of.len(),
            Queries::Elsewhere(tokens) => tokens.first().map_or(0, Vec::len),
        }
    }

    /// The token whose query a row is.
    pub fn query(&self, entry: usize, row: usize) -> Option<&Token> {
        match &self.queries {
            Queries::OfKeys(of) => self.tokens.get(entry)?.get(*of.get(row)?),
            Queries::Elsewhere(tokens) => tokens.get(entry)?.get(row),
        }
    }

    /// The key that comes from the token whose query a row is.
    pub fn own_key(&self, row: usize) -> Option<usize> {
        match &self.queries {
            Queries::OfKeys(of) => of.get(row).copied(),
            Queries::Elsewhere(_) => None,
        }
    }

    /// The key and value head that a query head uses.
    pub fn kv_head(&self, head: usize) -> usize {
        head / (self.all_heads / self.kv_heads.max(1)).max(1)
    }

    /// Numbers in a row of this.
    pub fn width(&self, kind: Kind) -> usize {
        match kind {
            Kind::Scores | Kind::Weights => self.keys(),
            Kind::V | Kind::Z => self.value_dim,
            Kind::Q | Kind::K | Kind::RotatedQ | Kind::RotatedK => self.head_dim,
        }
    }

    /// Rows of this.
    pub fn rows_of(&self, kind: Kind) -> usize {
        if kind.is_of_keys() {
            self.keys()
        } else {
            self.rows()
        }
    }

    /// Numbers of the heads that this is recorded for.
    pub fn heads_of(&self, kind: Kind) -> Vec<usize> {
        if !kind.is_of_keys() {
            return self.heads.clone();
        }
        let mut heads: Vec<usize> = self.heads.iter().map(|head| self.kv_head(*head)).collect();
        heads.dedup();
        heads
    }

    /// The shape of this in a layer, `[entries, heads, rows, width]`.
    pub fn shape(&self, kind: Kind) -> [usize; 4] {
        let heads = self.heads_of(kind).len();
        [self.entries(), heads, self.rows_of(kind), self.width(kind)]
    }

    /// Every place of the queries' heads, layers outermost, then heads.
    pub fn places(&self, entry: usize) -> impl Iterator<Item = Place> + use<> {
        let (layers, heads) = (self.layers.clone(), self.heads.clone());
        layers.into_iter().flat_map(move |layer| {
            let heads = heads.clone().into_iter();
            heads.map(move |head| Place { entry, layer, head })
        })
    }

    /// Refuses facts that contradict each other: every later answer relies on them.
    ///
    /// # Errors
    /// Says which fact contradicts which.
    pub fn check(&self) -> Result<()> {
        let wrong = |what, found, remedy| {
            Err(Error::Facts {
                what,
                found,
                remedy,
            })
        };
        let ascends = |numbers: &[usize]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
        if self.layers.is_empty() || !ascends(&self.layers) {
            let found = format!("{:?}", self.layers);
            return wrong("layers", found, "give their numbers, ascending");
        }
        if self.heads.is_empty() || !ascends(&self.heads) {
            let found = format!("{:?}", self.heads);
            return wrong("heads", found, "give their numbers, ascending");
        }
        if self.heads.iter().any(|head| *head >= self.all_heads) {
            let found = format!("{:?} of {}", self.heads, self.all_heads);
            return wrong(
                "heads",
                found,
                "count from 0 to the model's number of heads",
            );
        }
        if self.kv_heads == 0 || !self.all_heads.is_multiple_of(self.kv_heads) {
            let found = format!("{} query heads on {}", self.all_heads, self.kv_heads);
            return wrong("heads", found, "one has to be a multiple of the other");
        }
        let keys = self.keys();
        if keys == 0 || self.tokens.iter().any(|text| text.len() != keys) {
            let lengths: Vec<usize> = self.tokens.iter().map(Vec::len).collect();
            let found = counted(&lengths);
            return wrong(
                "tokens",
                found,
                "fill all batch entries up to one length, from 1",
            );
        }
        match &self.queries {
            Queries::OfKeys(of) => {
                if of.is_empty() || !ascends(of) || of.iter().any(|key| *key >= keys) {
                    let found = format!("{} rows of {keys} keys", of.len());
                    return wrong("queries", found, "give each row's own key, ascending");
                }
            }
            Queries::Elsewhere(tokens) => {
                let rows = self.rows();
                let fits = tokens.len() == self.entries();
                if rows == 0 || !fits || tokens.iter().any(|text| text.len() != rows) {
                    let found = format!("tokens of {} batch entries", tokens.len());
                    return wrong("queries", found, "give each batch entry as many, from 1");
                }
            }
        }
        Ok(())
    }

    /// Refuses a place or rows that are not there.
    ///
    /// # Errors
    /// [`Error::NotThere`].
    pub fn check_rows(&self, kind: Kind, place: Place, rows: &Range<usize>) -> Result<()> {
        let there = |what, asked, numbers: &[usize]| {
            if numbers.contains(&asked) {
                return Ok(());
            }
            Err(Error::NotThere {
                what,
                asked,
                available: listed(numbers),
            })
        };
        let entries: Vec<usize> = (0..self.entries()).collect();
        there("batch entry", place.entry, &entries)?;
        there("layer", place.layer, &self.layers)?;
        // Of fewer heads than the queries have, so that a query head's number may be none of theirs.
        let counted = match kind.is_of_keys() && self.kv_heads != self.all_heads {
            true => "key and value head",
            false => "head",
        };
        there(counted, place.head, &self.heads_of(kind))?;
        let all = self.rows_of(kind);
        if rows.start > rows.end || rows.end > all {
            return Err(Error::NotThere {
                what: "row",
                asked: rows.end.saturating_sub(1),
                available: listed(&(0..all).collect::<Vec<_>>()),
            });
        }
        Ok(())
    }
}

/// `[layers, entries, heads, queries, keys]`.
fn axes(shape: &[usize]) -> Result<[usize; 5]> {
    match *shape {
        [layers, heads, rows, keys] => Ok([layers, 1, heads, rows, keys]),
        [layers, entries, heads, rows, keys] => Ok([layers, entries, heads, rows, keys]),
        _ => Err(Error::Facts {
            what: "weights",
            found: format!("shape {}", qkv_io::shown_shape(shape)),
            remedy: "give [layers, heads, queries, keys], or [layers, batch, heads, queries, keys]",
        }),
    }
}

/// Refuses tokens that are not as many as keys or queries.
fn check_texts(tokens: &[Vec<Token>], what: &str, count: usize, entries: usize) -> Result<()> {
    if tokens.len() == entries && tokens.iter().all(|text| text.len() == count) {
        return Ok(());
    }
    let lengths: Vec<usize> = tokens.iter().map(Vec::len).collect();
    let batch = match entries {
        1 => String::new(),
        _ => format!(" in {entries} batch entries"),
    };
    Err(Error::Facts {
        what: "tokens",
        found: format!(
            "{} for weights with {count} {what}{batch}",
            counted(&lengths)
        ),
        remedy: "give each one token",
    })
}

/// "13 tokens", or how many of each entry.
fn counted(lengths: &[usize]) -> String {
    match lengths {
        [] => "no tokens".into(),
        [one] => format!("{one} tokens"),
        several => format!("{several:?} tokens"),
    }
}

/// "0 to 5", or the numbers one by one.
pub(crate) fn listed(numbers: &[usize]) -> String {
    let follow = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match numbers {
        [] => "none".into(),
        [one] => format!("only {one}"),
        [first, .., last] if follow => format!("{first} to {last}"),
        several => {
            let numbers: Vec<String> = several.iter().take(40).map(usize::to_string).collect();
            let more = if several.len() > 40 { ", …" } else { "" };
            format!("{}{more}", numbers.join(", "))
        }
    }
}
