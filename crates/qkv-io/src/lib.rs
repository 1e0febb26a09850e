//! Arrays from literals, files and standard input, and arrays to files.
//!
//! | given as | read from |
//! |---|---|
//! | literal | `1 0; 0 1` (always two axes), `[[1, 0], [0, 1]]` (as many axes as brackets, up to four) |
//! | npy | versions 1 to 3, either byte order, row- or column-major |
//! | npz, safetensors, JSON object | `file:name`; the name may be left out where there is one array |
//! | csv, rows of numbers, JSON lists | also from standard input |
//!
//! The format is told from the content, never from the extension. Sizes are checked before memory
//! is taken for them, and nothing is ever unpickled. What cannot be read is refused with its real
//! format, the place, and what to do about it.
//!
//! ```
//! let array = qkv_io::read_argument("0.25 0.5; 1 0", &mut std::io::empty())?;
//! assert_eq!(array.shape, [2, 2]);
//! assert_eq!(array.to_f64()?, [0.25, 0.5, 1.0, 0.0]);
//! assert_eq!(array.decimals, Some(vec![2, 1, 0, 0]));
//! # Ok::<(), qkv_io::Error>(())
//! ```

mod argument;
mod array;
mod bytes;
mod csv;
mod detect;
mod encode;
mod error;
mod fault;
mod json;
mod lists;
mod literal;
mod map;
mod names;
mod npy;
mod npy_header;
mod npz;
mod number;
mod safetensors;
mod safetensors_header;
mod shown;
mod source;
mod system;
mod tensor_file;
mod text;
mod write;
mod zip_directory;

pub use argument::{
    Given, MAX_STREAM, arrays_in, open_argument_within, read_argument, read_argument_within,
    read_bytes, read_file, read_text,
};
pub use array::{Array, Values};
pub use detect::Format;
pub use encode::{Chunk, Encoded, Encoding, Sink, encode};
pub use error::{Entry, Error, Result};
pub use fault::{Place, TextFault};
pub use half;
pub use json::parse_json;
pub use literal::parse_literal;
pub use map::{InFile, Mapped};
pub use safetensors::{Notes, safetensors_notes};
pub use shown::{many, shown, shown_shape, shown_within};
pub use system::reason;
pub use tensor_file::TensorFile;
pub use write::{
    check_place, write_arrays, write_file, write_file_with, write_files, write_new_file,
    write_safetensors,
};
