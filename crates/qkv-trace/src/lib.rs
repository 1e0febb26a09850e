//! What the attention of a model did, as data, however it came about.
//!
//! A [`Source`] has the [`Facts`] of a run (its tokens, layers, heads, conventions) and gives rows of
//! one head on demand: queries, keys, scores, weights. It may hold them ([`Arrays`], [`TraceFile`])
//! or compute them as they are asked for (a model). Whoever looks at a source walks its layers in
//! ascending order, and needs the rows of one head at a time, so that memory follows what is asked
//! for, and a model that runs layer by layer can be looked at while it runs.
//!
//! Statistics of heads ([`Survey`], [`HeadsBy`]) and trace files ([`write`](write())) are made from
//! any source.
//!
//! ```
//! use qkv_trace::{Arrays, Facts, Kind, Place, Source, Token};
//!
//! let tokens = vec![Token::new("the"), Token::new(" cat")];
//! let facts = Facts::of_weights(&[1, 1, 2, 2], vec![tokens])?;
//! let mut source = Arrays::new(facts)?.with_weights(0, vec![1.0, 0.0, 0.25, 0.75])?;
//! let mut rows = Vec::new();
//! let place = Place { entry: 0, layer: 0, head: 0 };
//! source.rows(Kind::Weights, place, 1..2, &mut rows)?;
//! assert_eq!(rows, [0.25, 0.75]);
//! # Ok::<(), qkv_trace::Error>(())
//! ```

mod arrays;
mod chosen;
mod error;
mod facts;
mod file;
mod given;
mod kind;
mod pieces;
mod source;
mod stage;
mod statistics;
mod top;
mod word;

pub use arrays::Arrays;
pub use chosen::{Chosen, Selection};
pub use error::{Error, Result};
pub use facts::{Facts, Queries, Token};
pub use file::{Keep, TraceFile, write};
pub use given::GivenWeights;
pub use kind::Kind;
pub use pieces::{byte_of, joined, readable};
pub use qkv_io::shown;
pub use source::{Place, Source};
pub use stage::Stage;
pub use statistics::{By, HeadStatistics, HeadsBy, Mean, Ranked, Ranking, Survey};
pub use top::{Link, strongest};
pub use word::{Word, words};
