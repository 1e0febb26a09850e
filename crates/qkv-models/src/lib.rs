//! Real models on qkv's attention: from a Hugging Face folder or a GGUF file.
//!
//! Dense layers and dequantization are candle's; attention, rotary positions and masks are
//! [`qkv`]'s, through [`AttentionOp`] and [`RotaryOp`], which have derivatives and can be used in any
//! candle model.
//!
//! ```no_run
//! use qkv_models::{Batch, Padding, open};
//! let opened = open("SmolLM2-135M-Instruct.Q4_1.gguf".as_ref())?;
//! let tokens = opened.tokens.encode("The cat sat on the")?;
//! let states = opened.model.hidden_states(&Batch::new(&[tokens], Padding::Right, 0)?)?;
//! println!("{:?}", states[0].dims());
//! # Ok::<(), qkv_models::Error>(())
//! ```

mod config;
mod dense;
mod error;
mod families;
mod files;
mod find;
mod gguf;
mod hub;
mod image;
mod keys;
mod model;
mod op;
mod open;
mod record;
mod rope;
mod tokens;
mod weights;

pub use config::{Config, LayerConfig};
pub use dense::{Activation, NormKind};
pub use error::{Error, Expected, Result};
pub use families::FAMILIES;
pub use find::find;
pub use image::Cut;
pub use model::{Batch, Model, Padding};
pub use op::{AttentionOp, Keep, RotaryOp};
pub use open::{Opened, open};
pub use record::{Agreement, Recording};
pub use tokens::Tokens;
