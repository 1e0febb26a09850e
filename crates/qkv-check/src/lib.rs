//! The same numbers computed another way: under a common mistake, with the tokens in another order,
//! without a cache; and what a model is trained to predict from them.
//!
//! Everything starts from the steps of a run ([`qkv::Steps`]) and is worked out again in plain
//! `f64` loops, so that the wrong numbers can stand beside the right ones.
//!
//! ```
//! use qkv::{Attention, Inputs, View, steps};
//! use qkv_check::{Mistake, recompute};
//! let (q, k) = ([1.0, 0.0, 2.0, 1.0], [1.0, 0.0, 0.0, 1.0]);
//! let v = [1.0, 10.0];
//! let inputs = Inputs::new(
//!     View::new(&q, &[2, 2])?,
//!     View::new(&k, &[2, 2])?,
//!     View::new(&v, &[2, 1])?,
//! )?;
//! let attention = Attention::default();
//! let right = steps(&attention, &inputs)?;
//! let wrong = recompute(Mistake::SoftmaxOverQueries, &attention, &right).ok_or("a whole run")?;
//! let column: f64 = (0..2).map(|i| wrong.weights.at(&[0, 0, i, 0])).sum();
//! assert!((column - 1.0).abs() < 1e-15);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bound;
mod claim;
pub mod conventions;
pub mod decode;
pub mod dumps;
pub mod gradients;
pub mod lint;
mod mistake;
mod model;
mod next_token;
pub mod permute;
pub mod presets;
mod problem;
mod recipe;
mod recompute;
pub mod report;
mod search;
mod shape;
mod slip;
mod watch;
mod witness;

pub use claim::Claim;
pub use conventions::Convention;
pub use mistake::{Mistake, WrongScale};
pub use next_token::{NextToken, next_token};
pub use problem::Problem;
pub use recompute::{Recomputed, contrast, recompute};
pub use report::{Cause, Report, Verdict};
pub use search::{Error, check, check_with};
pub use watch::Watch;
pub use witness::{Apart, Scene, Witness, tell_apart, witness};
